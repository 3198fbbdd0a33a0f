"""What the evidence API says of a live rollout: the contract between the operator and its readers.

Made by the operator (any field that it does not know stays empty: unknown is None, never zero), read by the dashboard
and by `weighlock status`. Names and units are those of the CLI's JSON: snake_case, seconds, fractions.
"""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from controller.jsonable import jsonable
from policies.verdict import Verdict


class View(BaseModel):
    """Base: a newer operator may say more than this reader knows."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class StepView(View):
    """One step of the attempt; the last two entries of a timeline are `promoted` and `bake`."""

    name: str
    kind: str  # shadow | canary | ramp | pause | promoted | bake
    weight: int | None = None
    approval: bool = False


class PlanView(View):
    """Weights and copies that the data plane was told."""

    stage: str = "idle"
    weight: int = 0
    copies_to_candidate: float = 0.0
    copies_to_stable: float = 0.0


class ArmLoad(View):
    """What one variant carries, over the last 10 s."""

    replicas_ready: int | None = None
    replicas_wanted: int | None = None
    rps: float | None = None
    rps_per_replica: float | None = None
    in_flight: int | None = None
    tenant_shares: dict[str, float] = {}


class LoadView(View):
    """Load parity: a candidate replica should carry `target_rps_per_replica`, with stable's tenant mix."""

    stable: ArmLoad = ArmLoad()
    candidate: ArmLoad = ArmLoad()
    target_rps_per_replica: float | None = None
    candidate_share_live: float | None = None  # observed share of live requests that candidate answered
    worst_mix_gap: float | None = None  # largest relative difference of a tenant's shares; more than 0.15 holds
    matched: bool | None = None
    message: str = ""


class CheckView(View):
    """One gate of the policy, in the order of the policy."""

    metric: str
    gate: str
    mode: str = "enforce"


class PolicyView(View):
    """What spans the matrix."""

    tenants: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()
    checks: tuple[CheckView, ...] = ()
    block_s: float | None = None
    pass_threshold: float = 20.0  # 1 / alphaPromote: an e-value from which a gate passes
    require_reason: bool = True
    people: int = 1
    expires_s: float | None = None


class WitnessView(View):
    """Whether a mechanism is really on: accepted is not active."""

    mechanism: str
    witness: str  # metric, log line or resolved configuration that shows it
    expected: str = ""
    observed: str | None = None
    state: str = "unknown"  # active | inactive | unknown
    source: str = ""  # pod or file it was read from


class CapacityView(View):
    """Where the candidate's accelerators come from and what a rollback costs."""

    strategy: str = ""
    accelerators_needed: int | None = None
    accelerators_free: int | None = None
    rollback_s: float | None = None  # 0 = a pure flip
    message: str = ""


class ProviderView(View):
    """A user's Prometheus: whether it can be used, and the edges between which stable's quantile lies there."""

    configured: bool = False
    healthy: bool | None = None
    message: str = ""
    metric: str = ""
    quantile: float | None = None
    low_s: float | None = None
    high_s: float | None = None  # None with a low edge: the overflow bucket
    requests: float | None = None
    window_s: float | None = None
    at_s: float | None = None


class ThresholdView(View):
    """A frozen threshold of a stratum, in seconds."""

    tenant: str
    bucket: str
    metric: str
    edge: float


class LiveView(View):
    """Everything known now. `diff` has the shape of `weighlock diff -o json`, `verdict` of `Verdict.to_dict`."""

    rollout: str  # namespace/name
    updated_at_s: float
    phase: str = ""
    attempt: int = 0
    step_index: int = 0
    step_name: str = ""
    step_started_at_s: float | None = None
    steps: tuple[StepView, ...] = ()
    stable: str = ""
    candidate: str = ""
    plan: PlanView = PlanView()
    load: LoadView = LoadView()
    policy: PolicyView = PolicyView()
    verdict: dict[str, Any] | None = None
    evidence: str = ""  # hash that an approval binds now
    diff: dict[str, Any] | None = None
    diff_sentences: tuple[str, ...] = ()
    ledger: dict[str, Any] | None = None
    thresholds: tuple[ThresholdView, ...] = ()
    witnesses: tuple[WitnessView, ...] = ()
    capacity: CapacityView = CapacityView()
    duration_plan: dict[str, Any] | None = None  # shape of `weighlock plan -o json`
    provider: ProviderView = ProviderView()
    store_healthy: bool | None = None
    recorder_healthy: bool | None = None

    @classmethod
    def with_verdict(cls, verdict: Verdict | None, **values: Any) -> Self:
        """A view whose verdict is the judge's own value."""
        return cls(verdict=jsonable(verdict.to_dict()) if verdict else None, **values)
