"""One attempt's judge, driven by blocks alone: the first block of a step tells it that the step began.

Used by the feed of the operator (adapters/recorder.py) and by re-judging from stored blocks, so that both come to the
same verdicts. Knows no client and no clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from policies.blocks import Block
from policies.judge import Judge
from policies.setup import JudgeSetup
from policies.verdict import Hold, Verdict

_KINDS = {"shadow": "shadow", "canary": "canary", "bake": "bake"}


class AttemptJudge:
    """Blocks of one attempt in, verdicts out.

    Args:
        setup: as the recorder and the store keep it.
    """

    def __init__(self, setup: JudgeSetup) -> None:
        self.setup = setup
        self.last_seq = -1
        self._judge = Judge(setup)
        self._fed = 0
        self._step: int | None = None
        self._step_start_s = 0.0

    @staticmethod
    def from_stored(raw: Mapping[str, Any]) -> "AttemptJudge":
        """A fresh judge from a stored setup; ValueError for another schema version."""
        return AttemptJudge(JudgeSetup.from_dict(raw))

    def add(self, block: Block) -> None:
        """Take the next block of the attempt; one that was taken before changes nothing."""
        if block.seq <= self.last_seq:
            return
        self.last_seq = block.seq
        if self._step is None or block.step > self._step:
            self._step, self._step_start_s = block.step, block.start_s
            kind = _KINDS.get(block.stage, "ramp")
            self._judge.enter_step(block.step, block.start_s, float(block.weight), kind)
        start_s = block.start_s
        if block.step < self._step:
            start_s = min(start_s, self._step_start_s - 1.0)  # began under the weight before: no evidence of this one
        # The recorder numbers blocks of all attempts in one row; the judge counts holes, so it gets a row of its own.
        self._judge.feed(replace(block, seq=self._fed, start_s=start_s))
        self._fed += 1

    def verdict(self, now_s: float, guards: Sequence[Hold] = ()) -> Verdict:
        """What it says at this moment; `guards`: holds found by the controller."""
        return self._judge.verdict(now_s, guards)
