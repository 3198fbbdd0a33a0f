"""What the judge answers: frozen values for status, store, dashboard, CLI. Knows no statistics and no clock."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Result(StrEnum):
    """PASS: may advance. FAIL: roll back. INCONCLUSIVE: stay at this weight."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


class HoldReason(StrEnum):
    """Why a step must not advance although no breach is proved; the message of the condition Holding begins with it."""

    NO_FRESH_DATA = "NoFreshData"  # no request of this step's weight within `freshness`
    TOO_FEW_REQUESTS = "TooFewRequests"  # the evidence grows but is not enough yet
    MIN_STEP = "MinStep"  # the step is younger than minStep or minBlocks
    NOT_LOAD_MATCHED = "NotLoadMatched"  # tenant shares of the arms differ by more than 15 %
    CANCEL_SHIFT = "CancelShift"  # clients cancel more (or less) often on the candidate
    REJECT_SHIFT = "RejectShift"  # the arms refuse different shares of requests as wrong
    OUTPUT_LENGTH_SHIFT = "OutputLengthShift"  # the candidate answers shorter or longer
    PROMPT_MIX_SHIFT = "PromptMixShift"  # the arms saw different prompts
    ENVIRONMENT_BREACH = "EnvironmentBreach"  # stable breaks the limit as well
    TELEMETRY_SILENT = "TelemetrySilent"  # blocks without data of an arm that should have some
    MISSING_BLOCKS = "MissingBlocks"  # metering was interrupted in too many blocks
    UNMEASURED = "Unmeasured"  # a gate's metric is unknown for too many requests
    UNBUCKETED = "Unbucketed"  # more than 1 % of a tenant's requests belong to no bucket
    NO_TRAFFIC = "NoTraffic"  # a required tenant has none, or none in this step
    NO_BASELINE = "NoBaseline"  # thresholds of margin gates are not known yet
    TOO_COARSE = "TooCoarse"  # the buckets are too coarse, or overflow, for this threshold
    EVIDENCE_RISING = "EvidenceRising"  # evidence of a breach is above the warning level
    SENTINEL = "Sentinel"  # a quantile that is no gate says worse
    CLOCK_SKEW = "ClockSkew"  # many requests arrive after their block was closed: a clock is wrong
    IMPLAUSIBLE = "Implausible"  # a latency that contradicts the others, or is faster than the accelerator can be
    CACHE_WARMTH = "CacheWarmthShift"  # the arms found different shares of their prompts in the prefix cache
    UNREADABLE = "Unreadable"  # more than 1 % of the records had values that no clock or engine can have
    HARDWARE_DIFFERS = "HardwareDiffers"  # given by the controller
    PROVIDER_UNAVAILABLE = "ProviderUnavailable"  # given by the controller
    MIXED_REVISIONS = "MixedRevisions"  # one variant's requests were served by two revisions


@dataclass(frozen=True, slots=True)
class Hold:
    """One reason to stay, in words; tenant/bucket "" where it concerns the whole."""

    reason: HoldReason
    message: str
    tenant: str = ""
    bucket: str = ""
    metric: str = ""


@dataclass(frozen=True, slots=True)
class GateRow:
    """One stratum x gate: what was counted, what follows, what is missing.

    `low`, `high`, `estimate_*`, `limit`: seconds for latencies, shares (0..1) of bad requests for success and
    goodFraction, shares of good requests for goodput. `ratio_*`: candidate against stable. None = unknown (never
    zero).
    """

    tenant: str
    bucket: str
    metric: str
    gate: str  # p99-margin | p99-limit | margin | limit
    verdict: Result
    n_stable: int
    n_candidate: int
    exceed_stable: int | None
    exceed_candidate: int | None
    estimate_stable: float | None
    estimate_candidate: float | None
    ratio_low: float | None
    ratio_high: float | None
    low: float | None
    high: float | None
    limit: float | None
    e_pass: float
    e_fail: float
    phi: float
    needed_requests: int | None
    eta_s: float | None
    reason: str  # one sentence that a person can act on
    mode: str = "enforce"  # enforce | dryRun
    hold: HoldReason | None = None
    pairs: int = 0  # pairs (a request and its copy) used instead of single requests
    correlation: float | None = None  # of log latencies within a pair


@dataclass(frozen=True, slots=True)
class Culprit:
    """A cell that carries the rollback evidence; bucket or tenant "*" where the cell is a sum over them."""

    tenant: str
    bucket: str
    metric: str
    gate: str
    e: float
    proven: bool = False  # on the closed-testing list at alphaRollback


@dataclass(frozen=True, slots=True)
class Rollback:
    """Evidence of a breach over the whole attempt: FAIL as soon as `e >= threshold`."""

    e: float
    threshold: float
    culprits: tuple[Culprit, ...] = ()


@dataclass(frozen=True, slots=True)
class WorstStratum:
    """The stratum that is furthest from passing."""

    tenant: str
    bucket: str
    metric: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's answer at one moment.

    decided_at_s: seconds since the step began at which FAIL or PASS was first true, None while undecided.
    requests_needed / eta_s: for the slowest required stratum, candidate requests and seconds at the present rate;
    None = unknown. evidence: digest input for approvals lives in the controller; this value is complete and
    deterministic for it.
    """

    result: Result
    now_s: float
    step: int
    decided_at_s: float | None
    holds: tuple[Hold, ...]
    rows: tuple[GateRow, ...]
    rollback: Rollback
    worst: WorstStratum | None
    requests_needed: int | None
    eta_s: float | None
    sentences: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)
