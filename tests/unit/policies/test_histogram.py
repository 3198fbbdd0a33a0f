"""Identities of the sketch."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import histogram

values = st.lists(st.floats(1e-5, 1e6, allow_nan=False), max_size=60)


def sketch(items: list[float]) -> dict[int, int]:
    """Bins of some values."""
    return histogram.merge({histogram.bin_index(v): 1} for v in items)


@given(st.floats(1e-5, 1e6))
def test_a_value_lies_in_its_bin_and_the_bin_is_one_percent_wide(value: float) -> None:
    index = histogram.bin_index(value)
    low, high = histogram.edge(index - 1), histogram.edge(index)
    assert low < value * (1 + 1e-8) and value <= high * (1 + 1e-8)
    assert high / low == pytest.approx(histogram.GAMMA, rel=1e-9)


@given(st.integers(-1300, 1300))
def test_an_edge_belongs_to_the_bin_below_it(index: int) -> None:
    assert histogram.bin_index(histogram.edge(index)) == index
    assert histogram.snap_up(histogram.edge(index)) == pytest.approx(histogram.edge(index), rel=1e-12)


@given(values, values)
def test_merging_is_adding_in_any_order(a: list[float], b: list[float]) -> None:
    whole = sketch(a + b)
    assert histogram.merge([sketch(a), sketch(b)]) == whole == histogram.merge([sketch(b), sketch(a)])
    assert histogram.count(whole) == len(a) + len(b)


@given(values, st.floats(1e-4, 1e5))
def test_counts_above_an_edge_are_exact(items: list[float], threshold: float) -> None:
    snapped = histogram.snap_up(threshold)
    low, high = histogram.count_above_bounds(sketch(items), snapped)
    assert low == high == sum(histogram.bin_index(v) > histogram.bin_index(threshold) for v in items)
    low, high = histogram.count_above_bounds(sketch(items), threshold)
    assert low <= sum(v > threshold for v in items) <= high


@given(st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.99]))
def test_quantile_bounds_hold_the_order_statistic(items: list[float], q: float) -> None:
    rank = max(1, math.ceil(q * len(items) - 1e-9))
    bounds = histogram.quantile_bounds(sketch(items), q)
    assert bounds is not None
    exact = sorted(items)[rank - 1]
    assert bounds[0] <= exact * (1 + 1e-8) and exact <= bounds[1] * (1 + 1e-8)


def test_empty_sketches_have_no_quantile() -> None:
    assert histogram.quantile_bounds({}, 0.99) is None
    assert histogram.rank_index({3: 2}, 3) is None


@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=40))
def test_the_vector_form_agrees(items: list[float]) -> None:
    assert histogram.bin_indices(np.array(items)).tolist() == [histogram.bin_index(v) for v in items]
