"""Runs judged side by side are the runs judged alone, bit for bit."""

from dataclasses import asdict

import numpy as np
import pytest

from tools.bench.judge.fleet import Fleet
from tools.bench.judge.ours import Ours, count, make_setup
from tools.bench.judge.run import run_many, run_once
from tools.bench.judge.scenarios import find, shortened
from tools.bench.judge.traffic import Source


def test_wide_tracks_hold_what_each_judge_would_hold() -> None:
    blocks = 30
    sources = [Source(find("bursty_null_independent")[0], seed=9, run=run, history_s=240.0) for run in range(3)]
    setups = [make_setup(source) for source in sources]
    span = (36, 36 + blocks)
    counted = [count(u, s.stable(*span), s.candidate(*span)) for u, s in zip(setups, sources, strict=True)]
    alone, together = [Ours(setup) for setup in setups], [Ours(setup) for setup in setups]
    fleet = Fleet(together)
    for row in range(blocks):
        fleet.take(counted, [row] * 3, [True] * 3)
        for ours, counts in zip(alone, counted, strict=True):
            ours.take(counts, row)
    assert len({setup.kappa[0]["global"] for setup in setups}) == 3  # dependence differs, and is kept apart
    for one, part in zip(alone, together, strict=True):
        assert one.judge.rollback_evidence() == part.judge.rollback_evidence()
        assert one.judge.holds(one.judge.now_s) == part.judge.holds(part.judge.now_s)
        for a, b in zip(one.judge.tracks, part.judge.tracks, strict=True):
            np.testing.assert_array_equal(a.fail_evidence(), b.fail_evidence())
            np.testing.assert_array_equal(a.stable_evidence(), b.stable_evidence())
            np.testing.assert_array_equal(a.log_pass, b.log_pass)
            np.testing.assert_array_equal(a.latched, b.latched)
            np.testing.assert_array_equal(a.phi, b.phi)


@pytest.mark.parametrize("name", ["one_tenant_x2", "missing_20%_3_silent"])
def test_decisions_do_not_depend_on_the_company(name: str) -> None:
    scenario = shortened(find(name)[0], 300.0)
    together = run_many(scenario, 11, (4, 5))
    assert asdict(together[1]) == asdict(run_once(scenario, 11, 5))
    assert [result.run for result in together] == [4, 5]
    wanted = "FAIL" if name == "one_tenant_x2" else "INCONCLUSIVE"
    assert {result.decisions["weighlock"][0] for result in together} == {wanted}
