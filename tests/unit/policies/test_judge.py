"""The judge end to end on simulated traffic: what passes, fails, holds, and that a restart changes nothing."""

import json
from dataclasses import replace

import numpy as np
import pytest

from policies.blocks import Block
from policies.builder import BlockBuilder, builder_setup
from policies.contract import Contract
from policies.history import prepare
from policies.judge import Judge
from policies.records import RequestRecord
from policies.rejudging import rejudge
from policies.setup import JudgeSetup
from policies.verdict import Hold, HoldReason, Result, Verdict
from tests.unit.policies.conftest import (
    START_S,
    judge_with_history,
    make_contract,
    make_record,
    run_judge,
    traffic,
)

MARGIN = {"metric": "ttft", "percentile": "99", "margin": "100%"}
LIMIT = {"metric": "ttft", "percentile": "99", "limit": "1s"}
SUCCESS = {"metric": "success", "limit": "99%"}
GATES = [{**MARGIN, "limit": "1s"}, SUCCESS]
STRATA = (("a", 100), ("a", 1000))


def both_arms(rng: np.random.Generator, seconds: float, rps: float, factor: object = 1.0, **kw: object) -> list:
    stable = traffic(rng, "stable", seconds, rps, STRATA)
    return stable + traffic(rng, "candidate", seconds, rps, STRATA, factor=factor, **kw)  # type: ignore[arg-type]


@pytest.fixture
def contract() -> Contract:
    return make_contract(GATES)


def reasons(verdict: Verdict) -> set[HoldReason]:
    return {hold.reason for hold in verdict.holds}


def test_an_identical_candidate_passes(contract: Contract, rng: np.random.Generator) -> None:
    judge = run_judge(judge_with_history(contract, rng, strata=STRATA), both_arms(rng, 240, 16), START_S + 240)
    verdict = judge.verdict(judge.now_s)
    assert verdict.result is Result.PASS and verdict.holds == ()
    assert verdict.decided_at_s is not None and 35 <= verdict.decided_at_s <= 200
    assert all(row.verdict is Result.PASS for row in verdict.rows) and len(verdict.rows) == 6


def test_a_slow_stratum_fails_by_name(contract: Contract, rng: np.random.Generator) -> None:
    judge = judge_with_history(contract, rng, strata=STRATA)
    run_judge(judge, both_arms(rng, 240, 16, {("a", 1000): 4.0}), START_S + 240)
    verdict = judge.verdict(judge.now_s)
    assert verdict.result is Result.FAIL and (verdict.decided_at_s or 999) <= 60
    assert verdict.rollback.e >= verdict.rollback.threshold == 100.0
    assert {(c.tenant, c.bucket) for c in verdict.rollback.culprits} >= {("a", "513+")}
    assert {(r.bucket, r.verdict) for r in verdict.rows if r.metric == "ttft"} >= {("513+", Result.FAIL)}
    assert all(r.verdict is not Result.FAIL for r in verdict.rows if r.bucket == "0-512")
    assert "a, 513+ tokens, TTFT P99: candidate" in verdict.sentences[0]


def test_fail_is_never_taken_back(contract: Contract, rng: np.random.Generator) -> None:
    judge = judge_with_history(contract, rng, strata=STRATA)
    run_judge(judge, both_arms(rng, 60, 16, 5.0), START_S + 60)
    assert judge.fired is not None
    judge.enter_step(1, START_S + 60, 50.0)
    assert judge.verdict(START_S + 6000).result is Result.FAIL


def test_a_restored_judge_goes_on_bit_for_bit(contract: Contract, rng: np.random.Generator) -> None:
    judge = judge_with_history(contract, rng, strata=STRATA)
    setup = JudgeSetup.from_dict(json.loads(json.dumps(judge.setup.to_dict())))
    assert setup == judge.setup
    builder = BlockBuilder(builder_setup(contract, "chat", 1), judge.thresholds(), START_S)
    for record in both_arms(rng, 150, 16, {("a", 1000): 1.9}, tenant="a"):
        builder.finish(record)
    builder.finish(make_record(1, START_S + 40, tenant="newcomer"))
    blocks = builder.tick(START_S + 150)
    straight, killed = Judge(setup), Judge(setup)
    events: list[dict[str, object]] = [{"kind": "enter_step", "step": 0, "now_s": START_S, "weight": 5.0}]
    straight.enter_step(0, START_S, 5.0)
    killed.enter_step(0, START_S, 5.0)
    seen = []
    for number, block in enumerate(blocks):
        if number == 15:
            events.append({"kind": "enter_step", "step": 1, "now_s": block.start_s, "weight": 25.0})
            straight.enter_step(1, block.start_s, 25.0)
            killed.enter_step(1, block.start_s, 25.0)
        straight.feed(block)
        killed.feed(Block.from_json(block.to_json()))
        killed = Judge.restore(setup, json.loads(json.dumps(killed.state())))
        assert not killed.feed(block), "a block is never counted twice"
        seen.append(straight.verdict(block.end_s))
        assert number % 5 or killed.verdict(block.end_s) == seen[-1]
        events += [{"kind": "block", "block": block}, {"kind": "tick", "now_s": block.end_s}]
    assert rejudge(setup, events) == seen


def test_every_step_needs_fresh_requests(contract: Contract, rng: np.random.Generator) -> None:
    judge = run_judge(judge_with_history(contract, rng, strata=STRATA), both_arms(rng, 240, 16), START_S + 240)
    assert judge.verdict(judge.now_s).result is Result.PASS
    judge.enter_step(1, judge.now_s, 50.0)
    later = judge.verdict(judge.now_s + 120)
    assert later.result is Result.INCONCLUSIVE
    assert HoldReason.NO_FRESH_DATA in reasons(later)
    margins = [r for r in later.rows if r.gate == "p99-margin"]
    limits = [r for r in later.rows if r.gate == "p99-limit"]
    assert all(r.e_pass >= 20 for r in margins), "relative evidence is kept"
    assert all(r.e_pass < 20 and r.n_candidate == 0 for r in limits), "absolute evidence starts again"


def test_relative_evidence_makes_the_second_step_short(contract: Contract, rng: np.random.Generator) -> None:
    judge = run_judge(judge_with_history(contract, rng, strata=STRATA), both_arms(rng, 240, 16), START_S + 240)
    start = judge.now_s
    judge.enter_step(1, start, 50.0)
    builder = BlockBuilder(builder_setup(contract, "chat", 1), judge.thresholds(), start, seq=judge.last_seq + 1)
    for variant in ("stable", "candidate"):
        for record in traffic(rng, variant, 80, 16, STRATA, start_s=start):
            builder.finish(record)
    for block in builder.tick(start + 80):
        judge.feed(block)
    assert judge.passed_at_s is not None and judge.passed_at_s - start <= 60


def test_both_arms_over_a_limit_hold_and_never_roll_back(rng: np.random.Generator) -> None:
    contract = make_contract([{**LIMIT, "limit": "500ms"}])
    judge = judge_with_history(contract, rng, strata=STRATA)
    stable = traffic(rng, "stable", 200, 16, STRATA, factor=1.5)
    candidate = traffic(rng, "candidate", 200, 16, STRATA, factor=1.5)
    verdict = run_judge(judge, stable + candidate, START_S + 200).verdict(START_S + 200)
    assert verdict.result is Result.INCONCLUSIVE
    assert HoldReason.ENVIRONMENT_BREACH in reasons(verdict)


def test_only_the_candidate_over_a_limit_rolls_back(rng: np.random.Generator) -> None:
    contract = make_contract([{**LIMIT, "limit": "500ms"}])
    judge = judge_with_history(contract, rng, strata=STRATA)
    verdict = run_judge(judge, both_arms(rng, 200, 16, 2.0), START_S + 200).verdict(START_S + 200)
    assert verdict.result is Result.FAIL


def test_a_first_install_is_judged_by_limits_alone(rng: np.random.Generator) -> None:
    contract = make_contract(GATES)
    judge = Judge(prepare(contract, [], baseline=False))
    records = traffic(rng, "candidate", 300, 16)
    judge = run_judge(judge, records, START_S + 300)
    verdict = judge.verdict(judge.now_s)
    assert verdict.result is Result.PASS
    assert any("first install" in warning for warning in verdict.warnings)
    judge = Judge(prepare(contract, [], baseline=False))
    slow = run_judge(judge, traffic(rng, "candidate", 300, 16, factor=5.0), START_S + 300)
    assert slow.verdict(START_S + 300).result is Result.FAIL


def test_after_the_switch_limits_speak_without_copies(rng: np.random.Generator) -> None:
    """At full weight without copies to the old stable, a breach of a limit still rolls back."""
    contract = make_contract(GATES)
    judge = judge_with_history(contract, rng)
    run_judge(judge, traffic(rng, "stable", 30, 16) + traffic(rng, "candidate", 30, 16), START_S + 30, False)
    judge.enter_step(5, START_S + 30, 100.0, "bake")
    builder = BlockBuilder(builder_setup(contract, "chat", 1), judge.thresholds(), START_S + 30, judge.last_seq + 1)
    for record in traffic(rng, "candidate", 200, 16, start_s=START_S + 30, factor=5.0):
        builder.finish(record)
    for block in builder.tick(START_S + 230):
        judge.feed(block)
    assert judge.fired is not None


def test_margins_calibrate_in_the_step_when_there_is_no_history(contract: Contract, rng: np.random.Generator) -> None:
    judge = Judge(prepare(contract, []))
    first = run_judge(judge, both_arms(rng, 10, 16), START_S + 10, False).verdict(START_S + 10)
    assert {r.hold for r in first.rows if r.gate == "p99-margin"} >= {HoldReason.NO_BASELINE}
    judge = Judge(prepare(contract, []))
    late = run_judge(judge, both_arms(rng, 900, 16), START_S + 900)
    assert judge.thresholds_version > 0
    verdict = late.verdict(late.now_s)
    assert verdict.result is Result.PASS and all(r.phi >= 4.0 for r in verdict.rows)
    assert any("phi is at least 4" in w for w in verdict.warnings)


def test_missing_blocks_hold(contract: Contract, rng: np.random.Generator) -> None:
    judge = judge_with_history(contract, rng, strata=STRATA)
    builder = BlockBuilder(builder_setup(contract, "chat", 1), judge.thresholds(), START_S)
    judge.enter_step(0, START_S, 50.0)
    for record in both_arms(rng, 240, 16):
        for block in builder.tick(record.t_start_s):
            judge.feed(block)
        if int(record.t_start_s) % 15 < 5:
            builder.mark_missing("candidate")
        builder.finish(record)
    verdict = judge.verdict(START_S + 240)
    assert verdict.result is Result.INCONCLUSIVE and HoldReason.MISSING_BLOCKS in reasons(verdict)


def test_unknown_values_are_never_proof(contract: Contract, rng: np.random.Generator) -> None:
    judge = judge_with_history(contract, rng, strata=STRATA)
    records = both_arms(rng, 200, 16)
    blind = [r if i % 8 else _without_ttft(r) for i, r in enumerate(records)]
    verdict = run_judge(judge, blind, START_S + 200).verdict(START_S + 200)
    assert verdict.result is not Result.PASS
    assert HoldReason.UNMEASURED in {r.hold for r in verdict.rows}


def _without_ttft(record: object) -> object:
    from dataclasses import replace

    return replace(record, ttft_s=None)  # type: ignore[type-var]


def test_a_required_tenant_without_traffic_holds(rng: np.random.Generator) -> None:
    contract = make_contract(GATES, tenants={"required": ["a", "ghost"], "other": "ignore"})
    judge = judge_with_history(contract, rng, strata=STRATA)
    verdict = run_judge(judge, both_arms(rng, 200, 16), START_S + 200).verdict(START_S + 200)
    assert verdict.result is Result.INCONCLUSIVE
    assert [h.tenant for h in verdict.holds if h.reason is HoldReason.NO_TRAFFIC] == ["ghost"]


def test_shorter_answers_are_not_faster_answers(rng: np.random.Generator) -> None:
    contract = make_contract([{"metric": "e2e", "percentile": "99", "margin": "100%"}])
    tokens = rng.integers(10, 60, 10_000)
    judge = judge_with_history(contract, rng, output_tokens=30)
    stable = [_tokens(r, int(tokens[i])) for i, r in enumerate(traffic(rng, "stable", 200, 16))]
    short = [_tokens(r, int(tokens[i] // 3 + 1)) for i, r in enumerate(traffic(rng, "candidate", 200, 16))]
    verdict = run_judge(judge, stable + short, START_S + 200).verdict(START_S + 200)
    assert verdict.result is Result.INCONCLUSIVE
    assert HoldReason.OUTPUT_LENGTH_SHIFT in reasons(verdict)


def _tokens(record: RequestRecord, count: int) -> RequestRecord:
    return replace(record, output_tokens=count)


def test_unequal_tenant_shares_hold(rng: np.random.Generator) -> None:
    contract = make_contract([MARGIN], tenants={"required": ["a", "b"], "other": "ignore"})
    two = (("a", 100), ("b", 100))
    judge = judge_with_history(contract, rng, strata=two)
    records = traffic(rng, "stable", 200, 16, two) + traffic(rng, "candidate", 200, 16, two[:1])
    records += traffic(rng, "candidate", 200, 4, two[1:])
    verdict = run_judge(judge, records, START_S + 200).verdict(START_S + 200)
    assert verdict.result is Result.INCONCLUSIVE
    assert HoldReason.NOT_LOAD_MATCHED in reasons(verdict)


def test_two_revisions_in_one_variant_hold(contract: Contract, rng: np.random.Generator) -> None:
    judge = judge_with_history(contract, rng, strata=STRATA)
    records = both_arms(rng, 200, 16)
    from dataclasses import replace

    mixed = [replace(r, revision="other") if i == 50 else r for i, r in enumerate(records)]
    verdict = run_judge(judge, mixed, START_S + 200).verdict(START_S + 200)
    assert verdict.result is Result.INCONCLUSIVE and HoldReason.MIXED_REVISIONS in reasons(verdict)


def test_what_the_caller_found_blocks_a_pass_but_not_a_fail(contract: Contract, rng: np.random.Generator) -> None:
    hold = Hold(HoldReason.PROVIDER_UNAVAILABLE, "Prometheus does not answer")
    good = run_judge(judge_with_history(contract, rng, strata=STRATA), both_arms(rng, 240, 16), START_S + 240)
    assert good.verdict(good.now_s).result is Result.PASS
    assert good.verdict(good.now_s, [hold]).result is Result.INCONCLUSIVE
    bad = run_judge(judge_with_history(contract, rng, strata=STRATA), both_arms(rng, 240, 16, 5.0), START_S + 240)
    assert bad.verdict(bad.now_s, [hold]).result is Result.FAIL


def test_a_sentinel_holds_without_rolling_back(rng: np.random.Generator) -> None:
    """P90 twice as slow while P99 keeps its margin: no gate is broken, and no step advances."""
    contract = make_contract([MARGIN])
    judge = judge_with_history(contract, rng)
    from dataclasses import replace

    slow = [replace(r, ttft_s=min(2.5 * (r.ttft_s or 0), 0.6)) for r in traffic(rng, "candidate", 200, 16)]
    verdict = run_judge(judge, traffic(rng, "stable", 200, 16) + slow, START_S + 200, False).verdict(START_S + 200)
    assert verdict.result is Result.INCONCLUSIVE
    assert HoldReason.SENTINEL in reasons(verdict)


def test_dry_run_gates_are_shown_and_decide_nothing(rng: np.random.Generator) -> None:
    contract = make_contract([SUCCESS, {**LIMIT, "limit": "200ms", "mode": "dryRun"}])
    judge = judge_with_history(contract, rng, strata=STRATA)
    run_judge(judge, both_arms(rng, 200, 16, 3.0), START_S + 200)
    verdict = judge.verdict(judge.now_s)
    assert verdict.result is Result.PASS
    assert {r.mode for r in verdict.rows if r.metric == "ttft"} == {"dryRun"}


def test_splitting_a_block_by_pod_changes_nothing(contract: Contract, rng: np.random.Generator) -> None:
    judge = judge_with_history(contract, rng, strata=STRATA)
    from dataclasses import replace

    records = both_arms(rng, 60, 16)
    one = run_judge(Judge(judge.setup), [replace(r, pod="p") for r in records], START_S + 60, False)
    many = run_judge(Judge(judge.setup), records, START_S + 60, False)
    for left, right in zip(one.verdict(START_S + 60).rows, many.verdict(START_S + 60).rows, strict=True):
        assert left == right


def test_shadow_asks_nothing_of_tenants_that_may_not_be_copied(rng: np.random.Generator) -> None:
    contract = make_contract(
        [SUCCESS], tenants={"required": ["a", "private"], "other": "ignore"}, mirror={"exceptTenants": ["private"]}
    )
    two = (("a", 100), ("private", 100))
    judge = judge_with_history(contract, rng, strata=two)
    builder = BlockBuilder(builder_setup(contract, "chat", 1), judge.thresholds(), START_S)
    judge.enter_step(0, START_S, 0.0, "shadow")
    records = traffic(rng, "stable", 90, 16, two) + traffic(rng, "candidate", 90, 16, two[:1], kind="mirror")
    for record in records:
        builder.finish(record)
    for block in builder.tick(START_S + 90):
        judge.feed(block)
    assert judge.verdict(judge.now_s).result is Result.PASS
    judge.enter_step(1, judge.now_s, 5.0, "canary")
    assert judge.required(judge.names().index(("private", "0-512")))


def test_longer_answers_are_not_slower_answers(rng: np.random.Generator) -> None:
    """Twice the tokens, twice the time: nobody is rolled back for other work, and nothing is proven."""
    contract = make_contract([{"metric": "e2e", "percentile": "99", "margin": "25%"}])
    judge = judge_with_history(contract, rng, output_tokens=30)
    tokens = rng.integers(10, 60, 10_000)
    stable = [_tokens(r, int(tokens[i])) for i, r in enumerate(traffic(rng, "stable", 200, 16))]
    longer = [
        replace(r, output_tokens=60 + int(tokens[i]), e2e_s=2.0 * (r.e2e_s or 0.0))
        for i, r in enumerate(traffic(rng, "candidate", 200, 16))
    ]
    verdict = run_judge(judge, stable + longer, START_S + 200).verdict(START_S + 200)
    assert verdict.result is Result.INCONCLUSIVE
    assert {r.hold for r in verdict.rows} == {HoldReason.OUTPUT_LENGTH_SHIFT}
    assert "not comparable" in verdict.rows[0].reason


def test_a_metric_that_is_mostly_unknown_never_passes(rng: np.random.Generator) -> None:
    contract = make_contract([{"metric": "ttft", "percentile": "99", "limit": "2s"}])
    judge = judge_with_history(contract, rng)
    blind = [replace(r, ttft_s=None) if i % 5 == 0 else r for i, r in enumerate(traffic(rng, "candidate", 200, 16))]
    verdict = run_judge(judge, [*traffic(rng, "stable", 200, 16), *blind], START_S + 200).verdict(START_S + 200)
    assert verdict.result is Result.INCONCLUSIVE and HoldReason.UNMEASURED in reasons(verdict)
    assert len([h for h in verdict.holds if h.reason is HoldReason.UNMEASURED]) == 1, "said once"


def test_a_good_fraction_of_what_was_measured_is_none(rng: np.random.Generator) -> None:
    contract = make_contract([{"metric": "goodFraction", "limit": "90%"}], slo={"ttft": "2s"})
    judge = judge_with_history(contract, rng)
    blind = [replace(r, ttft_s=None) if i % 5 == 0 else r for i, r in enumerate(traffic(rng, "candidate", 200, 16))]
    verdict = run_judge(judge, [*traffic(rng, "stable", 200, 16), *blind], START_S + 200).verdict(START_S + 200)
    assert verdict.result is Result.INCONCLUSIVE and HoldReason.UNMEASURED in reasons(verdict)


def test_rising_evidence_says_where(rng: np.random.Generator) -> None:
    """On its way to a rollback the judge names the stratum that a person should look at."""
    contract = make_contract([{"metric": "ttft", "percentile": "99", "margin": "100%"}])
    judge = judge_with_history(contract, rng, strata=STRATA)
    records = [
        *traffic(rng, "stable", 90, 16, STRATA),
        *traffic(rng, "candidate", 90, 16, STRATA, factor={STRATA[1]: 4.0}),
    ]
    builder = BlockBuilder(builder_setup(contract, "chat", 1), judge.thresholds(), START_S)
    judge.enter_step(0, START_S, 50.0)
    rising = []
    for record in sorted(records, key=lambda r: r.t_start_s):
        for block in builder.tick(record.t_start_s):
            judge.feed(block)
            rising += [h for h in judge.verdict(judge.now_s).holds if h.reason is HoldReason.EVIDENCE_RISING]
        builder.finish(record)
    assert judge.fired is not None and rising
    assert {(h.tenant, h.bucket) for h in rising} == {("a", "513+")}
    assert "rolls back at 100; most of it: a, 513+ tokens, TTFT P99" in rising[0].message
