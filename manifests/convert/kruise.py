"""Kruise Rollouts: Rollout of rollouts.kruise.io, v1alpha1 and v1beta1.

One of the tools of `convert_files`. A Kruise step sets its traffic and then pauses, for a time or for a person.
"""

from __future__ import annotations

from manifests.convert.draft import Converted, Draft, Source, duration_of, number_of
from manifests.importers.registry import JsonObject, items, mapping

_SPEC = {"workloadRef", "objectRef", "strategy", "disabled"}
_CANARY = {"steps", "trafficRoutings"}


def is_mine(source: Source) -> bool:
    """Whether this tool reads the object."""
    return source.group == "rollouts.kruise.io" and source.kind == "Rollout"


def convert(sources: list[Source], converted: Converted) -> None:
    """Add our objects for these sources."""
    for source in sources:
        _rollout(source, converted)


def _rollout(source: Source, converted: Converted) -> None:
    draft = Draft(source)
    spec = source.spec
    reference = mapping(spec.get("workloadRef")) or mapping(mapping(spec.get("objectRef")).get("workloadRef"))
    if not reference.get("name"):
        raise source.refuse("spec.workloadRef.name", "is missing", "name the workload that the Rollout moves")
    draft.spec["workloadRef"] = {key: reference.get(key) for key in ("apiVersion", "kind", "name")}
    strategy = mapping(spec.get("strategy"))
    if strategy.get("paused") or spec.get("disabled"):
        draft.spec["paused"] = True
    key = "blueGreen" if "blueGreen" in strategy else "canary"
    canary = mapping(strategy.get(key))
    path = f"spec.strategy.{key}"
    for number, step in enumerate(items(canary.get("steps"))):
        _step(draft, f"{path}.steps[{number}]", step)
    _traffic(draft, f"{path}.trafficRoutings", items(canary.get("trafficRoutings")))
    draft.leftovers(path, canary, _CANARY)
    draft.leftovers("spec.strategy", strategy, {"paused", key})
    draft.leftovers("spec", spec, _SPEC)
    draft.finish(converted)


def _step(draft: Draft, path: str, step: JsonObject) -> None:
    share = step.get("traffic", step.get("weight"))
    if share is None and isinstance(step.get("replicas"), str) and step["replicas"].endswith("%"):
        share = step["replicas"]  # without traffic routing the share of pods is the share of requests
    if share is None:
        draft.no_counterpart(f"{path}.replicas", "a step without a share of traffic; candidate pods follow the weight")
    else:
        draft.weight(f"{path}.{'weight' if 'weight' in step else 'traffic'}", number_of(share))
    if items(step.get("matches")):
        draft.no_counterpart(f"{path}.matches", "traffic is split by weight, never by header")
    if "pause" in step:
        duration = mapping(step["pause"]).get("duration")
        draft.pause(None if duration is None else duration_of(draft.source, f"{path}.pause.duration", duration))


def _traffic(draft: Draft, path: str, routings: list[JsonObject]) -> None:
    for number, routing in enumerate(routings):
        route = mapping(routing.get("gateway")).get("httpRouteName")
        if route:
            draft.spec["traffic"] = {"provider": "gatewayAPI", "httpRoute": str(route)}
        else:
            service = routing.get("service")
            why = "the rollout's own gate moves traffic: send clients to it"
            draft.no_counterpart(f"{path}[{number}]", f"{why}, or set traffic.takeOverService to `{service}`")
