"""Makers of records, histories and judged runs for the tests of `policies`; all randomness is seeded by the caller."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from policies.blocks import Block
from policies.builder import BlockBuilder, builder_setup, limit_thresholds
from policies.contract import Contract, contract_from_mapping
from policies.history import prepare
from policies.judge import Judge
from policies.records import RequestRecord

START_S = 100_000.0


def make_contract(gates: Sequence[Mapping[str, Any]], **spec: Any) -> Contract:
    """A contract with short evidence rules, so that a test needs minutes of traffic, not hours."""
    evidence = {"history": "90s", "minStep": "30s", "minBlocks": 5, "warmup": "10s", **spec.pop("evidence", {})}
    tenants = spec.pop("tenants", {"required": ["a"], "other": "each"})
    buckets = spec.pop("lengthBuckets", {"edges": [512]})
    return contract_from_mapping(
        {"tenants": tenants, "lengthBuckets": buckets, "gates": list(gates), "evidence": evidence, **spec}
    )


def make_record(number: int, time_s: float, variant: str = "candidate", **fields: Any) -> RequestRecord:
    """An ok streaming request of 100 prompt tokens on an old pod."""
    values: dict[str, Any] = {
        "tenant": "a",
        "outcome": "ok",
        "revision": variant,
        "pod": f"{variant}-{number % 2}",
        "prompt_tokens": 100,
        "output_tokens": 20,
        "stream": True,
        "ttft_s": 0.1,
        "e2e_s": 0.5,
        "max_gap_s": 0.03,
        "max_gap_at_s": 0.2,
        "gaps_n": 19,
        "pod_age_s": 10_000.0,
    }
    return RequestRecord(id=f"{variant}-{number}", t_start_s=time_s, variant=variant, **{**values, **fields})


def traffic(
    rng: np.random.Generator,
    variant: str,
    seconds: float,
    rps: float,
    strata: Iterable[tuple[str, int]] = (("a", 100),),
    start_s: float = START_S,
    factor: float | Mapping[tuple[str, int], float] = 1.0,
    **fields: Any,
) -> list[RequestRecord]:
    """Poisson arrivals per (tenant, prompt tokens) with lognormal TTFT (median 0.15 s, sigma 0.5), sorted by time."""
    found = []
    for tenant, tokens in strata:
        scale = factor if isinstance(factor, float) else factor.get((tenant, tokens), 1.0)
        times = np.sort(rng.uniform(start_s, start_s + seconds, rng.poisson(rps * seconds)))
        ttfts = rng.lognormal(np.log(0.15), 0.5, len(times)) * scale
        for i, (time_s, ttft) in enumerate(zip(times, ttfts, strict=True)):
            values = {"tenant": tenant, "prompt_tokens": tokens, "ttft_s": float(ttft), "e2e_s": float(ttft) + 0.4}
            record = make_record(i, float(time_s), variant, **{**values, **fields})
            found.append(_renamed(record, f"{variant}-{tenant}-{tokens}-{start_s:.0f}-{i}"))
    return sorted(found, key=lambda r: r.t_start_s)


def _renamed(record: RequestRecord, name: str) -> RequestRecord:
    from dataclasses import replace

    return replace(record, id=name)


def to_blocks(
    contract: Contract, records: Iterable[RequestRecord], end_s: float, start_s: float = START_S, **setup: Any
) -> list[Block]:
    """Blocks of records in time order, with the policy's limits counted at the source."""
    builder = BlockBuilder(builder_setup(contract, "chat", 1, **setup), limit_thresholds(contract), start_s)
    found = []
    for record in sorted(records, key=lambda r: r.t_start_s):
        found += builder.tick(record.t_start_s)
        builder.finish(record)
    return found + builder.tick(end_s)


def history_blocks(contract: Contract, rng: np.random.Generator, seconds: float, rps: float, **kw: Any) -> list[Block]:
    """A/A history of stable that ends when the step begins."""
    records = traffic(rng, "stable", seconds, rps, start_s=START_S - seconds, **kw)
    return to_blocks(contract, records, START_S, START_S - seconds)


def run_judge(
    judge: Judge, records: Iterable[RequestRecord], end_s: float, until_decided: bool = True, **setup: Any
) -> Judge:
    """Feed records as the recorder would, from START_S on; the judge's own thresholds are counted at the source."""
    builder = BlockBuilder(builder_setup(judge.contract, "chat", 1, **setup), judge.thresholds(), START_S)
    version = judge.thresholds_version
    judge.enter_step(0, START_S, 50.0)

    def feed(blocks: Sequence[Block]) -> bool:
        nonlocal version
        for block in blocks:
            judge.feed(block)
        if judge.thresholds_version != version:
            builder.set_thresholds(judge.thresholds())
            version = judge.thresholds_version
        return until_decided and (judge.fired is not None or judge.passed_at_s is not None)

    for record in sorted(records, key=lambda r: r.t_start_s):
        if feed(builder.tick(record.t_start_s)):
            return judge
        builder.finish(record)
    feed(builder.tick(end_s))
    return judge


@pytest.fixture
def rng() -> np.random.Generator:
    """A seeded source of randomness."""
    return np.random.default_rng(20260101)


def judge_with_history(contract: Contract, rng: np.random.Generator, rps: float = 16.0, **kw: Any) -> Judge:
    """A judge prepared by as much history as the policy asks for."""
    return Judge(prepare(contract, history_blocks(contract, rng, contract.history_s, rps, **kw)))
