"""How much requests depend on each other: excess variance from an A/A comparison of stable's halves.

Stable's pods are dealt into two halves; what the halves differ by more than chance, in superblocks of 10 s to 300 s, is
the excess variance per request (kappa), from which the judge's phi follows. Called by `history.prepare` with blocks and
by judge-bench with arrays. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies import blocks, histogram
from policies.blocks import Block, Cell
from policies.contract import SERVED, Check, CheckKind
from policies.projection import Strata, outcome_counts, stable_cells
from policies.sequential import Array
from policies.track import LEVELS

SUPERBLOCKS_S = (10.0, 30.0, 60.0, 120.0, 300.0)
_LEAST_SUPERBLOCKS = 8

Excess = dict[str, float]
"""Excess variance per request by level."""


@dataclass(frozen=True, slots=True)
class Halves:
    """Stable's past, seen as two arms: blocks of `block_s` seconds, the pods in them, the outcomes that count as
    attempted."""

    blocks: Sequence[Block]
    block_s: float
    pods: Iterable[str]
    attempted: frozenset[str]

    def excess(self, strata: Strata, check: Check, bounds: Sequence[Sequence[int]]) -> tuple[Excess, Excess]:
        """(of the check itself, of the comparison at its bound); bounds: thresholds per stratum, one row each, of which
        the most dependent one counts.
        """
        counts = (self._counts(strata, check, keys) for keys in bounds)
        return largest_excess(strata, counts, self.block_s, check.kind.is_relative)

    def _counts(self, strata: Strata, check: Check, keys: Sequence[int]) -> tuple[Array, Array]:
        """Requests and events by half, block and stratum, float64[2, B, S] each; read from the sketches."""
        dealt = _deal(self.pods)
        n = np.zeros((2, len(self.blocks), strata.size))
        k = np.zeros_like(n)
        for u, block in enumerate(self.blocks):
            for cell in stable_cells(block):
                place = strata.get((cell.tenant, cell.bucket))
                half = dealt.get(cell.pod, cell.half)
                if place is None or half < 0 or keys[place] < 0:
                    continue
                counted, events = _cell_events(cell, check, keys[place], self.attempted)
                n[half, u, place] += counted
                k[half, u, place] += events
        return n, k


def _deal(pods: Iterable[str]) -> Mapping[str, int]:
    """Sorted pod names dealt alternately; empty for a single pod (then requests are split by id)."""
    names = sorted(pods)
    return {pod: i % 2 for i, pod in enumerate(names)} if len(names) > 1 else {}


def largest_excess(
    strata: Strata, counts: Iterable[tuple[Array, Array]], block_s: float, is_relative: bool
) -> tuple[Excess, Excess]:
    """(of the check itself, of the comparison of the halves): the largest over several ways to count n and k, which are
    float64[2, B, S] each.
    """
    own, ratio = dict.fromkeys(LEVELS, 0.0), dict.fromkeys(LEVELS, 0.0)
    for n, k in counts:
        if not k.any():  # no event, no excess
            continue
        compared = excess_variance(strata, n, k, block_s, relative=True)
        alone = compared if is_relative else excess_variance(strata, n, k, block_s, relative=False)
        for level in LEVELS:
            own[level], ratio[level] = max(own[level], alone[level]), max(ratio[level], compared[level])
    return own, ratio


def _cell_events(cell: Cell, check: Check, key: int, attempted: frozenset[str]) -> tuple[int, int]:
    if check.metric in (blocks.SUCCESS, SERVED.metric):
        return outcome_counts(cell.outcomes, check, attempted)
    counts = cell.metrics.get(check.metric)
    if counts is None:
        return 0, 0
    if key == blocks.BINARY:
        n, k = counts.counts(key)
    else:
        index = histogram.bin_index(key / 1e6)
        n, k = counts.n, sum(count for i, count in counts.bins.items() if i > index)
    return (n, n - k) if check.kind is CheckKind.GOODPUT_REL else (n, k)


def excess_variance(strata: Strata, n: Array, k: Array, block_s: float, relative: bool) -> dict[str, float]:
    """Largest excess variance per request over all superblock lengths, by level (0 where the halves agree as chance
    has it).

    n, k: float64[2, B, S], requests and events of both halves. Successive differences, so that a slow trend is no
    dependence.
    """
    found = dict.fromkeys(LEVELS, 0.0)
    for length_s in SUPERBLOCKS_S:
        length = max(1, round(length_s / block_s))
        count = n.shape[1] // length
        if count < _LEAST_SUPERBLOCKS or (length_s < block_s):
            continue
        shape = (2, count, length, strata.size)
        sums = [a[:, : count * length].reshape(shape).sum(axis=2) for a in (n, k)]
        for level, value in _excess(strata, sums[0], sums[1], length, relative).items():
            found[level] = max(found[level], value)
    return found


def _excess(strata: Strata, n: Array, k: Array, length: int, relative: bool) -> dict[str, float]:
    """Excess variance by level, from the comparison of the halves, or (absolute) from each half by itself.

    A half stands for one arm. Both halves taken together would show half of an arm's excess where they are independent.
    """
    total, events = n.sum(axis=0), k.sum(axis=0)
    if relative:
        share = np.divide(n[0], total, out=np.zeros_like(total), where=total > 0)
        first, second = (strata.spread(a.T) for a in n)
        both = first + second
        size = np.divide(2 * first * second, both, out=np.zeros_like(both), where=both > 0)
        arms = [(k[0] - share * events, events * share * (1.0 - share), size)]
    else:
        counted = total.sum(axis=0)
        mean = np.divide(events.sum(axis=0), counted, out=np.zeros(strata.size), where=counted > 0)
        arms = [(k[h] - mean * n[h], n[h] * mean * (1.0 - mean), strata.spread(n[h].T)) for h in (0, 1)]
    excess: Array = np.zeros((strata.cells, 1))
    scale: Array = np.zeros((strata.cells, 1))
    for residual, variance, size in arms:
        r, v = strata.spread(residual.T), strata.spread(variance.T)
        pairs = (v[:, 1:] + v[:, :-1]) / 2
        excess = excess + (np.diff(r, axis=1) ** 2) / 2 - pairs
        scale = scale + pairs * (size[:, 1:] + size[:, :-1]) / (2 * length)
    bounds = np.cumsum([0, strata.size, len(strata.tenants), len(strata.buckets), 1])
    found = {}
    for level, low, high in zip(LEVELS, bounds[:-1], bounds[1:], strict=True):
        weight = float(scale[low:high].sum())
        found[level] = max(0.0, float(excess[low:high].sum()) / weight) if weight > 0 else 0.0
    return found
