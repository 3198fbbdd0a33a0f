"""Faults seen in the field (metrics semantics and statistics): each test says the fault, its id is that of the list."""

from dataclasses import replace

import numpy as np
import pytest

from policies.blocks import GOOD_FRACTION
from policies.builder import BlockBuilder, builder_setup, limit_thresholds
from policies.contract import Contract
from policies.history import prepare
from policies.judge import Judge
from policies.projection import Counts, Projected
from policies.provider import ClassicHistogram, Sample, compare_quantile, one_per_pod, read_vector
from policies.records import CANDIDATE, STABLE, RequestRecord
from policies.verdict import Hold, HoldReason, Result
from tests.unit.policies.conftest import (
    START_S,
    history_blocks,
    judge_with_history,
    make_contract,
    make_record,
    run_judge,
    to_blocks,
    traffic,
)

TTFT = {"metric": "ttft", "percentile": "99"}
SUCCESS = {"metric": "success", "limit": "99%"}


def spread(values: list[float], variant: str, seconds: float = 100.0, **fields: object) -> list[RequestRecord]:
    """One request per value, evenly in time, TTFT = value."""
    step = seconds / len(values)
    return [
        make_record(i, START_S + i * step, variant, ttft_s=v, e2e_s=v + 0.2, **fields) for i, v in enumerate(values)
    ]


def aged(contract: Contract, values: list[float], before_s: float = 90.0) -> Judge:
    """A judge whose history holds these values of stable, started within 90 s, `before_s` before the step."""
    past = [replace(r, t_start_s=r.t_start_s - before_s) for r in spread(values, "stable", 90.0)]
    return Judge(prepare(contract, to_blocks(contract, past, START_S, START_S - before_s)))


# --- an empty result vector (C23) ---


def vector(*values: float) -> dict[str, object]:
    result = [{"metric": {"pod": f"p{i}"}, "value": [1.0, str(v)]} for i, v in enumerate(values)]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def test_c23_an_empty_vector_is_no_latency_and_zero_errors_only_with_traffic() -> None:
    latency = read_vector(vector())
    assert isinstance(latency, Hold) and latency.reason is HoldReason.NO_FRESH_DATA
    errors = read_vector(vector(), is_error_count=True, ledger_requests=500)
    assert isinstance(errors, list) and errors[0].value == 0.0
    assert isinstance(read_vector(vector(), is_error_count=True, ledger_requests=0), Hold)


@pytest.mark.parametrize(
    "body",
    [
        {"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}},
        {"status": "success", "data": {"resultType": "matrix", "result": []}},
        {"status": "error", "error": "boom"},
        {"status": "success", "warnings": ["partial"], "data": vector(1.0)["data"]},
        "<html>502</html>",
        vector(float("nan")),
        {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}}]}},
    ],
)
def test_c23_unusable_bodies_hold(body: object) -> None:
    assert isinstance(read_vector(body), Hold)


# --- traffic that stops halfway (C25) ---


def test_c25_traffic_that_stops_advances_nothing_more(rng: np.random.Generator) -> None:
    contract = make_contract([{**TTFT, "margin": "100%"}, SUCCESS])
    judge = judge_with_history(contract, rng)
    minute = traffic(rng, "stable", 150, 16) + traffic(rng, "candidate", 150, 16)
    run_judge(judge, minute, START_S + 150)
    assert judge.passed_at_s is not None, "the evidence of the first minutes justifies one step"
    left = judge.passed_at_s
    judge.enter_step(1, left, 25.0)
    for minutes in range(1, 10):
        verdict = judge.verdict(left + 60 * minutes + 1)
        assert verdict.result is Result.INCONCLUSIVE
        assert HoldReason.NO_FRESH_DATA in {h.reason for h in verdict.holds}


# --- a rank test that passes a worse tail (C27) ---


def c27_values(rng: np.random.Generator, times: int = 1) -> tuple[list[float], list[float]]:
    baseline = list(np.linspace(0.1, 0.11, 1000 * times))
    candidate = [0.09] * 970 * times + [0.9] * 30 * times
    rng.shuffle(baseline)
    rng.shuffle(candidate)
    return baseline, candidate


@pytest.mark.parametrize("seed", [1, 2])
def test_c27_a_better_median_does_not_hide_a_worse_tail(seed: int) -> None:
    baseline, candidate = c27_values(np.random.default_rng(seed))
    judge = aged(make_contract([{**TTFT, "margin": "25%", "limit": "500ms"}]), baseline)
    run_judge(judge, spread(baseline, "stable") + spread(candidate, "candidate"), START_S + 101)
    assert judge.verdict(judge.now_s).result is Result.FAIL


@pytest.mark.parametrize(("times", "result"), [(1, Result.INCONCLUSIVE), (4, Result.FAIL)])
def test_c27_with_a_margin_alone_the_same_tail_never_passes(times: int, result: Result) -> None:
    """30 of 1,000 against 10 of 1,000 is no proof at 1 % under continuous looking; four times as many are."""
    baseline, candidate = c27_values(np.random.default_rng(5), times)
    judge = aged(make_contract([{**TTFT, "margin": "25%"}]), baseline)
    run_judge(judge, spread(baseline, "stable") + spread(candidate, "candidate"), START_S + 101)
    assert judge.verdict(judge.now_s).result is result


def test_c27_the_mirror_image_passes() -> None:
    stable, candidate = c27_values(np.random.default_rng(3))[::-1]
    contract = make_contract([{**TTFT, "margin": "25%"}])
    judge = aged(contract, stable)
    run_judge(judge, spread(stable, "stable") + spread(candidate, "candidate"), START_S + 101)
    assert judge.verdict(judge.now_s).result is Result.PASS


# --- overflow buckets, other edges, doubled scrapes (C29, C31, C33) ---


def test_c29_a_tail_in_the_overflow_bucket_is_never_equal() -> None:
    edges = (1.0, 10.0, 60.0, float("inf"))
    both = ClassicHistogram(edges, (100.0, 800.0, 970.0, 1000.0))
    hold = compare_quantile(both, both, 0.99, 0.25)
    assert hold is not None and "overflow" in hold.message


def test_c29_the_ledger_tells_70_s_from_600_s() -> None:
    contract = make_contract([{**TTFT, "margin": "25%"}], evidence={"minStep": "30s"})
    stable, candidate = [1.0] * 3880 + [70.0] * 120, [1.0] * 3880 + [600.0] * 120
    rng = np.random.default_rng(4)
    rng.shuffle(stable)
    rng.shuffle(candidate)
    judge = aged(contract, stable, 300.0)
    run_judge(judge, spread(stable, "stable") + spread(candidate, "candidate"), START_S + 800)
    assert judge.verdict(judge.now_s).result is Result.FAIL


def test_c31_different_bucket_edges_are_inconclusive() -> None:
    left = ClassicHistogram((0.1, 0.2, 0.4, 0.6, 0.8, 1.0, float("inf")), (0, 0, 0, 1000, 1000, 1000, 1000))
    right = ClassicHistogram((0.25, 0.5, 1.0, float("inf")), (0, 0, 1000, 1000))
    assert left.quantile_bounds(0.99) == (0.4, 0.6) and right.quantile_bounds(0.99) == (0.5, 1.0)
    hold = compare_quantile(left, right, 0.99, 0.25)
    assert hold is not None and hold.reason is HoldReason.TOO_COARSE and "edges" in hold.message
    assert compare_quantile(left, left, 0.99, 1.0) is None


def test_c33_a_pod_scraped_by_two_jobs_counts_once() -> None:
    samples = [Sample({"job": job, "pod": f"p{i}", "port": "8000"}, 100.0) for job in ("a", "b") for i in range(2)]
    kept, doubled = one_per_pod(samples)
    assert sum(s.value for s in kept) == 200 and doubled == ["p0", "p1"]


# --- cancelled requests that vanish (C35) ---


def test_c35_outcomes_add_up_and_cancels_are_no_failures() -> None:
    contract = make_contract([{"metric": "goodFraction", "margin": "1pp"}], slo={"ttft": "2s", "e2e": "60s"})
    builder = BlockBuilder(builder_setup(contract, "chat", 1), limit_thresholds(contract), START_S)
    outcomes = ["ok"] * 80 + ["server_error"] * 5 + ["cancelled"] * 10 + [None] * 5
    for i, outcome in enumerate(outcomes):
        builder.start(make_record(i, START_S + i * 0.01, outcome="open", ttft_s=None, e2e_s=None))
        if outcome is not None:
            builder.finish(make_record(i, START_S + i * 0.01, outcome=outcome))
    (block,) = builder.tick(START_S + 5)
    ended = {o: sum(c.outcomes.get(o, 0) for c in block.cells) for o in ("ok", "server_error", "cancelled")}
    started = sum(c.routed for c in block.cells)
    assert started == sum(ended.values()) + builder.in_flight == 100
    good = sum(c.metrics[GOOD_FRACTION].below.get(0, 0) for c in block.cells if GOOD_FRACTION in c.metrics)
    bad = sum(c.metrics[GOOD_FRACTION].over.get(0, 0) for c in block.cells if GOOD_FRACTION in c.metrics)
    assert (good, good + bad) == (80, 85)


def test_c35_a_jump_in_cancels_cannot_pass(rng: np.random.Generator) -> None:
    contract = make_contract([{**TTFT, "margin": "100%"}, SUCCESS])
    judge = judge_with_history(contract, rng)
    stable = traffic(rng, "stable", 240, 16)
    candidate = traffic(rng, "candidate", 240, 16)

    def cancel(records: list[RequestRecord], share: float) -> list[RequestRecord]:
        gone = rng.random(len(records)) < share
        return [replace(r, outcome="cancelled", ttft_s=None) if g else r for r, g in zip(records, gone, strict=True)]

    run_judge(judge, cancel(stable, 0.05) + cancel(candidate, 0.30), START_S + 240)
    verdict = judge.verdict(START_S + 240)
    assert verdict.result is Result.INCONCLUSIVE
    assert HoldReason.CANCEL_SHIFT in {h.reason for h in verdict.holds}


# --- a context limit that removes the slow bucket (C37) ---


def test_c37_a_bucket_that_is_only_refused_fails(rng: np.random.Generator) -> None:
    contract = make_contract([{**TTFT, "margin": "100%"}], lengthBuckets={"edges": [16384]})
    strata = (("a", 1000), ("a", 20000))
    judge = judge_with_history(contract, rng, strata=strata)
    stable = traffic(rng, "stable", 100, 16, strata[:1]) + traffic(rng, "stable", 100, 0.5, strata[1:])
    candidate = traffic(rng, "candidate", 100, 16, strata[:1])
    candidate += traffic(rng, "candidate", 100, 0.5, strata[1:], outcome="client_error")
    run_judge(judge, stable + candidate, START_S + 100)
    verdict = judge.verdict(judge.now_s)
    assert verdict.result is Result.FAIL
    refused = [r for r in verdict.rows if r.metric == "served"]
    assert [(r.bucket, r.verdict) for r in refused] == [("16385+", Result.FAIL)]
    assert refused[0].exceed_candidate == refused[0].n_candidate >= 10


def test_c37_a_required_stratum_without_successes_never_passes(rng: np.random.Generator) -> None:
    contract = make_contract([{**TTFT, "margin": "100%"}], lengthBuckets={"edges": [16384]})
    strata = (("a", 1000), ("a", 20000))
    judge = judge_with_history(contract, rng, strata=strata)
    records = traffic(rng, "stable", 150, 16, strata) + traffic(rng, "candidate", 150, 16, strata[:1])
    run_judge(judge, records, START_S + 150)
    assert judge.verdict(START_S + 150).result is not Result.PASS


# --- a cold engine inside the window (C39) ---


def test_c39_a_cold_wave_is_left_out_by_age(rng: np.random.Generator) -> None:
    contract = make_contract([{**TTFT, "limit": "3s"}], evidence={"warmup": "30s"})
    cold = [make_record(1000 + i, START_S + 0.1 * i, ttft_s=50.0, e2e_s=51.0, pod_age_s=2.0) for i in range(20)]
    warm = spread([1.2] * 580, "candidate", 116.0)
    judge = aged(contract, [1.2] * 600)
    run_judge(judge, [*cold, *warm, *spread([1.2] * 580, "stable", 116.0)], START_S + 125, False)
    verdict = judge.verdict(judge.now_s)
    (row,) = [r for r in verdict.rows if r.n_candidate]
    assert row.n_candidate == 580 and row.estimate_candidate == pytest.approx(1.2, rel=0.01)
    assert verdict.result is Result.PASS
    assert any("younger than warmup" in w for w in verdict.warnings)


def test_c39_a_steady_share_of_slow_requests_fails(rng: np.random.Generator) -> None:
    contract = make_contract([{**TTFT, "limit": "3s"}], evidence={"warmup": "30s"})
    values = [50.0 if i % 10 == 0 else 1.2 for i in range(600)]
    judge = aged(contract, [1.2] * 600)
    run_judge(judge, spread(values, "candidate") + spread([1.2] * 600, "stable"), START_S + 200)
    assert judge.verdict(judge.now_s).result is Result.FAIL


# --- percentiles over pooled tenants (C41) ---


def test_c41_one_bad_tenant_fails_however_good_the_pool(rng: np.random.Generator) -> None:
    contract = make_contract([{**TTFT, "limit": "500ms"}], tenants={"required": ["A", "B"], "other": "ignore"})
    a = spread([0.1] * 9900, "candidate", tenant="A")
    b = [replace(r, id=f"b{r.id}") for r in spread([5.0] * 100, "candidate", tenant="B")]
    stable = spread([0.1] * 9900, "stable", tenant="A")
    stable += [replace(r, id=f"b{r.id}") for r in spread([0.1] * 100, "stable", tenant="B")]
    past = [replace(r, t_start_s=r.t_start_s - 100) for r in stable]
    judge = Judge(prepare(contract, to_blocks(contract, past, START_S, START_S - 100)))
    run_judge(judge, a + b + stable, START_S + 110)
    verdict = judge.verdict(judge.now_s)
    assert verdict.result is Result.FAIL
    by_tenant = {r.tenant: r.verdict for r in verdict.rows if r.n_candidate}
    assert by_tenant["B"] is Result.FAIL and by_tenant["A"] is not Result.FAIL


def test_c41_adding_a_good_stratum_never_makes_a_pass() -> None:
    for extra in (0, 1, 3):
        rng = np.random.default_rng(11)
        strata = (("a", 100), *((f"good{i}", 100) for i in range(extra)))
        contract = make_contract([{**TTFT, "limit": "500ms"}], tenants={"other": "each"})
        judge = Judge(prepare(contract, history_blocks(contract, rng, 90, 16, strata=strata)))
        records = traffic(rng, "stable", 150, 16, strata)
        records += traffic(rng, "candidate", 150, 16, strata, factor={("a", 100): 4.0})
        assert run_judge(judge, records, START_S + 150).verdict(judge.now_s).result is Result.FAIL


# --- what counts as the first token (C43) ---


def test_c43_no_first_token_is_no_sample(rng: np.random.Generator) -> None:
    contract = make_contract([{**TTFT, "limit": "500ms"}])
    empty = make_record(1, START_S, outcome="empty", ttft_s=None, max_gap_s=None)
    (block, *_) = to_blocks(contract, [empty], START_S + 5)
    (cell,) = block.cells
    assert cell.outcomes == {"empty": 1} and "ttft" not in cell.metrics


# --- other hardware, an outage of the metrics, clocks that disagree (C45, C49, C51) ---


def test_c45_different_hardware_holds(rng: np.random.Generator) -> None:
    contract = make_contract([SUCCESS])
    judge = judge_with_history(contract, rng)
    run_judge(judge, traffic(rng, "stable", 90, 16) + traffic(rng, "candidate", 90, 16), START_S + 90)
    assert judge.verdict(judge.now_s).result is Result.PASS
    hold = Hold(HoldReason.HARDWARE_DIFFERS, "stable runs on H100, the candidate on A100")
    verdict = judge.verdict(judge.now_s, [hold])
    assert verdict.result is Result.INCONCLUSIVE and verdict.holds[0] == hold


def test_c49_an_outage_of_the_provider_holds_and_the_safety_stop_still_works(rng: np.random.Generator) -> None:
    contract = make_contract([SUCCESS])
    hold = Hold(HoldReason.PROVIDER_UNAVAILABLE, "connection refused")
    judge = judge_with_history(contract, rng)
    stable = traffic(rng, "stable", 120, 16)
    failing = [replace(r, outcome="server_error") for r in traffic(rng, "candidate", 120, 16)]
    run_judge(judge, stable + failing, START_S + 120)
    assert judge.verdict(judge.now_s, [hold]).result is Result.FAIL


def test_c51_late_entries_of_a_wrong_clock_hold(rng: np.random.Generator) -> None:
    contract = make_contract([SUCCESS])
    judge = judge_with_history(contract, rng)
    builder = BlockBuilder(builder_setup(contract, "chat", 1), judge.thresholds(), START_S)
    judge.enter_step(0, START_S, 50.0)
    records = traffic(rng, "stable", 120, 16) + traffic(rng, "candidate", 120, 16)
    for record in sorted(records, key=lambda r: r.t_start_s):
        for block in builder.tick(record.t_start_s):
            judge.feed(block)
        skew = 90.0 if record.variant == "candidate" else 0.0
        builder.finish(replace(record, t_start_s=record.t_start_s - skew))
    verdict = judge.verdict(START_S + 120)
    assert verdict.result is not Result.PASS
    assert HoldReason.CLOCK_SKEW in {h.reason for h in verdict.holds}


def test_c51_a_clock_that_jumps_back_gives_no_negative_durations(rng: np.random.Generator) -> None:
    contract = make_contract([SUCCESS])
    judge = judge_with_history(contract, rng)
    run_judge(judge, traffic(rng, "stable", 20, 16) + traffic(rng, "candidate", 20, 16), START_S + 20)
    verdict = judge.verdict(START_S - 600)
    assert verdict.result is Result.INCONCLUSIVE
    assert all(r.eta_s is None or r.eta_s >= 0 for r in verdict.rows)
    assert not any("-" in h.message.split(" s old")[0] for h in verdict.holds if h.reason is HoldReason.MIN_STEP)


# --- many strata and repeated looks (C47) ---

LOOKS = 20
TENANTS, BUCKETS = 5, 4


def simulate(rollouts: int, p_candidate: np.ndarray, seed: int) -> tuple[int, int]:
    """(false rollbacks, promotions) of A/A-like rollouts: 20 strata x 2 limits, 20 looks, 60 requests a look and
    stratum.
    """
    contract = make_contract(
        [{**TTFT, "limit": "1s"}, {"metric": "e2e", "percentile": "99", "limit": "9s"}],
        tenants={"required": [f"t{i}" for i in range(TENANTS)], "other": "ignore"},
        lengthBuckets={"edges": [100, 200, 300]},
        evidence={"alphaRollback": "0.05", "phiFloor": "1", "minBlocks": 1, "minStep": "5s", "history": "5s"},
    )
    base = prepare(contract, [])
    setup = replace(base, phi_floor=1.0)
    rng = np.random.default_rng(seed)
    failed = passed = 0
    for _ in range(rollouts):
        judge = Judge(setup)
        judge.guards = []
        judge.enter_step(0, START_S, 50.0)
        for look in range(LOOKS):
            judge.take(make_look(judge, rng, look, p_candidate))
        failed += judge.fired is not None
        passed += judge.passed_at_s is not None
    return failed, passed


def make_look(judge: Judge, rng: np.random.Generator, look: int, p: np.ndarray) -> Projected:
    size = judge.strata.size
    n = np.full(size, 60.0)
    counts = []
    for check in judge.checks:
        share = 0.0 if check.metric == "served" else p
        k_c, k_b = (rng.binomial(60, share, size).astype(float) for _ in range(2))
        counts.append(Counts(n.copy(), k_c, n.copy(), k_b))
    finished = {STABLE: n, CANDIDATE: n}
    start = START_S + 5.0 * look
    return Projected(look, start, start + 5.0, counts, [], finished, {}, {}, {})


@pytest.mark.parametrize("rollouts", [120, pytest.param(1000, marks=pytest.mark.slow)])
def test_c47_false_rollbacks_stay_below_alpha_at_the_boundary(rollouts: int) -> None:
    failed, _ = simulate(rollouts, np.full(TENANTS * BUCKETS, 0.01), seed=47)
    assert failed <= 0.05 * rollouts


@pytest.mark.parametrize("rollouts", [120, pytest.param(1000, marks=pytest.mark.slow)])
def test_c47_one_stratum_at_the_margin_is_rarely_promoted(rollouts: int) -> None:
    p = np.full(TENANTS * BUCKETS, 0.0005)
    p[3] = 0.01
    failed, passed = simulate(rollouts, p, seed=48)
    assert passed <= 0.05 * rollouts + 2 * np.sqrt(0.05 * 0.95 * rollouts)
    assert failed <= 0.05 * rollouts
