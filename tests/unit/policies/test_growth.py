"""The aim of PASS evidence: where it lies, what it saves, that it is fixed beforehand and shown in the intervals."""

from dataclasses import replace

import numpy as np
import pytest

from policies import sequential as seq
from policies.blocks import TTFT, Cell, MetricCounts
from policies.contract import CheckKind, Contract
from policies.growth import absolute_aim, absolute_drift, ratio_aim, requests_for, slowest_z
from policies.histogram import bin_index, edge
from policies.history import prepare
from policies.intervals import critical_counts
from policies.judge import Judge
from policies.projection import Counts, Strata, project
from policies.records import CANDIDATE
from policies.track import Track
from tests.unit.policies.conftest import START_S, make_contract, to_blocks, traffic

LEVEL = float(np.log(20))


def test_the_aim_lies_between_the_expectation_and_the_bound() -> None:
    z = slowest_z(120)
    assert z == pytest.approx(2.638, abs=0.001)
    for p in (0.0005, 0.001, 0.002):
        aim = absolute_aim(p, 0.005, LEVEL, z)
        assert p / 0.005 < aim < 1.0
        assert absolute_aim(p, 0.005, LEVEL, 0.0) <= aim  # the typical stratum alone would aim lower
    assert 0.278 < ratio_aim(0.00278, 0.01, 0.5, 1.0, LEVEL, z) < 0.7
    assert 1.0 < ratio_aim(0.99, 0.99, 0.5, 0.9, LEVEL, z, high=True) < 1 / 0.9
    assert np.isnan(absolute_aim(0.01, 0.005, LEVEL, z))  # at the bound nothing helps


def test_requests_for_counts_the_prior_weight() -> None:
    drift, variance = absolute_drift(0.001, 0.005, (0.2,))
    alone = requests_for(drift, variance, LEVEL, 0.0, np.zeros(1))
    dear = requests_for(drift, variance, LEVEL, 0.0, np.log(np.array([0.2])))
    assert alone is not None
    assert dear == pytest.approx(alone * (LEVEL + np.log(5)) / LEVEL)


def test_weights_of_the_mixture_sum_to_one() -> None:
    grid, weights = seq.aimed(seq.PASS_FACTORS, np.array([0.45, np.nan]))
    assert np.exp(weights).sum(axis=1) == pytest.approx([1.0, 1.0])
    assert grid[0, -1] == 0.45
    assert np.isneginf(weights[1, -1])


def _ever_passed(aim: float, share: float, runs: int, blocks: int, rng: np.random.Generator) -> tuple[float, float]:
    """(share of strata that passed, median block) of a limit at 1 % with this true share."""
    strata = Strata((f"t{i}", "b") for i in range(runs))
    track = Track(
        strata, np.full(runs, 0.01), False, 1.5, 1000, 1.0, {}, {}, seq.FAIL_FACTORS, seq.PASS_FACTORS,
        aim=np.full(runs, aim),
    )  # fmt: skip
    groups, when = np.arange(runs), np.full(runs, np.inf)
    n = np.full(runs, 20.0)
    for block in range(blocks):
        track.step(Counts(n, rng.binomial(20, share, runs).astype(float), n, np.zeros(runs)), groups)
        track.latch(0.05)
        when = np.where(track.latched & np.isinf(when), block, when)
    return float(track.latched.mean()), float(np.sort(when)[int(0.99 * runs)])


def test_an_aim_is_as_safe_as_the_grid_and_sooner_for_the_slowest(rng: np.random.Generator) -> None:
    false_pass, _ = _ever_passed(0.45, 0.01, 2000, 300, rng)
    assert false_pass <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)
    _, with_grid = _ever_passed(np.nan, 0.003, 2000, 600, rng)
    _, with_aim = _ever_passed(0.5, 0.003, 2000, 600, rng)
    assert with_aim < 0.95 * with_grid


def test_intervals_are_those_of_the_verdict() -> None:
    n, p0, aim = np.array([1500.0]), np.array([0.01]), np.array([0.45])
    k_pass, _ = critical_counts(n, p0, 0.05, aim)
    grid, weights = seq.aimed(seq.PASS_FACTORS, aim)
    at, beyond = (
        seq.log_sum(seq.bernoulli_llr(k_pass + d, n, p0, p0[:, None] * grid) + weights) for d in (-0.01, 0.01)
    )
    assert at[0] >= LEVEL > beyond[0]


@pytest.fixture
def contract() -> Contract:
    return make_contract([{"metric": "ttft", "percentile": "90", "margin": "25%"}])


def test_aims_are_fixed_by_the_history_and_survive_a_restart(contract: Contract, rng: np.random.Generator) -> None:
    history = to_blocks(contract, traffic(rng, "stable", 120.0, 20.0), START_S + 120.0)
    setup = prepare(contract, history)
    number = next(i for i, c in enumerate(setup.checks) if c.kind is CheckKind.QUANTILE_REL and not c.sentinel)
    aim = setup.strata[0].checks[number].aim
    assert aim is not None
    assert 0.3 < aim < 1.0
    judge = Judge(setup)
    assert judge.tracks[number].aim[0] == aim
    judge.register([("new", "0-512")])
    again = Judge.restore(setup, judge.state())
    np.testing.assert_array_equal(again.tracks[number].aim, judge.tracks[number].aim)
    np.testing.assert_array_equal(again.tracks[number].log_pass, judge.tracks[number].log_pass)
    assert np.isfinite(judge.tracks[number].aim).all()


def test_a_threshold_inside_a_bin_counts_against_the_candidate_in_pass_and_for_it_in_fail() -> None:
    counts = Counts.zeros(1)
    counts.n_c[0], counts.n_b[0], counts.k_b[0] = 1000.0, 1000.0, 10.0
    counts.add_unsure(0, 4)
    tracks = [
        Track(Strata([("t", "b")]), np.ones(1), True, 1.5, 100, 1.0, {}, {}, seq.FAIL_FACTORS, seq.PASS_FACTORS)
        for _ in range(2)
    ]
    tracks[0].step(counts, np.arange(1))
    tracks[1].step(Counts(counts.n_c, counts.k_c, counts.n_b, counts.k_b), np.arange(1))
    assert tracks[0].fail_evidence()[0] == tracks[1].fail_evidence()[0]
    assert tracks[0].log_pass_evidence()[0] < tracks[1].log_pass_evidence()[0]


def test_a_mid_attempt_threshold_leaves_the_bin_that_holds_it_unsure(
    contract: Contract, rng: np.random.Generator
) -> None:
    judge = Judge(prepare(contract, []))
    judge.enter_step(1, START_S, 50.0)
    for block in to_blocks(contract, traffic(rng, "stable", 700.0, 5.0), START_S + 700.0):
        judge.feed(block)
    number = next(i for i, c in enumerate(judge.checks) if c.kind is CheckKind.QUANTILE_REL and not c.sentinel)
    place = judge.strata.get(("a", "0-512"))
    assert place is not None
    key = judge.setups[place].checks[number].candidate_us
    assert key > 0
    index = bin_index(key / 1e6)
    assert edge(index) > key / 1e6 * (1 + 1e-6)  # (1 + margin) x tau is no edge
    metric = MetricCounts(7, {index - 1: 2, index: 3, index + 1: 2})
    cell = Cell(CANDIDATE, "r", "live", "a", "0-512", "p", -1, 7, {"ok": 7}, {TTFT: metric})
    template = to_blocks(contract, traffic(rng, "candidate", 5.0, 5.0), START_S + 5.0)[0]
    taken = project(replace(template, cells=(cell,)), judge.strata, judge.checks, judge.keys, contract.attempted)
    counts = taken.counts[number]
    assert (counts.k_c[place], counts.most_c()[place]) == (2.0, 5.0)
