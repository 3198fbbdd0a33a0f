"""A block as arrays: counts per stratum and check for both arms. The only reader of cells on the judge's side.

Called by the judge at every block and by the preparation for the history. Strata are numbered as they appear; numbers
never change.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from policies import blocks, histogram
from policies.blocks import Block, Cell
from policies.contract import SERVED, Check, CheckKind
from policies.pairevidence import PairSums
from policies.records import CANDIDATE, STABLE
from policies.sequential import Array

Stratum = tuple[str, str]
Ints = NDArray[np.int64]


class Strata:
    """Numbering of strata, tenants and buckets; bucket "" counts for its tenant and the whole only."""

    def __init__(self, known: Iterable[Stratum] = ()) -> None:
        self.names: list[Stratum] = []
        self.tenants: list[str] = []
        self.buckets: list[str] = []
        self._index: dict[Stratum, int] = {}
        self._tenants: dict[str, int] = {}
        self._buckets: dict[str, int] = {}
        self.tenant_of: Ints = np.zeros(0, dtype=np.int64)
        self.bucket_of: Ints = np.zeros(0, dtype=np.int64)
        for name in known:
            self.index(name)
        self.seal()

    def index(self, name: Stratum) -> int:
        """Number of a stratum, new or known; call `seal` before using the arrays."""
        found = self._index.get(name)
        if found is None:
            found = self._index[name] = len(self.names)
            self.names.append(name)
        return found

    def get(self, name: Stratum) -> int | None:
        return self._index.get(name)

    def seal(self) -> None:
        """Bring the membership arrays up to date after new strata."""
        for tenant, bucket in self.names[len(self.tenant_of) :]:
            for name, names, numbers in (
                (tenant, self.tenants, self._tenants),
                (bucket, self.buckets, self._buckets),
            ):
                if name not in numbers:
                    numbers[name] = len(names)
                    names.append(name)
        self.tenant_of = np.array([self._tenants[t] for t, _ in self.names], dtype=np.int64)
        self.bucket_of = np.array([self._buckets[b] for _, b in self.names], dtype=np.int64)
        self._sums = self._make_sums()

    def _make_sums(self) -> csr_array:
        """Matrix whose rows add strata up: by tenant, by bucket, over all."""
        parts = (self.tenant_of, self.bucket_of + len(self.tenants))
        whole = np.full(self.size, self.cells - self.size - 1)
        rows = np.concatenate([*parts, whole])
        columns = np.tile(np.arange(self.size), 3)
        return csr_array((np.ones(len(rows)), (rows, columns)), shape=(self.cells - self.size, self.size))

    @property
    def size(self) -> int:
        return len(self.names)

    @property
    def cells(self) -> int:
        """Strata, then tenants, then buckets, then the whole."""
        return len(self.names) + len(self.tenants) + len(self.buckets) + 1

    def cell_name(self, cell: int) -> Stratum:
        """(tenant, bucket) of a cell, "*" where it sums over them."""
        for names, make in (
            (self.names, lambda n: n),
            (self.tenants, lambda n: (n, "*")),
            (self.buckets, lambda n: ("*", n)),
        ):
            if cell < len(names):
                return make(names[cell])
            cell -= len(names)
        return "*", "*"

    def spread(self, per_stratum: Array) -> Array:
        """[S, J] -> [C, J]: strata themselves, and their sums by tenant, bucket and over all."""
        return np.concatenate([per_stratum, self._sums @ per_stratum])


def group_sum(values: Array, groups: Ints, size: int) -> Array:
    """Sums of rows [S, J] by group, [size, J]."""
    if not size:
        return np.zeros((0, values.shape[1]))
    return np.stack([np.bincount(groups, weights=column, minlength=size) for column in values.T], axis=1)


@dataclass(slots=True)
class Counts:
    """Counts of one check in one block, float64[S] each: requests and events of the candidate (c) and stable (b).

    unsure_c: requests of the candidate, not in `k_c`, that may be events as well (they share a bin of the sketch with
    a threshold that was not counted at the source): events for PASS, none for FAIL.
    """

    n_c: Array
    k_c: Array
    n_b: Array
    k_b: Array
    unsure_c: Array | None = None

    @staticmethod
    def zeros(size: int) -> "Counts":
        return Counts(*(np.zeros(size) for _ in range(4)))

    def add_unsure(self, place: int, count: int) -> None:
        """Count requests of the candidate that may be events."""
        if self.unsure_c is None:
            self.unsure_c = np.zeros(len(self.n_c))
        self.unsure_c[place] += count

    def unsure(self) -> Array:
        """`unsure_c`, zeros where there are none."""
        return np.zeros(len(self.n_c)) if self.unsure_c is None else self.unsure_c

    def most_c(self) -> Array:
        """The candidate's events, the unsure ones with them."""
        return self.k_c if self.unsure_c is None else self.k_c + self.unsure_c

    def arm(self, variant: str) -> tuple[Array, Array]:
        return (self.n_c, self.k_c) if variant == CANDIDATE else (self.n_b, self.k_b)


def judged(block: Block) -> Iterable[Cell]:
    """Cells that may be judged: not probes, and of no arm whose metering was interrupted."""
    return (c for c in block.cells if c.kind != "probe" and c.variant not in block.missing)


def stable_cells(block: Block) -> Iterable[Cell]:
    """Cells of stable that are live traffic (or its replay)."""
    return (cell for cell in judged(block) if cell.variant == STABLE)


def outcome_counts(outcomes: Mapping[str, int], check: Check, attempted: frozenset[str]) -> tuple[int, int]:
    """(requests, bad ones) of `success` (attempted and not ok) or `served` (refused as wrong)."""
    if check.metric == SERVED.metric:
        n = sum(c for outcome, c in outcomes.items() if outcome not in ("open", "cancelled"))
        return n, outcomes.get("client_error", 0)
    n = sum(c for outcome, c in outcomes.items() if outcome in attempted)
    return n, n - outcomes.get("ok", 0)


def event_counts(
    cell: Cell, check: Check, key: int, attempted: frozenset[str], from_sketch: bool = False
) -> tuple[int, int]:
    """(requests, events) of a check in one cell.

    from_sketch: the threshold was not counted at the source. Events are those of bins above it (all of them where it is
    an edge, as stable's is), each is dated by its end, and unfinished requests are not seen.
    """
    if check.metric in (blocks.SUCCESS, SERVED.metric):
        return outcome_counts(cell.outcomes, check, attempted)
    counts = cell.metrics.get(check.metric)
    if counts is None:
        return 0, 0
    if from_sketch:
        return counts.counts(key)
    over, below = counts.over.get(key, 0), counts.below.get(key, 0)
    return over + below, below if check.kind is CheckKind.GOODPUT_REL else over


@dataclass(slots=True)
class Projected:
    """One block as the judge takes it; arrays are float64[S].

    counts: per check; guards: per comparability guard; finished[variant]: requests that ended, by stratum;
    routed[(variant, tenant)]: requests that started; bins / unknown[(variant, stratum, metric)]: sketches and
    unreadable values of latencies.
    """

    seq: int
    start_s: float
    end_s: float
    counts: list[Counts]
    guards: list[Counts]
    finished: Mapping[str, Array]
    routed: Mapping[tuple[str, str], int]
    bins: Mapping[tuple[str, int, str], Mapping[int, int]]
    unknown: Mapping[tuple[str, int, str], int]
    pairs: Mapping[int, PairSums] = field(default_factory=dict)


@dataclass(slots=True)
class Keys:
    """Thresholds in microseconds by check and stratum (-1 = none yet), and stable's ties (see `CheckSetup`).

    from_sketch: the threshold was calibrated in mid-attempt, so it is read from the sketches.
    """

    arms: Mapping[str, Sequence[Ints]]
    tie_us: Sequence[Ints]
    tie_share: Sequence[Array]
    from_sketch: Sequence[NDArray[np.bool_]]


def project(block: Block, strata: Strata, checks: Sequence[Check], keys: Keys, attempted: frozenset[str]) -> Projected:
    """The block's counts. Strata must know every cell."""
    found = [Counts.zeros(strata.size) for _ in checks]
    finished = {STABLE: np.zeros(strata.size), CANDIDATE: np.zeros(strata.size)}
    routed: dict[tuple[str, str], int] = {}
    bins: dict[tuple[str, int, str], dict[int, int]] = {}
    unknown: dict[tuple[str, int, str], int] = {}
    for cell in judged(block):
        place = strata.get((cell.tenant, cell.bucket))
        assert place is not None, "register strata before projecting"
        finished[cell.variant][place] += sum(cell.outcomes.values())
        if cell.routed:
            routed[cell.variant, cell.tenant] = routed.get((cell.variant, cell.tenant), 0) + cell.routed
        for metric in blocks.LATENCIES:
            if (counts := cell.metrics.get(metric)) is not None:
                merge_into(bins.setdefault((cell.variant, place, metric), {}), counts.bins)
                if counts.unknown:
                    where = (cell.variant, place, metric)
                    unknown[where] = unknown.get(where, 0) + counts.unknown
        for number, check in enumerate(checks):
            key = int(keys.arms[cell.variant][number][place])
            counted, is_read = (0, 0), bool(keys.from_sketch[number][place])
            if key >= 0:
                counted = event_counts(cell, check, key, attempted, is_read)
            if counted[0]:
                n, k = found[number].arm(cell.variant)
                n[place] += counted[0]
                k[place] += counted[1]
                if is_read and cell.variant == CANDIDATE:
                    least, most = histogram.count_above_bounds(cell.metrics[check.metric].bins, key / 1e6)
                    found[number].add_unsure(place, most - least)
                tie = int(keys.tie_us[number][place])
                if tie >= 0 and cell.variant == STABLE:
                    over = cell.metrics[check.metric].over
                    k[place] += keys.tie_share[number][place] * max(0, over.get(tie, 0) - over.get(key, 0))
    pairs = _pair_sums(block, strata, checks, keys)
    return Projected(block.seq, block.start_s, block.end_s, found, [], finished, routed, bins, unknown, pairs)


def _pair_sums(block: Block, strata: Strata, checks: Sequence[Check], keys: Keys) -> dict[int, PairSums]:
    """Pairs per check; those counted at other thresholds than today's are left out."""
    found: dict[int, PairSums] = {}
    for pair in block.pairs:
        place = strata.get((pair.tenant, pair.bucket))
        for number, check in enumerate(checks):
            if place is None or check.kind is not CheckKind.QUANTILE_REL or check.metric != pair.metric:
                continue
            today = keys.arms[STABLE][number][place], keys.arms[CANDIDATE][number][place]
            if today != (pair.stable_us, pair.candidate_us):
                continue
            sums = found.setdefault(number, PairSums.zeros(strata.size))
            sums.n[place] += pair.both + pair.only_candidate + pair.only_stable + pair.neither
            sums.only_c[place] += pair.only_candidate
            sums.only_s[place] += pair.only_stable
            for name, value in zip(("m", "x", "y", "xx", "yy", "xy"), pair.moments, strict=False):
                getattr(sums, name)[place] += value
    return found


def merge_into(total: dict[int, int], bins: Mapping[int, int]) -> None:
    """Add a sketch to `total`."""
    for index, count in bins.items():
        total[index] = total.get(index, 0) + count
