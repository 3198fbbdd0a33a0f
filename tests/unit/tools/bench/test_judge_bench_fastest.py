"""The yardstick of promotions: one look keeps its level, and what it says is in reach of no test that looks often."""

import numpy as np
import pytest
from scipy.stats import binom

from tools.bench.judge import fastest


def test_the_tail_of_real_counts_is_the_binomials_at_whole_ones() -> None:
    n, k = np.array([50.0, 200.0]), np.array([3.0, 0.0])
    assert fastest.lower_tail(n, 0.05, k) == pytest.approx(binom.cdf(k, n, 0.05))


def test_one_look_keeps_its_level_at_the_bound() -> None:
    assert 0.005 < fastest.limit_passes(3600, 0.005, 0.005) <= 0.05
    for factor in (1.0, 4.0):
        assert 0.005 < fastest.margin_passes(3600, factor, 0.01, 0.01) <= 0.05


def test_more_baseline_and_more_requests_help() -> None:
    passes = [fastest.margin_passes(n, factor, 0.00278, 0.01) for n, factor in ((1800, 1), (3600, 1), (3600, 4))]
    assert passes == sorted(passes)
    assert passes[2] > 0.99


def test_history_as_baseline_passes_what_it_must_not() -> None:
    alone, pooled = fastest.false_pass(0.1, 600, np.random.default_rng(5))
    assert alone <= 0.05
    assert pooled > 0.15
