"""One stratum's requests exactly at the bound: independent, and in the dependent settings of the judge's facts 2.

Called by `boundary`. Every setting gives, for R streams at once, what share of requests per 5 s block lies above the
threshold whose true exceedance is 1 %; the two arms are alike, so the ratio is exactly 1 too.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from tools.bench.judge.scenarios import Array

BLOCK_S = 5.0
RATE_RPS = 2.0
P0 = 0.01
SERVERS, SERVICE_S = 64, 8.0


@dataclass(frozen=True, slots=True)
class Setting:
    """draw(rng, streams, blocks) -> requests and exceedances, float64[streams, blocks] each."""

    name: str
    words: str
    draw: Callable[[np.random.Generator, int, int], tuple[Array, Array]]


def independent(rng: np.random.Generator, streams: int, blocks: int) -> tuple[Array, Array]:
    n = rng.poisson(RATE_RPS * BLOCK_S, (streams, blocks))
    return n.astype(float), rng.binomial(n, P0).astype(float)


def modulated(share: float, correlation_s: float) -> Callable[[np.random.Generator, int, int], tuple[Array, Array]]:
    """Log latency of which a share of the variance is an AR(1) in time; every request's own law is unchanged."""

    def draw(rng: np.random.Generator, streams: int, blocks: int) -> tuple[Array, Array]:
        seconds = round(BLOCK_S)
        keep = float(np.exp(-1.0 / correlation_s))
        state = rng.standard_normal(streams)
        threshold = float(norm.ppf(1 - P0))
        n, k = np.zeros((streams, blocks)), np.zeros((streams, blocks))
        for second in range(blocks * seconds):
            exceed = norm.sf((threshold - np.sqrt(share) * state) / np.sqrt(1 - share))
            count = rng.poisson(RATE_RPS, streams)
            n[:, second // seconds] += count
            k[:, second // seconds] += rng.binomial(count, exceed)
            state = keep * state + np.sqrt(1 - keep**2) * rng.standard_normal(streams)
        return n, k

    return draw


def stalls(rng: np.random.Generator, streams: int, blocks: int) -> tuple[Array, Array]:
    """Stalls of 10 s in 0.5 % of time, in which every request exceeds; the rest makes up to 1 %."""
    length, share = 2, 0.005
    begins = rng.random((streams, blocks)) < 1 - (1 - share) ** (1 / length)
    stalled = begins.copy()
    stalled[:, 1:] |= begins[:, :-1]
    rest = (P0 - share) / (1 - share)
    n = rng.poisson(RATE_RPS * BLOCK_S, (streams, blocks))
    return n.astype(float), rng.binomial(n, np.where(stalled, 1.0, rest)).astype(float)


def erlang_c(load: float) -> float:
    """P(a request waits) in M/M/c with `SERVERS` servers."""
    offered = load * SERVERS
    blocked = 1.0
    for servers in range(1, SERVERS + 1):  # Erlang B by recursion
        blocked = offered * blocked / (servers + offered * blocked)
    return blocked / (1 - load * (1 - blocked))


def queue_threshold_s(load: float) -> float:
    """The wait that exactly 1 % of requests exceed: P(W > t) = C exp(-(c mu - lambda) t)."""
    return float(np.log(erlang_c(load) / P0) / (SERVERS / SERVICE_S * (1 - load)))


def queue(load: float) -> Callable[[np.random.Generator, int, int], tuple[Array, Array]]:
    """Waits of M/M/64 (first come, first served, service 8 s); the stratum is a random 2 requests/s of its arrivals."""

    def draw(rng: np.random.Generator, streams: int, blocks: int) -> tuple[Array, Array]:
        arrival_rps, threshold_s = load * SERVERS / SERVICE_S, queue_threshold_s(load)
        warm_s, end_s = 1200.0, blocks * BLOCK_S
        free = rng.exponential(SERVICE_S, (streams, SERVERS)) * (rng.random((streams, SERVERS)) < load)
        now = np.zeros(streams)
        rows = np.arange(streams)
        n, k = np.zeros((streams, blocks)), np.zeros((streams, blocks))
        while float(now.min()) < warm_s + end_s:
            now = now + rng.exponential(1 / arrival_rps, streams)
            server = free.argmin(axis=1)
            wait = np.maximum(free[rows, server] - now, 0.0)
            free[rows, server] = now + wait + rng.exponential(SERVICE_S, streams)
            block = ((now - warm_s) // BLOCK_S).astype(np.int64)
            taken = (rng.random(streams) < RATE_RPS / arrival_rps) & (block >= 0) & (block < blocks)
            n[rows[taken], block[taken]] += 1
            k[rows[taken], block[taken]] += wait[taken] > threshold_s
        return n, k

    return draw


SETTINGS = (
    Setting("iid", "independent requests", independent),
    Setting("ar .3/10s", "30 % of the variance common, forgotten in 10 s", modulated(0.3, 10.0)),
    Setting("ar .3/60s", "30 %, 60 s", modulated(0.3, 60.0)),
    Setting("ar .6/30s", "60 %, 30 s", modulated(0.6, 30.0)),
    Setting("stall 10s", "10 s stalls, 0.5 % of time", stalls),
    Setting("queue .85", "wait in M/M/64 at load .85", queue(0.85)),
    Setting("queue .92", "wait in M/M/64 at load .92", queue(0.92)),
)
"""Independent, five dependent ones, and a queue so loaded that one hour holds a handful of episodes."""
