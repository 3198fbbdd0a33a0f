"""The policy as the judge's numbers: strings parsed, preset values filled in, contradictions refused with the field.

Called by the block builder, the judge, the planner and the CLI. A gate with margin and limit becomes two checks.
Knows pydantic models of `crds`, no data.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from crds.v1alpha1.common import parse_duration_seconds, parse_number, parse_ratio
from crds.v1alpha1.policy import LATENCY_METRICS, Evidence, Gate, GateMode, Metric, Preset, RolloutPolicySpec
from policies import blocks
from policies.histogram import GAMMA


class ContractError(ValueError):
    """A policy that contradicts itself; `field` is its path inside the spec, `remedy` what to write instead."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field}: {problem}; {remedy}")
        self.field = field
        self.problem = problem
        self.remedy = remedy


class CheckKind(StrEnum):
    """How a check reduces to counts (facts: judge section 10)."""

    QUANTILE_ABS = "quantileAbs"  # requests above a limit
    QUANTILE_REL = "quantileRel"  # candidate above (1 + margin) x stable's quantile, stable above its quantile
    BAD_ABS = "badFracAbs"  # bad requests against a share
    BAD_REL = "badFracRel"  # bad requests of both arms against an allowed ratio
    GOODPUT_REL = "goodputRel"  # good requests per routed request, both arms

    @property
    def is_relative(self) -> bool:
        return self not in (CheckKind.QUANTILE_ABS, CheckKind.BAD_ABS)


@dataclass(frozen=True, slots=True)
class Check:
    """One side (margin or limit) of one gate.

    share: allowed exceedance share p0 (1 - q for percentiles, 1 - limit for fractions), 0 where it comes from
    history; margin: as a fraction; margin_points: the margin is in percentage points; limit: seconds, or the allowed
    bad share.
    """

    metric: str
    gate: str  # p99-margin | p99-limit | margin | limit
    kind: CheckKind
    share: float
    margin: float | None = None
    margin_points: bool = False
    limit: float | None = None
    enforce: bool = True
    quantile: float | None = None
    sentinel: bool = False  # a lower percentile watched beside a margin gate: it can only hold


SERVED = Check("served", "margin", CheckKind.BAD_ABS, 0.05, 0.05, True)
"""Added to every contract: requests refused as wrong (4xx), at most five points above stable's share of them."""


def sentinels(checks: Sequence[Check]) -> tuple[Check, ...]:
    """P90 beside every margin on a higher percentile: a uniform slow-down shows there about three times as fast."""
    found = []
    for check in checks:
        if check.kind is CheckKind.QUANTILE_REL and check.enforce and (check.quantile or 0.0) >= 0.95:
            watched = replace(check, gate="p90-sentinel", share=0.1, quantile=0.9)
            found.append(replace(watched, enforce=False, sentinel=True))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Contract:
    """Everything the judge, the builder and the planner need of a RolloutPolicy; seconds and fractions."""

    required: tuple[str, ...]
    other: str  # pooled | each | ignore
    bucket_edges: tuple[int, ...]
    bucket_names: tuple[str, ...]
    slo_us: Mapping[str, int]
    checks: tuple[Check, ...]
    attempted: frozenset[str]
    block_s: float
    stall_tolerance_s: float
    alpha_rollback: float
    alpha_promote: float
    history_s: float
    phi_floor: float
    min_step_s: float
    min_blocks: int
    warmup_s: float
    freshness_s: float
    max_silence_s: float
    max_hold_s: float
    on_max_hold: str
    thin_strata: str
    digest: str
    mirror_tenants: tuple[str, ...] = ("*",)
    mirror_except: tuple[str, ...] = ()

    def may_be_copied(self, tenant: str) -> bool:
        """Whether a tenant's live requests may be mirrored; those that may not are proven from Canary on."""
        is_listed = "*" in self.mirror_tenants or tenant in self.mirror_tenants
        return is_listed and tenant not in self.mirror_except

    @property
    def plan_blocks(self) -> int:
        """Blocks over which late-onset evidence is spread: those of one full hold."""
        return max(1, round(self.max_hold_s / self.block_s))


_BLOCK_SECONDS = {Preset.FAST: 5.0, Preset.CONSERVATIVE: 10.0}
_STALL_SECONDS = {Preset.FAST: 15.0, Preset.CONSERVATIVE: 30.0}
_LONGER = "write for example 2s"
_EXAMPLES = {"margin": "25%", "limit": "2s", "percentile": "99"}
"""What people write as a bare number, as it should be."""

RAREST = 1e-4
"""Least share of requests that a percentile may leave above itself. Nothing is proven before some hundred requests of
that share were seen, so P99.99 asks for about a million requests of every stratum; beyond it no step would end."""

OTHER_TENANT = "other"
"""Name of the pooled stratum of tenants that the policy does not name."""


def contract_from_mapping(spec: Mapping[str, Any]) -> Contract:
    """Contract of a raw RolloutPolicy spec (camelCase keys); ContractError names the field that is wrong."""
    try:
        model = RolloutPolicySpec.model_validate(spec)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"]) or "spec"
        remedy = "correct this field of the policy"
        if first["type"] == "extra_forbidden":
            near = get_close_matches(str(first["loc"][-1]), sorted(_field_names(RolloutPolicySpec)), 1, 0.4)
            remedy = f"did you mean {near[0]}?" if near else "remove it"
        elif first["type"] == "string_type":
            example = _EXAMPLES.get(str(first["loc"][-1]), str(first["input"]))
            remedy = f'write it as text, for example "{example}"'
        raise ContractError(path, str(first["msg"]).removeprefix("Value error, "), remedy) from error
    return make_contract(model)


def _field_names(model: type[BaseModel]) -> set[str]:
    """Names, as written in YAML, of all fields of a model and of the models inside it."""
    names: set[str] = set()
    for field, info in model.model_fields.items():
        names.add(info.alias or field)
        for part in (info.annotation, *get_args(info.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                names |= _field_names(part)
    return names


def make_contract(spec: RolloutPolicySpec) -> Contract:
    """Contract of a validated policy; ContractError where values contradict each other."""
    evidence = spec.evidence
    block_s = _BLOCK_SECONDS[evidence.preset]
    stall = evidence.stall_tolerance
    tolerance_s = _STALL_SECONDS[evidence.preset] if stall is None else parse_duration_seconds(stall)
    _refuse_contradictions(evidence, block_s, tolerance_s)
    checks = tuple(check for i, gate in enumerate(spec.gates) for check in _checks(i, gate))
    _refuse_twins(spec.gates)
    if OTHER_TENANT in spec.tenants.required and spec.tenants.other == "pooled":
        raise ContractError("tenants.required", f"{OTHER_TENANT!r} names the pool of all others", "rename this tenant")
    if all(gate.mode is not GateMode.ENFORCE for gate in spec.gates):
        raise ContractError("gates", "are dry runs alone, so every step would pass unproven", "enforce at least one")
    if set(spec.outcomes.attempted) == {"ok"} and any(gate.metric is Metric.SUCCESS for gate in spec.gates):
        problem = "holds ok alone, so the success gate counts no failure and proves nothing"
        raise ContractError("outcomes.attempted", problem, "add server_error, timeout and the others that count")
    return Contract(
        required=spec.tenants.required,
        other=spec.tenants.other.value,
        bucket_edges=spec.length_buckets.edges,
        bucket_names=spec.length_buckets.names(),
        slo_us=_slo(spec),
        checks=checks,
        attempted=frozenset(spec.outcomes.attempted),
        block_s=block_s,
        stall_tolerance_s=tolerance_s,
        alpha_rollback=parse_number(evidence.alpha_rollback),
        alpha_promote=parse_number(evidence.alpha_promote),
        history_s=parse_duration_seconds(evidence.history),
        phi_floor=parse_number(evidence.phi_floor),
        min_step_s=parse_duration_seconds(evidence.min_step),
        min_blocks=evidence.min_blocks,
        warmup_s=parse_duration_seconds(evidence.warmup),
        freshness_s=parse_duration_seconds(evidence.freshness),
        max_silence_s=parse_duration_seconds(evidence.max_silence),
        max_hold_s=parse_duration_seconds(evidence.max_hold),
        on_max_hold=evidence.on_max_hold.value,
        thin_strata=evidence.thin_strata.value,
        mirror_tenants=spec.mirror.tenants,
        mirror_except=spec.mirror.except_tenants,
        digest=hashlib.sha256(spec.model_dump_json(by_alias=True).encode()).hexdigest()[:16],
    )


def _slo(spec: RolloutPolicySpec) -> dict[str, int]:
    bounds = {
        blocks.TTFT: spec.slo.ttft,
        blocks.TPOT: spec.slo.tpot,
        blocks.MAX_GAP: spec.slo.max_gap,
        blocks.E2E: spec.slo.e2e,
    }
    found = {name: blocks.threshold_us(parse_duration_seconds(text)) for name, text in bounds.items() if text}
    for name, key in found.items():
        if key <= 0:
            raise ContractError(f"slo.{name}", "must be longer than zero: nothing could be good", _LONGER)
    return found


def _refuse_contradictions(evidence: Evidence, block_s: float, tolerance_s: float) -> None:
    for field, text in (("alphaRollback", evidence.alpha_rollback), ("alphaPromote", evidence.alpha_promote)):
        if not 0.0 < parse_number(text) < 0.5:
            raise ContractError(f"evidence.{field}", f"{text!r} is no error rate", "write a value between 0 and 0.5")
    try:
        floor = parse_number(evidence.phi_floor)
    except ValueError as error:
        raise ContractError("evidence.phiFloor", str(error), 'write for example "1.2"') from error
    if floor < 1.0:
        raise ContractError("evidence.phiFloor", f"{evidence.phi_floor!r} is below 1", "write 1 or more")
    if tolerance_s < block_s:
        raise ContractError(
            "evidence.stallTolerance", f"{tolerance_s:g} s is shorter than a block of {block_s:g} s", "raise it"
        )
    if parse_duration_seconds(evidence.min_step) > parse_duration_seconds(evidence.max_hold):
        raise ContractError("evidence.minStep", "is longer than maxHold, so no step could pass", "lower it")
    if evidence.stall_tolerance is not None and tolerance_s > parse_duration_seconds(evidence.max_hold):
        raise ContractError("evidence.stallTolerance", "is longer than maxHold, so no step could fail", "lower it")
    if parse_duration_seconds(evidence.freshness) < 2 * block_s:
        raise ContractError("evidence.freshness", f"is shorter than two blocks of {block_s:g} s", "raise it")


def _refuse_twins(gates: Sequence[Gate]) -> None:
    """Two gates must not ask the same question: their rows would have one name and two answers."""
    seen: dict[tuple[Metric, float | None, str], int] = {}
    for index, gate in enumerate(gates):
        quantile = parse_number(gate.percentile) if gate.percentile else None
        for bound in ("margin", "limit"):
            if getattr(gate, bound) is None:
                continue
            first = seen.setdefault((gate.metric, quantile, bound), index)
            if first != index:
                problem = f"gates[{first}] has a {bound} for the same {'percentile' if quantile else 'metric'} already"
                raise ContractError(f"gates[{index}].{bound}", problem, "keep one of the two")


def _checks(index: int, gate: Gate) -> list[Check]:
    """The one or two checks of a gate, margin first."""
    where = f"gates[{index}]"
    enforce = gate.mode is GateMode.ENFORCE
    is_latency = gate.metric in LATENCY_METRICS
    quantile = parse_number(gate.percentile) / 100.0 if gate.percentile else None
    share = round(1.0 - quantile, 12) if quantile is not None else 0.0
    if quantile is not None and share < RAREST:
        problem = f"{gate.percentile!r} leaves fewer than 1 in 10,000 requests above it: no step could prove it"
        raise ContractError(f"{where}.percentile", problem, 'write "99.99" or less')
    prefix = f"p{gate.percentile}-" if gate.percentile else ""
    metric = gate.metric.value
    checks = []
    if gate.margin is not None:
        margin, points = parse_ratio(gate.margin), gate.margin.endswith("pp")
        _refuse_margin(where, gate, margin, points)
        kind = CheckKind.QUANTILE_REL if is_latency else CheckKind.BAD_REL
        kind = CheckKind.GOODPUT_REL if gate.metric is Metric.GOODPUT else kind
        checks.append(Check(metric, f"{prefix}margin", kind, share, margin, points, None, enforce, quantile))
    if gate.limit is not None and is_latency:
        limit = parse_duration_seconds(gate.limit)
        if blocks.threshold_us(limit) <= 0:
            raise ContractError(f"{where}.limit", "must be longer than zero, by a microsecond", _LONGER)
        kind = CheckKind.QUANTILE_ABS
        checks.append(Check(metric, f"{prefix}limit", kind, share, None, False, limit, enforce, quantile))
    elif gate.limit is not None:
        bad = round(1.0 - parse_ratio(gate.limit), 12)
        if not 0.0 < bad < 1.0:
            raise ContractError(f"{where}.limit", f"{gate.limit!r} can never be shown", 'write for example "99.5%"')
        checks.append(Check(metric, "limit", CheckKind.BAD_ABS, bad, None, False, bad, enforce, None))
    return checks


def _refuse_margin(where: str, gate: Gate, margin: float, points: bool) -> None:
    is_latency = gate.metric in LATENCY_METRICS
    if points and (is_latency or gate.metric is Metric.GOODPUT):
        raise ContractError(f"{where}.margin", f"points make no sense for {gate.metric.value}", 'write "25%"')
    if is_latency and margin < GAMMA - 1.0:
        raise ContractError(
            f"{where}.margin", f"{gate.margin!r} is below the width of a sketch bin (1 %)", 'write "1%" or more'
        )
    if margin <= 0.0 or (not is_latency and margin >= 1.0):
        raise ContractError(f"{where}.margin", f"{gate.margin!r} can not be judged", "write a value above 0")
