"""The plan: equal strata, the asked rate, prompts of exact length and the shared prefix."""

import json
from collections import Counter
from itertools import islice, pairwise, takewhile
from pathlib import Path

import pytest

from tools.load.__main__ import DEFAULT_TRACE
from tools.load.plan import (
    Planned,
    PromptWriter,
    TraceRow,
    bucket_name,
    bucket_of,
    chat_body,
    plan_requests,
    read_trace,
)

TENANTS = ["acme", "globex", "initech"]


def plan(rate: float = 100.0, seed: int = 1, arrivals: str = "poisson", **limits: int) -> list[Planned]:
    """30 s of the demo's plan."""
    caps = {"output_cap": 256, "output_floor": 1, "prompt_cap": 16000} | limits
    requests = plan_requests(read_trace(DEFAULT_TRACE), TENANTS, rate, seed, arrivals=arrivals, **caps)
    return list(takewhile(lambda request: request.at_seconds < 30, requests))


def test_the_fixture_is_a_part_of_the_public_trace(shared_data: Path) -> None:
    whole = (shared_data / "traces" / "azure2023_conv.csv").read_text()
    part = DEFAULT_TRACE.read_text()
    assert whole.startswith(part)
    assert len(part) < 150_000


def test_every_stratum_gets_the_same_rate() -> None:
    requests = plan()
    counts = Counter((request.tenant, request.bucket) for request in requests)
    assert len(counts) == 9
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len(requests) == pytest.approx(3000, rel=0.06)
    assert all(bucket_of(request.prompt_tokens) == request.bucket for request in requests)


def test_poisson_gaps_vary_as_an_exponential_and_constant_ones_do_not() -> None:
    def variation(arrivals: str) -> float:
        times = [request.at_seconds for request in plan(arrivals=arrivals)]
        gaps = [after - before for before, after in pairwise(times)]
        mean = sum(gaps) / len(gaps)
        return float((sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5 / mean)

    assert 0.9 < variation("poisson") < 1.1
    assert variation("constant") < 1e-6


def test_each_row_comes_as_often_as_in_the_trace_and_tenants_walk_it_in_orders_of_their_own() -> None:
    rows = [TraceRow(100 + number, 1) for number in range(50)]
    rows += [TraceRow(500, 1), TraceRow(2000, 1)]
    caps = {"output_cap": 256, "output_floor": 1, "prompt_cap": 16000}
    requests = list(islice(plan_requests(rows, ["a", "b"], 10.0, 1, arrivals="constant", **caps), 900))
    walks = [[r.prompt_tokens for r in requests if (r.tenant, r.bucket) == (tenant, 0)] for tenant in "ab"]
    for walk in walks:
        assert len(walk) == 150
        assert sorted(walk[:50]) == list(range(100, 150))
        assert walk == walk[:50] * 3
    assert walks[0] != walks[1]


def test_same_seed_same_plan_and_caps_hold() -> None:
    assert plan(seed=3) == plan(seed=3)
    assert plan(seed=3) != plan(seed=4)
    limited = plan(output_cap=64, output_floor=16)
    assert {request.max_tokens for request in limited} <= set(range(16, 65))


def test_a_trace_without_long_prompts_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1101\+"):
        rows = [TraceRow(10, 1), TraceRow(500, 1)]
        next(plan_requests(rows, TENANTS, 1.0, 1, output_cap=1, output_floor=1, prompt_cap=9, arrivals="constant"))


def test_bucket_names() -> None:
    assert [bucket_name(index) for index in range(3)] == ["0-420", "421-1100", "1101+"]


def test_prompts_have_their_exact_length_and_are_plain_json() -> None:
    writer = PromptWriter(1, "globex", 0.9)
    for request in islice(plan(), 200):
        prompt = writer.write(request, "r-1")
        assert len(prompt) == 4 * request.prompt_tokens
        document = json.loads(chat_body(prompt, "m", request.max_tokens, include_usage=True))
        assert document["messages"][0]["content"].encode() == prompt
        assert document["stream_options"] == {"include_usage": True}


def test_only_long_prompts_of_one_tenant_share_a_prefix() -> None:
    writer = PromptWriter(1, "globex", 0.9)

    def common(tenant: str, bucket: int, tokens: int) -> float:
        first, second = (
            writer.write(Planned(0.0, tenant, bucket, tokens, 8), request_id) for request_id in ("r-0001", "r-0002")
        )
        same = next((at for at, (one, two) in enumerate(zip(first, second, strict=True)) if one != two), len(first))
        return same / len(first)

    assert common("globex", 2, 2000) == pytest.approx(0.9, abs=0.01)
    assert common("acme", 2, 2000) < 0.01
    assert common("globex", 0, 300) < 0.01
