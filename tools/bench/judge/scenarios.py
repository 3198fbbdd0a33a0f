"""The scenarios of judge-bench: what is true of stable, the candidate and the traffic, and what a judge should do.

Read by `traffic` (which draws the requests) and `table` (which knows right from wrong by `truth`).
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BLOCK_S = 5.0
WARMUP_S = 180.0
HORIZON_S = 7200.0
HISTORY_S = 7200.0
MARGIN = 0.25
LIMIT_FACTOR = 1.6  # the absolute limit is so many times stable's true P99
FAILURES = 0.001
FAILURE_LIMIT = 0.005
SIGMA = 0.5
PARETO_SHARE, PARETO_POWER = 0.03, 1.8
TENANTS = tuple(f"tenant-{i:02d}" for i in range(20))
BUCKET_EDGES = (128, 512, 2048, 8192, 16384)
STRATA = len(TENANTS) * (len(BUCKET_EDGES) + 1)


class Truth(StrEnum):
    """What is right; anything else that is decided is wrong."""

    PROMOTE = "promote"  # rolling back is wrong; staying undecided costs time only
    ROLLBACK = "rollback"  # promoting is wrong
    HOLD = "hold"  # data are missing or too few: both are wrong
    NEUTRAL = "neutral"  # worse, but inside the margin: rolling back is wrong
    BOUNDARY = "boundary"  # exactly at the margin: promoting is wrong (at most 5 %), rolling back too
    POLICY = "policy"  # a matter of the declared stall tolerance: nothing is wrong


class Where(StrEnum):
    """Which strata the change concerns."""

    ALL = "all"
    TENANT = "tenant"  # 6 of 120 strata
    BUCKET = "bucket"  # 20 of 120 strata
    STRATUM = "stratum"  # 1 of 120 strata


@dataclass(frozen=True, slots=True)
class Scenario:
    """factor: candidate's latency (all percentiles) in `where` from `onset_s` on, `rest` elsewhere; tail_sigma: spread
    of log latency in `where`; burst: AR(1) of log latency common to an arm (`independent` or `shared` by the arms);
    drift: growth of both arms over the horizon; stall_s: the candidate answers nothing for so long, at 50 minutes;
    silent: strata without any request on the candidate; missing: share of blocks lost; failures: candidate's failure
    share in `where`; cold_factor: slowness in its first two minutes; is_null: nothing is wrong and R is larger.
    """

    name: str
    truth: Truth
    words: str
    where: Where = Where.ALL
    factor: float = 1.0
    rest: float = 1.0
    onset_s: float = -WARMUP_S
    tail_sigma: float = SIGMA
    burst: str = ""
    drift: float = 0.0
    is_diurnal: bool = False
    stall_s: float = 0.0
    silent: int = 0
    missing: float = 0.0
    failures: float = FAILURES
    cold_factor: float = 1.0
    is_zipf: bool = False
    is_heavy: bool = False
    is_null: bool = False
    judged_s: float = HORIZON_S
    after_pass: bool = False  # go on looking after PASS (the step does not advance)

    @property
    def world(self) -> str:
        """What stable and the traffic are like; scenarios of one world share stable's requests and the dice, run by
        run.
        """
        kinds = (self.burst, "heavy" if self.is_heavy else "", "zipf" if self.is_zipf else "")
        return "-".join(kind for kind in kinds if kind) or "plain"

    def touched(self) -> NDArray[np.bool_]:
        """Strata in `where`: bool[S]. Strata are tenant-major."""
        buckets = len(BUCKET_EDGES) + 1
        index = np.arange(STRATA)
        tenant, bucket = index // buckets, index % buckets
        masks = {
            Where.ALL: np.ones(STRATA, dtype=bool),
            Where.TENANT: tenant == 7,
            Where.BUCKET: bucket == 3,
            Where.STRATUM: (tenant == 7) & (bucket == 3),
        }
        return np.asarray(masks[self.where])


def _tail_sigma(p99_factor: float, median_factor: float) -> float:
    """Spread at which the P99 is `p99_factor` x stable's while the median is `median_factor` x."""
    z = 2.3263478740408408
    return float((np.log(p99_factor / median_factor) + z * SIGMA) / z)


T, W = Truth, Where
SCENARIOS: tuple[Scenario, ...] = (
    Scenario("null", T.PROMOTE, "identical arms", is_null=True),
    Scenario(
        "bursty_null_independent", T.PROMOTE, "identical arms, independent bursts", burst="independent", is_null=True
    ),
    Scenario("least_favourable", T.BOUNDARY, "one stratum exactly at the margin, the rest x0.7", W.STRATUM, 1.25, 0.7),
    Scenario("all_x2", T.ROLLBACK, "everything x2", factor=2.0),
    Scenario("one_tenant_x2", T.ROLLBACK, "one tenant x2", W.TENANT, 2.0),
    Scenario("one_stratum_x5", T.ROLLBACK, "one stratum x5", W.STRATUM, 5.0),
    Scenario("one_stratum_x2", T.ROLLBACK, "one stratum x2 at 2 requests/s", W.STRATUM, 2.0),
    Scenario("bursty_null_shared", T.PROMOTE, "identical arms, bursts common to both", burst="shared", is_null=True),
    Scenario("all_x1.5", T.ROLLBACK, "everything x1.5", factor=1.5),
    Scenario("all_x3", T.ROLLBACK, "everything x3", factor=3.0),
    Scenario("one_tenant_x1.5", T.ROLLBACK, "one tenant x1.5", W.TENANT, 1.5),
    Scenario("one_bucket_x1.5", T.ROLLBACK, "one length bucket x1.5", W.BUCKET, 1.5),
    Scenario("one_stratum_x1.5", T.ROLLBACK, "one stratum x1.5", W.STRATUM, 1.5),
    Scenario(
        "mean_better_tail_worse", T.ROLLBACK, "medians x0.8, one bucket's P99 x2.3", W.BUCKET, 0.8, 0.8,
        tail_sigma=_tail_sigma(2.3, 0.8),
    ),
    Scenario("bursty_all_x2", T.ROLLBACK, "everything x2 under independent bursts", factor=2.0, burst="independent"),
    Scenario("late_15min_tenant_x2", T.ROLLBACK, "one tenant x2 from minute 15 on", W.TENANT, 2.0, onset_s=900.0),
    Scenario("errors_1%_one_tenant", T.ROLLBACK, "one tenant fails 1 % (stable 0.1 %)", W.TENANT, failures=0.01),
    Scenario("zipf_one_tenant_x2", T.ROLLBACK, "one tenant x2, Zipf traffic", W.TENANT, 2.0, is_zipf=True),
    Scenario("heavy_all_x2", T.ROLLBACK, "everything x2, Pareto tail", factor=2.0, is_heavy=True),
    Scenario("improved_x0.9", T.PROMOTE, "everything x0.9", factor=0.9),
    Scenario("drift_+50%_both", T.PROMOTE, "both arms drift to x1.5 in 2 h", drift=0.5),
    Scenario("diurnal", T.PROMOTE, "load +-50 %, latency +-20 %, a 2 h period", is_diurnal=True),
    Scenario("cold_start_120s", T.PROMOTE, "candidate x5 in its first 120 s (warm-up)", cold_factor=5.0),
    Scenario("candidate_stall_30s", T.PROMOTE, "candidate answers nothing for 30 s at minute 50", stall_s=30.0),
    Scenario("candidate_stall_60s", T.POLICY, "candidate answers nothing for 60 s at minute 50", stall_s=60.0),
    Scenario("x1.10_inside_margin", T.NEUTRAL, "everything x1.10", factor=1.10),
    Scenario("x1.25_boundary", T.BOUNDARY, "everything exactly at the margin", factor=1.25),
    Scenario("missing_20%_3_silent", T.HOLD, "20 % of blocks lost, 3 strata silent", missing=0.2, silent=3),
    Scenario("zipf_null", T.PROMOTE, "identical arms, Zipf traffic (may stay undecided)", is_zipf=True),
    Scenario("heavy_null", T.PROMOTE, "identical arms, Pareto tail (P99 may stay undecided)", is_heavy=True),
)  # fmt: skip
"""In the order in which the full run takes them: the ones with goals first."""

QUICK = ("null", "bursty_null_independent", "least_favourable", "all_x2", "one_tenant_x2", "one_stratum_x5")


def find(names: str) -> tuple[Scenario, ...]:
    """Scenarios of a comma-separated list; ValueError names an unknown one and lists those that exist."""
    known = {s.name: s for s in SCENARIOS}
    wanted = [name for name in names.split(",") if name]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(f"no scenario {unknown[0]!r}; there are {', '.join(known)}")
    return tuple(known[name] for name in wanted)


def shortened(scenario: Scenario, judged_s: float) -> Scenario:
    """The scenario judged for a shorter time (quick mode)."""
    return replace(scenario, judged_s=min(scenario.judged_s, judged_s))
