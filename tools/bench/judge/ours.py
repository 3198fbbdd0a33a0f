"""Our judge on a scenario's requests: the product's `prepare` and `Judge`, fed with arrays where a block has objects.

`Judge.feed` turns a block's cells into arrays and ends in `Judge.take`; the bench makes the same arrays itself and
calls `take`. A test feeds both ways and compares the states bit for bit. Two liberties against a policy file, both
stated in the table's head: every stratum has its own absolute limit, and the comparability guards are left out (the
arms' tokens and cancels are alike, so they never hold).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from policies import histogram
from policies.blocks import TTFT, Block, Cell, MetricCounts, threshold_us
from policies.contract import CheckKind, Contract, contract_from_mapping
from policies.dependence import Excess, largest_excess
from policies.expectation import with_aims
from policies.history import History, dependence_bounds, prepare
from policies.judge import Judge
from policies.pairevidence import PairSums
from policies.plan import merged_strata
from policies.projection import Counts, Projected, Strata
from policies.records import CANDIDATE, STABLE
from policies.setup import JudgeSetup
from tools.bench.judge.scenarios import (
    BLOCK_S,
    BUCKET_EDGES,
    FAILURE_LIMIT,
    HISTORY_S,
    LIMIT_FACTOR,
    MARGIN,
    TENANTS,
    Array,
)
from tools.bench.judge.traffic import Pairs, Requests, Source, true_p99_factor

START_S = 1_000_000.0
PODS = ("stable-0", "stable-1")


@cache
def make_contract(history_s: float = HISTORY_S) -> Contract:
    """TTFT P99 within 25 % of stable and within a limit, success 99.5 %; everything else is the product's default."""
    return contract_from_mapping(
        {
            "tenants": {"required": list(TENANTS), "other": "ignore"},
            "lengthBuckets": {"edges": list(BUCKET_EDGES)},
            "gates": [
                {"metric": "ttft", "percentile": "99", "margin": f"{MARGIN:.0%}", "limit": "60s"},
                {"metric": "success", "limit": f"{1 - FAILURE_LIMIT:.1%}"},
            ],
            "evidence": {"history": f"{history_s:.0f}s"},
        }
    )


def names() -> list[tuple[str, str]]:
    """Strata in the order of the arrays (tenant-major)."""
    return [(tenant, bucket) for tenant in TENANTS for bucket in make_contract().bucket_names]


def make_setup(source: Source) -> JudgeSetup:
    """`prepare` on stable's past, with the dependence of all its blocks.

    One history block holds the sketches (thresholds, rates and the plan need no more); what the halves differ by in
    each 5 s block goes to `largest_excess` as arrays, as `prepare` does with cells. Aims follow the limits; thin
    strata are merged last, because the plan needs the dependence.
    """
    contract, place = make_contract(source.history_s), names()
    halves = [source.history(half) for half in (0, 1)]
    cells = tuple(_history_cells(place, halves))
    block = Block(0, "bench", 0, 0, START_S - source.history_s, START_S, cells, stage="idle")
    setup = prepare(replace(contract, thin_strata="hold"), [block])
    setup = replace(_in_order(setup, place), contract=contract)
    history = History(contract, [block])
    setup = _with_dependence(_with_limits(setup, source), history, halves)
    setup = with_aims(setup, history)
    return replace(setup, merged=merged_strata(setup, history, 0.5))


def _history_cells(place: list[tuple[str, str]], halves: list[Requests]) -> Iterator[Cell]:
    """Everything on the first pod; the second is only there, because pods are counted."""
    log_ttft = np.concatenate([half.log_ttft for half in halves])
    stratum = np.concatenate([half.cell % len(place) for half in halves])
    bins = np.ceil(log_ttft / math.log(histogram.GAMMA) - 1e-9).astype(np.int64)  # as `histogram.bin_indices`
    low, wide = int(bins.min()), int(bins.max() - bins.min()) + 1
    table = np.bincount(stratum * wide + (bins - low), minlength=len(place) * wide).reshape(len(place), wide)
    attempted, failed = (sum(getattr(h, name).sum(axis=0) for h in halves) for name in ("attempted", "failed"))
    for number, (tenant, bucket) in enumerate(place):
        used = np.nonzero(table[number])[0]
        sketch = dict(zip((used + low).tolist(), table[number, used].tolist(), strict=True))
        bad, ok = int(failed[number]), int(attempted[number] - failed[number])
        metrics = {TTFT: MetricCounts(n=ok, bins=sketch)}
        outcomes = {"ok": ok, "server_error": bad}
        yield Cell(STABLE, "r1", "live", tenant, bucket, PODS[0], -1, ok + bad, outcomes, metrics)
    yield Cell(STABLE, "r1", "live", *place[0], PODS[1], -1, 0, {}, {})


def _in_order(setup: JudgeSetup, place: list[tuple[str, str]]) -> JudgeSetup:
    """`prepare` sorts strata by name; the arrays are in the order of `names`."""
    by_name = {(s.tenant, s.bucket): s for s in setup.strata}
    return replace(setup, strata=tuple(by_name[name] for name in place))


def _with_limits(setup: JudgeSetup, source: Source) -> JudgeSetup:
    """Give every stratum its own absolute limit."""
    factor = LIMIT_FACTOR * true_p99_factor(source.scenario.is_heavy)
    limits = [threshold_us(float(v) * factor) for v in np.exp(source.log_median)]
    strata = []
    for stratum, limit in zip(setup.strata, limits, strict=True):
        checks = [
            replace(values, stable_us=limit, candidate_us=limit) if check.kind is CheckKind.QUANTILE_ABS else values
            for check, values in zip(setup.checks, stratum.checks, strict=True)
        ]
        strata.append(replace(stratum, checks=tuple(checks)))
    return replace(setup, strata=tuple(strata))


def _with_dependence(setup: JudgeSetup, history: History, halves: list[Requests]) -> JudgeSetup:
    """Excess variance of each check from the halves' counts per block; thresholds are those of `prepare`."""
    strata = Strata((s.tenant, s.bucket) for s in setup.strata)
    found: list[tuple[Excess, Excess]] = []
    for number, check in enumerate(setup.checks):
        if check.metric == TTFT:
            bounds = dependence_bounds(history, check, setup.strata, number)
            counts = [_above_halves(halves, keys) for keys in bounds]
        else:  # shares of requests; none is refused as wrong
            bad = [half.failed if check.metric == "success" else np.zeros_like(half.failed) for half in halves]
            counts = [(_stacked([half.attempted for half in halves]), _stacked(bad))]
        found.append(largest_excess(strata, counts, BLOCK_S, check.kind.is_relative))
    return replace(setup, kappa=tuple(own for own, _ in found), kappa_ratio=tuple(ratio for _, ratio in found))


def _above_halves(halves: list[Requests], keys: Sequence[int]) -> tuple[Array, Array]:
    """Answered requests of both halves and those above the thresholds (microseconds), as a sketch tells them apart."""
    edges = np.log([histogram.edge(histogram.bin_index(key / 1e6)) for key in keys])
    return _stacked([half.answered for half in halves]), _stacked([half.above(edges)[0] for half in halves])


def _stacked(arrays: list[Any]) -> Array:
    return np.stack(arrays).astype(float)


def _log_keys(setup: JudgeSetup) -> dict[int, tuple[Array, Array, Array]]:
    """By latency check: log thresholds of the candidate, of stable, and stable's of ties (its own where none)."""
    found = {}
    for number, check in enumerate(setup.checks):
        if check.metric == TTFT:
            values = [s.checks[number] for s in setup.strata]
            keys = ([v.candidate_us for v in values], [v.stable_us for v in values])
            ties = [v.tie_us if v.tie_us >= 0 else v.stable_us for v in values]
            found[number] = (
                np.log(np.array(keys[0]) / 1e6),
                np.log(np.array(keys[1]) / 1e6),
                np.log(np.array(ties) / 1e6),
            )
    return found


def _with_ties(setup: JudgeSetup, number: int, above: Any, above_tie: Any) -> Array:
    """Stable's exceedances; of values tied with its quantile (same bin) the share that `CheckSetup` says."""
    shares = np.array([s.checks[number].tie_share for s in setup.strata])
    return np.asarray(above + shares * np.maximum(0.0, above_tie - above))


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of some blocks at the judge's thresholds; per check, float64[T, S] of (n_c, k_c, n_b, k_b)."""

    checks: tuple[tuple[Array, ...], ...]
    candidate: Array  # requests that ended, [T, S]
    stable: Array
    pairs: tuple[Array, ...] = ()  # of the margin: the fields of `PairSums`


def count_pairs(setup: JudgeSetup, blocks: int, pairs: Pairs) -> tuple[Array, ...]:
    """Pairs at the margin's thresholds as the builder counts them, float64[T, S] by field of `PairSums`."""
    number = next(i for i, check in enumerate(setup.checks) if check.kind is CheckKind.QUANTILE_REL)
    values = [s.checks[number] for s in setup.strata]
    size = blocks * len(values)

    def total(weights: Array | None = None) -> Array:
        return np.asarray(np.bincount(pairs.cell, weights, size).astype(float).reshape(blocks, len(values)))

    stable_over = pairs.log_stable > np.tile(np.log([v.stable_us / 1e6 for v in values]), blocks)[pairs.cell]
    candidate_over = pairs.log_candidate > np.tile(np.log([v.candidate_us / 1e6 for v in values]), blocks)[pairs.cell]
    only_c, only_s = candidate_over & ~stable_over, stable_over & ~candidate_over
    x, y = pairs.log_stable, pairs.log_candidate
    weights = (None, only_c.astype(float), only_s.astype(float), None, x, y, x * x, y * y, x * y)
    return tuple(total(w) for w in weights)


def count(setup: JudgeSetup, stable: Requests, candidate: Requests, pairs: Pairs | None = None) -> Counted:
    """What the recorder would count at the source for these requests."""
    keys = _log_keys(setup)
    by_c = candidate.above(*(c for c, _, _ in keys.values()))
    by_s = stable.above(*(logs for _, s, tie in keys.values() for logs in (s, tie)))
    latencies = {}
    for place, number in enumerate(keys):
        k_b = _with_ties(setup, number, by_s[2 * place], by_s[2 * place + 1])
        latencies[number] = (candidate.answered, by_c[place], stable.answered, k_b)
    joined = () if pairs is None else count_pairs(setup, len(stable.attempted), pairs)
    return _counted(setup, latencies, (candidate.attempted, candidate.failed, stable.attempted, stable.failed), joined)


def count_by_law(setup: JudgeSetup, source: Source, first: int, last: int) -> Counted:
    """Counts of blocks whose single latencies nobody needs, drawn by the law of the requests (not of stalls)."""
    keys = _log_keys(setup)
    sets = [np.stack([k[0] for k in keys.values()]), np.stack([t for k in keys.values() for t in k[1:]])]
    laws = (source.candidate_law(first, last), source.stable_law(first, last))
    (c, c_failed, c_above), (s, s_failed, s_above) = (
        source.above(law, arm, first, logs) for law, arm, logs in zip(laws, (1, 0), sets, strict=True)
    )
    latencies = {}
    for place, number in enumerate(keys):
        k_b = _with_ties(setup, number, s_above[2 * place], s_above[2 * place + 1])
        latencies[number] = (c - c_failed, c_above[place], s - s_failed, k_b)
    return _counted(setup, latencies, (c, c_failed, s, s_failed), ())


def _counted(
    setup: JudgeSetup,
    latencies: dict[int, tuple[Any, ...]],
    requests: tuple[Any, Any, Any, Any],
    pairs: tuple[Array, ...],
) -> Counted:
    """Counts of all checks in their order; requests: (candidate, its failures, stable, its failures)."""
    candidate, bad_c, stable, bad_b = requests
    zero = np.zeros_like(candidate)
    found = []
    for number, check in enumerate(setup.checks):
        arrays = latencies.get(number)
        if arrays is None:  # shares of requests; none is refused as wrong
            is_success = check.metric == "success"
            arrays = (candidate, bad_c if is_success else zero, stable, bad_b if is_success else zero)
        found.append(tuple(a.astype(float) for a in arrays))
    return Counted(tuple(found), candidate.astype(float), stable.astype(float), pairs)


class Ours:
    """One judge in one step at half of the traffic; takes blocks until it has decided."""

    def __init__(self, setup: JudgeSetup, weight: float = 50.0) -> None:
        self.judge = Judge(setup)
        self.judge.guards = []
        self.judge.enter_step(1, START_S, weight)
        self.seq = 0

    @property
    def decided_s(self) -> tuple[str, float] | None:
        """(FAIL or PASS, seconds since the step began); FAIL also after an earlier PASS."""
        if self.judge.fired is not None:
            return "FAIL", self.judge.fired.at_s - START_S
        if self.judge.passed_at_s is not None:
            return "PASS", self.judge.passed_at_s - START_S
        return None

    def take(self, counted: Counted, row: int) -> None:
        """One closed block."""
        start_s = START_S + self.seq * BLOCK_S
        counts = [Counts(*(a[row] for a in arrays)) for arrays in counted.checks]
        finished = {CANDIDATE: counted.candidate[row], STABLE: counted.stable[row]}
        routed = {
            (variant, tenant): int(n)
            for variant, ended in finished.items()
            for tenant, n in zip(TENANTS, ended.reshape(len(TENANTS), -1).sum(axis=1), strict=True)
        }
        pairs = {0: PairSums(*(a[row] for a in counted.pairs))} if counted.pairs else {}
        block = Projected(self.seq, start_s, start_s + BLOCK_S, counts, [], finished, routed, {}, {}, pairs)
        self.judge.take(block)
        self.seq += 1

    def lose(self) -> None:
        """A block whose metering was interrupted."""
        start_s = START_S + self.seq * BLOCK_S
        self.judge.feed(Block(self.seq, "bench", 1, 1, start_s, start_s + BLOCK_S, missing=(CANDIDATE,)))
        self.seq += 1

    @property
    def strata_passed(self) -> float:
        """Share of strata whose every deciding check has passed."""
        latched = [
            t.latched for c, t in zip(self.judge.checks, self.judge.tracks, strict=True) if self.judge.decides(c)
        ]
        return float(np.logical_and.reduce(latched).mean())
