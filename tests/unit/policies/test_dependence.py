"""Dependence of absolute checks: what one arm varies by, whether its twin varies with it or not."""

import numpy as np
import pytest

from policies.contract import CheckKind
from policies.dependence import excess_variance
from policies.history import prepare
from policies.projection import Strata
from tests.unit.policies.conftest import START_S, make_contract, to_blocks, traffic

BLOCKS, PER_BLOCK = 720, 50


def kappa(is_shared: bool, spread: float) -> float:
    rng = np.random.default_rng(1)
    strata = Strata([("acme", "0-512")])
    strata.seal()
    latent = rng.normal(size=(2, BLOCKS, 1))
    if is_shared:
        latent[1] = latent[0]
    share = np.clip(0.02 * np.exp(spread * latent), 0, 1)
    n = np.full((2, BLOCKS, 1), float(PER_BLOCK))
    k = rng.binomial(PER_BLOCK, share).astype(float)
    return excess_variance(strata, n, k, 5.0, relative=False)["stratum"]


def expected(spread: float) -> float:
    """Var(p) / (p (1 - p)) of a lognormal share: the excess per request of one arm."""
    mean = 0.02 * np.exp(spread**2 / 2)
    return float(mean**2 * (np.exp(spread**2) - 1) / (mean * (1 - mean)))


@pytest.mark.parametrize("is_shared", [False, True])
def test_absolute_excess_is_that_of_one_arm(is_shared: bool) -> None:
    assert expected(0.8) * 0.6 < kappa(is_shared, 0.8) < expected(0.8) * 3


def test_no_excess_without_dependence() -> None:
    assert kappa(False, 0.0) < 0.01


LIMIT_AND_MARGIN = ({"metric": "ttft", "percentile": "99", "margin": "25%", "limit": "1.2s"},)


def limit_kappa(rng: np.random.Generator, spread: float) -> tuple[float, float]:
    """(kappa of the margin, kappa of a limit that stable never comes near), with waves of 10 s in each pod's latency
    of that spread.
    """
    contract = make_contract(LIMIT_AND_MARGIN, evidence={"history": "600s"})
    records = []
    for second in range(0, 600, 10):
        for pod in ("stable-0", "stable-1"):
            factor = float(np.exp(spread * rng.normal()))
            records += traffic(rng, "stable", 10, 8.0, start_s=START_S - 600 + second, factor=factor, pod=pod)
    setup = prepare(contract, to_blocks(contract, records, START_S, START_S - 600))
    numbers = {check.kind: i for i, check in enumerate(setup.checks) if not check.sentinel}
    margin, limit = numbers[CheckKind.QUANTILE_REL], numbers[CheckKind.QUANTILE_ABS]
    return setup.kappa[margin]["stratum"], setup.kappa[limit]["stratum"]


def test_a_distant_limit_is_as_dependent_as_stables_own_percentile(rng: np.random.Generator) -> None:
    """A candidate at the limit crosses it in waves, though stable, far below, hardly ever does."""
    margin, limit = limit_kappa(rng, 0.4)
    assert margin > 0.05
    assert limit > 0.7 * margin


def test_a_distant_limit_is_not_made_dependent_without_waves(rng: np.random.Generator) -> None:
    assert limit_kappa(rng, 0.0)[1] < 0.03
