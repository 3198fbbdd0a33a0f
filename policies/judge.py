"""The judge: closed blocks in, verdicts out, valid under continuous looking and over all strata together.

Used by the operator (streaming), by `weighlock judge` (files) and by the store (re-judging): the same blocks give the
same verdicts. Pure: the caller gives the time. Procedure and formulas: docs/judge.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies import assembly, statefile
from policies.blocks import LATENCIES, Block, Thresholds
from policies.contract import SERVED, Check, CheckKind
from policies.explain import make_verdict
from policies.guards import Guard, guard_counts, guard_kinds
from policies.history import ENOUGH, FEWEST, quantile_setup
from policies.holds import find_holds, is_unmeasured
from policies.projection import Ints, Projected, Strata, Stratum, judged, merge_into, project
from policies.records import CANDIDATE, STABLE
from policies.rollback import cell_weights, find_culprits
from policies.sequential import Array
from policies.setup import JudgeSetup, StratumSetup
from policies.thin import passes_with_parent
from policies.track import Track
from policies.verdict import Culprit, Hold, Result, Verdict

Bools = NDArray[np.bool_]
CALIBRATION_S = 600.0


@dataclass(frozen=True, slots=True)
class Fired:
    """The moment of FAIL: it never goes back."""

    at_s: float
    evidence: float
    culprits: tuple[Culprit, ...]


class Judge:
    """One attempt's evidence. `feed` blocks in order of `seq`, `enter_step` at every new weight, ask `verdict` at
    any time.
    """

    def __init__(self, setup: JudgeSetup) -> None:
        self.setup = setup
        self.contract = setup.contract
        self.checks: tuple[Check, ...] = setup.checks
        self.cap = (
            float(np.log(1 / self.contract.alpha_rollback)) * self.contract.block_s / self.contract.stall_tolerance_s
        )
        self.strata = Strata((s.tenant, s.bucket) for s in setup.strata)
        self.setups: list[StratumSetup] = list(setup.strata)
        self.known = len(setup.strata)  # strata with a weight of their own; the others are newcomers
        self.groups: Ints = assembly.merge_groups(self)
        self.tracks = [assembly.make_track(self, number) for number in range(len(self.checks))]
        counted = "cancelled" in self.contract.attempted
        kinds = guard_kinds(setup.cancel_share, setup.refused_share, counted) if setup.baseline else ()
        size = (self.cap, self.contract.plan_blocks, max(setup.phi_floor, self.contract.phi_floor))
        self.guards = [Guard(kind, self.strata, *size) for kind in kinds]
        self.thresholds_version = 0
        kinds_of = [(check.metric, check.kind) for check in self.checks]
        self._margin_metrics = {metric for metric, kind in kinds_of if kind is CheckKind.QUANTILE_REL}
        self._limit_metrics = {metric for metric, kind in kinds_of if kind is CheckKind.QUANTILE_ABS}
        self._refresh()
        self.fired: Fired | None = None
        self.passed_at_s: float | None = None
        self.last_seq = -1
        self.now_s = 0.0
        self.first_s: float | None = None
        self.step, self.step_start_s, self.weight, self.step_kind = 0, None, 0.0, "ramp"
        self.sketches: dict[tuple[str, int, str], dict[int, int]] = {}  # of the attempt: (variant, stratum, metric)
        self.step_sketches: dict[tuple[str, int, str], dict[int, int]] = {}
        self.unknown: dict[tuple[str, int, str], int] = {}
        self.revisions: dict[str, list[str]] = {STABLE: [], CANDIDATE: []}
        self.dropped: dict[str, int] = {}
        self._begin_counters()

    step_start_s: float | None

    def _begin_counters(self) -> None:
        self.blocks_in_step = 0  # blocks with requests of both arms (of the candidate where nothing is compared)
        self.missing_in_step = 0
        self.seen_in_step = 0
        self.routed: dict[tuple[str, str], int] = {}
        self.step_requests = {variant: np.zeros(self.strata.size) for variant in (STABLE, CANDIDATE)}
        self.last_data_s: dict[str, float] = {}

    # --- what the caller does ---

    def thresholds(self) -> Thresholds:
        """Thresholds that the block builder must count now; changes when `thresholds_version` does."""
        return self._present_setup().thresholds()

    def pairs(self) -> dict[tuple[str, str, str], tuple[tuple[int, int], ...]]:
        """Threshold pairs for the builder's `set_pairs`."""
        return self._present_setup().pairs()

    def _present_setup(self) -> JudgeSetup:
        return replace(self.setup, strata=tuple(self.setups))

    def enter_step(self, step: int, now_s: float, weight: float, kind: str = "ramp") -> None:
        """A new weight is in force from `now_s` on. kind: shadow | canary | ramp | bake.

        Entering the same step again does nothing.
        """
        if self.step_start_s is not None and step == self.step:
            return
        self.step, self.step_start_s, self.weight, self.step_kind = step, now_s, weight, kind
        self.now_s = max(self.now_s, now_s)
        self.passed_at_s = None
        self.step_sketches = {}
        self._begin_counters()
        for track in self.tracks:
            track.begin_step()

    def feed(self, block: Block) -> bool:
        """Take the evidence of one closed block; False for one that was taken before (nothing happens)."""
        if block.seq <= self.last_seq:
            return False
        if self.last_seq >= 0:
            self.missing_in_step += block.seq - self.last_seq - 1
        self.last_seq = block.seq
        self.now_s = max(self.now_s, block.end_s)
        for reason, count in block.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
        if block.late:
            self.dropped["late"] = self.dropped.get("late", 0) + block.late
        if block.missing:
            self.missing_in_step += 1
            return True
        self._register(block)
        taken = project(block, self.strata, self.checks, self.keys, self.contract.attempted)
        kinds = tuple(guard.kind for guard in self.guards)
        medians = {i: setup.medians for i, setup in enumerate(self.setups)}
        taken.guards = guard_counts(block, self.strata, kinds, medians)
        self.take(taken)
        return True

    def take(self, block: Projected) -> None:
        """The evidence of one block whose strata are known; `feed` and the file reader end here."""
        if self.step_start_s is None:
            self.step_start_s = block.start_s
        self.first_s = block.start_s if self.first_s is None else self.first_s
        self.now_s, self.last_seq = max(self.now_s, block.end_s), block.seq
        is_of_step = block.start_s >= self.step_start_s - 1e-6
        for number, (track, counts) in enumerate(zip(self.tracks, block.counts, strict=True)):
            track.step(counts, self.groups, is_of_step, block.pairs.get(number))
            track.latch(self.contract.alpha_promote)
            if self.setup.thin and self.decides(self.checks[number]):
                self._latch_thin(self.checks[number], track)
        for guard, counts in zip(self.guards, block.guards, strict=True):
            guard.step(counts, self.groups)
        self._observe(block, is_of_step)
        self._calibrate()
        self._fire(block.end_s)
        if self.passed_at_s is None and self.fired is None and self.passes(block.end_s):
            self.passed_at_s = block.end_s

    def _latch_thin(self, check: Check, track: Track) -> None:
        """Strata that were declared too thin pass with their tenant unless they object."""
        places = [place for place in map(self.strata.get, self.setup.thin) if place is not None]
        passed = passes_with_parent(track, self.contract.alpha_promote, check.kind is CheckKind.GOODPUT_REL)
        track.latched[places] |= passed[places]

    def _register(self, block: Block) -> None:
        """Number strata and revisions that appear for the first time."""
        cells = list(judged(block))
        for cell in cells:
            seen = self.revisions[cell.variant]
            if cell.revision and cell.revision not in seen:
                seen.append(cell.revision)
        self.register((cell.tenant, cell.bucket) for cell in cells)

    def register(self, names: Iterable[Stratum]) -> None:
        """Make room for strata that are not known yet."""
        s = self.strata
        before = (s.size, len(s.tenants), len(s.buckets))
        for name in names:
            s.index(name)
        if s.size == before[0]:
            return
        for tenant, bucket in s.names[before[0] :]:
            self.setups.append(
                StratumSetup(tenant, bucket, tuple(assembly.newcomer(self, check) for check in self.checks))
            )
        s.seal()
        self.renumber(before)

    def _refresh(self) -> None:
        """What follows from the strata and their setups."""
        names = self.strata.names
        self._weights: Array | None = None
        self._has_bucket = np.array([bool(bucket) for _, bucket in names], dtype=bool)
        self._had_traffic = np.array([s.n_history > 0 for s in self.setups], dtype=bool)
        required = self.contract.required
        self._optional = np.array([i >= self.known and t not in required for i, (t, _) in enumerate(names)], dtype=bool)
        self._copied = np.array([self.contract.may_be_copied(t) for t, _ in names], dtype=bool)
        self.keys = assembly.make_keys(self)
        self._waiting = self._find_waiting()

    def renumber(self, before: tuple[int, int, int]) -> None:
        """Make room after strata were added (also while restoring); `before` = strata, tenants, buckets until now."""
        self.groups = np.concatenate([self.groups, np.arange(before[0], self.strata.size, dtype=np.int64)])
        for number, track in enumerate(self.tracks):
            track.grow(before, assembly.nulls(self, number), assembly.aims(self, number))
        for guard in self.guards:
            guard.grow(before, self.strata.size)
        for variant, seen in self.step_requests.items():
            self.step_requests[variant] = np.concatenate([seen, np.zeros(self.strata.size - len(seen))])
        self._refresh()

    def _observe(self, block: Projected, is_of_step: bool) -> None:
        """Sketches, freshness and shares, for the rows and the holds."""
        for key, bins in block.bins.items():
            if key[2] in self._margin_metrics:
                merge_into(self.sketches.setdefault(key, {}), bins)
            if is_of_step and key[2] in self._limit_metrics:
                merge_into(self.step_sketches.setdefault(key, {}), bins)
        for key, count in block.unknown.items():
            self.unknown[key] = self.unknown.get(key, 0) + count
        if not is_of_step:
            return
        self.seen_in_step += 1
        for variant, finished in block.finished.items():
            seen = self.step_requests[variant]
            seen[: len(finished)] += finished
            if finished.any():
                self.last_data_s[variant] = block.end_s
        present = [variant for variant, finished in block.finished.items() if finished.any()]
        if CANDIDATE in present and (STABLE in present or not self.needs_stable):
            self.blocks_in_step += 1
        for where, count in block.routed.items():
            self.routed[where] = self.routed.get(where, 0) + count

    def _find_waiting(self) -> list[tuple[int, int]]:
        """(check, stratum) of margins that wait for stable's threshold."""
        if not self.setup.baseline:
            return []
        margins = [n for n, check in enumerate(self.checks) if check.kind is CheckKind.QUANTILE_REL]
        keys = self.keys.arms[STABLE]
        return [(number, int(place)) for number in margins for place in np.flatnonzero(keys[number] < 0)]

    def _calibrate(self) -> None:
        """Set thresholds of margin gates that the history could not set, from stable's requests so far."""
        if not self._waiting or self.first_s is None:
            return
        fewest = FEWEST if self.now_s - self.first_s >= CALIBRATION_S else ENOUGH
        changed = False
        for number, place in self._waiting:
            check = self.checks[number]
            bins = self.sketches.get((STABLE, place, check.metric))
            found = quantile_setup(check, bins, fewest) if bins else None
            if found is not None and found.stable_us >= 0:
                checks = self.setups[place].checks
                found = replace(found, aim=checks[number].aim)  # it was fixed before any request
                checks = (*checks[:number], found, *checks[number + 1 :])
                self.setups[place] = replace(self.setups[place], checks=checks)
                changed = True
        if changed:
            self.keys = assembly.make_keys(self)
            self._waiting = self._find_waiting()
            self.thresholds_version += 1
            for number, track in enumerate(self.tracks):
                track.null = assembly.nulls(self, number)

    # --- what it believes ---

    @property
    def needs_stable(self) -> bool:
        """Whether stable must have fresh requests too: not on a first install, and not when copies are off at
        full weight.
        """
        return self.setup.baseline and not (self.weight >= 100 and STABLE not in self.last_data_s)

    def weights(self, check: Check) -> Array:
        """Weight of every cell of a check in the rollback sum; all enforced checks together use at most 1."""
        if self._weights is None or len(self._weights) != self.strata.cells:
            self._weights = cell_weights(self.strata, self.known) / sum(1 for c in self.checks if c.enforce)
        return self._weights

    def rollback_evidence(self) -> float:
        """The weighted e-value against "no enforced check is breached anywhere"."""
        total, spent = 0.0, 0.0
        shifted = self.does_other_work()
        for check, track in zip(self.checks, self.tracks, strict=True):
            if check.enforce:
                weights = self.weights(check)
                total += float(weights @ self.fail_evidence(check, track, shifted))
                spent += float(weights.sum())
        return total + (1.0 - spent)

    def fail_evidence(self, check: Check, track: Track, shifted: bool) -> Array:
        """Evidence of a breach per cell; that of latencies adds nothing (an e-value may be lowered) while `shifted`."""
        evidence = track.fail_evidence()
        return np.minimum(evidence, 1.0) if shifted and check.metric in LATENCIES else evidence

    def does_other_work(self) -> bool:
        """Whether the arms are proven to answer at other lengths, or other prompts: then latencies blame nobody, and
        the step holds with that reason.
        """
        return any(self.has_shift(guard) for guard in self.guards if guard.kind.is_work)

    def has_shift(self, guard: Guard) -> bool:
        """Whether a comparability guard is proven."""
        weights = self.weights(SERVED) * sum(1 for c in self.checks if c.enforce)
        return max(guard.evidence(weights)) >= 1.0 / self.contract.alpha_promote

    def culprits(self) -> tuple[Culprit, ...]:
        """Cells that carry the rollback evidence, strongest first; `proven` ones by closed testing."""
        return find_culprits(self)

    def _fire(self, now_s: float) -> None:
        if self.fired is None:
            evidence = self.rollback_evidence()
            if evidence >= 1.0 / self.contract.alpha_rollback:
                self.fired = Fired(now_s, evidence, self.culprits())

    def required(self, place: int) -> bool:
        """Whether a stratum must pass: it has a bucket, and it had traffic in the history or has some in this step."""
        return bool(self.required_strata()[place])

    def required_strata(self) -> Bools:
        """`required` of every stratum; newcomers of unnamed tenants block the last steps only."""
        needed = self._has_bucket & (
            self._had_traffic | (self.step_requests[STABLE] + self.step_requests[CANDIDATE] > 0)
        )
        if self.known and self.weight < 50 and self.step_kind != "bake":
            needed = needed & ~self._optional
        if self.step_kind == "shadow":
            needed = needed & self._copied
        return np.asarray(needed, dtype=bool)

    def is_seen(self, place: int) -> bool:
        """Whether a stratum had traffic in the history or has some in this step."""
        return self.setups[place].n_history > 0 or self.step_requests_of(place) > 0

    def step_requests_of(self, place: int) -> int:
        """Requests of both arms that ended in this step."""
        return int(sum(seen[place] for seen in self.step_requests.values()))

    def passes(self, now_s: float) -> bool:
        """Whether the step may advance: no hold, and every enforced check has passed in every required stratum."""
        if self.fired is not None or not self._all_latched():
            return False
        return not self.holds(now_s)

    def _all_latched(self) -> bool:
        required = self.required_strata()
        if not required.any():
            return False
        return all(
            bool(track.latched[required].all())
            for check, track in zip(self.checks, self.tracks, strict=True)
            if self.decides(check)
        )

    def decides(self, check: Check) -> bool:
        """Whether a check must pass: enforced, not the added one on refused requests, and there is something to
        compare with.
        """
        return check.enforce and check.metric != SERVED.metric and (self.setup.baseline or check.margin is None)

    def holds(self, now_s: float) -> list[Hold]:
        """Reasons to stay that are not missing evidence of a gate."""
        return find_holds(self, now_s)

    def is_unmeasured(self, number: int, place: int) -> bool:
        """Whether a check's metric is unknown for too many requests of a stratum."""
        return is_unmeasured(self, number, place)

    def verdict(self, now_s: float, guards: Sequence[Hold] = ()) -> Verdict:
        """The full answer at `now_s`. guards: holds that the caller found (hardware, provider); they block a PASS."""
        result = Result.INCONCLUSIVE
        if self.fired is not None:
            result = Result.FAIL
        elif not guards and self.passes(now_s):
            result = Result.PASS
            self.passed_at_s = now_s if self.passed_at_s is None else self.passed_at_s
        return make_verdict(self, now_s, result, [*guards, *self.holds(now_s)])

    # --- state ---

    def state(self) -> dict[str, Any]:
        """JSON values from which `restore` goes on bit for bit."""
        return statefile.save(self)

    @staticmethod
    def restore(setup: JudgeSetup, state: Mapping[str, Any]) -> "Judge":
        """The judge that `state` was taken from; ValueError for another schema version."""
        judge = Judge(setup)
        statefile.load(judge, state)
        return judge

    def names(self) -> list[Stratum]:
        """Strata in the order of their numbers."""
        return self.strata.names
