"""The boundary's settings have the exceedance and the dependence that they claim; the tables are made of real runs."""

import math

import numpy as np
import pytest

from tools.bench.judge import boundary, promote
from tools.bench.judge.dependence import SETTINGS, erlang_c, queue_threshold_s

PHI = {"iid": 1.0, "ar .3/10s": 2.2, "ar .3/60s": 7.0, "ar .6/30s": 12.0}
"""Design effects at 5-minute superblocks, from the judge's facts 2a."""


def test_erlang_c_of_few_servers_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.bench.judge.dependence.SERVERS", 1)
    assert erlang_c(0.5) == pytest.approx(0.5)  # M/M/1: the probability to wait is the load
    monkeypatch.setattr("tools.bench.judge.dependence.SERVERS", 2)
    assert erlang_c(0.5) == pytest.approx(1 / 3)  # M/M/2 with offered load 1


def test_queue_threshold_is_the_exact_percentile() -> None:
    rate = 64 / 8.0 * (1 - 0.85)
    assert erlang_c(0.85) * math.exp(-rate * queue_threshold_s(0.85)) == pytest.approx(0.01)


@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.name in PHI], ids=lambda s: s.name)
def test_exceedance_and_design_effect(setting: boundary.Setting) -> None:
    n, k = setting.draw(np.random.default_rng(4), 200, 240)
    assert n.sum() / (200 * 1200) == pytest.approx(2.0, rel=0.02)
    assert k.sum() / n.sum() == pytest.approx(0.01, rel=0.12)
    long = k.reshape(200, 4, 60).sum(axis=2)
    assert long.var() / (600 * 0.01) == pytest.approx(PHI[setting.name], rel=0.35)


def test_stalls_exceed_together() -> None:
    setting = next(s for s in SETTINGS if s.name == "stall 10s")
    n, k = setting.draw(np.random.default_rng(4), 50, 720)
    full = (k == n) & (n > 3)
    assert full.mean() == pytest.approx(0.005, rel=0.3)
    assert k.sum() / n.sum() == pytest.approx(0.01, rel=0.2)


def test_independent_requests_at_the_bound_keep_the_error_rates() -> None:
    rates = boundary.error_rates(SETTINGS[0], 40, seed=2, hours=0.25)
    assert [r.kind for r in rates] == list(boundary.KINDS)
    assert all(r.fail_family.k == 0 and r.fail_cell.k <= 6 and r.fail_cell.n == 40 for r in rates)
    assert boundary.row(SETTINGS[0], rates[0]).count("|") == 7


def test_an_error_above_nominal_is_marked() -> None:
    rates = boundary.Rates("margin", boundary.share(30, 100), boundary.share(0, 100), None, 1.2)
    line = boundary.row(SETTINGS[0], rates)
    assert "**30.0 (" in line and "**0.0" not in line and "as above" in line


def test_promote_rows_count_runs_that_never_passed_as_longer() -> None:
    done = promote.Waits(1800.0, {"ttft": 1200.0}, 900.0)
    never = promote.Waits(None, {"ttft": None}, None)
    line = promote.row(promote.VARIANTS[0], [done, done, done, never])
    assert line.startswith(f"| {promote.VARIANTS[0].words} | 3 of 4 | 30.0 | 15.0 | 20.0 |")
    assert "> 120" in promote.row(promote.VARIANTS[0], [done, never, never])
