"""Several runs of one scenario judged at once: each keeps its own `Judge`, their tracks share wide arrays.

The numbers of one run fill a CPU's caches so little that most of the time goes to calling NumPy. Here the evidence of M
runs is stepped in one `Track` over M x S strata (with a whole of its own per run), and every `Judge` reads its part. A
test compares the states with runs judged alone, bit for bit. Called by `run`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from policies.projection import Counts, Strata
from policies.track import LEVELS, Track
from tools.bench.judge.ours import Counted, Ours
from tools.bench.judge.scenarios import Array


class WideStrata(Strata):
    """Strata of M runs, run-major; every run has its own tenants, buckets and whole."""

    def __init__(self, runs: int, alone: Strata) -> None:
        self.runs, self.alone = runs, alone
        super().__init__((f"{run}/{t}", f"{run}/{b}") for run in range(runs) for t, b in alone.names)

    @property
    def cells(self) -> int:
        return len(self.names) + len(self.tenants) + len(self.buckets) + self.runs

    def _make_sums(self) -> csr_array:
        run_of = np.repeat(np.arange(self.runs), self.alone.size)
        tenants, buckets = len(self.tenants), len(self.buckets)
        rows = np.concatenate([self.tenant_of, self.bucket_of + tenants, run_of + tenants + buckets])
        columns = np.tile(np.arange(self.size), 3)
        return csr_array((np.ones(len(rows)), (rows, columns)), shape=(self.cells - self.size, self.size))

    def sizes(self) -> tuple[int, int, int, int]:
        """Cells of one run by level."""
        return self.alone.size, len(self.alone.tenants), len(self.alone.buckets), 1

    def cells_of(self, run: int) -> np.ndarray:
        """Cells of a run in the order that its own judge has."""
        found, start = [], 0
        for size in self.sizes():
            found.append(np.arange(size) + start + run * size)
            start += size * self.runs
        return np.concatenate(found)


class WideTrack(Track):
    """A check's evidence in M runs; dependence differs from run to run."""

    _known: tuple[float, Array] = (-1.0, np.zeros(0))

    @staticmethod
    def of(strata: WideStrata, tracks: Sequence[Track]) -> "WideTrack":
        """The tracks of M judges that have seen nothing yet, side by side."""
        first = tracks[0]
        wide = WideTrack(
            strata,
            np.concatenate([t.null for t in tracks]),
            first.relative,
            first.cap,
            first.plan_blocks,
            first.phi_floor,
            {},
            {},
            tuple(first.fail_factors),
            first.pass_grid,
            first.has_pass,
            first.alone_blocks,
            aim=np.concatenate([t.aim for t in tracks]),
        )
        wide.kappa = _by_run([t.kappa for t in tracks])
        wide.kappa_ratio = _by_run([t.kappa_ratio for t in tracks])
        wide.sum_c = np.concatenate([t.sum_c for t in tracks])
        wide.sum_b = np.concatenate([t.sum_b for t in tracks])
        wide.blocks = first.blocks
        return wide

    def evidence_now(self) -> Array:
        """`fail_evidence`, computed once per block for all runs."""
        if self._known[0] != self.blocks:
            self._known = (self.blocks, self.fail_evidence())
        return self._known[1]

    def _phi(self, rate_c: Array, rate_b: Array, relative: bool, kappa: Mapping[str, Any]) -> Array:
        both = rate_c + rate_b
        size = np.divide(2 * rate_c * rate_b, both, out=np.zeros_like(both), where=both > 0) if relative else rate_c
        assert isinstance(self.strata, WideStrata)
        levels = [np.repeat(kappa[name], n) for name, n in zip(LEVELS, self.strata.sizes(), strict=True)]
        return np.asarray(np.maximum(self.phi_floor, 1.0 + np.concatenate(levels) * size))


def _by_run(kappas: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    return {name: np.array([kappa.get(name, 0.0) for kappa in kappas]) for name in LEVELS}


class Part:
    """One run's part of a wide track, read by its `Judge`; stepping is the fleet's business."""

    def __init__(self, wide: WideTrack, run: int) -> None:
        assert isinstance(wide.strata, WideStrata)
        size = wide.strata.alone.size
        self._wide, self._cells = wide, wide.strata.cells_of(run)
        self._strata = slice(run * size, (run + 1) * size)
        self._evidence: tuple[float, Array] = (-1.0, np.zeros(0))
        self.null = wide.null[self._strata]
        self.stable_fail = wide.stable_fail

    def step(self, *_: Any) -> None:
        """Done by the fleet."""

    def latch(self, _: float) -> None:
        """Done by the fleet."""

    def fail_evidence(self) -> Array:
        if self._evidence[0] != self._wide.blocks:
            self._evidence = (self._wide.blocks, self._wide.evidence_now()[self._cells])
        return self._evidence[1]

    def stable_evidence(self) -> Array:
        return np.asarray(self._wide.stable_evidence()[self._cells])

    @property
    def latched(self) -> np.ndarray:
        return self._wide.latched[self._strata]

    @property
    def log_pass(self) -> Array:
        return self._wide.log_pass[self._strata]

    @property
    def phi(self) -> Array:
        return self._wide.phi[self._strata]


class Fleet:
    """Judges of one scenario's runs that take their n-th block together. All must have begun and seen nothing."""

    def __init__(self, runs: Sequence[Ours]) -> None:
        self.runs = runs
        judges = [run.judge for run in runs]
        assert all(judge.strata.names == judges[0].strata.names for judge in judges)
        self._strata = WideStrata(len(runs), judges[0].strata)
        self._tracks = [WideTrack.of(self._strata, tracks) for tracks in zip(*(j.tracks for j in judges), strict=True)]
        size = judges[0].strata.size
        self._groups = np.concatenate([judge.groups + run * size for run, judge in enumerate(judges)])
        self._alpha = judges[0].contract.alpha_promote
        for run, judge in enumerate(judges):
            judge.tracks = [Part(wide, run) for wide in self._tracks]  # type: ignore[misc]

    def take(self, counted: Sequence[Counted], rows: Sequence[int], open_runs: Sequence[bool]) -> None:
        """One closed block of every run; runs that have decided (not open) are carried along unread."""
        for number, track in enumerate(self._tracks):
            arrays = [
                np.concatenate([c.checks[number][field][row] for c, row in zip(counted, rows, strict=True)])
                for field in range(4)
            ]
            track.step(Counts(*arrays), self._groups, True)
            track.latch(self._alpha)
        for run, c, row, is_open in zip(self.runs, counted, rows, open_runs, strict=True):
            if is_open:
                run.take(c, row)
