"""Counters of blocks that are still open: per cell its outcomes and, per metric, a sketch and exceedances.

Used by the block builder only; a closed block is made of their frozen copies.
"""

from dataclasses import dataclass, field

from policies.blocks import Cell, MetricCounts
from policies.histogram import bin_index

CellKey = tuple[str, str, str, str, str, str, int]
"""Variant, revision, kind, tenant, bucket, pod, half (of a single pod's requests)."""


@dataclass(slots=True)
class CountsOf:
    """Counts of one metric in one cell of an open block."""

    n: int = 0
    unknown: int = 0
    bins: dict[int, int] = field(default_factory=dict)
    over: dict[int, int] = field(default_factory=dict)
    below: dict[int, int] = field(default_factory=dict)

    def above(self, key: int) -> None:
        """One more exceedance of a threshold."""
        self.over[key] = self.over.get(key, 0) + 1

    def add(self, value: float) -> None:
        """One more known value, in the sketch."""
        self.n += 1
        index = bin_index(value)
        self.bins[index] = self.bins.get(index, 0) + 1

    def freeze(self) -> MetricCounts:
        return MetricCounts(self.n, self.bins, self.over, self.below, self.unknown)


class Tally:
    """One cell of an open block."""

    __slots__ = ("metrics", "outcomes", "routed")

    def __init__(self) -> None:
        self.routed = 0
        self.outcomes: dict[str, int] = {}
        self.metrics: dict[str, CountsOf] = {}

    def counts(self, metric: str) -> CountsOf:
        found = self.metrics.get(metric)
        if found is None:
            found = self.metrics[metric] = CountsOf()
        return found

    def freeze(self, key: CellKey) -> Cell:
        metrics = {name: self.metrics[name].freeze() for name in sorted(self.metrics)}
        return Cell(*key, self.routed, dict(sorted(self.outcomes.items())), metrics)


class OpenBlock:
    """What was counted of a block that is not closed yet."""

    __slots__ = ("cells", "dropped", "late", "missing")

    def __init__(self) -> None:
        self.cells: dict[CellKey, Tally] = {}
        self.missing: set[str] = set()
        self.late = 0
        self.dropped: dict[str, int] = {}

    def tally(self, key: CellKey) -> Tally:
        found = self.cells.get(key)
        if found is None:
            found = self.cells[key] = Tally()
        return found

    def drop(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
