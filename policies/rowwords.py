"""A row's finding in words: what the candidate does against stable or its limit, and what is missing.

Called by `explain` for the judge's rows and by `reports.judge` for those of benchmark reports.
"""

from dataclasses import replace

from policies import blocks
from policies.contract import SERVED, Check, CheckKind
from policies.verdict import GateRow, HoldReason, Result

_NAMES = {
    blocks.TTFT: "TTFT",
    blocks.TPOT: "TPOT",
    blocks.MAX_GAP: "longest gap",
    blocks.E2E: "E2E",
    blocks.SUCCESS: "failures",
    blocks.GOOD_FRACTION: "requests outside the SLO",
    blocks.GOODPUT: "goodput",
    SERVED.metric: "requests refused as wrong",
}


def with_reason(row: GateRow, check: Check, is_shown: bool, is_thin: bool) -> GateRow:
    head = f"{row.tenant}, {bucket_words(row.bucket)}, {what(check)}"
    return replace(row, reason=f"{head}: {_finding(row, check, is_shown, is_thin)}")


def bucket_words(name: str) -> str:
    """A length bucket in words."""
    return f"{name} tokens"


def what(check: Check) -> str:
    """A check in words: `TTFT P99`."""
    name = _NAMES.get(check.metric, check.metric)
    return f"{name} P{check.quantile * 100:g}" if check.quantile is not None else name


def amount(value: float | None, check: Check) -> str:
    """A latency with its unit, or a share in percent."""
    if value is None:
        return "?"
    if check.metric not in blocks.LATENCIES:
        return f"{value:.2%}"
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"


def _finding(row: GateRow, check: Check, is_shown: bool, is_thin: bool) -> str:
    after = f"after {row.n_candidate} request{'' if row.n_candidate == 1 else 's'}"
    if not is_shown:
        return "no traffic"
    if row.hold is HoldReason.UNMEASURED:
        return "the metric is unknown for more than 5 % of the requests; without it nothing is proven"
    if row.hold is HoldReason.NO_BASELINE:
        return "stable's threshold is not known yet; it needs 300 requests, or 10 minutes, of stable"
    if row.verdict is Result.INCONCLUSIVE and row.n_candidate == 0:
        return "the candidate has no request that counts here"
    if row.verdict is Result.INCONCLUSIVE and row.n_stable == 0 and check.kind.is_relative:
        return "stable has no request that counts here, so nothing can be compared"
    span = _span(row, check)
    if row.verdict is Result.FAIL:
        return f"candidate {span}, {after}"
    if row.verdict is Result.PASS and is_thin:
        return f"passes with its tenant, too thin to prove it alone: candidate {span}, {after}"
    if row.verdict is Result.PASS:
        return f"within bounds, candidate {span}, {after}"
    more = "" if row.needed_requests is None else f"; about {row.needed_requests} more requests needed"
    state = "likely beyond the limit, not proven yet" if _is_beyond(row, check) else "undecided"
    return f"{state}, candidate {span}, {after}{more}"


def _is_beyond(row: GateRow, check: Check) -> bool:
    """Whether the interval of an open row lies above its limit: alone it would be a breach, among all checks it is not
    proven.
    """
    if check.kind is CheckKind.QUANTILE_REL:
        return row.ratio_low is not None and row.ratio_low > 1.0 + (check.margin or 0.0)
    is_limit = check.kind in (CheckKind.QUANTILE_ABS, CheckKind.BAD_ABS)
    return is_limit and row.low is not None and row.limit is not None and row.low > row.limit


def _span(row: GateRow, check: Check) -> str:
    """`1.9-2.6x stable, limit 1.25x` or `2.1 s to 3.4 s, limit 2 s`."""
    if check.kind.is_relative:
        bounds = [None if r is None else f"{r:.2f}x" for r in (row.ratio_low, row.ratio_high)]
        limit = f"{1 + (check.margin or 0.0):g}x"
        if check.kind is CheckKind.GOODPUT_REL:
            limit = f"at least {1 - (check.margin or 0.0):g}x"
        elif check.kind is CheckKind.BAD_REL:
            limit = amount(row.limit, check)
        of_stable = "" if bounds == [None, None] else " stable"
        return f"{between(bounds[0], bounds[1])}{of_stable}, limit {limit}"
    is_share = check.metric not in blocks.LATENCIES
    low = None if row.low is None or (is_share and row.low <= 0.0) else amount(row.low, check)
    high = None if row.high is None or (is_share and row.high >= 1.0) else amount(row.high, check)
    return f"{between(low, high)}, limit {amount(row.limit, check)}"


def between(low: str | None, high: str | None) -> str:
    """An interval in words; None = no bound on that side."""
    if low is None and high is None:
        return "not bounded yet"
    if low is None:
        return f"at most {high}"
    return f"at least {low}" if high is None else f"{low} to {high}"
