"""The bench's fast path is the product's: the same requests as blocks of cells and as arrays give the same state."""

import numpy as np
import pytest

from policies.blocks import TTFT, Block, Cell, MetricCounts
from policies.contract import CheckKind
from policies.histogram import bin_indices
from policies.history import prepare
from policies.judge import Judge
from policies.records import CANDIDATE, STABLE
from policies.setup import JudgeSetup
from tools.bench.judge import ours
from tools.bench.judge.ours import START_S, Ours, count, make_contract, make_setup, names
from tools.bench.judge.scenarios import BLOCK_S, find
from tools.bench.judge.traffic import Requests, Source

HISTORY_S = 120.0


def _history_blocks(source: Source) -> list[Block]:
    """Stable's past as the recorder would store it."""
    halves = [source.history(half) for half in (0, 1)]
    found = []
    for number in range(len(halves[0].attempted)):
        cells = tuple(
            cell
            for pod, half in zip(ours.PODS, halves, strict=True)
            for cell in _cells(half, number, STABLE, pod, None)
        )
        start_s = START_S - source.history_s + number * BLOCK_S
        found.append(Block(number, "bench", 0, 0, start_s, start_s + BLOCK_S, cells, stage="idle"))
    return found


def _cells(requests: Requests, block: int, variant: str, pod: str, setup: JudgeSetup | None) -> list[Cell]:
    """One block's cells; with a setup, every threshold of its stratum is counted at the source."""
    strata = len(names())
    mine = requests.cell // strata == block
    stratum, ttft = requests.cell[mine] % strata, np.exp(requests.log_ttft[mine])
    found = []
    for place, (tenant, bucket) in enumerate(names()):
        values = ttft[stratum == place]
        index, sizes = np.unique(bin_indices(values), return_counts=True)
        keys: set[int] = set()
        if setup is not None:
            checks = zip(setup.checks, setup.strata[place].checks, strict=True)
            keys = {key for check, v in checks if check.metric == TTFT for key in v.keys()}  # noqa: SIM118 (CheckSetup.keys)
        over = {key: int((values > key / 1e6).sum()) for key in keys}
        below = {key: len(values) - k for key, k in over.items()}
        metric = MetricCounts(len(values), dict(zip(index.tolist(), sizes.tolist(), strict=True)), over, below)
        n, bad = int(requests.attempted[block, place]), int(requests.failed[block, place])
        outcomes = {"ok": n - bad, "server_error": bad}
        found.append(Cell(variant, variant, "live", tenant, bucket, pod, -1, n, outcomes, {TTFT: metric}))
    return found


@pytest.fixture(scope="module")
def source() -> Source:
    return Source(find("bursty_null_independent")[0], seed=3, run=0, history_s=HISTORY_S)


def test_setup_from_arrays_is_the_products_setup(source: Source) -> None:
    fast = make_setup(source)
    product = prepare(make_contract(HISTORY_S), _history_blocks(source))
    by_name = {(s.tenant, s.bucket): s for s in product.strata}
    limit = next(i for i, check in enumerate(fast.checks) if check.kind is CheckKind.QUANTILE_ABS)
    assert fast.checks == product.checks
    assert (fast.phi_floor, fast.history_s, fast.cancel_share) == (product.phi_floor, product.history_s, 0.0)
    for stratum in fast.strata:
        same = by_name[stratum.tenant, stratum.bucket]
        assert (stratum.n_history, stratum.rate_rps) == (same.n_history, same.rate_rps)
        assert [c for i, c in enumerate(stratum.checks) if i != limit] == [
            c for i, c in enumerate(same.checks) if i != limit
        ]
    for number in range(len(fast.checks)):
        for level, value in product.kappa_ratio[number].items():
            if number != limit:
                assert fast.kappa[number][level] == pytest.approx(product.kappa[number][level], rel=1e-9)
                assert fast.kappa_ratio[number][level] == pytest.approx(value, rel=1e-9)
    assert max(fast.kappa[0].values()) > 0.0


@pytest.mark.parametrize("name", ["bursty_null_independent", "one_tenant_x2"])
def test_blocks_and_arrays_give_the_same_state(name: str) -> None:
    source = Source(find(name)[0], seed=3, run=0, history_s=HISTORY_S)
    setup = make_setup(source)
    blocks = 40
    span = (source.lead_blocks, source.lead_blocks + blocks)
    stable, candidate = source.stable(*span), source.candidate(*span)
    fast = Ours(setup)
    slow = Judge(setup)
    slow.enter_step(1, START_S, 50.0)
    counted = count(setup, stable, candidate)
    for number in range(blocks):
        fast.take(counted, number)
        cells = _cells(stable, number, STABLE, "stable-0", setup) + _cells(candidate, number, CANDIDATE, "c-0", setup)
        start_s = START_S + number * BLOCK_S
        slow.feed(Block(number, "bench", 1, 1, start_s, start_s + BLOCK_S, tuple(cells), stage="ramp", weight=50))
    for one, other in zip(fast.judge.tracks, slow.tracks, strict=True):
        np.testing.assert_array_equal(one.fail_evidence(), other.fail_evidence())
        np.testing.assert_array_equal(one.log_pass, other.log_pass)
        np.testing.assert_array_equal(one.latched, other.latched)
    assert fast.judge.rollback_evidence() == slow.rollback_evidence()
    assert fast.judge.fired == slow.fired
    assert (fast.judge.fired is not None) == (name == "one_tenant_x2")
    guards = [guard.evidence(slow.weights(setup.checks[0])) for guard in slow.guards]
    assert all(value <= 1.0 + 1e-9 for pair in guards for value in pair)  # what the bench leaves out holds nothing
    assert fast.judge.holds(fast.judge.now_s) == slow.holds(slow.now_s)
