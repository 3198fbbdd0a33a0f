"""What must not matter: how cells of a block are cut, in which order blocks come, how blocks are joined."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.blocks import Block
from policies.builder import BlockBuilder, builder_setup
from policies.history import prepare
from policies.judge import Judge
from policies.projection import Counts, Ints, Strata
from policies.records import RequestRecord
from policies.sequential import FAIL_FACTORS, PASS_FACTORS
from policies.setup import JudgeSetup
from policies.track import Track
from tests.unit.policies.conftest import START_S, history_blocks, make_contract
from tests.unit.policies.test_builder import some_records

SIZE = 2
GATES = [
    {"metric": "ttft", "percentile": "99", "margin": "50%", "limit": "2s"},
    {"metric": "success", "limit": "99%"},
    {"metric": "goodput", "margin": "10%"},
]
arm = st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
rows = st.lists(st.tuples(arm, arm), min_size=SIZE, max_size=SIZE)
streams = st.lists(rows, min_size=1, max_size=12)


def make_track(relative: bool) -> Track:
    """A check over two strata of one tenant, without any dependence."""
    strata = Strata([("a", "0-512"), ("a", "513+")])
    null = np.full(SIZE, 1.2 if relative else 0.1)
    return Track(strata, null, relative, 1.0, 60, 1.2, {}, {}, FAIL_FACTORS, PASS_FACTORS)


def to_counts(row: Sequence[tuple[tuple[int, int], tuple[int, int]]]) -> Counts:
    candidate, stable = (np.array([pair[i] for pair in row], dtype=float) for i in (0, 1))
    return Counts(candidate[:, 0], candidate[:, 1], stable[:, 0], stable[:, 1])


def passed(track: Track, stream: Sequence[Counts]) -> np.ndarray:
    """PASS evidence (logarithms) after a stream of blocks."""
    groups: Ints = np.arange(SIZE)
    for counts in stream:
        track.step(counts, groups)
    return track.log_pass_evidence()


@pytest.mark.parametrize("relative", [False, True])
@settings(max_examples=40, deadline=None)
@given(stream=streams, shuffle=st.randoms(use_true_random=False))
def test_the_order_of_blocks_changes_no_proof(relative: bool, stream: list, shuffle: object) -> None:  # type: ignore[type-arg]
    blocks = [to_counts(row) for row in stream]
    mixed = list(blocks)
    shuffle.shuffle(mixed)  # type: ignore[attr-defined]
    assert passed(make_track(relative), mixed) == pytest.approx(passed(make_track(relative), blocks), abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(stream=streams)
def test_joining_blocks_changes_no_proof_of_a_limit(stream: list) -> None:  # type: ignore[type-arg]
    """A share of requests does not ask when they came; a comparison does, because the arms' shares may change."""
    blocks = [to_counts(row) for row in stream]
    joined = Counts(*(np.sum([getattr(b, f) for b in blocks], axis=0) for f in ("n_c", "k_c", "n_b", "k_b")))
    assert passed(make_track(False), [joined]) == pytest.approx(passed(make_track(False), blocks), abs=1e-9)


@cache
def prepared() -> JudgeSetup:
    contract = make_contract(GATES, slo={"ttft": "2s", "e2e": "20s"})
    return prepare(contract, history_blocks(contract, np.random.default_rng(3), 90, 5))


def to_judge(records: Sequence[RequestRecord]) -> tuple[Judge, list[Block]]:
    """A judge that has seen the records' blocks, and the blocks."""
    setup = prepared()
    judge = Judge(setup)
    judge.enter_step(0, START_S, 50.0)
    builder = BlockBuilder(builder_setup(setup.contract, "chat", 1), judge.thresholds(), START_S)
    for record in records:
        builder.finish(record)
    blocks = builder.tick(START_S + 60)
    for block in blocks:
        judge.feed(block)
    return judge, blocks


def evidence(judge: Judge) -> dict[str, Any]:
    """All that a judge has counted and concluded, bit for bit; in which order names were first met is left out."""
    arrays = [plain(part.state()) for part in (*judge.tracks, *judge.guards)]
    seen = {name: getattr(judge, name) for name in ("sketches", "step_sketches", "unknown", "routed", "dropped")}
    return {**seen, "arrays": arrays, "requests": plain(judge.step_requests), "verdict": judge.verdict(START_S + 60)}


def plain(value: Any) -> Any:
    """Arrays as their bytes."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return value.tobytes() if isinstance(value, np.ndarray) else value


@settings(max_examples=60, deadline=None)
@given(some_records(), st.data())
def test_how_a_block_is_cut_into_cells_changes_nothing(records: list[RequestRecord], data: st.DataObject) -> None:
    pods = data.draw(st.lists(st.sampled_from(["p0", "p1", "p2"]), min_size=len(records), max_size=len(records)))
    whole, _ = to_judge([replace(r, pod="p") for r in records])
    cut, blocks = to_judge([replace(r, pod=pod) for r, pod in zip(records, pods, strict=True)])
    assert evidence(cut) == evidence(whole)
    backwards = Judge(prepared())
    backwards.enter_step(0, START_S, 50.0)
    for block in blocks:
        backwards.feed(replace(block, cells=block.cells[::-1]))
    assert backwards.verdict(START_S + 60).rows == whole.verdict(START_S + 60).rows
