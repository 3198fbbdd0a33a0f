"""Calibration of prompt size: a line where lengths differ, a plain ratio where they do not."""

import pytest

from shadow.recorder.calibration import Calibration


def fed(pairs: list[tuple[int, float]], model: str = "m") -> Calibration:
    calibration = Calibration()
    for tokens, size in pairs:
        calibration.add(model, size, tokens)
    return calibration


def test_an_envelope_is_told_from_the_prompt() -> None:
    calibration = fed([(tokens, 180 + 4.2 * tokens) for tokens in range(50, 3000, 37)])
    assert calibration.view()["m"] == pytest.approx(4.2, rel=1e-3)
    assert calibration.overheads()["m"] == pytest.approx(180, abs=2)


def test_equal_lengths_give_a_ratio() -> None:
    calibration = fed([(500, 2200.0)] * 80)
    assert (calibration.view(), calibration.overheads()) == ({"m": 4.4}, {"m": 0.0})


def test_an_absurd_line_gives_a_ratio() -> None:
    calibration = fed([(tokens, 9000 - tokens) for tokens in range(100, 4000, 50)])
    assert calibration.overheads() == {"m": 0.0}
    assert calibration.view()["m"] > 0


def test_few_samples_say_nothing() -> None:
    assert fed([(100, 500.0)] * 10).view() == {}
