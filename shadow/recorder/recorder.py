"""All rollouts of one recorder process. One thread calls it: access logs in, time passes, questions are answered."""

import asyncio
import re
import uuid
from pathlib import Path

from shadow.recorder.clock import SteadyClock
from shadow.recorder.entry import Entry
from shadow.recorder.rollout import Limits, RolloutLog
from shadow.recorder.spool import sync_folder

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_PRUNE_EVERY_S = 60.0


class Recorder:
    """The recorder's state; its spool is `folder`.

    `identity` names the spool: a caller that sees another one must start from the beginning.
    """

    def __init__(self, folder: Path, clock: SteadyClock | None = None, limits: Limits | None = None) -> None:
        self.clock = clock or SteadyClock()
        self._folder, self._limits = folder, limits
        self._rollouts: dict[str, RolloutLog] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._pruned_s = 0.0
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.identity = self._identity()
        for place in sorted(folder.glob("rollouts/*/*")):
            self.rollout(f"{place.parent.name}/{place.name}")

    def _identity(self) -> str:
        path = self._folder / "id"
        if path.is_file() and (known := path.read_text(encoding="ascii").strip()):
            return known
        fresh = uuid.uuid4().hex
        path.write_text(fresh, encoding="ascii")
        sync_folder(self._folder)
        return fresh

    def rollout(self, name: str) -> RolloutLog:
        """The log of `namespace/name`, made when it is new; ValueError for what is no such name."""
        found = self._rollouts.get(name)
        if found is None:
            namespace, _, own = name.partition("/")
            if not _NAME.fullmatch(namespace) or not _NAME.fullmatch(own):
                raise ValueError(f"{name!r} is not a namespace and a name")
            folder = self._folder / "rollouts" / namespace / own
            found = self._rollouts[name] = RolloutLog(name, folder, self.clock.now(), self._limits)
        return found

    def known(self, name: str) -> RolloutLog | None:
        """The log of a rollout that was seen before."""
        return self._rollouts.get(name)

    @property
    def rollouts(self) -> tuple[RolloutLog, ...]:
        return tuple(self._rollouts.values())

    def take(self, entry: Entry) -> None:
        """One access-log entry; ValueError where it names no rollout."""
        self.rollout(entry.plan.rollout).take(entry, self.clock.now())

    def tick(self) -> None:
        """Let time pass: blocks close, waiting callers wake."""
        now_s = self.clock.now()
        for name, log in tuple(self._rollouts.items()):
            if log.tick(now_s):
                self.wake(name)
        if now_s - self._pruned_s >= _PRUNE_EVERY_S:
            self._pruned_s = now_s
            for log in self.rollouts:
                log.prune(now_s)

    def wake(self, name: str) -> None:
        """New blocks of a rollout: wake who waits for them."""
        event = self._changed.pop(name, None)
        if event is not None:
            event.set()

    async def wait_for_block(self, name: str, seq: int, timeout_s: float) -> None:
        """Return when a block above `seq` exists, or after `timeout_s`."""
        log = self.rollout(name)
        deadline = asyncio.get_running_loop().time() + timeout_s
        while log.last_seq <= seq:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return
            event = self._changed.setdefault(name, asyncio.Event())
            try:
                await asyncio.wait_for(event.wait(), left)
            except TimeoutError:
                return

    def interrupted(self, rollout: str) -> None:
        """A gate's log stream broke and came back: entries between are lost."""
        log = self._rollouts.get(rollout)
        if log is not None:
            log.mark_missing()

    def close(self) -> None:
        """Put everything on disk."""
        for log in self.rollouts:
            log.close()
