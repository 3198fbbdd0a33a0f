"""Pairs: the copy and its original judged together, where their latencies correlate."""

import numpy as np
import pytest

from policies.blocks import Block
from policies.builder import BlockBuilder, builder_setup
from policies.judge import Judge
from policies.pairevidence import PairEvidence, PairSums
from policies.pairing import Pairing
from policies.projection import Counts, Strata
from policies.records import RequestRecord
from policies.sequential import FAIL_FACTORS, PASS_FACTORS
from policies.track import Track
from tests.unit.policies.conftest import START_S, judge_with_history, make_contract, make_record


def paired_traffic(rng: np.random.Generator, n: int, seconds: float, rho: float, factor: float) -> list[RequestRecord]:
    """Live requests of stable and their mirrored copies; log TTFTs correlate with `rho` within a pair."""
    found = []
    for i, time_s in enumerate(np.sort(rng.uniform(START_S, START_S + seconds, n))):
        common, own_s, own_c = rng.standard_normal(3)
        logs = [0.5 * (np.sqrt(rho) * common + np.sqrt(1 - rho) * own) for own in (own_s, own_c)]
        s, c = 0.15 * np.exp(logs[0]), 0.15 * np.exp(logs[1]) * factor
        live = make_record(i, float(time_s), "stable", ttft_s=float(s), e2e_s=float(s) + 0.3)
        copy = make_record(
            i, float(time_s), "candidate", ttft_s=float(c), e2e_s=float(c) + 0.3, kind="mirror", pair=live.id
        )
        found += [live, copy]
    return found


def judged(judge: Judge, records: list[RequestRecord], seconds: float, with_pairs: bool) -> Judge:
    judge = Judge(judge.setup)
    builder = BlockBuilder(builder_setup(judge.contract, "chat", 1), judge.thresholds(), START_S)
    if with_pairs:
        builder.set_pairs(judge.pairs())
    judge.enter_step(0, START_S, 0.0, "shadow")
    for record in records:
        for block in builder.tick(record.t_start_s):
            judge.feed(Block.from_json(block.to_json()))
            if judge.passed_at_s is not None or judge.fired is not None:
                return judge
        builder.finish(record)
    for block in builder.tick(START_S + seconds):
        judge.feed(block)
    return judge


def test_pairs_pass_an_identical_candidate_sooner_when_latencies_correlate() -> None:
    contract = make_contract([{"metric": "ttft", "percentile": "99", "margin": "25%"}])
    saved = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        base = judge_with_history(contract, rng)
        records = paired_traffic(rng, 8000, 400.0, 0.95, 1.0)
        alone, paired = (judged(base, records, 400.0, pairs) for pairs in (False, True))
        assert paired.passed_at_s is not None
        saved.append((alone.passed_at_s or START_S + 400) - paired.passed_at_s)
        (row,) = [r for r in paired.verdict(paired.now_s).rows if r.n_candidate]
        assert row.pairs > 300 and row.correlation == pytest.approx(0.95, abs=0.03)
    assert np.median(saved) > 20


def test_weakly_correlated_pairs_are_not_used(rng: np.random.Generator) -> None:
    contract = make_contract([{"metric": "ttft", "percentile": "99", "margin": "100%"}])
    base = judge_with_history(contract, rng)
    records = paired_traffic(rng, 3000, 190.0, 0.2, 1.0)
    alone, paired = (judged(base, records, 190.0, pairs) for pairs in (False, True))
    assert paired.passed_at_s == alone.passed_at_s is not None
    assert all(r.pairs == 0 for r in paired.verdict(paired.now_s).rows)


def test_pairs_never_pass_at_the_margin_more_often_than_alpha() -> None:
    """600 strata with exchangeable discordant exceedances at the exact boundary: false PASS stays at 5 %."""
    rng = np.random.default_rng(9)
    size = 600
    strata = Strata(("t", f"b{i}") for i in range(size))
    null = np.ones(size)
    track = Track(strata, null, True, 1.5, 1000, 1.0, {}, {}, FAIL_FACTORS, PASS_FACTORS, has_pairs=True)
    assert isinstance(track.pairs, PairEvidence)
    groups = np.arange(size)
    ever = np.zeros(size, dtype=bool)
    for _ in range(400):
        n = np.full(size, 20.0)
        only_c, only_s = rng.poisson(0.1, size).astype(float), rng.poisson(0.1, size).astype(float)
        x, y = rng.standard_normal((2, size))
        sums = PairSums(n, only_c, only_s, n, x, x, n + x * x, n + x * x, 0.9 * n + x * y * 0 + x * x)
        track.step(Counts(n, only_c + 1, n, only_s + 1), groups, True, sums)
        ever |= track.log_pass_evidence() >= np.log(20)
    assert track.pairs.chosen().mean() > 0.95
    assert ever.mean() <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / size)


def test_only_known_comparisons_count() -> None:
    pairing = Pairing()
    pairing.set_thresholds({("a", "b", "ttft"): ((1_000_000, 2_000_000),)})
    unknown = (None, None, None, None)
    for number, (stable, candidate) in enumerate(
        [
            ((0.5, True), (3.0, True)),
            ((1.5, True), (1.0, True)),
            ((1.5, False), (9.0, False)),
            ((0.5, False), (9.0, True)),
        ]
    ):
        live = make_record(number, START_S, "stable")
        copy = make_record(number, START_S, "candidate", pair=live.id)
        pairing.add(live, "a", "b", (stable, *unknown[1:]), START_S)
        pairing.add(copy, "a", "b", (candidate, *unknown[1:]), START_S)
    (counts,) = pairing.take()
    assert (counts.both, counts.only_candidate, counts.only_stable, counts.neither) == (1, 1, 1, 0)
    assert counts.moments[0] == 2.0, "only pairs with two exact values tell the correlation"
    assert pairing.take() == ()


def test_half_pairs_are_forgotten() -> None:
    pairing = Pairing()
    pairing.set_thresholds({("a", "b", "ttft"): ((1, 2),)})
    pairing.add(make_record(1, START_S, "stable"), "a", "b", ((1.0, True), None, None, None), START_S)
    pairing.take(START_S + 2000)
    copy = make_record(1, START_S, "candidate", pair="stable-1")
    pairing.add(copy, "a", "b", ((1.0, True), None, None, None), START_S + 2000)
    assert pairing.take() == ()
