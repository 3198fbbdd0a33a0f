"""RolloutPolicy: SLOs and gates, reusable inside their namespace.

Read by policies/contract.py (the judge's numbers) and snapshotted into the RunManifest when an attempt starts.
"""

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, WithJsonSchema, model_validator

from crds.v1alpha1.common import ApiModel, Bytes, Decimal, Duration, Limit, Percentile, Probability, Ratio


class Metric(StrEnum):
    """What a gate may measure; formulas in docs/judge.md."""

    TTFT = "ttft"  # client send -> first non-empty content, reasoning or tool-call delta
    TPOT = "tpot"  # (e2e - ttft) / (output tokens - 1)
    MAX_GAP = "maxGap"  # longest interval between response chunks
    E2E = "e2e"  # client send -> end of the response
    SUCCESS = "success"  # share of attempted requests that ended ok
    GOOD_FRACTION = "goodFraction"  # share of attempted requests that were ok and within the SLO
    GOODPUT = "goodput"  # good requests per second at equal offered load


LATENCY_METRICS = frozenset({Metric.TTFT, Metric.TPOT, Metric.MAX_GAP, Metric.E2E})


class GateMode(StrEnum):
    """Whether a gate decides."""

    ENFORCE = "enforce"  # must pass in every required stratum
    DRY_RUN = "dryRun"  # judged and shown, decides nothing


class OtherTenants(StrEnum):
    """Treatment of tenants that are not named in `required`."""

    POOLED = "pooled"  # one stratum named `other`
    EACH = "each"  # a stratum of its own for each
    IGNORE = "ignore"  # counted, not judged


class ThinStrata(StrEnum):
    """Treatment of strata too thin to pass within maxHold."""

    MERGE = "merge"  # a tenant's adjacent buckets are merged at preflight
    HOLD = "hold"  # they hold the step
    PARENT_VETO = "parentVeto"  # the parent passes for them from 150 effective requests on


class OnMaxHold(StrEnum):
    """What happens when a step held longer than maxHold."""

    HOLD = "hold"
    ROLLBACK = "rollback"


class Preset(StrEnum):
    """Sets every evidence value that is not written."""

    FAST = "fast"  # 5 s blocks, 15 s stall tolerance
    CONSERVATIVE = "conservative"  # 10 s blocks, 30 s stall tolerance


class TenantSource(ApiModel):
    """Where the tenant of a request is read; exactly one field."""

    header: str | None = Field(
        None, pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$", description="Request header that names the tenant."
    )
    api_key_hash: bool | None = Field(None, description="Salted hash of the API key.")
    jwt_claim: str | None = Field(None, min_length=1, description="Claim of the bearer token (not verified here).")
    path: int | None = Field(None, ge=0, le=100, description="Path segment, counted from 0.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [v for v in (self.header, self.api_key_hash, self.jwt_claim, self.path) if v is not None]
        if len(given) != 1:
            raise ValueError("set exactly one of header, apiKeyHash, jwtClaim, path")
        return self


class Tenants(ApiModel):
    """Which tenants exist and which must pass."""

    from_: TenantSource = Field(TenantSource(header="x-tenant"), alias="from", description="Where a tenant is read.")
    required: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] = Field(
        (), max_length=500, description="Tenants that must have traffic and pass."
    )
    other: OtherTenants = Field(OtherTenants.POOLED, description="What becomes of all other tenants.")


class LengthBuckets(ApiModel):
    """Upper edges of the length buckets, in prompt tokens."""

    edges: tuple[int, ...] = Field((512, 2048), max_length=12, description="Ascending; the last bucket is open.")

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if list(self.edges) != sorted(set(self.edges)) or any(e <= 0 for e in self.edges):
            raise ValueError("edges must be positive and ascending, without repeats")
        return self

    def names(self) -> tuple[str, ...]:
        """Bucket names, shortest first: `0-512`, `513-2048`, `2049+`."""
        lows = (0, *(edge + 1 for edge in self.edges))
        return (*(f"{low}-{edge}" for low, edge in zip(lows, self.edges, strict=False)), f"{lows[-1]}+")


class Slo(ApiModel):
    """What makes a request good: ok, and within all of these."""

    ttft: Duration | None = Field(None, description="Longest good time to first token.")
    tpot: Duration | None = Field(None, description="Longest good time per output token.")
    max_gap: Duration | None = Field(None, description="Longest good gap between chunks.")
    # The alias generator would make `e2E` of it.
    e2e: Duration | None = Field(None, alias="e2e", description="Longest good whole request.")


class Gate(ApiModel):
    """One thing that every required stratum must pass."""

    metric: Metric = Field(description="What is measured.")
    percentile: Percentile | None = Field(None, description="Percentile of a latency, for example 99.")
    margin: Ratio | None = Field(None, description="Allowed excess over stable: a share (25%) or points (1pp).")
    limit: Limit | None = Field(None, description="Absolute bound: a duration for latencies, a share for fractions.")
    mode: GateMode = Field(GateMode.ENFORCE, description="dryRun gates are judged and shown, and decide nothing.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.margin is None and self.limit is None:
            raise ValueError("a gate needs margin, limit or both")
        if (self.metric in LATENCY_METRICS) != (self.percentile is not None):
            raise ValueError("percentile belongs to ttft, tpot, maxGap and e2e, and they need one")
        is_share = self.limit is not None and self.limit.endswith(("%", "pp"))
        if self.limit is not None and is_share == (self.metric in LATENCY_METRICS):
            raise ValueError(f"limit {self.limit!r} has the wrong unit for {self.metric}")
        if self.metric is Metric.GOODPUT and self.limit is not None:
            raise ValueError("goodput is compared with stable only; use margin")
        return self


OUTCOMES = (
    "ok", "client_error", "server_error", "rejected", "timeout", "cancelled", "truncated", "empty", "open",
)  # fmt: skip
OutcomeName = Annotated[str, WithJsonSchema({"type": "string", "enum": list(OUTCOMES)})]


class Outcomes(ApiModel):
    """Which outcomes count as attempted (the denominator of success and goodFraction)."""

    attempted: tuple[OutcomeName, ...] = Field(
        ("ok", "server_error", "rejected", "timeout", "truncated", "empty"),
        min_length=1,
        max_length=len(OUTCOMES),
        description="Outcome names that count.",
    )

    @model_validator(mode="after")
    def _known(self) -> Self:
        unknown = sorted(set(self.attempted) - set(OUTCOMES))
        if unknown or "ok" not in self.attempted:
            raise ValueError(f"unknown outcomes {unknown}" if unknown else "attempted must contain ok")
        return self


class Evidence(ApiModel):
    """How much proof a step needs; everything not written comes from the preset."""

    preset: Preset = Field(Preset.FAST, description="fast or conservative.")
    alpha_rollback: Probability = Field("0.01", description="Bound of a false rollback over the whole attempt.")
    alpha_promote: Probability = Field("0.05", description="Bound of a false promotion per step.")
    history: Duration = Field("1h", description="A/A history of stable that is asked for before a step.")
    phi_floor: Decimal = Field("1.2", description="Least variance inflation assumed for dependence.")
    min_step: Duration = Field("10m", description="A step is never shorter.")
    min_blocks: int = Field(30, ge=1, le=10000, description="Closed blocks that a step needs at least.")
    warmup: Duration = Field("3m", description="Requests on pods younger than this are not judged.")
    freshness: Duration = Field("60s", description="Evidence older than this cannot pass a step.")
    stall_tolerance: Duration | None = Field(None, description="One stall shorter than this never rolls back.")
    max_silence: Duration = Field("5m", description="Silence of the candidate's telemetry that fails the attempt.")
    max_hold: Duration = Field("2h", description="A step may hold this long.")
    on_max_hold: OnMaxHold = Field(OnMaxHold.HOLD, description="What happens then.")
    thin_strata: ThinStrata = Field(ThinStrata.MERGE, description="Treatment of strata too thin to pass.")


class Mirror(ApiModel):
    """Which live requests may be copied to the shadow."""

    percent: str = Field("auto", pattern=r"^(auto|100|[0-9]{1,2})$", description="auto, or percent of live requests.")
    tenants: tuple[str, ...] = Field(("*",), description="Tenants that may be copied.")
    except_tenants: tuple[str, ...] = Field((), description="Tenants that are never copied.")
    paths: tuple[str, ...] = Field(("/v1/chat/completions", "/v1/completions"), description="Paths that are copied.")
    max_bytes_per_second: Bytes = Field("50Mi", description="Bound of copied request bytes.")


class Approval(ApiModel):
    """Rules of a person's approval."""

    expires: Duration = Field("1h", description="An approval older than this has no effect.")
    require_reason: bool = Field(True, description="An approval without a reason is refused.")
    people: int = Field(1, ge=1, le=5, description="Different people who must approve.")


class RolloutPolicySpec(ApiModel):
    """SLOs and gates of a rollout."""

    tenants: Tenants = Field(Tenants(), description="Tenants and where they are read.")
    length_buckets: LengthBuckets = Field(LengthBuckets(), description="Length buckets in prompt tokens.")
    slo: Slo = Field(Slo(), description="What makes a request good.")
    gates: tuple[Gate, ...] = Field(min_length=1, max_length=16, description="All must pass in every stratum.")
    outcomes: Outcomes = Field(Outcomes(), description="What counts as attempted.")
    evidence: Evidence = Field(Evidence(), description="How much proof a step needs.")
    mirror: Mirror = Field(Mirror(), description="What may be copied to the shadow.")
    approval: Approval = Field(Approval(), description="Rules of approvals.")
    quality: dict[str, Any] | None = Field(None, description="Semantic gates by correctness class.")

    @model_validator(mode="after")
    def _good_is_defined(self) -> Self:
        needs_slo = any(g.metric in (Metric.GOOD_FRACTION, Metric.GOODPUT) for g in self.gates)
        if needs_slo and not self.slo.model_dump(exclude_none=True):
            raise ValueError("slo: goodFraction and goodput need at least one bound in slo")
        return self
