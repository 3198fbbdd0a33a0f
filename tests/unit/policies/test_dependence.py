"""Dependence of absolute checks: what one arm varies by, whether its twin varies with it or not."""

import numpy as np
import pytest

from policies.history import excess_variance
from policies.projection import Strata

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
