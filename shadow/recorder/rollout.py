"""Everything the recorder keeps of one rollout: its attempts' builders, closed blocks, records, unfinished requests.

Called by recorder.py on one thread; the time is an argument.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from policies.blocks import Block
from policies.builder import BlockBuilder
from policies.records import VARIANTS, Outcome, RequestRecord
from shadow.recorder.calibration import Calibration
from shadow.recorder.entry import Entry
from shadow.recorder.files import RecordFiles
from shadow.recorder.setups import AttemptSetup, make_setup
from shadow.recorder.spool import Log
from shadow.recorder.stats import Stats

LOST_AFTER_S = 15.0
"""A gate reports an unfinished request every second; one that nobody reports any more died with its gate."""
MAX_GAP_BLOCKS = 720
"""After a longer pause the blocks in between are left out, not written one by one as missing."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Retention: seconds and bytes per rollout."""

    block_age_s: float = 14 * 86400.0
    block_bytes: int = 2 * 2**30
    record_age_s: float = 86400.0
    record_bytes: int = 2**30


@dataclass(slots=True)
class _Attempt:
    """One attempt's builder. step: as the newest requests say; it takes effect when the block at hand has closed."""

    builder: BlockBuilder
    setup: AttemptSetup
    step: int
    stage: str
    weight: int
    newest_s: float
    start_s: float
    pending: AttemptSetup | None = None
    of_step: dict[int, tuple[str, int]] = field(default_factory=dict)

    @property
    def next_close_s(self) -> float:
        """When the oldest open block is due."""
        rules = self.setup.builder
        return self.start_s + (self.builder.next_seq + 1) * rules.block_s + rules.linger_s


@dataclass(slots=True)
class _Open:
    record: RequestRecord
    seen_s: float


def _block_time(payload: bytes) -> float:
    return float(orjson.loads(payload)["block"]["start_s"])


def _setup_time(payload: bytes) -> float:
    return float(orjson.loads(payload)["at_s"])


class RolloutLog:
    """One rollout's share of the recorder; `folder` holds its spool."""

    def __init__(self, rollout: str, folder: Path, now_s: float, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self.rollout = rollout
        self.stats = Stats()
        self.calibration = Calibration()
        self._blocks = Log(folder / "blocks", _block_time, max_age_s=limits.block_age_s, max_bytes=limits.block_bytes)
        self._setups = Log(folder / "setups", _setup_time, max_age_s=10 * 365 * 86400.0)
        self._records = RecordFiles(folder / "records", max_age_s=limits.record_age_s, max_bytes=limits.record_bytes)
        self._attempts: dict[int, _Attempt] = {}
        self._open: dict[tuple[str, str], _Open] = {}
        self._current: int | None = None
        self._setup_of: dict[int, dict[str, Any]] = {}
        for payload in self._setups.after(-1, 1_000_000):
            body = orjson.loads(payload)
            self._setup_of[int(body["attempt"])] = body
        self._resume(now_s)

    # --- requests ---

    def take(self, entry: Entry, now_s: float) -> None:
        """One access-log entry."""
        record = entry.record
        key = (record.id, record.variant)
        known = self._open.get(key)
        if entry.dropped is not None:
            self._open.pop(key, None)
            self.stats.dropped[record.variant, entry.dropped] += 1
            return
        attempt = self._attempt_of(entry, now_s)
        if known is None:
            self.stats.start(record, now_s)
            if entry.skip:
                self.stats.skipped[record.tenant, record.bucket or "", entry.skip] += 1
        if entry.final:
            self._finish(entry, attempt, now_s)
        elif known is None:
            self._open[key] = _Open(record, now_s)
            attempt.builder.start(record)
        else:
            known.record, known.seen_s = record, now_s
            attempt.builder.progress(record)

    def _finish(self, entry: Entry, attempt: _Attempt, now_s: float) -> None:
        record = entry.record
        self._open.pop((record.id, record.variant), None)
        attempt.builder.finish(record)
        self.stats.finish(record)
        self.stats.fell_over += entry.fell_over
        self._records.add(record, now_s)
        if record.outcome == Outcome.OK and record.kind == "live":
            self.calibration.add(record.model, entry.body_bytes, record.prompt_tokens)

    def _attempt_of(self, entry: Entry, now_s: float) -> _Attempt:
        number, plan, start_s = entry.record.attempt or 0, entry.plan, entry.record.t_start_s
        found = self._attempts.get(number)
        if found is None:
            found = self._begin(number, min(start_s, now_s), plan.step)
        if start_s >= found.newest_s:
            found.newest_s, found.step, found.stage, found.weight = start_s, plan.step, plan.stage, plan.weight
            found.of_step[plan.step] = (plan.stage, plan.weight)
        current = self._attempts.get(-1 if self._current is None else self._current)
        if current is None or start_s >= current.newest_s:
            self._current = number
        return found

    def _begin(self, number: int, start_s: float, step: int) -> _Attempt:
        setup = make_setup(self.rollout, self._setup_of.get(number), number)
        aligned = start_s // setup.builder.block_s * setup.builder.block_s
        builder = BlockBuilder(setup.builder, setup.thresholds, aligned, step=step)
        builder.set_pairs(setup.pairs)
        self._attempts[number] = _Attempt(builder, setup, step, "", 0, start_s, aligned)
        return self._attempts[number]

    # --- time ---

    def tick(self, now_s: float) -> int:
        """Close what is due; returns how many blocks were written."""
        self._drop_lost(now_s)
        written = 0
        for number, attempt in list(self._attempts.items()):
            while attempt.next_close_s <= now_s:  # one at a time: a step begins at the border of a block
                written += self._close(number, attempt, attempt.builder.tick(attempt.next_close_s))
            quiet_s = now_s - attempt.newest_s
            if (
                number != self._current
                and attempt.builder.in_flight == 0
                and quiet_s > 4 * attempt.setup.builder.block_s
            ):
                written += self._close(number, attempt, attempt.builder.flush())
                del self._attempts[number]
        self._records.flush()
        self.stats.trim(now_s)
        return written

    def prune(self, now_s: float) -> None:
        """Apply retention."""
        self._blocks.prune(now_s)
        self._records.prune(now_s)

    def _close(self, number: int, attempt: _Attempt, closed: list[Block]) -> int:
        written = 0
        for block in closed:
            is_empty = not (block.cells or block.pairs or block.missing or block.dropped)
            if number == self._current or not is_empty:
                self._write(attempt, block)
                written += 1
        if closed:
            attempt.builder.set_step(attempt.step)
            if attempt.pending is not None:
                attempt.setup, attempt.pending = attempt.pending, None
                attempt.builder.set_thresholds(attempt.setup.thresholds)
                attempt.builder.set_pairs(attempt.setup.pairs)
        return written

    def _write(self, attempt: _Attempt, block: Block) -> None:
        numbered = replace(block, seq=self._blocks.next_number)
        stage, weight = attempt.of_step.get(block.step, (attempt.stage, attempt.weight))
        about = orjson.dumps({"stage": stage, "weight": weight})
        self._blocks.append(b'{"about":%b,"block":%b}' % (about, numbered.to_json()))

    def _drop_lost(self, now_s: float) -> None:
        for key, item in [(k, o) for k, o in self._open.items() if now_s - o.seen_s > LOST_AFTER_S]:
            del self._open[key]
            self.stats.lost += 1
            attempt = self._attempts.get(item.record.attempt or 0)
            if attempt is not None:
                age_s = max(0.0, item.seen_s - item.record.t_start_s)
                lost = replace(item.record, outcome=Outcome.CANCELLED.value, e2e_s=age_s)
                attempt.builder.finish(lost)

    def mark_missing(self) -> None:
        """Metering was interrupted: the blocks at hand are no evidence."""
        for attempt in self._attempts.values():
            for variant in VARIANTS:
                attempt.builder.mark_missing(variant)

    def _resume(self, now_s: float) -> None:
        """Go on after a restart: the time in between is written as missing."""
        last = self._blocks.last()
        if last is None:
            return
        stored = orjson.loads(last)
        block = stored["block"]
        number, end_s = int(block["attempt"]), float(block["end_s"])
        setup = make_setup(self.rollout, self._setup_of.get(number), number)
        gap = int((now_s - end_s) // setup.builder.block_s)
        start_s = end_s if 0 <= gap <= MAX_GAP_BLOCKS else now_s
        attempt = self._begin(number, start_s, int(block["step"]))
        attempt.stage, attempt.weight = stored["about"]["stage"], stored["about"]["weight"]
        attempt.newest_s = end_s
        self._current = number
        for i in range(max(0, gap) if start_s == end_s else 0):
            self.mark_missing()
            closing_s = end_s + (i + 1) * setup.builder.block_s + setup.builder.linger_s
            self._close(number, attempt, attempt.builder.tick(closing_s))
        self.mark_missing()

    # --- what is asked ---

    def put_setup(self, body: dict[str, Any], now_s: float) -> None:
        """Keep and apply the setup of an attempt; ValueError where it is none."""
        number = int(body["attempt"])
        setup = make_setup(self.rollout, body, number)
        self._setups.append(orjson.dumps({**body, "at_s": now_s}))
        self._setup_of[number] = body
        attempt = self._attempts.get(number)
        if attempt is None:
            return
        if setup.builder == attempt.setup.builder:
            attempt.pending = setup
            return
        # Other buckets or another block length: this attempt's counting starts anew at the next block.
        attempt.builder.mark_missing("stable")
        attempt.builder.mark_missing("candidate")
        self._close(number, attempt, attempt.builder.flush())
        self._begin(number, now_s, attempt.step)

    def setup(self, attempt: int) -> dict[str, Any] | None:
        """The body of the last `put_setup` of an attempt."""
        return self._setup_of.get(attempt)

    def blocks_after(self, seq: int, limit: int) -> list[bytes]:
        """Stored blocks (`{"about","block"}`) numbered above `seq`."""
        return self._blocks.after(seq, limit)

    def blocks_between(self, since_s: float, until_s: float, limit: int) -> list[bytes]:
        """Stored blocks that started in [since, until)."""
        return self._blocks.between(since_s, until_s, limit)

    @property
    def last_seq(self) -> int:
        """Number of the newest block; -1 before the first."""
        return self._blocks.next_number - 1

    @property
    def first_seq(self) -> int:
        """Number of the oldest block that is kept."""
        return self._blocks.first_number()

    @property
    def open_count(self) -> int:
        """Unfinished requests that are known."""
        return len(self._open)

    def records_between(self, since_s: float, until_s: float, now_s: float) -> Iterator[bytes]:
        """JSON lines of records, unfinished ones (with their age now) last."""
        yield from self._records.between(since_s, until_s)
        for item in list(self._open.values()):
            if since_s <= item.record.t_start_s < until_s:
                age_s = max(0.0, now_s - item.record.t_start_s)
                yield replace(item.record, e2e_s=age_s).to_json_line()

    def open_view(self, now_s: float) -> dict[str, Any]:
        """Unfinished requests (known from one second of age on) by variant, revision and kind."""
        groups: dict[tuple[str, str, str], list[float]] = {}
        for item in self._open.values():
            record = item.record
            groups.setdefault((record.variant, record.revision or "", record.kind), []).append(now_s - record.t_start_s)
        listed = [
            {
                "variant": v,
                "revision": r,
                "kind": k,
                "n": len(ages),
                "oldest_s": max(ages),
                "ages_s": sorted(ages)[-100:],
            }
            for (v, r, k), ages in sorted(groups.items())
        ]
        return {"open": listed, "total": len(self._open)}

    def stats_view(self, now_s: float) -> dict[str, Any]:
        """Rates, skips and calibration."""
        current = self._attempts.get(-1 if self._current is None else self._current)
        return {
            **self.stats.view(now_s),
            "bytes_per_token": self.calibration.view(),
            "overhead_bytes": self.calibration.overheads(),
            "attempt": self._current,
            "step": current.step if current else None,
            "stage": current.stage if current else None,
            "weight": current.weight if current else None,
            "last_seq": self.last_seq,
        }

    def close(self) -> None:
        """Put everything on disk."""
        self._blocks.close()
        self._setups.close()
        self._records.close()
