"""What stable's own past says before an attempt begins: thresholds, shares, and how much the requests depend on each
other.

`prepare` turns history blocks (of stable alone) into the frozen `JudgeSetup`. Pure.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from policies import blocks, histogram
from policies.blocks import Block, Cell
from policies.contract import OTHER_TENANT, SERVED, Check, CheckKind, Contract, sentinels
from policies.dependence import Excess, Halves
from policies.expectation import with_aims
from policies.projection import Strata, Stratum, outcome_counts, stable_cells
from policies.records import STABLE
from policies.setup import CheckSetup, JudgeSetup, StratumSetup

ENOUGH = 300
"""Requests that a stratum's own threshold needs; below, its bucket's (then everybody's) history sets it."""
FEWEST = 50
FLOOR_WITHOUT_HISTORY = 4.0


class History:
    """Stable's blocks summed up: sketches, counts and rates per stratum. bins[(stratum, metric)]."""

    def __init__(self, contract: Contract, history: Sequence[Block]) -> None:
        self.contract = contract
        self.blocks = [b for b in history if STABLE not in b.missing]
        self.block_s = self.blocks[0].end_s - self.blocks[0].start_s if self.blocks else contract.block_s
        self.span_s = len(self.blocks) * self.block_s
        self.bins: dict[tuple[Stratum, str], dict[int, int]] = {}
        self.outcomes: dict[Stratum, dict[str, int]] = {}
        self.binary: dict[tuple[Stratum, str], list[int]] = {}
        self.pods: set[str] = set()
        for block in self.blocks:
            for cell in stable_cells(block):
                self._add(cell)

    def _add(self, cell: Cell) -> None:
        place = (cell.tenant, cell.bucket)
        self.pods.add(cell.pod)
        outcomes = self.outcomes.setdefault(place, {})
        for outcome, count in cell.outcomes.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
        for metric, counts in cell.metrics.items():
            into = self.bins.setdefault((place, metric), {})
            for index, count in counts.bins.items():
                into[index] = into.get(index, 0) + count
            if metric in (blocks.GOOD_FRACTION, blocks.GOODPUT):
                sums = self.binary.setdefault((place, metric), [0, 0])
                sums[0] += counts.below.get(blocks.BINARY, 0)
                sums[1] += counts.over.get(blocks.BINARY, 0)

    @property
    def strata(self) -> list[Stratum]:
        return sorted(place for place, outcomes in self.outcomes.items() if sum(outcomes.values()))

    def requests(self, place: Stratum) -> int:
        return sum(self.outcomes.get(place, {}).values())

    def sketch(self, place: Stratum, metric: str) -> tuple[dict[int, int], str]:
        """(bins, whose) of a stratum: its own where there are enough, else its bucket's, else everybody's."""
        own = self.bins.get((place, metric), {})
        if histogram.count(own) >= ENOUGH:
            return own, "stratum"
        bucket = histogram.merge(b for ((_, name), m), b in self.bins.items() if m == metric and name == place[1])
        if histogram.count(bucket) >= ENOUGH:
            return bucket, "bucket"
        return histogram.merge(b for (_, m), b in self.bins.items() if m == metric), "all"

    def bad(self, place: Stratum | None, check: Check) -> tuple[int, int]:
        """(requests, bad ones) of a stratum, or of all for None, by the check's own meaning of bad."""
        total = [0, 0]
        for name in self.strata if place is None else [place]:
            if check.metric in (blocks.SUCCESS, SERVED.metric):
                outcomes = self.outcomes.get(name, {})
                n, k = outcome_counts(outcomes, check, self.contract.attempted)
            else:
                good, k = self.binary.get((name, check.metric), [0, 0])
                n = good + k
            total[0] += n
            total[1] += k
        return total[0], total[1]


def prepare(
    contract: Contract,
    history_blocks: Sequence[Block],
    baseline: bool = True,
    expected: Iterable[Stratum] = (),
    share: float = 0.5,
) -> JudgeSetup:
    """The frozen setup of an attempt.

    history_blocks: closed blocks of stable from before the attempt (may be empty: margin gates then calibrate in the
    step); baseline: False on a first install, where nothing can be compared and only limits are judged.
    """
    history = History(contract, history_blocks)
    checks = tuple(_settle(check, history) for check in (*contract.checks, SERVED, *sentinels(contract.checks)))
    names = _expected_strata(contract, history, expected)
    strata = tuple(_stratum(history, checks, place, baseline) for place in names)
    floor, warnings = _phi_floor(contract, history, checks)
    if not baseline:
        warnings.append("first install: there is no stable to compare with, only limits are judged")
    kappa, kappa_ratio = _dependence(history, checks, strata)
    everything = max(1, sum(history.requests(place) for place in history.strata))
    outcomes = list(history.outcomes.values())
    cancelled, refused = (sum(o.get(name, 0) for o in outcomes) for name in ("cancelled", "client_error"))
    setup = JudgeSetup(
        contract=contract,
        checks=checks,
        strata=strata,
        kappa=kappa,
        kappa_ratio=kappa_ratio,
        phi_floor=floor,
        baseline=baseline,
        history_s=history.span_s,
        cancel_share=cancelled / everything,
        refused_share=refused / everything,
        warnings=tuple(warnings),
    )
    return _with_thin(with_aims(setup, history, share), history, share)


def _phi_floor(contract: Contract, history: History, checks: Sequence[Check]) -> tuple[float, list[str]]:
    """The least phi, and why it is more than the policy's: the history is short, of one pod, or lacks a metric."""
    reasons = []
    if history.span_s < 0.95 * contract.history_s or len(history.pods) < 2:
        pods = f"{len(history.pods)} pod{'' if len(history.pods) == 1 else 's'}"
        why = f"{history.span_s:.0f} s of stable's history from {pods}"
        reasons.append(f"{why}, the policy asks for {contract.history_s:.0f} s (2 pods)")
    if unmeasured := _unmeasured(history, checks):
        reasons.append(f"stable's history does not show {', '.join(unmeasured)}")
    floor = max(contract.phi_floor, FLOOR_WITHOUT_HISTORY) if reasons else contract.phi_floor
    return floor, [f"phi is at least {floor:g}: {reason}" for reason in reasons]


def _unmeasured(history: History, checks: Sequence[Check]) -> list[str]:
    """Latencies of gates of which the history has too few values to say how much they depend on each other."""
    counted = {
        check.metric: sum(histogram.count(bins) for (_, metric), bins in history.bins.items() if metric == check.metric)
        for check in checks
        if check.metric in blocks.LATENCIES
    }
    return sorted(metric for metric, values in counted.items() if values < FEWEST and history.blocks)


def _with_thin(setup: JudgeSetup, history: History, share: float) -> JudgeSetup:
    """Thin strata pass together with a neighbour, or with their tenant, where the policy allows it; said in the
    warnings.
    """
    from policies.plan import merged_strata, thin_strata  # the planner reads the history and the setup

    if setup.contract.thin_strata == "parentVeto":
        thin = thin_strata(setup, history, share)
        words = [f"{t}, {b}: too thin to pass in time; its tenant passes for it (parentVeto)" for t, b in thin]
        return replace(setup, thin=thin, warnings=(*setup.warnings, *words))
    if setup.contract.thin_strata != "merge":
        return setup
    groups = merged_strata(setup, history, share)
    words = [f"{g[0][0]}: buckets {', '.join(b for _, b in g)} are too thin and pass together" for g in groups]
    return replace(setup, merged=groups, warnings=(*setup.warnings, *words))


def _expected_strata(contract: Contract, history: History, expected: Iterable[Stratum]) -> list[Stratum]:
    """Strata that get their weight beforehand: those with traffic; without any history, those the policy names."""
    known = sorted({*history.strata, *expected})
    if known:
        return known
    tenants = [*contract.required, *([OTHER_TENANT] if contract.other == "pooled" else [])]
    return [(tenant, bucket) for tenant in tenants for bucket in contract.bucket_names]


def _settle(check: Check, history: History) -> Check:
    """A margin on bad fractions turns absolute (history + margin) where stable has too few bad requests."""
    if check.kind is not CheckKind.BAD_REL:
        return check
    n, k = history.bad(None, check)
    points = _margin_points(check, k / n if n else 0.0)
    is_rare = k < 30 * max(1, len(history.strata)) or k / n < points
    if not is_rare:
        return check
    return Check(check.metric, check.gate, CheckKind.BAD_ABS, points, check.margin, True, None, check.enforce, None)


def _margin_points(check: Check, bad_share: float) -> float:
    """The margin of a bad fraction in points: as written, or a share of stable's good fraction."""
    assert check.margin is not None
    return check.margin if check.margin_points else check.margin * (1.0 - bad_share)


def _stratum(history: History, checks: Sequence[Check], place: Stratum, baseline: bool) -> StratumSetup:
    medians = {}
    for metric in (blocks.PROMPT_TOKENS, blocks.OUTPUT_TOKENS):
        own = history.bins.get((place, metric), {})
        index = histogram.rank_index(own, math.ceil(histogram.count(own) / 2))
        if index is not None and histogram.count(own) >= FEWEST:
            medians[metric] = index
    n = history.requests(place)
    return StratumSetup(
        tenant=place[0],
        bucket=place[1],
        checks=tuple(_check_setup(history, check, place, baseline) for check in checks),
        n_history=n,
        rate_rps=n / history.span_s if history.span_s else 0.0,
        medians=medians,
    )


def _check_setup(history: History, check: Check, place: Stratum, baseline: bool) -> CheckSetup:
    if check.kind is CheckKind.QUANTILE_ABS:
        assert check.limit is not None
        key = blocks.threshold_us(check.limit)
        return CheckSetup(key, key, check.share)
    if check.kind is CheckKind.QUANTILE_REL:
        bins, _ = history.sketch(place, check.metric)
        return quantile_setup(check, bins, FEWEST) if baseline else CheckSetup(-1, -1, None)
    if check.limit is not None:  # an absolute share of requests
        return CheckSetup(blocks.BINARY, blocks.BINARY, check.share)
    if not baseline and check.metric != SERVED.metric:
        return CheckSetup(-1, -1, None)
    if check.kind is CheckKind.GOODPUT_REL:
        assert check.margin is not None
        return CheckSetup(blocks.BINARY, blocks.BINARY, 1.0 - check.margin)
    return CheckSetup(blocks.BINARY, blocks.BINARY, _bad_null(history, check, place))


def _bad_null(history: History, check: Check, place: Stratum) -> float:
    """Allowed share (absolute) or ratio (relative) of bad requests, from this stratum's history or everybody's."""
    n, k = history.bad(place, check)
    if n < ENOUGH:
        n, k = history.bad(None, check)
    share = k / n if n else 0.0
    points = _margin_points(check, share)
    if check.kind is CheckKind.BAD_ABS:
        return min(share + points, 0.99)
    share = max(share, 1e-6)
    return (share + points) / share


def quantile_setup(check: Check, bins: Mapping[int, int], fewest: int) -> CheckSetup:
    """Thresholds of a margin gate from stable's sketch: its quantile snapped up to an edge, and (1 + margin) x."""
    index = _quantile_bin(check, bins, fewest)
    if index is None or check.margin is None:
        return CheckSetup(-1, -1, None)
    n = histogram.count(bins)
    tau = histogram.edge(index)
    keys = blocks.threshold_us(tau), blocks.threshold_us(tau * (1.0 + check.margin))
    above, equal = histogram.count_above(bins, index), bins[index]
    if above >= check.share * n / 2:
        return CheckSetup(*keys, 1.0)
    share = min(1.0, (check.share * n - above) / equal)
    return CheckSetup(*keys, 1.0, blocks.threshold_us(histogram.edge(index - 1)), share)


# --- dependence ---


def _dependence(
    history: History, checks: Sequence[Check], setups: Sequence[StratumSetup]
) -> tuple[tuple[Excess, ...], tuple[Excess, ...]]:
    """Excess variance per request by check and level: of the check itself, and of the comparison at its bound."""
    strata = Strata((s.tenant, s.bucket) for s in setups)
    halves = Halves(history.blocks, history.block_s, history.pods, history.contract.attempted)
    found = [
        halves.excess(strata, check, dependence_bounds(history, check, setups, number))
        for number, check in enumerate(checks)
    ]
    return tuple(own for own, _ in found), tuple(ratio for _, ratio in found)


def dependence_bounds(
    history: History, check: Check, setups: Sequence[StratumSetup], number: int
) -> list[Sequence[int]]:
    """Thresholds per stratum at which a check's dependence is measured, one row or two.

    A limit far above what stable does is crossed by a handful of requests, and they say nothing about a candidate that
    is at the limit: that one crosses it as often, and in waves as deep, as stable crosses its own percentile. A limit
    is measured at both.
    """
    bounds: list[Sequence[int]] = [[s.checks[number].stable_us for s in setups]]
    if check.kind is CheckKind.QUANTILE_ABS:
        bounds.append([_own_quantile_us(history, check, (s.tenant, s.bucket)) for s in setups])
    return bounds


def _own_quantile_us(history: History, check: Check, place: Stratum) -> int:
    """Stable's own percentile of a latency check, snapped up to an edge, in microseconds; -1 = too little history."""
    bins, _ = history.sketch(place, check.metric)
    index = _quantile_bin(check, bins, FEWEST)
    return -1 if index is None else blocks.threshold_us(histogram.edge(index))


def _quantile_bin(check: Check, bins: Mapping[int, int], fewest: int) -> int | None:
    """The sketch's bin that holds a check's quantile; None where the check has none, or below `fewest` values."""
    n = histogram.count(bins)
    if n < fewest or check.quantile is None:
        return None
    return histogram.rank_index(bins, max(1, math.ceil(check.quantile * n - 1e-9)))
