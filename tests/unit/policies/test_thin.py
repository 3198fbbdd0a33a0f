"""parentVeto: a tenant passes for a declared thin stratum from 150 effective requests on, unless that objects."""

from dataclasses import replace

import numpy as np
import pytest

from policies import sequential as seq
from policies.contract import Contract
from policies.history import prepare
from policies.judge import Judge
from policies.projection import Counts, Strata
from policies.setup import JudgeSetup
from policies.thin import passes_with_parent
from policies.track import Track
from policies.verdict import Result
from tests.unit.policies.conftest import START_S, history_blocks, make_contract, run_judge, traffic

LARGE, THIN = ("a", 100), ("a", 1000)


def _track(relative: bool, thin_n: float, thin_share: float, runs: int, rng: np.random.Generator) -> Track:
    """Tenants of one thin stratum and five good ones with 2,000 requests each."""
    strata = Strata((f"t{r}", f"b{i}") for r in range(runs) for i in range(6))
    null = np.full(strata.size, 1.0 if relative else 0.01)
    track = Track(strata, null, relative, 1.5, 1000, 1.0, {}, {}, seq.FAIL_FACTORS, seq.PASS_FACTORS)
    n = np.tile([thin_n, 2000.0, 2000.0, 2000.0, 2000.0, 2000.0], runs)
    share = np.tile([thin_share, 0.003, 0.003, 0.003, 0.003, 0.003], runs)
    k_c, k_b = rng.binomial(n.astype(int), share).astype(float), rng.binomial(n.astype(int), 0.01).astype(float)
    track.step(Counts(n, k_c, n, k_b), np.arange(strata.size))
    return track


@pytest.mark.parametrize(
    ("relative", "n", "share", "least", "most"),
    [
        (False, 60, 0.003, 0.0, 0.0),  # too few for anybody to pass for it
        (False, 150, 0.003, 0.95, 1.0),
        (False, 150, 0.03, 0.0, 0.25),  # three times the budget
        (False, 150, 0.1, 0.0, 0.01),
        (True, 300, 0.003, 0.8, 1.0),
        (True, 300, 0.1, 0.0, 0.02),
    ],
)
def test_how_often_a_thin_stratum_gets_through(
    relative: bool, n: float, share: float, least: float, most: float, rng: np.random.Generator
) -> None:
    passed = passes_with_parent(_track(relative, n, share, 400, rng), 0.05)[::6]
    assert least <= passed.mean() <= most


def test_a_bad_tenant_passes_for_nobody(rng: np.random.Generator) -> None:
    track = _track(False, 400, 0.003, 50, rng)
    track.log_pass[:, :-1] = track.prior[:, :-1]  # nothing is proven of any stratum
    assert not passes_with_parent(track, 0.05).any()


def _setup(contract: Contract, rng: np.random.Generator) -> JudgeSetup:
    blocks = history_blocks(contract, rng, contract.history_s, 20.0, strata=[LARGE])
    few = history_blocks(contract, rng, contract.history_s, 1.0, strata=[THIN])
    joined = [replace(b, cells=(*b.cells, *f.cells)) for b, f in zip(blocks, few, strict=True)]
    return prepare(contract, joined)


@pytest.mark.parametrize("rule", ["hold", "parentVeto"])
def test_a_declared_thin_stratum_passes_with_its_tenant(rule: str, rng: np.random.Generator) -> None:
    contract = make_contract(
        [{"metric": "success", "limit": "99%"}], evidence={"thinStrata": rule, "maxHold": "3m", "phiFloor": "1.0"}
    )
    setup = _setup(contract, rng)
    assert JudgeSetup.from_dict(setup.to_dict()) == setup
    if rule == "parentVeto":
        assert setup.thin == (("a", "513+"),)
        assert any("parentVeto" in warning for warning in setup.warnings)
    records = [
        record
        for variant in ("stable", "candidate")
        for strata, rps in (([LARGE], 20.0), ([THIN], 1.1))
        for record in traffic(rng, variant, 170.0, rps, strata)
    ]
    broken = next(r for r in records if r.variant == "candidate" and r.prompt_tokens == 1000)
    records = [replace(r, outcome="server_error") if r is broken else r for r in records]
    judge = run_judge(Judge(setup), records, START_S + 170.0, until_decided=False)
    verdict = judge.verdict(judge.now_s)
    assert verdict.result is (Result.PASS if rule == "parentVeto" else Result.INCONCLUSIVE)
    if rule == "parentVeto":
        assert any("passes with its tenant" in row.reason for row in verdict.rows)
