"""What the acts share: how one is told, watched and checked, and what users felt meanwhile.

Called by `acts.py`. Checks that read much run beside the next act (`later`); none of them touches the rollout.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tools.demo import checks
from tools.demo.checks import Felt, Finding
from tools.demo.screen import Screen
from tools.demo.world import DemoError, World

ATTEMPT_SECONDS = 480
ROWS_SECONDS = 1.5
RESTING = ("", "Idle", "Pending", "Completed", "RolledBack")


@dataclass
class Act:
    """One line of the summary.

    Attributes:
        title: short name.
        attempt: its number; 0 before it began.
        end: phase in which the act ended.
        candidate_requests: live requests that the candidate served; None where there was none to compare with.
        felt: what users felt during it.
    """

    title: str
    attempt: int = 0
    end: str = ""
    candidate_requests: int | None = None
    felt: Felt | None = None


class Story:
    """State of a demo that is being told.

    Attributes:
        failures: sentences of what was not as it should be.
        acts: what the summary says.
        manual: a person approves, not the demo.
    """

    def __init__(self, world: World, screen: Screen, manual: bool) -> None:
        self.world, self.screen, self.manual = world, screen, manual
        self.failures: list[str] = []
        self.acts: list[Act] = []
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checks")
        self._pending: list[tuple[str, Future[list[Finding]]]] = []
        self._seen_rows: tuple[float, list[dict[str, Any]]] = (0.0, [])

    @contextmanager
    def act(self, title: str, about: str) -> Iterator[Act]:
        """Tell an act; at its end say what users felt during it."""
        self.screen.act(title, about)
        act = Act(title.split(" · ")[0])
        self.acts.append(act)
        start = self.world.records_size()
        yield act
        act.end = phase(self.world.rollout())
        act.felt = checks.felt(checks.client_records(self.world.records_file, start, self.world.records_size()))
        self.screen.say(f"users during this act: {act.felt.sentence}", "cyan")

    def check(self, holds: bool, sentence: str) -> None:
        """Print a finding; one that does not hold fails the demo."""
        if holds:
            self.screen.good(sentence)
            return
        self.failures.append(sentence)
        self.screen.bad(sentence)

    def later(self, label: str, work: Callable[[], list[Finding]]) -> None:
        """Check something that takes a while beside what comes next; printed under `label` when it is known."""
        self._pending.append((label, self._pool.submit(work)))

    def collect(self, wait: bool = False) -> None:
        """Print what `later` has found out by now, or all of it."""
        while self._pending and (wait or self._pending[0][1].done()):
            label, future = self._pending.pop(0)
            for holds, sentence in future.result():
                self.check(holds, f"{label}: {sentence}")

    def close(self) -> None:
        """Forget what has not been checked."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def follow(
        self, what: str, done: Callable[[dict[str, Any]], bool], seconds: float = ATTEMPT_SECONDS
    ) -> dict[str, Any]:
        """Show the rollout until `done(rollout)`; returns the rollout."""

        def probe() -> dict[str, Any] | None:
            if self.world.load_died():
                raise DemoError(f"the load generator ended; see {self.world.folder / 'load.log'}")
            rollout = self.world.rollout()
            self.screen.show(rollout, self._rows(rollout), self.world.felt())
            self.collect()
            return rollout if done(rollout) else None

        found: dict[str, Any] = self.world.wait(what, probe, seconds)
        return found

    def _rows(self, rollout: dict[str, Any]) -> list[dict[str, Any]]:
        """The judge's rows, not asked for at every look: the operator has better things to do."""
        if phase(rollout) in RESTING:
            return []
        if time.monotonic() - self._seen_rows[0] > ROWS_SECONDS:
            try:
                verdict = self.world.evidence().get("verdict") or {}
            except httpx.HTTPError:  # the operator is being restarted; the view shows the rest
                verdict = {}
            of_this_step = verdict.get("step") == rollout["status"].get("step", {}).get("index", 0)
            self._seen_rows = (time.monotonic(), verdict.get("rows", []) if of_this_step else [])
        return self._seen_rows[1]


def phase(rollout: dict[str, Any]) -> str:
    """Phase, empty before the first reconcile."""
    return str(rollout.get("status", {}).get("phase", ""))


def condition(rollout: dict[str, Any], kind: str) -> dict[str, Any]:
    """A condition, empty where it is not there."""
    found = [c for c in rollout.get("status", {}).get("conditions", []) if c["type"] == kind]
    return found[0] if found else {}


def is_true(rollout: dict[str, Any], kind: str) -> bool:
    """Whether a condition is True."""
    return condition(rollout, kind).get("status") == "True"


def ended(rollout: dict[str, Any], attempt: int) -> bool:
    """Whether this attempt (not an earlier one) is over."""
    status = rollout.get("status", {})
    return int(status.get("attempt", 0)) >= attempt and phase(rollout) in ("Completed", "RolledBack", "Idle")
