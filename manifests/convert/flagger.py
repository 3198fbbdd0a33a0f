"""Flagger: Canary and MetricTemplate.

One of the tools of `convert_files`. Field names are those of flagger.app/v1beta1.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from manifests.convert.draft import Converted, Draft, Source, convert_each, duration_of, number_of, policy_object
from manifests.convert.measures import BUILT_IN, MAX, MIN, Measure, measure_of
from manifests.importers.registry import JsonObject, items, mapping

_SPEC = {"targetRef", "service", "analysis", "canaryAnalysis", "provider", "progressDeadlineSeconds", "suspend"}
_SPEC |= {"skipAnalysis", "autoscalerRef", "metricsServer"}
_ANALYSIS = {"interval", "threshold", "maxWeight", "stepWeight", "stepWeights", "iterations", "mirror", "mirrorWeight"}
_ANALYSIS |= {"metrics", "webhooks", "match"}
_PEOPLE = ("confirm-rollout", "confirm-traffic-increase", "confirm-promotion")
_DRAFT_MARGIN = "25%"


def is_mine(source: Source) -> bool:
    """Whether this tool reads the object."""
    return source.group == "flagger.app" and source.kind in ("Canary", "MetricTemplate")


def convert(sources: list[Source], converted: Converted) -> None:
    """Add our objects for these sources; templates that no canary uses become a policy that decides nothing yet."""
    convert_each(sources, converted, "Canary", _canary, _lone_template)


def _canary(source: Source, templates: dict[str, Source], converted: Converted) -> set[str]:
    draft = Draft(source)
    spec = source.spec
    target = mapping(spec.get("targetRef"))
    if not target.get("name"):
        raise source.refuse("spec.targetRef.name", "is missing", "name the workload that the Canary rolls out")
    draft.spec["workloadRef"] = {
        "apiVersion": target.get("apiVersion") or "apps/v1",
        "kind": target.get("kind") or "Deployment",
        "name": target["name"],
    }
    _traffic(draft, spec, str(target["name"]))
    _whole(draft, spec)
    key = "analysis" if "analysis" in spec else "canaryAnalysis"
    analysis = mapping(spec.get(key))
    _steps(draft, f"spec.{key}", analysis)
    used = _metrics(draft, f"spec.{key}.metrics", items(analysis.get("metrics")), templates)
    draft.leftovers(f"spec.{key}", analysis, _ANALYSIS)
    draft.leftovers("spec", spec, _SPEC)
    draft.finish(converted)
    return used


def _traffic(draft: Draft, spec: JsonObject, target: str) -> None:
    service = mapping(spec.get("service"))
    name = str(service.get("name") or target)
    ports = [port for port in (service.get("targetPort"), service.get("port")) if isinstance(port, int)]
    traffic: dict[str, Any] = {"port": ports[0]} if ports else {}
    provider = str(spec.get("provider") or "")
    if items(service.get("gatewayRefs")) or provider.startswith("gatewayapi"):
        traffic |= {"provider": "gatewayAPI", "httpRoute": name}
    else:
        clients = f"send clients to `{draft.source.name}-gate`, or set traffic.takeOverService to `{name}`"
        draft.no_counterpart(
            "spec.provider" if provider else "spec.service", f"the rollout's own gate moves traffic: {clients}"
        )
    draft.spec["traffic"] = traffic
    draft.leftovers("spec.service", service, {"name", "port", "targetPort", "gatewayRefs"})


def _whole(draft: Draft, spec: JsonObject) -> None:
    if "progressDeadlineSeconds" in spec:
        deadline = duration_of(draft.source, "spec.progressDeadlineSeconds", spec["progressDeadlineSeconds"])
        draft.spec["capacity"] = {"readyDeadline": deadline}
    if spec.get("suspend"):
        draft.spec["paused"] = True
    if spec.get("skipAnalysis"):
        draft.no_counterpart("spec.skipAnalysis", "nothing is promoted without proof; a person may skip a step")
    if mapping(spec.get("autoscalerRef")):
        draft.no_counterpart("spec.autoscalerRef", "point the autoscaler at the InferenceRollout, which has a scale")


def _steps(draft: Draft, path: str, analysis: JsonObject) -> None:
    hooks = {str(hook.get("type") or "rollout"): n for n, hook in enumerate(items(analysis.get("webhooks")))}
    if analysis.get("mirror"):
        draft.mirror(f"{path}.mirrorWeight", number_of(analysis.get("mirrorWeight", 100)))
    if "confirm-rollout" in hooks:
        draft.pause(None)
    for where, weight in _weights(path, analysis):
        draft.weight(where, weight, approval="confirm-traffic-increase" in hooks)
    if "confirm-promotion" in hooks:
        draft.pause(None)
    if analysis.get("iterations") is not None and not any("canary" in step for step in draft.steps):
        _without_weights(draft, path)
    for number, hook in enumerate(items(analysis.get("webhooks"))):
        _webhook(draft, f"{path}.webhooks[{number}]", hook)
    if items(analysis.get("match")):
        draft.no_counterpart(f"{path}.match", "traffic is split by weight, never by header or cookie")
    for key in ("interval", "threshold"):
        if key in analysis:
            draft.no_counterpart(
                f"{path}.{key}", "the judge looks at every block and needs proof, not a count of checks"
            )


def _weights(path: str, analysis: JsonObject) -> list[tuple[str, Decimal | None]]:
    listed = analysis.get("stepWeights")
    if isinstance(listed, list):
        return [(f"{path}.stepWeights[{n}]", number_of(weight)) for n, weight in enumerate(listed)]
    step, most = number_of(analysis.get("stepWeight")), number_of(analysis.get("maxWeight", 100))
    if step is None or step < 1 or most is None:
        return []
    return [(f"{path}.stepWeight", step * n) for n in range(1, int(min(most, Decimal(100)) / step) + 1)]


def _without_weights(draft: Draft, path: str) -> None:
    if draft.shadow is None:
        draft.shadow = {"percent": "auto"}
    message = (
        "without weights the candidate is proven on copies, then all traffic moves at once: add canary and ramp steps"
    )
    draft.note("blue-green", f"{path}.iterations", message)


def _webhook(draft: Draft, path: str, hook: JsonObject) -> None:
    kind = str(hook.get("type") or "rollout")
    if kind in _PEOPLE:
        draft.note("approval", path, f"`{kind}` becomes a wait for a person", "info")
    else:
        why = "real traffic is copied, no load is made up" if kind == "rollout" else f"`{kind}` hooks are not called"
        draft.no_counterpart(path, f"of `{hook.get('name') or kind}`, {why}")


def _metrics(draft: Draft, path: str, metrics: list[JsonObject], templates: dict[str, Source]) -> set[str]:
    used: set[str] = set()
    for number, metric in enumerate(metrics):
        where = f"{path}[{number}]"
        name = str(metric.get("name") or "")
        reference = str(mapping(metric.get("templateRef")).get("name") or "")
        if reference in templates:
            used.add(reference)
        elif reference:
            message = (
                f"the MetricTemplate `{reference}` of `{name}` is not in the input: convert it together with the Canary"
            )
            draft.note("template-missing", f"{where}.templateRef", message)
            continue
        query = templates[reference].spec.get("query") if reference else metric.get("query")
        measured = BUILT_IN.get(name) if query is None else measure_of(str(query))
        _gate(draft, where, metric, measured or f"`{name}` is not one of Flagger's own metrics")
    return used


def _gate(draft: Draft, path: str, metric: JsonObject, measured: Measure | str) -> None:
    name = str(metric.get("name") or "")
    if isinstance(measured, str):
        draft.no_counterpart(path, f"of `{name}`, {measured}")
        return
    gates = [measured.gate(limit, direction) for direction, limit in _limits(metric, measured)]
    found = [gate for gate in gates if gate is not None]
    for gate in found:
        draft.gate(gate)
    if not found:
        draft.no_counterpart(f"{path}.thresholdRange", f"of `{name}`, it sets no limit that can be read")
    elif measured.remark:
        draft.note("meaning", path, f"`{name}`: {measured.remark}", "info")


def _limits(metric: JsonObject, measured: Measure) -> list[tuple[str, Decimal]]:
    """(direction, number) of `thresholdRange`, or of the older `threshold` that meant the metric's natural side."""
    bounds = mapping(metric.get("thresholdRange"))
    if not bounds and "threshold" in metric:
        natural = MIN if measured.percentile is None and not measured.bad else MAX
        bounds = {natural: metric["threshold"]}
    pairs = [(side, number_of(bounds[side])) for side in (MIN, MAX) if side in bounds]
    return [(side, number) for side, number in pairs if number is not None]


def _lone_template(source: Source, converted: Converted) -> None:
    draft = Draft(source)
    measured = measure_of(str(source.spec.get("query") or ""))
    if isinstance(measured, str):
        draft.no_counterpart("spec.query", measured)
    else:
        gate = {"metric": measured.metric, "margin": _DRAFT_MARGIN if measured.percentile else "1pp", "mode": "dryRun"}
        gate |= {"percentile": measured.percentile} if measured.percentile else {}
        message = (
            "a MetricTemplate has no limit (the Canary has it): compared with stable and only shown, until you set one"
        )
        draft.note("no-limit", "spec.query", message)
        converted.objects.append(policy_object(source, [gate]))
    converted.notes += draft.notes
