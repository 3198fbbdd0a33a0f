"""Turns request records into closed blocks, in streaming: the recorder's counting, and the same counting of record
files.

One `BlockBuilder` per attempt. The caller gives the time (`tick`); nothing here reads a clock. Counts are attributed
as `blocks` says: exceedances when the threshold is crossed (also while the request is still in flight), everything
else at completion; what belongs to a block that is already closed goes to the oldest open one. Cardinality is
bounded: tenants beyond the cap are pooled and counted.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from policies import blocks
from policies.attribution import Reading, goodness, readings
from policies.blocks import Block, Thresholds
from policies.cellnames import CellNames
from policies.contract import CheckKind, Contract
from policies.pairing import Pairing
from policies.records import RequestRecord
from policies.tallies import CellKey, CountsOf, OpenBlock, Tally

_FUTURE_S = 60.0  # an entry that ends this long after the last tick has a wrong clock


@dataclass(frozen=True, slots=True)
class BuilderSetup:
    """What the builder must know of the policy; JSON-able, because the controller sends it to the recorder.

    sees_progress: the caller reports first content and gaps of requests in flight (`progress`), so that a missing
    first token is known to be missing. dedupe_s: how long ids are remembered; linger_s: how long a block stays open
    after its end for stragglers.
    """

    rollout: str
    attempt: int
    block_s: float
    warmup_s: float
    bucket_names: tuple[str, ...]
    bucket_edges: tuple[int, ...]
    slo_us: Mapping[str, int]
    attempted: tuple[str, ...]
    required: tuple[str, ...]
    other: str
    max_tenants: int = 500
    sees_progress: bool = False
    dedupe_s: float = 900.0
    linger_s: float = 0.0
    max_open_s: float = 7200.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> "BuilderSetup":
        data = dict(raw)
        for name in ("bucket_names", "bucket_edges", "attempted", "required"):
            data[name] = tuple(data[name])
        return BuilderSetup(**data)


def builder_setup(contract: Contract, rollout: str, attempt: int, **changes: Any) -> BuilderSetup:
    """Setup of one attempt under `contract`; `changes` override fields."""
    values: dict[str, Any] = {
        "block_s": contract.block_s,
        "warmup_s": contract.warmup_s,
        "bucket_names": contract.bucket_names,
        "bucket_edges": contract.bucket_edges,
        "slo_us": dict(contract.slo_us),
        "attempted": tuple(sorted(contract.attempted)),
        "required": contract.required,
        "other": contract.other,
    }
    return BuilderSetup(rollout, attempt, **{**values, **changes})


def limit_thresholds(contract: Contract) -> Thresholds:
    """Thresholds known before any history: the absolute limits, for every stratum."""
    found: dict[tuple[str, str, str], tuple[int, ...]] = {}
    for check in contract.checks:
        if check.kind is CheckKind.QUANTILE_ABS and check.limit is not None:
            key = ("*", "*", check.metric)
            found[key] = tuple(sorted({*found.get(key, ()), blocks.threshold_us(check.limit)}))
    return found


class _InFlight:
    """A request that has started: what is known of it, and which crossings were already counted."""

    __slots__ = ("cell", "marks", "record")

    def __init__(self, record: RequestRecord, cell: CellKey) -> None:
        self.record = record
        self.cell = cell
        self.marks: set[tuple[str, int]] = set()


class BlockBuilder:
    """Streaming counter of one attempt; feed it in any order, close blocks with `tick`.

    start_s: Unix time of the first block's start; seq: number of the first block (a restarted recorder goes on from
    its spool).
    """

    def __init__(
        self, setup: BuilderSetup, thresholds: Thresholds, start_s: float, seq: int = 0, step: int = 0
    ) -> None:
        self._setup = setup
        self._start_s = start_s
        self._first_seq = seq
        self._next = 0  # index of the oldest open block
        self._step = step
        self._now_s = start_s
        self._blocks: dict[int, OpenBlock] = {}
        self._in_flight: dict[tuple[str, str], _InFlight] = {}
        self._seen: dict[tuple[str, str], float] = {}
        self._names = CellNames(setup)
        self._attempted = frozenset(setup.attempted)
        self._pairing = Pairing()
        self.set_thresholds(thresholds)

    # --- what the caller sets ---

    def set_thresholds(self, thresholds: Thresholds) -> None:
        """Count these thresholds at the source from now on; call it between blocks (right after `tick`)."""
        self._thresholds = dict(thresholds)
        self._keys: dict[tuple[str, str], tuple[tuple[tuple[int, float], ...], ...]] = {}

    def set_step(self, step: int) -> None:
        """Blocks that close from now on belong to `step`."""
        self._step = step

    def set_pairs(self, pairs: Mapping[tuple[str, str, str], tuple[tuple[int, int], ...]]) -> None:
        """Threshold pairs (stable_us, candidate_us) by (tenant, bucket, metric) for the paired test."""
        self._pairing.set_thresholds(pairs)

    def mark_missing(self, variant: str) -> None:
        """Metering of `variant` was interrupted: its counts in all open blocks are no evidence."""
        self._block(self._next).missing.add(variant)
        for block in self._blocks.values():
            block.missing.add(variant)

    @property
    def next_seq(self) -> int:
        """Number of the block that closes next."""
        return self._first_seq + self._next

    @property
    def in_flight(self) -> int:
        """Requests that started and have not finished."""
        return len(self._in_flight)

    # --- requests ---

    def start(self, record: RequestRecord) -> None:
        """A request began; its record holds what is known at arrival (outcome `open`)."""
        key = (record.id, record.variant)
        if record.kind == "probe" or key in self._in_flight or key in self._seen or self._is_warming(record):
            return
        cell = self._names.key(record, self._drop)
        if cell is None:
            return
        self._in_flight[key] = _InFlight(record, cell)
        self._at(record.t_start_s).tally(cell).routed += 1

    def progress(self, record: RequestRecord) -> None:
        """What is now known of a request in flight (first content, longest gap so far)."""
        found = self._in_flight.get((record.id, record.variant))
        if found is not None:
            found.record = record

    def finish(self, record: RequestRecord) -> None:
        """A request ended, or is written as `open` at the end of a file."""
        key = (record.id, record.variant)
        in_flight = self._in_flight.pop(key, None)
        end_s = record.t_start_s + (record.e2e_s if record.e2e_s is not None else record.ttft_s or 0.0)
        reason = self._refusal(record, key, end_s)
        if reason is not None:
            self._drop(reason)
            return
        self._seen[key] = end_s
        cell = in_flight.cell if in_flight is not None else self._names.key(record, self._drop)
        if cell is None:
            self._drop("ignoredTenants")
            return
        if in_flight is None:
            self._at(record.t_start_s).tally(cell).routed += 1
        if end_s < self._start_s + self._next * self._setup.block_s:
            self._block(self._next).late += 1
        self._count(record, cell, end_s, in_flight.marks if in_flight is not None else ())

    def tick(self, now_s: float) -> list[Block]:
        """Close every block whose end (plus linger) is not after `now_s`; oldest first."""
        self._now_s = max(self._now_s, now_s)
        closed = []
        while self._start_s + (self._next + 1) * self._setup.block_s + self._setup.linger_s <= now_s:
            closed.append(self._close())
        return closed

    def flush(self) -> list[Block]:
        """Close every block that holds anything (end of a file)."""
        if not self._blocks:
            return []
        return self.tick(self._start_s + (max(self._blocks) + 1) * self._setup.block_s + self._setup.linger_s)

    # --- inside ---

    def _refusal(self, record: RequestRecord, key: tuple[str, str], end_s: float) -> str | None:
        if record.kind == "probe":
            return "probe"
        if key in self._seen:
            return "duplicate"
        if end_s > self._now_s + max(_FUTURE_S, self._setup.max_open_s):
            return "future"
        return "warmup" if self._is_warming(record) else None

    def _is_warming(self, record: RequestRecord) -> bool:
        return record.pod_age_s is not None and record.pod_age_s < self._setup.warmup_s

    def _drop(self, reason: str) -> None:
        self._block(self._next).drop(reason)

    def _block(self, index: int) -> OpenBlock:
        found = self._blocks.get(index)
        if found is None:
            found = self._blocks[index] = OpenBlock()
        return found

    def _at(self, time_s: float) -> OpenBlock:
        """The open block of a moment; moments of closed blocks fall into the oldest open one."""
        return self._block(max(int((time_s - self._start_s) // self._setup.block_s), self._next))

    def _thresholds_of(self, tenant: str, bucket: str) -> tuple[tuple[tuple[int, float], ...], ...]:
        """Per latency metric the thresholds (key, seconds) of a stratum."""
        found = self._keys.get((tenant, bucket))
        if found is None:
            get = self._thresholds.get
            places = ((tenant, bucket), (tenant, "*"), ("*", bucket), ("*", "*"))
            found = tuple(
                tuple((key, key / 1e6) for key in sorted({k for place in places for k in get((*place, metric), ())}))
                for metric in blocks.LATENCIES
            )
            self._keys[tenant, bucket] = found
        return found

    def _count(self, record: RequestRecord, cell: CellKey, end_s: float, marks: Any) -> None:
        last = self._at(end_s).tally(cell)
        last.outcomes[record.outcome] = last.outcomes.get(record.outcome, 0) + 1
        read = readings(record)
        keys = self._thresholds_of(cell[3], cell[4])
        for metric, reading, thresholds in zip(blocks.LATENCIES, read, keys, strict=True):
            if reading.value is not None:
                self._count_value(record, cell, last.counts(metric), metric, reading, thresholds, marks)
            elif reading.bound is not None:
                for key, seconds in thresholds:
                    if reading.bound > seconds and (metric, key) not in marks:
                        self._mark(metric, key, cell, record.t_start_s + seconds)
            elif reading.unknown:
                last.counts(metric).unknown += 1
        if self._setup.slo_us:
            self._count_goodness(record, cell, last, read, marks)
        self._count_tokens(record, last)
        self._pairing.add(record, cell[3], cell[4], self._pair_values(read), end_s)

    def _count_value(
        self,
        record: RequestRecord,
        cell: CellKey,
        counts: CountsOf,
        metric: str,
        reading: Reading,
        thresholds: tuple[tuple[int, float], ...],
        marks: Any,
    ) -> None:
        value = reading.value
        assert value is not None
        counts.add(value)
        for key, seconds in thresholds:
            if value <= seconds:
                counts.below[key] = counts.below.get(key, 0) + 1
            elif (metric, key) in marks:
                continue
            elif reading.crossing_base_s is None:
                counts.above(key)
            else:
                self._mark(metric, key, cell, record.t_start_s + reading.crossing_base_s + seconds)

    def _mark(self, metric: str, key: int, cell: CellKey, time_s: float) -> None:
        self._at(time_s).tally(cell).counts(metric).above(key)

    def _count_goodness(self, record: RequestRecord, cell: CellKey, last: Tally, read: Any, marks: Any) -> None:
        state, is_attempted = goodness(record, read, self._setup.slo_us, self._attempted)
        for metric, counts_here in ((blocks.GOOD_FRACTION, is_attempted), (blocks.GOODPUT, record.outcome != "open")):
            if (metric, blocks.BINARY) in marks:
                continue
            if state.good is False and (counts_here or state.bad_at_s is not None):
                if state.bad_at_s is None:
                    last.counts(metric).above(blocks.BINARY)
                else:
                    self._mark(metric, blocks.BINARY, cell, record.t_start_s + state.bad_at_s)
            elif counts_here and state.good is None:
                last.counts(metric).unknown += 1
            elif counts_here and state.good:
                counts = last.counts(metric)
                counts.n += 1
                counts.below[blocks.BINARY] = counts.below.get(blocks.BINARY, 0) + 1

    @staticmethod
    def _count_tokens(record: RequestRecord, last: Tally) -> None:
        if record.outcome != "ok":
            return
        for metric, tokens in (
            (blocks.PROMPT_TOKENS, record.prompt_tokens),
            (blocks.OUTPUT_TOKENS, record.output_tokens),
        ):
            if tokens is not None:
                last.counts(metric).add(float(tokens))

    @staticmethod
    def _pair_values(read: tuple[Reading, ...]) -> tuple[tuple[float, bool] | None, ...]:
        """What each latency is known to have reached, and whether that is its value (else a lower bound)."""
        exact = [None if r.value is None else (r.value, True) for r in read]
        return tuple(e if r.bound is None else (r.bound, False) for e, r in zip(exact, read, strict=True))

    def _close(self) -> Block:
        index, self._next = self._next, self._next + 1
        end_s = self._start_s + (index + 1) * self._setup.block_s
        block = self._block(index)
        self._scan_in_flight(block, end_s)
        del self._blocks[index]
        self._forget(end_s)
        return Block(
            seq=self._first_seq + index,
            rollout=self._setup.rollout,
            attempt=self._setup.attempt,
            step=self._step,
            start_s=end_s - self._setup.block_s,
            end_s=end_s,
            cells=tuple(block.cells[key].freeze(key) for key in sorted(block.cells)),
            pairs=self._pairing.take(end_s),
            missing=tuple(sorted(block.missing)),
            late=block.late,
            dropped=dict(sorted(block.dropped.items())),
        )

    def _scan_in_flight(self, block: OpenBlock, end_s: float) -> None:
        """Count crossings of requests that are still running at the end of the block."""
        slo = self._setup.slo_us
        for flight in self._in_flight.values():
            record = flight.record
            age = end_s - record.t_start_s
            if age <= 0:
                continue
            keys = self._thresholds_of(flight.cell[3], flight.cell[4])
            waits_for_first = self._setup.sees_progress and record.ttft_s is None and record.stream is not False
            for metric, thresholds in ((blocks.TTFT, keys[0] if waits_for_first else ()), (blocks.E2E, keys[3])):
                for key, seconds in thresholds:
                    if age > seconds and (metric, key) not in flight.marks:
                        flight.marks.add((metric, key))
                        block.tally(flight.cell).counts(metric).above(key)
            limits = [slo[blocks.E2E]] if blocks.E2E in slo else []
            limits += [slo[blocks.TTFT]] if waits_for_first and blocks.TTFT in slo else []
            if limits and age > min(limits) / 1e6 and (blocks.GOODPUT, blocks.BINARY) not in flight.marks:
                for metric in (blocks.GOOD_FRACTION, blocks.GOODPUT):
                    flight.marks.add((metric, blocks.BINARY))
                    block.tally(flight.cell).counts(metric).above(blocks.BINARY)

    def _forget(self, end_s: float) -> None:
        """Drop ids and lost requests that are too old to matter; dictionaries keep the order of insertion."""
        horizon = end_s - self._setup.dedupe_s
        old = []
        for key, time_s in self._seen.items():
            if time_s >= horizon:
                break
            old.append(key)
        for key in old:
            del self._seen[key]
        lost = [k for k, f in self._in_flight.items() if end_s - f.record.t_start_s > self._setup.max_open_s]
        for key in lost:
            del self._in_flight[key]
            self._drop("lost")
