"""Draws the requests of a scenario as arrays: latencies of both arms and of stable's history, all from one seed.

Called by `ours`, `run` and `promote`. Requests are not objects here: one flat array of log latencies and one of the
block x stratum cell that each belongs to, so that counting above any threshold is one pass. Knows no judge.
"""

import zlib
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.signal import lfilter
from scipy.special import ndtr
from scipy.stats import norm

from tools.bench.judge.scenarios import (
    BLOCK_S,
    FAILURES,
    HISTORY_S,
    HORIZON_S,
    PARETO_POWER,
    PARETO_SHARE,
    SIGMA,
    STRATA,
    TENANTS,
    WARMUP_S,
    Array,
    Scenario,
)

Ints = NDArray[np.int64]
RATE_RPS = 2.0
BURST_SHARE, BURST_S = 0.3, 60.0
STALL_AT_S = 3000.0
_ZIPF_LEAST_RPS = 0.17
_FEW = np.full(STRATA, FAILURES)


def medians() -> Array:
    """Median TTFT per stratum in seconds, float64[S]: 0.12 to 1.2 s by bucket, x0.8 to x1.25 by tenant."""
    buckets = STRATA // len(TENANTS)
    by_bucket = 0.12 * 10.0 ** (np.arange(buckets) / (buckets - 1))
    by_tenant = np.geomspace(0.8, 1.25, len(TENANTS))
    return np.asarray((by_tenant[:, None] * by_bucket[None, :]).ravel())


@cache
def _zipf_power() -> float:
    ranks = np.arange(1, STRATA + 1)

    def least(power: float) -> float:
        weights = ranks**-power
        return float(weights[-1] / weights.sum()) * RATE_RPS * STRATA - _ZIPF_LEAST_RPS

    return float(brentq(least, 0.5, 3.0))


def rates(scenario: Scenario) -> Array:
    """Requests per second and arm, float64[S]. The same sum with and without Zipf; ranks are spread over the strata."""
    if not scenario.is_zipf:
        return np.full(STRATA, RATE_RPS)
    weights = np.arange(1, STRATA + 1) ** -_zipf_power()
    order = np.random.default_rng(120).permutation(STRATA)
    return np.asarray(weights[order] / weights.sum() * RATE_RPS * STRATA)


@cache
def true_p99_factor(is_heavy: bool) -> float:
    """P99 / median of stable's latency."""
    z99 = float(norm.ppf(0.99))
    if not is_heavy:
        return float(np.exp(z99 * SIGMA))
    start = float(np.exp(SIGMA * norm.ppf(1 - PARETO_SHARE)))

    def above(x: float) -> float:
        body = (1 - PARETO_SHARE) * float(norm.sf(np.log(x) / SIGMA))
        return body + PARETO_SHARE * float(min(1.0, (x / start) ** -PARETO_POWER)) - 0.01

    return float(brentq(above, 1.0, 100.0))


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of one arm in T blocks: attempted[T, S], failed[T, S]; of those that were answered, the flat cell number
    (block x S + stratum) and the natural logarithm of TTFT in seconds."""

    attempted: Ints
    failed: Ints
    cell: Ints
    log_ttft: Array

    @property
    def answered(self) -> Ints:
        return self.attempted - self.failed

    def above(self, *log_thresholds: Array) -> list[Ints]:
        """Requests above each of some thresholds per stratum (log seconds, [S]): int64[T, S] of each.

        All are looked for among those above the lowest, so that every request is read once.
        """
        blocks, strata = self.attempted.shape
        least = np.minimum.reduce(log_thresholds)
        places = np.flatnonzero(self.log_ttft > np.repeat(np.tile(least, blocks), self.answered.ravel()))
        cell, log_ttft = self.cell[places], self.log_ttft[places]
        found = []
        for threshold in log_thresholds:
            over = log_ttft > threshold[cell % strata]
            found.append(np.bincount(cell[over], minlength=blocks * strata).reshape(blocks, strata))
        return found


@dataclass(frozen=True, slots=True)
class Pairs:
    """Requests that both arms answered: flat cell numbers and log TTFT of both members."""

    cell: Ints
    log_stable: Array
    log_candidate: Array


@dataclass(frozen=True, slots=True)
class Law:
    """How one arm's requests come about in T blocks: log latency [T, S] and its spread [S], requests per second
    [T, S], failure share [S].
    """

    location: Array
    spread: Array
    rate: Array
    failures: Array


class Source:
    """All requests of one run of one scenario; every part has a random stream of its own.

    stable_factor: stable's requests per candidate request (1: equal shares); history_s: length of stable's past.
    """

    def __init__(
        self, scenario: Scenario, seed: int, run: int, stable_factor: float = 1.0, history_s: float = HISTORY_S
    ) -> None:
        self.scenario, self.stable_factor, self.history_s = scenario, stable_factor, history_s
        self._key = (seed, zlib.crc32(scenario.world.encode()), run)
        self.log_median = np.log(medians())
        self.rate = rates(scenario)
        lead = round(WARMUP_S / BLOCK_S)
        self.lead_blocks = lead
        total = lead + round(HORIZON_S / BLOCK_S)
        rng = self._rng(1)
        self._bursts = [self._burst(rng, total) for _ in range(2)]
        if scenario.burst == "shared":
            self._bursts[1] = self._bursts[0]
        self.lost = rng.random(total) < scenario.missing

    def _rng(self, *stream: int) -> np.random.Generator:
        return np.random.default_rng((*self._key, *stream))

    def _burst(self, rng: np.random.Generator, blocks: int) -> Array:
        """AR(1) of log latency per block, [T]: a share of its variance, forgotten within a minute; zeros without."""
        if not self.scenario.burst:
            return np.zeros(blocks)
        keep = float(np.exp(-BLOCK_S / BURST_S))
        noise = rng.standard_normal(blocks) * np.sqrt(1 - keep**2)
        noise[0] = rng.standard_normal()
        return np.asarray(np.sqrt(BURST_SHARE) * SIGMA * lfilter([1.0], [1.0, -keep], noise))

    @property
    def spread(self) -> float:
        """Standard deviation of log latency around a burst."""
        return SIGMA * float(np.sqrt(1 - BURST_SHARE)) if self.scenario.burst else SIGMA

    def history(self, half: int) -> Requests:
        """One half of stable's pods before the rollout."""
        blocks = round(self.history_s / BLOCK_S)
        rng = self._rng(2, half)
        is_shared = self.scenario.burst == "shared"
        burst = self._burst(self._rng(2, 9) if is_shared else rng, blocks)
        location = self.log_median[None, :] + burst[:, None]
        return self._draw(rng, Law(location, self._wide, np.full((blocks, 1), 1.0) * self.rate, _FEW))

    def stable_law(self, first: int, last: int) -> Law:
        """Stable in blocks first..last-1 of the step; block `lead_blocks` is the first after the warm-up."""
        location = self._common(first, last) + self._bursts[0][first:last, None]
        return Law(location, self._wide, self._load(first, last) * self.rate * self.stable_factor, _FEW)

    def candidate_law(self, first: int, last: int) -> Law:
        """The candidate in the same blocks (stalls left out)."""
        s, touched = self.scenario, self.scenario.touched()
        rate = self._load(first, last) * self.rate
        if s.silent:
            rate[:, :: STRATA // s.silent] = 0.0
        spread = np.where(touched, self.spread * s.tail_sigma / SIGMA, self.spread)
        return Law(
            self._candidate_location(first, last), spread, rate, np.where(touched, s.failures, FAILURES)
        )  # fmt: skip

    def stable(self, first: int, last: int) -> Requests:
        """Stable's requests."""
        return self._draw(self._rng(3, 0, first), self.stable_law(first, last))

    def candidate(self, first: int, last: int) -> Requests:
        """The candidate's requests of the same blocks."""
        rng = self._rng(3, 1, first)
        requests = self._draw(rng, self.candidate_law(first, last))
        return self._stalled(requests, self._start_s(first, last), rng) if self.scenario.stall_s else requests

    def above(self, law: Law, arm: int, first: int, log_thresholds: Array) -> tuple[Ints, Ints, Ints]:
        """(attempted [T, S], failed, requests above each threshold [K, T, S]) drawn by the law, without any latency:
        the same distribution as of counted requests, for stretches of which only counts are needed.

        log_thresholds: [K, S]; first: the stretch's first block (for its own dice); arm: 0 stable, 1 candidate.
        """
        rng = self._rng(5, arm, first)
        attempted = rng.poisson(law.rate * BLOCK_S)
        failed = rng.binomial(attempted, law.failures)
        order = np.argsort(log_thresholds, axis=0)
        found = np.zeros((len(order), *attempted.shape), dtype=np.int64)
        left, before = attempted - failed, np.ones(law.location.shape)
        for place in order:  # from the lowest threshold to the highest of each stratum
            threshold = np.take_along_axis(log_thresholds, place[None, :], axis=0)
            beyond = self._beyond((threshold - law.location) / law.spread)
            left = rng.binomial(left, np.minimum(beyond / np.maximum(before, 1e-300), 1.0))
            np.put_along_axis(found, place[None, None, :], left[None], axis=0)
            before = beyond
        return attempted, failed, found

    def paired(self, first: int, last: int, correlation: float) -> tuple[Requests, Requests, Pairs]:
        """Blocks in which every request is served by both arms: stable's, the candidate's, and those both answered.

        correlation: of log latencies within a pair. The usual spread and failures, no stalls.
        """
        rng = self._rng(4, first)
        attempted = rng.poisson(self._load(first, last) * self.rate * BLOCK_S)
        cell = np.repeat(np.arange(attempted.size), attempted.ravel())
        own, other = rng.standard_normal((2, len(cell)))
        noise = (own, correlation * own + np.sqrt(1 - correlation**2) * other)
        places = (self._common(first, last) + self._bursts[0][first:last, None], self._candidate_location(first, last))
        logs = [place.ravel()[cell] + self.spread * z for place, z in zip(places, noise, strict=True)]
        answered = rng.random((2, len(cell))) >= FAILURES
        arms = []
        for log_ttft, ok in zip(logs, answered, strict=True):
            failed = np.bincount(cell[~ok], minlength=attempted.size).reshape(attempted.shape)
            arms.append(Requests(attempted, failed, cell[ok], log_ttft[ok]))
        both = answered.all(axis=0)
        return arms[0], arms[1], Pairs(cell[both], logs[0][both], logs[1][both])

    # --- parts ---

    def _candidate_location(self, first: int, last: int) -> Array:
        """Log latency [T, S] of the candidate."""
        s, start_s = self.scenario, self._start_s(first, last)
        location = self._common(first, last) + self._bursts[1][first:last, None]
        changed = np.where(s.touched()[None, :] & (start_s[:, None] >= s.onset_s), s.factor, s.rest)
        cold = np.where(start_s < 120.0 - WARMUP_S, s.cold_factor, 1.0)
        return np.asarray(location + np.log(changed) + np.log(cold)[:, None])

    def _start_s(self, first: int, last: int) -> Array:
        return np.asarray((np.arange(first, last) - self.lead_blocks) * BLOCK_S)

    def _common(self, first: int, last: int) -> Array:
        """Log latency [T, S] of both arms without their own bursts."""
        start_s = self._start_s(first, last)
        common = np.log1p(self.scenario.drift * np.clip(start_s / HORIZON_S, 0.0, 1.0))
        if self.scenario.is_diurnal:
            common = common + np.log1p(0.2 * np.sin(2 * np.pi * start_s / HORIZON_S))
        return np.asarray(self.log_median[None, :] + common[:, None])

    def _load(self, first: int, last: int) -> Array:
        start_s = self._start_s(first, last)
        load = (
            1.0 + 0.5 * np.sin(2 * np.pi * start_s / HORIZON_S) if self.scenario.is_diurnal else np.ones(len(start_s))
        )
        return np.asarray(load[:, None])

    @property
    def _wide(self) -> Array:
        return np.full(STRATA, self.spread)

    def _draw(self, rng: np.random.Generator, law: Law) -> Requests:
        blocks, strata = law.location.shape
        attempted = rng.poisson(law.rate * BLOCK_S)
        failed = rng.binomial(attempted, law.failures)
        answered = (attempted - failed).ravel()
        cell = np.repeat(np.arange(blocks * strata), answered)
        noise = rng.standard_normal(len(cell))
        if self.scenario.is_heavy:
            noise = self._with_tail(rng, noise)
        noise *= np.repeat(np.tile(law.spread, blocks), answered) if np.ptp(law.spread) else law.spread[0]
        noise += np.repeat(law.location.ravel(), answered)
        return Requests(attempted, failed, cell, noise)

    def _beyond(self, z: Array) -> Array:
        """P(noise > z) of `_draw`."""
        body = ndtr(-z)
        if not self.scenario.is_heavy:
            return np.asarray(body)
        start = SIGMA * float(norm.ppf(1 - PARETO_SHARE))
        tail = np.exp(-PARETO_POWER * np.maximum(z * SIGMA - start, 0.0))
        return np.asarray((1 - PARETO_SHARE) * body + PARETO_SHARE * tail)

    @staticmethod
    def _with_tail(rng: np.random.Generator, noise: Array) -> Array:
        """Replace a share of the values by a Pareto tail that begins at the body's own quantile of that share."""
        is_tail = rng.random(len(noise)) < PARETO_SHARE
        start = SIGMA * float(norm.ppf(1 - PARETO_SHARE))
        tail = start + rng.exponential(1.0 / PARETO_POWER, int(is_tail.sum()))
        noise[is_tail] = tail / SIGMA
        return noise

    def _stalled(self, requests: Requests, start_s: Array, rng: np.random.Generator) -> Requests:
        """Requests that arrive in the stall wait for its end as well."""
        arrival_s = start_s[requests.cell // STRATA] + rng.random(len(requests.cell)) * BLOCK_S
        wait_s = np.where(arrival_s >= STALL_AT_S, STALL_AT_S + self.scenario.stall_s - arrival_s, 0.0)
        log_ttft = np.where(wait_s > 0, np.log(np.exp(requests.log_ttft) + np.maximum(wait_s, 0.0)), requests.log_ttft)
        return Requests(requests.attempted, requests.failed, requests.cell, log_ttft)
