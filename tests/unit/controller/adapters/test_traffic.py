"""The recorder's last seconds: read off the decision path, stale is unknown, nonsense is unknown."""

from typing import Any

from controller.adapters.traffic import STALE_SECONDS, TrafficWatch
from controller.ports import Retryable
from policies.records import RequestRecord
from shadow.recorder.stats import Stats
from tests.unit.controller.shell.fakes import FakeClock

NOW = 1_800_000_000.0


class Recorder:
    """Statistics of the real counter, or whatever the test wants."""

    def __init__(self) -> None:
        self.stats_of = Stats()
        self.answer: Any = None
        self.is_down = False

    def start(self, variant: str, kind: str, tenant: str, at_s: float, n: int = 1) -> None:
        for i in range(n):
            self.stats_of.start(RequestRecord(str(i), at_s, variant, tenant, "open", kind=kind, bucket="0-512"), NOW)

    def stats(self, rollout: str) -> dict[str, Any]:
        if self.is_down:
            raise Retryable("refused")
        return self.answer if self.answer is not None else {**self.stats_of.view(NOW), "attempt": 3}


class Quiet(TrafficWatch):
    """Without a thread: the test reads when it wants to."""

    def _begin(self) -> None:
        return None


def make() -> tuple[Recorder, FakeClock, TrafficWatch]:
    recorder, clock = Recorder(), FakeClock(NOW)
    return recorder, clock, Quiet(recorder, clock)


def test_a_reading_of_the_real_counter() -> None:
    recorder, _, watch = make()
    recorder.start("stable", "live", "acme", NOW - 5, 7)
    recorder.start("candidate", "topup", "acme", NOW - 4, 2)
    recorder.start("candidate", "live", "beta", NOW - 30)
    assert watch.get("ns/chat") is None
    watch.refresh()
    found = watch.get("ns/chat")
    assert found is not None and found.attempt == 3 and found.window_s == 10
    assert found.counts == {("stable", "live", "acme"): 7, ("candidate", "topup", "acme"): 2}
    assert found.last_live_s == {"stable": NOW - 5, "candidate": NOW - 30}


def test_silence_makes_it_unknown_after_a_while() -> None:
    recorder, clock, watch = make()
    watch.get("ns/chat")
    watch.refresh()
    recorder.is_down = True
    clock.now_s += STALE_SECONDS - 1
    watch.refresh()
    assert watch.get("ns/chat") is not None
    clock.now_s += 2
    assert watch.get("ns/chat") is None


def test_nonsense_is_unknown() -> None:
    recorder, _, watch = make()
    watch.get("ns/chat")
    for answer in ({}, {"rates": 3}, {"rates": [], "last_start_s": {}, "window_s": "x", "until_s": 1}):
        recorder.answer = answer
        watch.refresh()
        assert watch.get("ns/chat") is None


def test_the_thread_reads_without_being_asked_twice() -> None:
    import threading
    import time

    watch = TrafficWatch(Recorder(), FakeClock(NOW))
    deadline, pause = time.monotonic() + 10.0, threading.Event()
    while watch.get("ns/chat") is None:
        assert time.monotonic() < deadline
        pause.wait(0.02)
    watch.stop()
