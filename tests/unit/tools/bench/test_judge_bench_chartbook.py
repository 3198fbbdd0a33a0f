"""The chart book's numbers are the judge's own."""

import math
import re
from pathlib import Path

import numpy as np

from policies.sequential import log_e_pass, log_e_ratio_pass
from tools.bench.judge.chartbook import BEGIN, DOCUMENT, END, IMAGES, cost_table, step

ROOT = Path(__file__).parents[4]
TEXT = (ROOT / DOCUMENT).read_text(encoding="utf-8")


def test_the_table_of_costs_is_the_command_s() -> None:
    assert TEXT.split(BEGIN, 1)[1].split(END, 1)[0].strip() == cost_table()


def test_the_worked_limit() -> None:
    assert f"459 x ln(1/0.99) = {459 * math.log(1 / 0.99):.2f}" in TEXT.replace("`", "")
    assert round(log_e_pass(0, 459, 0.01), 2) == 3.50 and round(math.exp(log_e_pass(0, 459, 0.01))) == 33
    first = next(n for n in range(1, 1000) if log_e_pass(0, n, 0.01) >= math.log(20))
    tempered = next(n for n in range(1, 1000) if log_e_pass(0, n / 1.2, 0.01) >= math.log(20))
    assert f"after {first} requests" in TEXT and f"that is {tempered} requests" in TEXT


def test_the_worked_margin() -> None:
    found = log_e_ratio_pass(3, 20, 1000, 1000)
    assert f"e^{found:.2f} = {math.exp(found):.0f}" in TEXT


def test_the_pictured_step_passes_and_breaks_when_the_text_says() -> None:
    seconds, passing, failing = step(math.inf, 7)
    assert seconds[np.argmax(passing >= 20)] == 105 and failing.max() < 20
    seconds, _, failing = step(180.0, 7)
    assert seconds[np.argmax(failing >= 100)] == 220


def test_every_picture_is_there_and_small() -> None:
    names = re.findall(r"images/(judge-\w+\.svg)", TEXT)
    assert len(names) == 3
    assert all(0 < (ROOT / IMAGES / name).stat().st_size < 40_000 for name in names)
