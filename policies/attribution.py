"""What one request says about each metric, and when: the only place that knows which outcome reaches which metric.

Called by the block builder for finished, open and in-flight requests. Latency metrics take `ok` requests and, for
what was reached, truncated, timed-out, cancelled and open ones. An unknown latency of such a request is an exceedance
once its age is above the threshold, and is left out before. Pure functions of a record.
"""

from collections.abc import Mapping
from typing import NamedTuple

from policies import blocks
from policies.records import RequestRecord

_REACHED = frozenset({"truncated", "timeout", "cancelled", "open"})


class Reading(NamedTuple):
    """One latency of one request: a value, or a lower bound, or neither (seconds).

    crossing_base_s: seconds from the start of the request such that a threshold `t` was crossed at `crossing_base_s +
    t`; None when it is only known at completion. unknown: the value applies and could not be read.
    """

    value: float | None
    bound: float | None
    crossing_base_s: float | None
    unknown: bool


_ABSENT = Reading(None, None, None, False)
_UNKNOWN = Reading(None, None, None, True)


def readings(record: RequestRecord) -> tuple[Reading, Reading, Reading, Reading]:
    """Readings in the order of `blocks.LATENCIES`: ttft, tpot, maxGap, e2e."""
    is_ok = record.outcome == "ok"
    if not is_ok and record.outcome not in _REACHED:
        return _ABSENT, _ABSENT, _ABSENT, _ABSENT
    return _ttft(record, is_ok), _tpot(record, is_ok), _max_gap(record, is_ok), _e2e(record, is_ok)


def _ttft(record: RequestRecord, is_ok: bool) -> Reading:
    if record.ttft_s is not None:
        return Reading(record.ttft_s, None, 0.0, False)
    if record.stream is False:
        return _ABSENT
    return _UNKNOWN if is_ok else Reading(None, record.e2e_s, 0.0, False)


def _tpot(record: RequestRecord, is_ok: bool) -> Reading:
    value = record.tpot_s
    if value is not None:
        return Reading(value, None, None, False)
    is_short = record.output_tokens is not None and record.output_tokens < 2
    return _UNKNOWN if is_ok and not is_short else _ABSENT


def _max_gap(record: RequestRecord, is_ok: bool) -> Reading:
    if record.max_gap_s is not None:
        if record.max_gap_at_s is None:
            return Reading(record.max_gap_s, None, None, False)
        whole = record.e2e_s if record.e2e_s is not None else record.ttft_s or 0.0
        at = min(record.max_gap_at_s, whole)  # a gap ends with its request at the latest
        return Reading(record.max_gap_s, None, max(0.0, at - record.max_gap_s), False)
    does_not_apply = record.stream is False or record.gaps_n == 0
    return _UNKNOWN if is_ok and not does_not_apply else _ABSENT


def _e2e(record: RequestRecord, is_ok: bool) -> Reading:
    if is_ok:
        return _UNKNOWN if record.e2e_s is None else Reading(record.e2e_s, None, 0.0, False)
    return Reading(None, record.e2e_s, 0.0, False)


class Goodness(NamedTuple):
    """Whether a request was good (None = cannot be known); `bad_at_s` counts from its start, None = at its end."""

    good: bool | None
    bad_at_s: float | None


def goodness(
    record: RequestRecord, read: tuple[Reading, ...], slo_us: Mapping[str, int], attempted: frozenset[str]
) -> tuple[Goodness, bool]:
    """(goodness, counts as attempted). A constraint that does not apply is met; exceeding one makes it attempted."""
    crossed: float | None = None
    is_over = is_unknown = False
    for metric, reading in zip(blocks.LATENCIES, read, strict=True):
        key = slo_us.get(metric)
        if key is None:
            continue
        limit = key / 1e6
        reached = reading.value if reading.value is not None else reading.bound
        if reached is not None and reached > limit:
            is_over = True
            if reading.crossing_base_s is not None:
                at = reading.crossing_base_s + limit
                crossed = at if crossed is None else min(crossed, at)
        elif reading.unknown:
            is_unknown = True
    if is_over:
        return Goodness(False, crossed), True
    if record.outcome == "open":
        return Goodness(None, None), False
    counts = record.outcome in attempted
    if record.outcome != "ok":
        return Goodness(False, None), counts
    return Goodness(None if is_unknown else True, None), counts
