"""What the readers of the other tools fill in, and how it becomes our objects.

Used by `argo`, `flagger` and `kruise`. A draft collects steps, gates and notes in the order of the source; `finish`
keeps our rules (weights rise, shadow comes first, twenty steps at most) and checks the result against the API's types.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from pydantic import ValidationError

from crds.v1alpha1.common import API_VERSION
from crds.v1alpha1.policy import RolloutPolicySpec
from crds.v1alpha1.rollout import InferenceRolloutSpec
from manifests.importers.registry import JsonObject, items, mapping, name_of, namespace_of
from manifests.model import Finding, Refusal, plain
from manifests.quantities import parse_quantity
from manifests.yamlsafe import YamlRefused, decode, load_all

MAX_STEPS = 20
_GO_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNIT_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}


class ConvertRefused(Exception):
    """Input that cannot be converted; `refusal` says where and what to do."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.file}: {refusal.path}: {refusal.problem}; {refusal.remedy}")
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Source:
    """One object of one document of a file."""

    file: str
    index: int
    obj: JsonObject
    inner: str = ""  # path of the object inside its document (`items[2]` of a List)

    @property
    def kind(self) -> str:
        """Its kind, "" where it has none."""
        return str(self.obj.get("kind") or "")

    @property
    def group(self) -> str:
        """API group of its apiVersion."""
        return str(self.obj.get("apiVersion") or "").partition("/")[0]

    @property
    def name(self) -> str:
        """metadata.name."""
        return name_of(self.obj)

    @property
    def label(self) -> str:
        """`Kind/name`, for messages."""
        return f"{self.kind or 'document'}/{self.name}"

    @property
    def spec(self) -> JsonObject:
        """Its spec, empty where it has none."""
        return mapping(self.obj.get("spec"))

    def at(self, path: str = "") -> str:
        """A path inside the document; the document's number leads where it is not the first."""
        parts = [f"[{self.index}]" if self.index else "", self.inner, path]
        return ".".join(part for part in parts if part)

    def refuse(self, path: str, problem: str, remedy: str) -> ConvertRefused:
        """The error for a field of this object."""
        return ConvertRefused(Refusal(self.file, self.at(path), problem, remedy))


@dataclass(slots=True)
class Converted:
    """Our objects, and what a person must know about them."""

    objects: list[dict[str, Any]] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)


def read_sources(name: str, content: bytes) -> list[Source]:
    """Every object of a file; ConvertRefused for what is no YAML."""
    try:
        loaded = load_all(decode(content))
    except YamlRefused as refused:
        raise ConvertRefused(Refusal(name, refused.where, refused.problem, refused.remedy)) from refused
    found: list[Source] = []
    for index, document in enumerate(loaded):
        obj = plain(document.value)
        if isinstance(obj, dict) and obj.get("kind") == "List":
            found += [Source(name, index, item, f"items[{n}]") for n, item in enumerate(items(obj.get("items")))]
        else:
            found.append(Source(name, index, mapping(obj)))
    return found


@dataclass(slots=True)
class Draft:
    """One rollout in the making. Fields of `spec` are set by the tool's reader; steps and gates are appended."""

    source: Source
    spec: dict[str, Any] = field(default_factory=dict)
    shadow: dict[str, Any] | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)
    gates: list[dict[str, Any]] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    def note(self, code: str, path: str, message: str, level: str = "warning") -> None:
        """Remember what a person must know about a field of the source."""
        self.notes.append(Finding(code, level, self.source.file, self.source.at(path), message))

    def no_counterpart(self, path: str, why: str) -> None:
        """A field that is not taken over."""
        self.note("no-counterpart", path, f"`{path.rpartition('.')[2]}` has no counterpart: {why}")

    def leftovers(self, path: str, given: JsonObject, known: set[str]) -> None:
        """Note every field that the reader does not know."""
        for key in sorted(set(given) - known):
            self.no_counterpart(f"{path}.{key}", "it is left out")

    def weight(self, path: str, percent: Decimal | int | None, approval: bool = False) -> None:
        """Append a live share; one that does not rise, or is no percentage, is noted and left out."""
        whole = None if percent is None else int(Decimal(percent).to_integral_value())
        last = max((_weight(step) for step in self.steps), default=0)
        if whole is None or not 0 <= whole <= 100:
            raise self.source.refuse(path, f"{percent} is no percentage", "write a whole number from 0 to 100")
        if whole <= last:
            self.note("dropped-step", path, f"weight {whole} is left out: our weights rise from step to step")
            return
        kind = "ramp" if last else "canary"
        self.steps.append({kind: {"weight": whole, "approval": True} if approval else {"weight": whole}})

    def pause(self, duration: str | None) -> None:
        """Append a pause; None waits for a person."""
        self.steps.append({"pause": {} if duration is None else {"duration": duration}})

    def mirror(self, path: str, percent: Decimal | int | None) -> None:
        """A share of copies: our shadow step, which is always the first one."""
        if self.shadow is not None:
            self.note("dropped-step", path, "a second mirror is left out: copies go on through all steps")
            return
        if any(_weight(step) for step in self.steps):
            self.note("moved-step", path, "the mirror becomes the first step: copies come before any live share")
        share = 100 if percent is None else int(Decimal(percent).to_integral_value())
        if not 0 < share <= 100:
            raise self.source.refuse(path, f"{percent} is no percentage", "write a whole number from 1 to 100")
        self.shadow = {"percent": str(share)}

    def gate(self, gate: dict[str, Any]) -> None:
        """Append a gate, once."""
        if gate not in self.gates:
            self.gates.append(gate)

    def finish(self, converted: Converted) -> None:
        """Add the rollout, and the policy where there are gates, to `converted`."""
        steps = [{"shadow": self.shadow}] if self.shadow is not None else []
        steps += self._thinned(self.steps, MAX_STEPS - len(steps))
        if not steps:
            self.note(
                "default-steps", "spec", "no step is written: ours are shadow, 5 %, 25 % with approval, 50 %", "info"
            )
        policy = policy_object(self.source, self.gates) if self.gates else None
        if policy is None:
            message = f"no gate is known: write a RolloutPolicy named `{self.source.name}` before you apply this"
            self.note("no-gates", "spec", message)
        spec = {**self.spec, "policyRef": {"name": self.source.name}} | ({"steps": steps} if steps else {})
        self._check(spec)
        converted.objects.append(our_object("InferenceRollout", self.source, spec))
        converted.objects += [policy] if policy else []
        converted.notes += self.notes

    def _thinned(self, steps: list[dict[str, Any]], room: int) -> list[dict[str, Any]]:
        if len(steps) <= room:
            return steps
        self.note("dropped-step", "spec", f"{len(steps)} steps are thinned to {room}: more prove nothing more")
        kept = {round(n * (len(steps) - 1) / (room - 1)) for n in range(room)}
        return [step for n, step in enumerate(steps) if n in kept]

    def _check(self, spec: dict[str, Any]) -> None:
        try:
            InferenceRolloutSpec.model_validate(spec)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in ("spec", *first["loc"]))
            problem = str(first["msg"]).removeprefix("Value error, ")
            raise self.source.refuse(where, problem, "correct the source, or convert it by hand") from error


def _weight(step: dict[str, Any]) -> int:
    return int((step.get("canary") or step.get("ramp") or {}).get("weight", 0))


def our_object(kind: str, source: Source, spec: dict[str, Any]) -> dict[str, Any]:
    """One of our objects under the source's name, namespace and labels."""
    metadata: dict[str, Any] = {"name": source.name}
    if namespace_of(source.obj):
        metadata["namespace"] = namespace_of(source.obj)
    labels = mapping(mapping(source.obj.get("metadata")).get("labels"))
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def policy_object(source: Source, gates: list[dict[str, Any]]) -> dict[str, Any]:
    """A RolloutPolicy with these gates and defaults for everything else, checked against the API's type."""
    RolloutPolicySpec.model_validate({"gates": gates})
    return our_object("RolloutPolicy", source, {"gates": gates})


def check_template(source: Source, path: str, template: Any) -> dict[str, Any]:
    """A pod template whose quantities can be read; ConvertRefused names the one that cannot."""
    containers = items(mapping(mapping(template).get("spec")).get("containers"))
    if not containers:
        raise source.refuse(f"{path}.spec.containers", "a pod template without containers", "give at least one")
    for number, container in enumerate(containers):
        for kind in ("requests", "limits"):
            for resource, amount in mapping(mapping(container.get("resources")).get(kind)).items():
                if parse_quantity(amount) is None:
                    where = f"{path}.spec.containers[{number}].resources.{kind}.{resource}"
                    raise source.refuse(where, f"{amount!r} is no quantity", "write for example 16Mi or 500m")
    return dict(template)


def container_port(template: dict[str, Any]) -> int | None:
    """The first numbered port of a pod template."""
    for container in items(mapping(template.get("spec")).get("containers")):
        for port in items(container.get("ports")):
            if isinstance(port.get("containerPort"), int):
                return int(port["containerPort"])
    return None


def convert_each(
    sources: list[Source],
    converted: Converted,
    kind: str,
    rollout: Callable[[Source, dict[str, Source], Converted], set[str]],
    template: Callable[[Source, Converted], None],
) -> None:
    """Convert rollouts (`kind`) with their templates (all other sources), then templates that none of them named."""
    templates = {source.name: source for source in sources if source.kind != kind}
    used: set[str] = set()
    for source in sources:
        if source.kind == kind:
            used |= rollout(source, templates, converted)
    for name, alone in templates.items():
        if name not in used:
            template(alone, converted)


def number_of(value: Any) -> Decimal | None:
    """The number of a field that holds one, with or without `%`; None for anything else."""
    try:
        number = Decimal(str(value).strip().removesuffix("%"))
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number) < 1_000_000_000 else None


def duration_of(source: Source, path: str, value: Any) -> str:
    """Our spelling of a Go duration (`1h30m`) or of a number of seconds; ConvertRefused where it is neither."""
    text = str(value).strip()
    if not isinstance(value, bool) and re.fullmatch(r"\d+(?:\.\d+)?", text):
        return seconds_text(Decimal(text))
    parts = _GO_DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise source.refuse(path, f"{text!r} is no duration", "write for example 30s, 10m or 1h")
    return seconds_text(sum((Decimal(number) * _UNIT_SECONDS[unit] for number, unit in parts), Decimal(0)))


def seconds_text(seconds: Decimal) -> str:
    """The shortest exact spelling: `500ms`, `30s`, `10m`, `2h`."""
    for unit in ("h", "m", "s"):
        count = seconds / _UNIT_SECONDS[unit]
        if count >= 1 and count == count.to_integral_value():
            return f"{int(count)}{unit}"
    return f"{format((seconds * 1000).normalize(), 'f')}ms"
