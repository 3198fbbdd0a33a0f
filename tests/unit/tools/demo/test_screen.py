"""The demo's plain screen: a line where something happened, none where only a number moved."""

import io
from typing import Any

import pytest
from rich.console import Console

from tools.demo.checks import Felt
from tools.demo.screen import Screen
from tools.demo.story import Act


@pytest.fixture
def text() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def screen(text: io.StringIO) -> Screen:
    return Screen(Console(file=text, width=200))


def rollout(phase: str, message: str, weight: int = 0) -> dict[str, Any]:
    return {"status": {"phase": phase, "message": message, "step": {"name": "any", "weight": weight}}}


def test_a_moving_number_is_no_news(screen: Screen, text: io.StringIO) -> None:
    for left in (90, 85, 80):
        screen.show(rollout("Bake", f"stays warm for another {left} s"), [], {})
    screen.show(rollout("Canary", "The judge looks.", 5), [{"verdict": "PASS"}, {"verdict": "FAIL"}], {})
    lines = text.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("Bake: stays warm for another 90 s")
    assert lines[1].endswith("Canary 5 %: The judge looks. · 1 of 2 checks proven, 1 breached")


def test_nothing_is_said_before_the_operator_has_looked(screen: Screen, text: io.StringIO) -> None:
    screen.show({}, [], {})
    assert text.getvalue() == ""


def test_a_long_message_ends_at_a_word(screen: Screen, text: io.StringIO) -> None:
    screen.show(rollout("Preflight", "word " * 100), [], {})
    (line,) = text.getvalue().splitlines()
    assert line.endswith("word …") and len(line) < 190


def test_the_summary_has_a_line_for_each_act(screen: Screen, text: io.StringIO) -> None:
    acts = [Act("Act A", 0, "Completed", None, Felt(1000, 0, 0.3, 0.6)), Act("Act C", 3, "RolledBack", 0)]
    acts[1].felt = Felt(2000, 1, 0.3, None)
    screen.summary(acts, Felt(3040, 1, 0.3, 0.6))
    lines = text.getvalue().splitlines()
    assert lines[1].split() == ["Act", "A", "Completed", "1,000", "0", "300", "ms", "600", "ms", "–"]
    assert lines[2].split() == ["Act", "C", "RolledBack", "2,000", "1", "300", "ms", "–", "0"]
    assert [lines[n].split()[-2:] for n in (3, 4)] == [["40", "0"], ["3,040", "1"]]
