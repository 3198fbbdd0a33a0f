"""One feed per rollout that follows its blocks at the recorder and keeps the attempt's judge.

Made by the operator's start-up; implements `controller.ports.Judgement`. A feed is a thread: long poll, judge, tell.
Everything that a view needs is in memory, so the decision path never waits for the recorder.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import structlog

from controller.adapters.calibration import Calibrations, Factors
from controller.adapters.recorder_client import OtherRelease, RecorderClient
from controller.adapters.traffic import TrafficWatch
from controller.core.evidence import evidence_hash
from controller.core.snapshot import JudgeView, Traffic
from controller.jsonable import jsonable
from controller.judging import AttemptJudge
from controller.ports import Clock, Retryable, Store
from policies.baseline import newest_alone, newest_history
from policies.blocks import Block
from policies.contract import contract_from_mapping
from policies.history import History, prepare
from policies.plan import make_plan
from policies.setup import JudgeSetup
from policies.verdict import Hold, Result, Verdict

log = structlog.get_logger("weighlock.recorder")

PAGE = 20
"""Blocks per question: a block is about half a megabyte while it is decoded, and what is freed stays with the heap."""
POLL_SECONDS = 5.0
UNREACHABLE_SECONDS = 15.0
VERDICT_AGE_SECONDS = 2.0
STORE_VERDICT_SECONDS = 60.0
HISTORY_ATTEMPT = 0
_BEGAN = "attempt_began_s"
_PLAN = "duration_plan"


def kept_setup(body: Mapping[str, Any] | None, began_s: float) -> JudgeSetup | None:
    """The setup in a recorder's answer, unless it belongs to an attempt of the same number of a deleted namesake."""
    if not body or not body.get("setup") or abs(float(body.get(_BEGAN, 0.0)) - began_s) > 1.0:
        return None
    return JudgeSetup.from_dict(body["setup"])


def duration_plan(setup: JudgeSetup, history: Sequence[Block]) -> dict[str, Any]:
    """How long proof takes when candidate and stable see equally many requests: `weighlock plan`, and a sentence."""
    plan = make_plan(setup, History(setup.contract, history))
    slowest = max((row for row in plan.strata if row.minutes_90), key=lambda row: row.minutes_90 or 0.0, default=None)
    if slowest is None or plan.minutes_90 is None:
        sentence = "The history does not say how long a step takes."
    else:
        where = f"{slowest.tenant} {slowest.bucket} {slowest.metric} {slowest.gate}"
        sentence = f"A step that compares equally many requests needs about {plan.minutes_90:.0f} min ({where})."
    if plan.cannot_pass:
        sentence += f" {len(plan.cannot_pass)} check(s) cannot pass within maxHold at this traffic."
    return {**dict(jsonable(plan.to_dict())), "sentence": sentence}


def live_by_revision(groups: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Unfinished live requests by revision; nobody waits for a copy, and copies on a hung candidate never end."""
    found: dict[str, int] = {}
    for group in groups:
        if group["kind"] == "live":
            found[group["revision"]] = found.get(group["revision"], 0) + int(group["n"])
    return found


class Feed:
    """One rollout's blocks and judge.

    Args:
        on_verdict: called with `(rollout, urgent)` after new blocks; urgent: the judge says FAIL.
    """

    def __init__(
        self,
        rollout: str,
        client: RecorderClient,
        store: Store,
        clock: Clock,
        on_verdict: Callable[[str, bool], None],
        calibrations: Calibrations,
    ) -> None:
        self.rollout = rollout
        self._client, self._store, self._clock, self._on_verdict = client, store, clock, on_verdict
        self._calibrations = calibrations
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._attempt, self._since_s = HISTORY_ATTEMPT, clock.now()
        self._is_loaded = False
        self._judge: AttemptJudge | None = None
        self._setup_attempt: int | None = None
        self._seq: int | None = None
        self._last_answer_s: float | None = None
        self._other_release = ""
        self._verdict: tuple[float, Verdict] | None = None
        self._guards: tuple[Hold, ...] = ()
        self._stored: tuple[float, str] = (0.0, "")
        self._open: dict[str, int] | None = None
        self._planned: Mapping[str, Any] | None = None
        self._thread = threading.Thread(target=self._run, name=f"feed {rollout}", daemon=True)
        self._thread.start()

    # --- what the controller asks ---

    def view(self, attempt: int, rev10: str, step: int, since_s: float, guards: tuple[Hold, ...] = ()) -> JudgeView:
        """See `controller.ports.Judgement.view`."""
        with self._lock:
            if guards != self._guards:
                self._guards, self._verdict = guards, None
            if attempt != self._attempt:
                self._attempt, self._since_s, self._is_loaded = attempt, since_s, False
                self._judge, self._setup_attempt, self._verdict, self._seq = None, None, None, None
            verdict = self._fresh_verdict()
            is_reachable = self._last_answer_s is not None
            is_reachable = is_reachable and time.monotonic() - (self._last_answer_s or 0.0) < UNREACHABLE_SECONDS
            return JudgeView(
                reachable=is_reachable and not self._other_release,
                other_release=self._other_release,
                rebuilt=self._is_loaded,
                setup_attempt=self._setup_attempt,
                verdict=verdict,
                evidence=evidence_hash(rev10, attempt, step, verdict) if verdict else "",
            )

    def began_s(self, attempt: int) -> float:
        """When the attempt that is followed began; Retryable for another one."""
        with self._lock:
            if attempt != self._attempt:
                raise Retryable(f"attempt {attempt} of {self.rollout} is not followed yet", 0.2)
            return self._since_s

    def take_setup(self, attempt: int, setup: JudgeSetup, planned: Mapping[str, Any] | None = None) -> None:
        """A setup was made durable just now; nothing of the attempt has been counted yet."""
        with self._lock:
            if attempt == self._attempt:
                self._judge, self._setup_attempt, self._is_loaded = AttemptJudge(setup), attempt, True
                self._planned = planned

    def prepared(self) -> tuple[JudgeSetup, Mapping[str, Any] | None] | None:
        """Setup and duration plan of the attempt that is followed."""
        with self._lock:
            return (self._judge.setup, self._planned) if self._judge is not None else None

    def open_requests(self) -> dict[str, int] | None:
        """Unfinished live requests by revision, as of the last poll; None where the recorder is silent."""
        with self._lock:
            return self._open

    def stop(self) -> None:
        """End the thread after its present poll."""
        self._stop.set()

    def _fresh_verdict(self) -> Verdict | None:
        if self._judge is None or not self._is_loaded:
            return None
        now_s = self._clock.now()
        if self._verdict is None or now_s - self._verdict[0] > VERDICT_AGE_SECONDS:
            self._verdict = (now_s, self._judge.verdict(now_s, self._guards))
        return self._verdict[1]

    # --- the thread ---

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._load()
                self._calibrations.sync(self.rollout)
                self._poll()
            except Retryable as error:
                log.warning("recorder silent", rollout=self.rollout, error=str(error))
                with self._lock:
                    self._open = None
                    self._other_release = str(error) if isinstance(error, OtherRelease) else self._other_release
                self._stop.wait(1.0)
            except (ValueError, KeyError, TypeError) as error:
                log.error("recorder answers nonsense", rollout=self.rollout, error=repr(error))
                self._stop.wait(5.0)

    def _load(self) -> None:
        """Rebuild the judge of the wanted attempt from the recorder: its setup and all its blocks so far."""
        with self._lock:
            attempt, since_s, is_loaded, judge = self._attempt, self._since_s, self._is_loaded, self._judge
        if is_loaded and (attempt == HISTORY_ATTEMPT or judge is not None):
            return
        body = self._client.setup(self.rollout, attempt) if attempt != HISTORY_ATTEMPT else None
        setup = kept_setup(body, since_s)
        built = AttemptJudge(setup) if setup is not None else None
        seq = self._start(since_s) if not is_loaded or built is not None else None
        if built is not None and seq is not None:
            for block in self._pages(seq):
                seq = block.seq
                if block.attempt == attempt:
                    built.add(block)
        with self._lock:
            if attempt != self._attempt:
                return
            self._is_loaded = True
            if built is not None and self._judge is None:
                self._judge, self._setup_attempt, self._planned = built, attempt, (body or {}).get(_PLAN)
            self._seq = seq if seq is not None else self._seq
            self._note_answer()

    def _note_answer(self) -> None:
        self._last_answer_s, self._other_release = time.monotonic(), ""

    def _start(self, since_s: float) -> int:
        """Sequence number before the first block of the attempt."""
        found, following = self._client.blocks(self.rollout, since=since_s - 60.0, limit=1)
        return found[0].seq - 1 if found else following

    def _pages(self, seq: int) -> Iterator[Block]:
        while True:
            found, _ = self._client.blocks(self.rollout, after=seq, limit=PAGE)
            self._store.put_blocks(found)
            yield from found
            if len(found) < PAGE:
                return
            seq = found[-1].seq

    def _poll(self) -> None:
        with self._lock:
            seq, attempt = self._seq, self._attempt
        if seq is None:
            seq = self._start(self._since_s)
        found, following = self._client.blocks(self.rollout, after=seq, limit=PAGE, wait=self._wait_s())
        self._store.put_blocks(found)
        is_open = self._client.open_requests(self.rollout)["open"]
        with self._lock:
            if attempt != self._attempt:
                return
            self._seq = following
            self._note_answer()
            self._open = live_by_revision(is_open)
            if found and self._judge is not None:
                self._feed(found, attempt)
            verdict = self._verdict[1] if self._verdict else None
        if found:
            self._on_verdict(self.rollout, verdict is not None and verdict.result is Result.FAIL)

    def _wait_s(self) -> float:
        return 1.0 if self._attempt == HISTORY_ATTEMPT or self._judge is None else POLL_SECONDS

    def _feed(self, blocks: list[Block], attempt: int) -> None:
        judge = self._judge
        if judge is None:
            return
        for block in blocks:
            if block.attempt == attempt:
                judge.add(block)
        now_s = self._clock.now()
        verdict = judge.verdict(now_s, self._guards)
        self._verdict = (now_s, verdict)
        mark = evidence_hash("", attempt, verdict.step, verdict)
        if mark != self._stored[1] or now_s - self._stored[0] > STORE_VERDICT_SECONDS:
            self._stored = (now_s, mark)
            self._store.put_verdict(self.rollout, attempt, judge.last_seq, verdict, mark)


OPEN_BLOCKS_SECONDS = 30.0
"""The youngest blocks are not closed yet when a history is read, so it reaches back this much farther."""

REACH = 4.0
"""A history may be collected from this many times its length, where attempts lie in between."""


class Judgements:
    """Feeds of all rollouts; implements `controller.ports.Judgement`."""

    def __init__(
        self, client: RecorderClient, store: Store, clock: Clock, on_verdict: Callable[[str, bool], None]
    ) -> None:
        self.client = client
        self._store, self._clock, self._on_verdict = store, clock, on_verdict
        self._lock = threading.Lock()
        self._feeds: dict[str, Feed] = {}
        self._calibrations = Calibrations(client)
        self._traffic = TrafficWatch(client, clock)

    def view(
        self, rollout: str, attempt: int, rev10: str, step: int, since_s: float, guards: tuple[Hold, ...] = ()
    ) -> JudgeView:
        """See the protocol."""
        return self._feed(rollout).view(attempt, rev10, step, since_s, guards)

    def put_setup(self, rollout: str, attempt: int, policy: Mapping[str, Any], stable: str) -> None:
        """See the protocol."""
        feed = self._feed(rollout)
        began_s = feed.began_s(attempt)
        kept = self.client.setup(rollout, attempt)
        setup, planned = kept_setup(kept, began_s), (kept or {}).get(_PLAN)
        if setup is None:
            contract = contract_from_mapping(policy)
            history = self._history(rollout, stable, contract.history_s)
            setup = prepare(contract, history)
            planned = duration_plan(setup, history)
            body = {"attempt": attempt, "setup": setup.to_dict(), "contract": dict(policy), _BEGAN: began_s}
            self.client.put_setup(rollout, body | {_PLAN: planned} | self._calibrations.body(rollout))
        self._store.put_setup(rollout, attempt, setup.to_dict(), self._clock.now())
        feed.take_setup(attempt, setup, planned)

    def _history(self, rollout: str, revision: str, length_s: float) -> list[Block]:
        """The newest blocks in which the stable revision served alone, as long as the policy asks for."""
        kept: list[Block] = []
        since_s = self._clock.now() - REACH * length_s - OPEN_BLOCKS_SECONDS
        blocks, _ = self.client.blocks(rollout, since=since_s, limit=1)
        seq = blocks[0].seq - 1 if blocks else None
        while seq is not None:
            page, _ = self.client.blocks(rollout, after=seq, limit=PAGE)
            kept = newest_alone((*kept, *page), revision, length_s)
            seq = page[-1].seq if len(page) == PAGE else None
        return newest_history(kept, revision, length_s)

    def put_history_contract(self, rollout: str, policy: Mapping[str, Any]) -> None:
        """See the protocol."""
        self._calibrations.want(rollout, policy)

    def body_size(self, rollout: str) -> tuple[Factors, Factors]:
        """See the protocol."""
        return self._calibrations.of(rollout)

    def open_requests(self, rollout: str) -> Mapping[str, int] | None:
        """See the protocol."""
        return self._feed(rollout).open_requests()

    def prepared(self, rollout: str) -> tuple[JudgeSetup, Mapping[str, Any] | None] | None:
        """See the protocol."""
        return self._feed(rollout).prepared()

    def traffic(self, rollout: str) -> Traffic | None:
        """See the protocol."""
        return self._traffic.get(rollout)

    def forget(self, rollout: str) -> None:
        """See the protocol."""
        self._traffic.forget(rollout)
        with self._lock:
            feed = self._feeds.pop(rollout, None)
        if feed is not None:
            feed.stop()

    def stop(self) -> None:
        """End all feeds."""
        self._traffic.stop()
        for rollout in list(self._feeds):
            self.forget(rollout)

    def _feed(self, rollout: str) -> Feed:
        with self._lock:
            feed = self._feeds.get(rollout)
            if feed is None:
                feed = Feed(rollout, self.client, self._store, self._clock, self._on_verdict, self._calibrations)
                self._feeds[rollout] = feed
            return feed
