"""When a trace's requests are sent, and with which text."""

from itertools import pairwise

import pytest

from shadow.replay.schedule import BLOCK_TOKENS, BYTES_PER_TOKEN, PromptWriter, plan
from shadow.replay.traces import SECOND, Row, Trace

TIMED = Trace("t", tuple(Row(at * SECOND, 10, 5) for at in (0, 1, 1, 4)))
UNTIMED = Trace("t", tuple(Row(None, 10, 5) for _ in range(4000)))


def test_a_trace_keeps_its_own_times() -> None:
    assert [p.at_s for p in plan(TIMED, None, None, 1)] == [0, 1, 1, 4]


def test_a_rate_squeezes_the_times_and_keeps_the_bursts() -> None:
    assert [p.at_s for p in plan(TIMED, 2.0, None, 1)] == [0, 0.5, 0.5, 2]


def test_nothing_is_sent_from_the_end_of_the_duration_on() -> None:
    assert [p.at_s for p in plan(TIMED, None, 1.0, 1)] == [0]


def test_a_trace_without_times_arrives_as_a_poisson_process_of_the_rate() -> None:
    at = [p.at_s for p in plan(UNTIMED, 50.0, None, 7)]
    gaps = [b - a for a, b in pairwise(at)]
    mean = sum(gaps) / len(gaps)
    spread = sum((gap - mean) ** 2 for gap in gaps) / len(gaps) / mean**2
    assert mean == pytest.approx(0.02, rel=0.08)  # four standard errors of 4,000 gaps are 6 %
    assert spread == pytest.approx(1.0, abs=0.2)  # an exponential gap's variance is its mean squared
    assert at == [p.at_s for p in plan(UNTIMED, 50.0, None, 7)]
    with pytest.raises(ValueError, match="no times"):
        plan(UNTIMED, None, None, 1)


def test_prompts_have_their_length_and_share_what_the_trace_says_they_shared() -> None:
    writer = PromptWriter(1)
    size = BLOCK_TOKENS * BYTES_PER_TOKEN
    first = writer.write(Row(None, 1200, 5, blocks=(3, 4, 5)), 0)
    second = writer.write(Row(None, 1200, 5, blocks=(3, 9, 5)), 1)
    assert len(first) == len(second) == 1200 * BYTES_PER_TOKEN
    assert first[:size] == second[:size]
    assert first[size : 2 * size] != second[size : 2 * size]
    assert writer.write(Row(None, 300, 5), 2)[:100] != writer.write(Row(None, 300, 5), 3)[:100]
