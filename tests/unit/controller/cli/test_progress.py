"""The line that says how far a long command is."""

import io

import pytest

from controller.cli.progress import SECONDS, Progress, Watched


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_reading_and_judging_are_told_on_one_line_that_is_cleared() -> None:
    terminal, clock = Terminal(), Clock()
    progress = Progress(terminal, clock)
    stream = io.BufferedReader(Watched(io.BytesIO(b"x" * 1000), 1000, progress.doing("read step.jsonl")), 100)
    stream.read(100)
    assert terminal.getvalue() == "", "what is over at once is never announced"
    clock.now = SECONDS
    assert stream.read(400) == b"x" * 400
    assert "\rweighlock: read step.jsonl" in terminal.getvalue() and "%" in terminal.getvalue()
    clock.now = 2 * SECONDS
    progress.doing("judged")(0.25)
    assert terminal.getvalue().split("\r")[-1].rstrip() == "weighlock: judged 25%"
    progress.done()
    assert terminal.getvalue().endswith("\r") and terminal.getvalue().split("\r")[-2].strip() == ""


@pytest.mark.parametrize("size", [0, 10])
def test_a_file_that_is_no_terminal_gets_nothing_and_no_byte_is_lost(size: int) -> None:
    target, clock = io.StringIO(), Clock()
    progress = Progress(target, clock)
    clock.now = 100.0
    assert io.BufferedReader(Watched(io.BytesIO(b"abc" * size), 3 * size, progress)).read() == b"abc" * size
    progress.done()
    assert target.getvalue() == ""
