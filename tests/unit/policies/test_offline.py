"""Judging files: what a given history cannot say, the step's first requests of stable say."""

from dataclasses import replace

import numpy as np

from policies.offline import judge_columns
from policies.records import RequestRecord
from policies.verdict import HoldReason, Result
from tests.unit.policies.conftest import START_S, make_contract, traffic
from tests.unit.policies.test_columns import to_columns

MARGIN = {"metric": "ttft", "percentile": "99", "margin": "100%"}


def without_ttft(records: list[RequestRecord]) -> list[RequestRecord]:
    """As a history of answers that were not streamed."""
    return [replace(r, stream=False, ttft_s=None, max_gap_s=None, max_gap_at_s=None, gaps_n=0) for r in records]


def test_a_history_without_the_metric_leaves_the_thresholds_to_the_step(rng: np.random.Generator) -> None:
    contract = make_contract([MARGIN])
    past = without_ttft(traffic(rng, "stable", 90, 16, start_s=START_S - 90))
    step = traffic(rng, "stable", 700, 16) + traffic(rng, "candidate", 700, 16)
    judged = judge_columns(contract, to_columns(step), to_columns(past))
    assert judged.verdict.result is Result.PASS
    assert any("the history sets no threshold for a 0-512" in w for w in judged.verdict.warnings)
    assert any("phi is at least 4: stable's history does not show ttft" in w for w in judged.verdict.warnings)
    assert min(row.phi for row in judged.verdict.rows) >= 4.0


def test_thresholds_of_the_history_are_kept_where_it_has_them(rng: np.random.Generator) -> None:
    contract = make_contract([MARGIN])
    past = traffic(rng, "stable", 90, 16, start_s=START_S - 90)
    step = traffic(rng, "stable", 60, 16, factor=3.0) + traffic(rng, "candidate", 60, 16)
    with_past = judge_columns(contract, to_columns(step), to_columns(past)).judge.setups[0].checks[0]
    alone = judge_columns(contract, to_columns(step)).judge.setups[0].checks[0]
    assert 0 < with_past.stable_us < alone.stable_us / 2


def test_a_required_tenant_of_the_history_that_is_silent_in_the_step_is_named(rng: np.random.Generator) -> None:
    contract = make_contract([MARGIN], tenants={"required": ["a", "b"], "other": "each"})
    past = traffic(rng, "stable", 90, 16, (("a", 100), ("b", 100)), start_s=START_S - 90)
    step = traffic(rng, "stable", 120, 16) + traffic(rng, "candidate", 120, 16)
    verdict = judge_columns(contract, to_columns(step), to_columns(past)).verdict
    silent = [h for h in verdict.holds if h.reason is HoldReason.NO_TRAFFIC]
    assert [h.tenant for h in silent] == ["b"]
    assert "in this step" in silent[0].message


def test_a_step_without_the_candidate_says_which_blocks_count(rng: np.random.Generator) -> None:
    contract = make_contract([MARGIN])
    verdict = judge_columns(contract, to_columns(traffic(rng, "stable", 60, 16))).verdict
    (young,) = [h for h in verdict.holds if h.reason is HoldReason.MIN_STEP]
    assert "has 0 blocks with requests of both arms" in young.message
