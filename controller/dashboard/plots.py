"""Geometry of the small plots; templates draw it as SVG. Pure: numbers in, coordinates out.

x runs from 0 to `WIDTH`. A bound that is not known is drawn open: the line runs to the edge and ends in an arrow.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

WIDTH = 240.0
_MARGIN = 0.08
_ENDLESS = 1e300  # infinity, as JSON carries it


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of the candidate against its limit.

    line: from x1 to x2; open_low / open_high: that bound is not known; limit, candidate, stable: x or None; breached:
    the whole interval lies beyond the limit; clear: the whole interval lies on the good side.
    """

    x1: float
    x2: float
    open_low: bool
    open_high: bool
    limit: float | None
    candidate: float | None
    stable: float | None
    breached: bool
    clear: bool


def make_interval(row: Mapping[str, Any]) -> Interval | None:
    """Plot of one gate row in the unit of its metric; None where nothing is known."""
    low, high, limit = row.get("low"), row.get("high"), row.get("limit")
    candidate, stable = row.get("estimate_candidate"), row.get("estimate_stable")
    known: list[float] = [value for value in (low, high, limit, candidate, stable) if _is_number(value)]
    if not known or (low is None and high is None and candidate is None):
        return None
    least, most = min(known), max(known)
    span = (most - least) or abs(most) or 1.0
    left, right = least - _MARGIN * span, most + _MARGIN * span

    def x(value: float | None) -> float | None:
        return round(WIDTH * (value - left) / (right - left), 1) if _is_number(value) else None

    x1, x2 = x(low), x(high)
    good_below = row.get("metric") != "goodput"
    return Interval(
        x1=0.0 if x1 is None else x1,
        x2=WIDTH if x2 is None else x2,
        open_low=x1 is None,
        open_high=x2 is None,
        limit=x(limit),
        candidate=x(candidate),
        stable=x(stable),
        breached=_beyond(low if good_below else high, limit, good_below),
        clear=_beyond(limit, high if good_below else low, good_below),
    )


def _beyond(value: float | None, bound: float | None, upwards: bool) -> bool:
    if value is None or bound is None:
        return False
    return value > bound if upwards else value < bound


@dataclass(frozen=True, slots=True)
class Distance:
    """One stratum in the overview: its interval as a share of its limit (the limit is at x = `LIMIT_X`)."""

    x1: float
    x2: float
    point: float | None
    open_high: bool


LIMIT_X = WIDTH / 1.6


def make_distance(row: Mapping[str, Any]) -> Distance | None:
    """Where the interval lies between nothing (x = 0) and 160 % of the limit (x = WIDTH)."""
    limit = row.get("limit")
    if not _is_number(limit) or limit == 0 or row.get("metric") == "goodput":
        return None
    low, high, point = (_number(row.get(name)) for name in ("low", "high", "estimate_candidate"))
    if low is None and high is None and point is None:
        return None

    def x(value: float) -> float:
        return round(min(WIDTH, max(0.0, LIMIT_X * value / limit)), 1)

    is_open = high is None or high / limit > 1.6
    return Distance(
        x1=x(low) if low is not None else 0.0,
        x2=WIDTH if is_open or high is None else x(high),
        point=x(point) if point is not None else None,
        open_high=is_open,
    )


def meter(e: float | None, threshold: float) -> float:
    """How far evidence has come, 0..1 on a logarithmic scale: 0 at 1, 1 at the threshold."""
    if e is None or e <= 1.0 or threshold <= 1.0:
        return 0.0
    return min(1.0, math.log(e) / math.log(threshold))


def _number(value: Any) -> float | None:
    return value if _is_number(value) else None


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and abs(value) < _ENDLESS
