"""Mergeable log-bucket sketch of positive values: bin `i` holds the values in (GAMMA**(i-1), GAMMA**i].

Called by the block builder (counting), the judge (thresholds, intervals) and the planner (exceedance of a wider
threshold). It knows nothing of metrics or units. One bin is 1 % wide, so a quantile read from the sketch is its bin's
edges, never an interpolated point.
"""

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

GAMMA = 1.01
"""Width of a bin: a percentile read from the sketch is known to 1 %."""

_LOG_GAMMA = math.log(GAMMA)
_ON_EDGE = 1e-9  # a value that is an edge up to rounding belongs to the bin below that edge
MIN_INDEX = math.ceil(math.log(1e-6) / _LOG_GAMMA)
"""Values of a microsecond and less (zero included) share one bin."""
MAX_INDEX = math.ceil(math.log(1e9) / _LOG_GAMMA)

Bins: TypeAlias = Mapping[int, int]


def bin_index(value: float) -> int:
    """Index of the bin that holds `value` (>= 0, finite)."""
    if value <= 1e-6:
        return MIN_INDEX
    return min(math.ceil(math.log(value) / _LOG_GAMMA - _ON_EDGE), MAX_INDEX)


def bin_indices(values: NDArray[np.float64]) -> NDArray[np.int32]:
    """Vector form of `bin_index`: float64[n] -> int32[n]."""
    safe = np.maximum(values, 1e-6)
    index = np.ceil(np.log(safe) / _LOG_GAMMA - _ON_EDGE)
    return np.clip(index, MIN_INDEX, MAX_INDEX).astype(np.int32)


def edge(index: int) -> float:
    """Upper edge of bin `index`, in the unit of the values."""
    return math.exp(index * _LOG_GAMMA)


def snap_up(value: float) -> float:
    """Smallest bin edge that is >= `value` (up to rounding)."""
    return edge(bin_index(value))


def merge(parts: Iterable[Bins]) -> dict[int, int]:
    """Sum of several sketches; the order does not matter."""
    total: dict[int, int] = {}
    for part in parts:
        for index, count in part.items():
            total[index] = total.get(index, 0) + count
    return total


def count(bins: Bins) -> int:
    """How many values the sketch holds."""
    return sum(bins.values())


def count_above(bins: Bins, edge_index: int) -> int:
    """How many values lie above the edge `edge_index`: exact, because edges separate bins."""
    return sum(c for index, c in bins.items() if index > edge_index)


def count_above_bounds(bins: Bins, threshold: float) -> tuple[int, int]:
    """Least and largest number of values above any `threshold`; equal where it is an edge."""
    index = bin_index(threshold)
    low = count_above(bins, index)
    if math.isclose(edge(index), threshold, rel_tol=1e-9):
        return low, low
    return low, low + bins.get(index, 0)


def rank_index(bins: Bins, rank: int) -> int | None:
    """Bin that holds the `rank`-th smallest value (from 1); None when there are fewer values."""
    if rank < 1:
        return None
    seen = 0
    for index in sorted(bins):
        seen += bins[index]
        if seen >= rank:
            return index
    return None


def quantile_bounds(bins: Bins, q: float) -> tuple[float, float] | None:
    """Edges (low, high] of the bin that holds the nearest-rank `q`-quantile; None for an empty sketch."""
    total = count(bins)
    index = rank_index(bins, max(1, math.ceil(q * total - 1e-9))) if total else None
    return None if index is None else (edge(index - 1), edge(index))
