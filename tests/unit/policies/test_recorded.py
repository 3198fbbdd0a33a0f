"""The judge says of recorded streams what it said when they were stored: floats to nine digits, the rest exactly.

A change that is meant to change verdicts stores them anew (`python -m tests.unit.policies.recorded`) and says so.
"""

import json

import pytest

from policies.blocks import Block
from policies.judge import Judge
from policies.setup import JudgeSetup
from tests.unit.policies.recorded import GOLDEN, judge_stream, short, streams

STREAMS = list(streams())
STORED = json.loads(GOLDEN.read_text())


@pytest.mark.parametrize(("name", "setup", "blocks"), STREAMS, ids=[name for name, _, _ in STREAMS])
def test_verdicts_are_the_stored_ones(name: str, setup: JudgeSetup, blocks: list[Block]) -> None:
    verdicts, state = judge_stream(setup, blocks)
    assert json.loads(json.dumps([short(v) for v in verdicts])) == STORED[name]
    last = Judge.restore(setup, state).verdict(blocks[-1].end_s)
    assert last == verdicts[-1]  # bit for bit through the stored state


def test_the_streams_reach_every_answer() -> None:
    finals = {answers[-1]["result"] for answers in STORED.values()}
    assert finals == {"PASS", "FAIL", "INCONCLUSIVE"}
    holds = {hold for answers in STORED.values() for hold in answers[-1]["holds"]}
    assert {"EnvironmentBreach", "CancelShift", "NotLoadMatched"} <= holds
