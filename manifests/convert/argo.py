"""Argo Rollouts: Rollout, AnalysisTemplate, ClusterAnalysisTemplate.

One of the tools of `convert_files`. Field names are those of argoproj.io/v1alpha1.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from manifests.convert.conditions import threshold_of
from manifests.convert.draft import (
    Converted,
    Draft,
    Source,
    check_template,
    container_port,
    convert_each,
    duration_of,
    number_of,
    policy_object,
)
from manifests.convert.measures import measure_of
from manifests.importers.registry import JsonObject, items, mapping

_TEMPLATES = ("AnalysisTemplate", "ClusterAnalysisTemplate")
_SPEC = {"replicas", "selector", "template", "workloadRef", "strategy", "revisionHistoryLimit", "paused"}
_SPEC |= {"progressDeadlineSeconds"}
_CANARY = {"steps", "analysis", "trafficRouting", "canaryService", "stableService", "dynamicStableScale"}
_BLUE_GREEN = {"autoPromotionEnabled", "autoPromotionSeconds", "prePromotionAnalysis", "postPromotionAnalysis"}
_BLUE_GREEN |= {"activeService", "previewService"}
_GATEWAY_PLUGIN = "argoproj-labs/gatewayAPI"
_ARGUMENT = re.compile(r"\{\{\s*args\.([\w-]+)\s*\}\}")


def is_mine(source: Source) -> bool:
    """Whether this tool reads the object."""
    return source.group == "argoproj.io" and source.kind in ("Rollout", *_TEMPLATES)


def convert(sources: list[Source], converted: Converted) -> None:
    """Add our objects for these sources; a template that no rollout uses becomes a policy of its own."""
    convert_each(sources, converted, "Rollout", _rollout, _lone_template)


def _rollout(source: Source, templates: dict[str, Source], converted: Converted) -> set[str]:
    draft = Draft(source)
    spec = source.spec
    _workload(draft, spec)
    draft.leftovers("spec", spec, _SPEC)
    strategy = mapping(spec.get("strategy"))
    used = _Analyses(draft, templates)
    if "blueGreen" in strategy:
        _blue_green(draft, mapping(strategy["blueGreen"]), used)
    else:
        _canary(draft, mapping(strategy.get("canary")), used)
    draft.finish(converted)
    return used.names


def _workload(draft: Draft, spec: JsonObject) -> None:
    reference = mapping(spec.get("workloadRef"))
    if reference:
        draft.spec["workloadRef"] = {key: reference.get(key) for key in ("apiVersion", "kind", "name")}
        draft.leftovers("spec.workloadRef", reference, {"apiVersion", "kind", "name"})
    else:
        template = check_template(draft.source, "spec.template", spec.get("template"))
        draft.spec |= {"replicas": spec.get("replicas", 1), "template": template}
        port = container_port(template)
        draft.spec["traffic"] = {"port": port} if port else {}
        if mapping(spec.get("selector")):
            draft.spec["selector"] = spec["selector"]
    if isinstance(spec.get("revisionHistoryLimit"), int):
        draft.spec["revisionHistoryLimit"] = min(100, max(1, spec["revisionHistoryLimit"]))
    if spec.get("paused"):
        draft.spec["paused"] = True
    if "progressDeadlineSeconds" in spec:
        deadline = duration_of(draft.source, "spec.progressDeadlineSeconds", spec["progressDeadlineSeconds"])
        draft.spec["capacity"] = {"readyDeadline": deadline}


def _canary(draft: Draft, canary: JsonObject, analyses: _Analyses) -> None:
    path = "spec.strategy.canary"
    routing = mapping(canary.get("trafficRouting"))
    scale = _percent_scale(routing)
    for number, step in enumerate(items(canary.get("steps"))):
        _step(draft, f"{path}.steps[{number}]", step, scale, analyses)
    analyses.add(f"{path}.analysis", mapping(canary.get("analysis")))
    if canary.get("dynamicStableScale"):
        draft.spec["capacity"] = {**draft.spec.get("capacity", {}), "strategy": "swap"}
    _traffic(draft, f"{path}.trafficRouting", routing)
    if canary.get("stableService"):
        _services(draft, f"{path}.stableService", str(canary["stableService"]))
    draft.leftovers(path, canary, _CANARY)


def _percent_scale(routing: JsonObject) -> Decimal:
    """Percent per unit of `setWeight`: 1 unless maxTrafficWeight says otherwise."""
    largest = routing.get("maxTrafficWeight")
    return Decimal(100) / largest if isinstance(largest, int) and largest > 0 else Decimal(1)


def _step(draft: Draft, path: str, step: JsonObject, scale: Decimal, analyses: _Analyses) -> None:
    if "setWeight" in step:
        given = number_of(step["setWeight"])
        draft.weight(f"{path}.setWeight", None if given is None else given * scale)
    elif "pause" in step:
        duration = mapping(step["pause"]).get("duration")
        draft.pause(None if duration is None else duration_of(draft.source, f"{path}.pause.duration", duration))
    elif "setMirrorRoute" in step:
        _mirror(draft, f"{path}.setMirrorRoute", mapping(step["setMirrorRoute"]))
    elif "analysis" in step:
        analyses.add(f"{path}.analysis", mapping(step["analysis"]))
    elif "setCanaryScale" in step:
        draft.no_counterpart(f"{path}.setCanaryScale", "candidate pods follow the weight, ready before it rises")
    elif "setHeaderRoute" in step:
        draft.no_counterpart(f"{path}.setHeaderRoute", "traffic is split by weight, never by header")
    elif "experiment" in step:
        draft.no_counterpart(f"{path}.experiment", "stable and candidate are compared in every step anyway")
    else:
        draft.no_counterpart(f"{path}.{next(iter(step), 'step')}", "the step is left out")


def _mirror(draft: Draft, path: str, route: JsonObject) -> None:
    if not items(route.get("match")) and "percentage" not in route:
        draft.no_counterpart(path, "the end of a mirror: copies go on through all steps")
        return
    draft.mirror(f"{path}.percentage", number_of(route.get("percentage", 100)))
    if items(route.get("match")):
        draft.no_counterpart(f"{path}.match", "which paths are copied is the policy's `mirror.paths`")


def _traffic(draft: Draft, path: str, routing: JsonObject) -> None:
    plugin = mapping(mapping(routing.get("plugins")).get(_GATEWAY_PLUGIN))
    routes = [str(route.get("name")) for route in items(plugin.get("httpRoutes")) if route.get("name")]
    routes = routes or ([str(plugin["httpRoute"])] if plugin.get("httpRoute") else [])
    traffic = draft.spec.setdefault("traffic", {})
    if routes:
        traffic |= {"provider": "gatewayAPI", "httpRoute": routes[0]}
        for extra in routes[1:]:
            draft.no_counterpart(f"{path}.plugins.{_GATEWAY_PLUGIN}.httpRoutes", f"a second route, `{extra}`")
        return
    for provider in sorted(set(routing) - {"managedRoutes", "maxTrafficWeight"}):
        why = f"the rollout's own gate moves traffic: send clients to the Service `{draft.source.name}-gate`"
        draft.no_counterpart(f"{path}.{provider}", why)


def _services(draft: Draft, path: str, service: str) -> None:
    message = f"to keep clients on the Service `{service}`, set traffic.takeOverService to it"
    draft.note("services", path, message, "info")


def _blue_green(draft: Draft, strategy: JsonObject, analyses: _Analyses) -> None:
    path = "spec.strategy.blueGreen"
    draft.shadow = {"percent": "auto"}
    message = (
        "the preview becomes a shadow step, then all traffic moves at once: add canary and ramp steps to move in parts"
    )
    draft.note("blue-green", path, message)
    if strategy.get("autoPromotionEnabled") is False:
        draft.pause(None)
    elif strategy.get("autoPromotionSeconds"):
        seconds = strategy["autoPromotionSeconds"]
        draft.pause(duration_of(draft.source, f"{path}.autoPromotionSeconds", seconds))
    for key in ("prePromotionAnalysis", "postPromotionAnalysis"):
        analyses.add(f"{path}.{key}", mapping(strategy.get(key)))
    if strategy.get("activeService"):
        _services(draft, f"{path}.activeService", str(strategy["activeService"]))
    draft.leftovers(path, strategy, _BLUE_GREEN)


class _Analyses:
    """The templates that one rollout uses; their metrics become its gates."""

    def __init__(self, draft: Draft, templates: dict[str, Source]) -> None:
        self._draft, self._templates = draft, templates
        self.names: set[str] = set()

    def add(self, path: str, analysis: JsonObject) -> None:
        """The templates of one `analysis` field, absent or not."""
        given = {str(arg["name"]): arg.get("value") for arg in items(analysis.get("args")) if "name" in arg}
        for number, reference in enumerate(items(analysis.get("templates"))):
            name = str(reference.get("templateName") or reference.get("name") or "")
            template = self._templates.get(name)
            if template is None:
                message = f"the AnalysisTemplate `{name}` is not in the input: convert it together with the rollout"
                self._draft.note("template-missing", f"{path}.templates[{number}]", message)
                continue
            if name not in self.names:
                self.names.add(name)
                part = Draft(template)
                _metrics(part, given)
                self._draft.notes += part.notes
                for gate in part.gates:
                    self._draft.gate(gate)


def _lone_template(source: Source, converted: Converted) -> None:
    draft = Draft(source)
    _metrics(draft, {})
    if draft.gates:
        converted.objects.append(policy_object(source, draft.gates))
    converted.notes += draft.notes


def _metrics(draft: Draft, given: dict[str, Any]) -> None:
    spec = draft.source.spec
    defaults = {str(arg["name"]): arg.get("value") for arg in items(spec.get("args")) if "name" in arg}
    values = {name: value for name, value in {**defaults, **given}.items() if value is not None}
    for number, metric in enumerate(items(spec.get("metrics"))):
        _metric(draft, f"spec.metrics[{number}]", metric, values)
    draft.leftovers("spec", spec, {"metrics", "args"})


def _metric(draft: Draft, path: str, metric: JsonObject, values: dict[str, Any]) -> None:
    name = str(metric.get("name") or path)
    provider = mapping(metric.get("provider"))
    if "prometheus" not in provider:
        kind = next(iter(provider), "none")
        draft.no_counterpart(f"{path}.provider", f"`{name}` is measured by {kind}; gates are judged on request records")
        return
    measured = measure_of(str(mapping(provider["prometheus"]).get("query") or ""))
    if isinstance(measured, str):
        draft.no_counterpart(f"{path}.provider.prometheus.query", f"of `{name}`, {measured}")
        return
    failure = "successCondition" not in metric
    key = "failureCondition" if failure else "successCondition"
    condition = _ARGUMENT.sub(lambda m: str(values.get(m[1], m[0])), str(metric.get(key) or ""))
    demanded = threshold_of(condition, failure)
    gate = measured.gate(demanded[1], demanded[0]) if demanded else None
    if gate is None:
        draft.no_counterpart(f"{path}.{key}", f"of `{name}`, {condition!r} sets no limit that can be read")
        return
    if mapping(metric).get("dryRun"):
        gate = {**gate, "mode": "dryRun"}
    draft.gate(gate)
    if measured.remark:
        draft.note("meaning", f"{path}.provider.prometheus.query", f"`{name}`: {measured.remark}", "info")
