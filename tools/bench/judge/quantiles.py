"""What the peers' metric systems would show of the requests: vLLM's histogram buckets, PromQL's interpolated quantile
over windows, and exact percentiles per minute.

Read by `peers`. `histogram_quantile` follows Prometheus: linear inside the bucket, the last finite edge beyond it, NaN
without requests.
"""

import numpy as np

from tools.bench.judge.scenarios import BLOCK_S, Array
from tools.bench.judge.traffic import Requests

VLLM_TTFT_EDGES_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
BLOCKS_PER_MINUTE = round(60.0 / BLOCK_S)


def kept(requests: Requests, lost: np.ndarray) -> np.ndarray:
    """Which answered requests were scraped: bool, False in lost blocks."""
    strata = requests.attempted.shape[1]
    return np.asarray(~lost[requests.cell // strata])


def minute_buckets(requests: Requests, lost: np.ndarray) -> Array:
    """Requests per minute, stratum and bucket (not cumulative, the last is +Inf): float64[M, S, E + 1]."""
    blocks, strata = requests.attempted.shape
    minutes, size = blocks // BLOCKS_PER_MINUTE, len(VLLM_TTFT_EDGES_S) + 1
    use = kept(requests, lost)
    cell = requests.cell[use]
    bucket = np.searchsorted(np.log(VLLM_TTFT_EDGES_S), requests.log_ttft[use], side="left")
    minute_stratum = (cell // strata // BLOCKS_PER_MINUTE) * strata + cell % strata
    table = np.bincount(minute_stratum * size + bucket, minlength=minutes * strata * size)
    return np.asarray(table.reshape(minutes, strata, size), dtype=float)


def windows(buckets: Array, minutes: int) -> Array:
    """Sums over the last `minutes` minutes (fewer at the beginning), same shape."""
    total = np.cumsum(buckets, axis=0)
    before = np.concatenate([np.zeros((minutes, *buckets.shape[1:])), total[:-minutes]])[: len(total)]
    return np.asarray(total - before)


def histogram_quantile(q: float, buckets: Array) -> Array:
    """PromQL's quantile of classic buckets [..., E + 1] with vLLM's edges, [...] in seconds."""
    edges = np.array(VLLM_TTFT_EDGES_S)
    cumulative = np.cumsum(buckets, axis=-1)
    total = cumulative[..., -1]
    rank = q * total
    index = np.minimum((cumulative < rank[..., None]).sum(axis=-1), len(edges))
    at = np.minimum(index, len(edges) - 1)
    high, low = edges[at], np.where(at > 0, edges[at - 1], 0.0)
    inside = np.take_along_axis(buckets, at[..., None], axis=-1)[..., 0]
    before = np.take_along_axis(cumulative, at[..., None], axis=-1)[..., 0] - inside
    with np.errstate(divide="ignore", invalid="ignore"):
        value = low + (high - low) * (rank - before) / inside
    return np.where(total == 0, np.nan, np.where(index >= len(edges), edges[-1], value))


def minute_p99(requests: Requests, lost: np.ndarray) -> tuple[Array, Array]:
    """Exact nearest-rank P99 per minute in milliseconds: by stratum [M, S] and of all requests [M]; NaN without any."""
    blocks, strata = requests.attempted.shape
    minutes = blocks // BLOCKS_PER_MINUTE
    use = kept(requests, lost)
    cell, value = requests.cell[use], requests.log_ttft[use]
    minute = cell // strata // BLOCKS_PER_MINUTE
    by_stratum = _group_p99(minute * strata + cell % strata, value, minutes * strata)
    return by_stratum.reshape(minutes, strata), _group_p99(minute, value, minutes)


def _group_p99(group: np.ndarray, log_value: Array, groups: int) -> Array:
    """One sort of group + value scaled into [0, 1): exact in order, and to 1e-11 in value."""
    if not len(group):
        return np.full(groups, np.nan)
    low = float(log_value.min())
    span = float(log_value.max()) - low + 1.0
    key = np.sort(group + (log_value - low) / span)
    size = np.bincount(group, minlength=groups)
    rank = np.ceil(0.99 * size - 1e-9).astype(np.int64)
    found = np.full(groups, np.nan)
    some = np.nonzero(size)[0]
    found[some] = np.exp((key[(np.cumsum(size) - size + rank - 1)[some]] - some) * span + low) * 1000.0
    return found
