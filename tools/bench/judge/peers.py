"""The rules of Argo Rollouts, Flagger and Kayenta, and tests of fixed size, re-implemented from their formulas.

Sources: argoproj/argo-rollouts `analysis/analysis.go`, `utils/evaluate/evaluate.go`; fluxcd/flagger
`pkg/controller/scheduler.go`; spinnaker/kayenta `MannWhitney.scala`, `MannWhitneyClassifier.scala`,
`NetflixACAJudge.scala`. Values in, (result, seconds) out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from tools.bench.judge.scenarios import Array

Bools = NDArray[np.bool_]
MINUTE_S = 60.0
MEASUREMENTS = 30
Decision = tuple[str, float]
"""PASS, FAIL or INCONCLUSIVE, and seconds since the step began."""


def argo(values: Array, limit: float, failure_limit: int, count: int = MEASUREMENTS, error_limit: int = 4) -> Decision:
    """An AnalysisRun of M metrics measured every minute, success condition `result[0] <= limit`.

    values: [minutes, M], NaN = a result that satisfies no condition (a failed measurement), inf likewise; a metric that
    has no result at all (empty vector) is an error, written as -inf here. A metric fails when its failed measurements
    exceed `failure_limit`, and errs when more than `error_limit` in a row are errors; either ends the run.
    """
    taken = values[:count]
    is_error = np.isneginf(taken)
    failed = np.cumsum(~(taken <= limit) & ~is_error, axis=0) > failure_limit
    in_row = np.zeros(taken.shape[1])
    for minute in range(len(taken)):
        in_row = np.where(is_error[minute], in_row + 1, 0)
        if failed[minute].any() or (in_row > error_limit).any():
            return "FAIL", (minute + 1) * MINUTE_S
    return "PASS", count * MINUTE_S


def flagger(values: Array, limit: float, threshold: int, iterations: int = MEASUREMENTS) -> Decision:
    """A Canary analysed every minute: a tick with any metric above `limit`, or without a value, is a failed check.

    At every tick the sum of failed checks is compared with `threshold` before anything is measured; a good tick is one
    iteration, and `iterations` of them promote. values: [minutes, M]; INCONCLUSIVE when they end before.
    """
    failed = done = 0
    for minute, row in enumerate(values, start=1):
        if failed >= threshold:
            return "FAIL", minute * MINUTE_S
        if bool(np.all(row <= limit)):
            done += 1
            if done >= iterations:
                return "PASS", minute * MINUTE_S
        else:
            failed += 1
    return ("FAIL" if failed >= threshold else "INCONCLUSIVE"), len(values) * MINUTE_S


@dataclass(frozen=True, slots=True)
class Shift:
    """Mann-Whitney interval and Hodges-Lehmann estimate of experiment - control, [M] each."""

    low: Array
    high: Array
    estimate: Array


def mann_whitney(control: Array, experiment: Array, confidence: float = 0.98) -> Shift:
    """Confidence interval of the location shift as Kayenta (and R's wilcox.test, exact = FALSE, correct = TRUE) has it.

    control, experiment: [M, n]. The test statistic is a step function of the shift that falls by one at every pairwise
    difference, so the root that Brent's method looks for is one of the sorted differences.
    """
    m, n = control.shape[1], experiment.shape[1]
    differences = np.sort((experiment[:, :, None] - control[:, None, :]).reshape(len(control), -1), axis=1)
    pairs = m * n
    ties = _tie_sum(control) + _tie_sum(experiment)
    sigma = np.sqrt(pairs / 12.0 * ((m + n + 1) - ties / ((m + n) * (m + n - 1))))
    reach = float(norm.ppf(1 - (1 - confidence) / 2)) * sigma
    steps = np.clip(np.floor(pairs / 2 - reach - 0.5), 0, pairs - 1).astype(np.int64)
    rows = np.arange(len(control))
    middle = (differences[:, (pairs - 1) // 2] + differences[:, pairs // 2]) / 2
    return Shift(differences[rows, steps], differences[rows, pairs - 1 - steps], middle)


def _tie_sum(values: Array) -> Array:
    """Sum of t^3 - t over runs of equal values, per row."""
    ordered = np.sort(values, axis=1)
    found = np.zeros(len(values))
    for row in np.nonzero((np.diff(ordered, axis=1) == 0).any(axis=1))[0]:
        sizes = np.unique(ordered[row], return_counts=True)[1].astype(float)
        found[row] = float((sizes**3 - sizes).sum())
    return found


def kayenta_high(control: Array, experiment: Array, allowed_increase: float = 1.0, tolerance: float = 0.25) -> Bools:
    """Which metrics are classified High (direction: increase), bool[M]; values [M, n].

    High: the interval lies above tolerance x |estimate| and the ratio of means is at least `allowed_increase`. Equal
    data pass. NaNs are dropped minute by minute (nanStrategy remove); a metric without data is not High (Nodata).
    """
    complete = ~(np.isnan(control) | np.isnan(experiment)).any(axis=1)
    high = np.zeros(len(control), dtype=bool)
    high[complete] = _high(control[complete], experiment[complete], allowed_increase, tolerance)
    for row in np.nonzero(~complete)[0]:
        c, e = (v[row][~np.isnan(v[row])][None, :] for v in (control, experiment))
        if c.size and e.size:
            high[row] = _high(c, e, allowed_increase, tolerance)[0]
    return high


def _high(control: Array, experiment: Array, allowed_increase: float, tolerance: float) -> Bools:
    if not len(control):
        return np.zeros(0, dtype=bool)
    shift = mann_whitney(control, experiment)
    above = shift.low > tolerance * np.abs(shift.estimate)
    means = experiment.mean(axis=1), control.mean(axis=1)
    ratio = np.divide(means[0], means[1], out=np.full(len(control), np.nan), where=means[1] != 0)
    is_large = np.isnan(ratio) | (ratio >= allowed_increase)
    is_equal = np.zeros(len(control), dtype=bool)
    if control.shape == experiment.shape:
        is_equal = (control == experiment).all(axis=1)
    return np.asarray(above & is_large & ~is_equal)


def kayenta(control: Array, experiment: Array, allowed_increase: float = 1.0, count: int = MEASUREMENTS) -> Decision:
    """One judgement after `count` one-minute values [M, n] of critical metrics: any High, or half empty, fails."""
    control, experiment = control[:, :count], experiment[:, :count]
    no_data = np.isnan(control).all(axis=1) | np.isnan(experiment).all(axis=1)
    is_bad = kayenta_high(control, experiment, allowed_increase).any() or no_data.mean() >= 0.5
    return ("FAIL" if is_bad else "PASS"), count * MINUTE_S


@dataclass(frozen=True, slots=True)
class Looks:
    """Cumulative counts at each look, [L, S] each: both arms for the margin, (n, k, p0) of the candidate for limits."""

    seconds: Array
    ratio: tuple[Array, Array, Array, Array]
    absolute: tuple[tuple[Array, Array, float], ...]


def fixed_size(looks: Looks, alpha: float = 0.05) -> Decision:
    """Exact tests of every stratum at level `alpha`, uncorrected: any breach fails, all proven good passes.

    With a single look this is the classical fixed-size test. Binomial (Clopper-Pearson) for limits, conditional
    binomial for the margin.
    """
    n_c, k_c, n_b, k_b = looks.ratio
    both = k_c + k_b
    share = np.divide(n_c, n_c + n_b, out=np.full_like(n_c, 0.5), where=n_c + n_b > 0)
    worse = [binom.sf(k_c - 1, both, share) <= alpha]
    better = [(binom.cdf(k_c, both, share) <= alpha) & (n_c > 0) & (n_b > 0)]
    for n, k, p0 in looks.absolute:
        worse.append((binom.sf(k - 1, n, p0) <= alpha) & (k > 0))
        better.append(binom.cdf(k, n, p0) <= alpha)
    fails = np.logical_or.reduce([w.any(axis=1) for w in worse])
    passes = np.logical_and.reduce([b.all(axis=1) for b in better])
    for look in range(len(looks.seconds)):
        if fails[look] or passes[look]:
            return ("FAIL" if fails[look] else "PASS"), float(looks.seconds[look])
    return "INCONCLUSIVE", float(looks.seconds[-1])
