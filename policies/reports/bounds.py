"""What one look at a report can prove: bounds of percentiles and shares, and what in a report cannot be true.

Order statistics of independent requests, at the percentiles that the tool wrote (nothing is interpolated), with the
number of requests divided by phi, because a report says nothing about dependence.
"""

import math
from itertools import pairwise

from policies import blocks
from policies.intervals import clopper_pearson, order_statistic_ranks, requests_for_upper_bound
from policies.reports.summary import Summary

Bounds = tuple[float | None, float | None]


def implausible(summary: Summary) -> dict[str, str]:
    """What cannot be true, in words by metric: percentiles that fall, a time per token that does not add up."""
    found: dict[str, str] = {}
    for metric, values in summary.quantiles.items():
        if any(a[1] > b[1] * (1 + 1e-9) for a, b in pairwise(values)):
            found[metric] = "its percentiles fall where they must rise"
    ttft, tpot, e2e = (summary.means.get(name) for name in (blocks.TTFT, blocks.TPOT, blocks.E2E))
    if ttft is not None and e2e is not None and ttft > e2e * (1 + 1e-9):
        found[blocks.TTFT] = f"its mean of {ttft:.3g} s is longer than the whole request's {e2e:.3g} s"
    tokens = summary.output_tokens
    if ttft is not None and tpot is not None and e2e is not None and tokens is not None and tokens >= 2:
        total = ttft + tpot * (tokens - 1)
        if not 0.8 * e2e <= total <= 1.25 * e2e:
            words = f"TTFT + TPOT x (tokens - 1) = {total:.3g} s, but requests took {e2e:.3g} s"
            found.setdefault(blocks.TPOT, f"{words}: chunks or tokens are counted twice, or it is no time per token")
    return found


def below_floor(summary: Summary, floor_s: float) -> str | None:
    """Why a time per token is faster than the accelerator can be; None where it is not."""
    pace = dict(summary.quantiles.get(blocks.TPOT, ())).get(0.5, summary.means.get(blocks.TPOT))
    if pace is None or pace >= floor_s:
        return None
    words = f"half of the requests have less than {pace * 1e3:.3g} ms per token, the ledger's floor is"
    return f"{words} {floor_s * 1e3:.3g} ms: tokens are counted twice, or several come out of one step"


def quantile_bounds(summary: Summary, metric: str, q: float, alpha: float, phi: float = 1.0) -> Bounds:
    """Bounds of a percentile, `alpha` on each side, at percentiles that the tool wrote; None where there is none.

    Tools interpolate between neighbouring ranks or take one of them, so a written percentile stands between the two.
    """
    knots = summary.quantiles.get(metric, ())
    n = summary.succeeded
    effective = int(n / phi)
    if not knots or effective < 1:
        return None, None
    lower, upper = order_statistic_ranks(effective, q, alpha)
    least = None if lower is None else math.floor(lower * n / effective)
    most = None if upper is None else math.ceil(upper * n / effective)
    low = [v for p, v in knots if least is not None and math.ceil(p * (n - 1) + 1 - 1e-9) <= least]
    high = [v for p, v in knots if most is not None and math.floor(p * (n - 1) + 1 + 1e-9) >= most]
    return (max(low) if low else None), (min(high) if high else None)


def share_bounds(bad: int, n: int, alpha: float, phi: float = 1.0) -> Bounds:
    """Bounds of a share of bad requests, `alpha` on each side, on n / phi requests; None without requests."""
    return (None, None) if n < 1 else clopper_pearson(bad / phi, n / phi, alpha)


def fewest_requests(q: float, alpha: float, phi: float) -> int:
    """Requests below which a report has no upper bound of a percentile."""
    return math.ceil(requests_for_upper_bound(q, alpha) * phi)


def shifted(a: float | None, b: float | None, tolerance: float = 0.15) -> bool:
    """Whether two means differ by more than the tolerance; an unknown one does not."""
    return a is not None and b is not None and abs(b - a) > tolerance * a
