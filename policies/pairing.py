"""Joins the two members of a pair (a live request and its copy) and counts concordant and discordant exceedances.

Used by the block builder only. A pair counts once, in the block in which its second member is known; members that
never meet are forgotten after a while (they still count in the unpaired test).
"""

import math
from collections.abc import Mapping

from policies.blocks import LATENCIES, PairCounts
from policies.records import CANDIDATE, RequestRecord

PairThresholds = Mapping[tuple[str, str, str], tuple[tuple[int, int], ...]]
_Values = tuple[tuple[float, bool] | None, ...]
_WAIT_S = 900.0


def _moments(stable: tuple[float, bool], candidate: tuple[float, bool]) -> tuple[float, ...] | None:
    """(1, x, y, xx, yy, xy) of log latencies; None unless both are exact and positive."""
    if not (stable[1] and candidate[1]) or stable[0] <= 0 or candidate[0] <= 0:
        return None
    x, y = math.log(stable[0]), math.log(candidate[0])
    return 1.0, x, y, x * x, y * y, x * y


class Pairing:
    """Open halves of pairs and the counts of the pairs that were completed since `take`."""

    def __init__(self) -> None:
        self._thresholds: dict[tuple[str, str, str], tuple[tuple[int, int], ...]] = {}
        self._waiting: dict[str, tuple[bool, _Values, float]] = {}
        self._counts: dict[tuple[str, str, str, int, int], list[int]] = {}
        self._sums: dict[tuple[str, str, str, int, int], list[float]] = {}

    def set_thresholds(self, pairs: PairThresholds) -> None:
        """Count these (stable, candidate) threshold pairs from now on; without any, nothing is joined."""
        self._thresholds = dict(pairs)
        if not pairs:
            self._waiting.clear()

    def add(self, record: RequestRecord, tenant: str, bucket: str, values: _Values, now_s: float) -> None:
        """One finished member; `values` (reached, is exact) in the order of LATENCIES, None = not known."""
        if not self._thresholds:
            return
        key = record.pair or record.id
        is_candidate = record.variant == CANDIDATE
        other = self._waiting.get(key)
        if other is None or other[0] == is_candidate:
            self._waiting[key] = (is_candidate, values, now_s)
            return
        del self._waiting[key]
        stable, candidate = (other[1], values) if is_candidate else (values, other[1])
        for i, metric in enumerate(LATENCIES):
            s, c = stable[i], candidate[i]
            if s is None or c is None:
                continue
            moments = _moments(s, c)
            for stable_us, candidate_us in self._thresholds.get((tenant, bucket, metric), ()):
                over_s, over_c = s[0] > stable_us / 1e6, c[0] > candidate_us / 1e6
                if not ((over_s or s[1]) and (over_c or c[1])):
                    continue  # a lower bound below the threshold says nothing
                place = (tenant, bucket, metric, stable_us, candidate_us)
                counts = self._counts.setdefault(place, [0, 0, 0, 0])
                counts[0 if over_s and over_c else 1 if over_c else 2 if over_s else 3] += 1
                if moments is not None:
                    sums = self._sums.setdefault(place, [0.0] * len(moments))
                    for k, value in enumerate(moments):
                        sums[k] += value

    def take(self, now_s: float | None = None) -> tuple[PairCounts, ...]:
        """The counts since the last call, in a stable order; halves that waited too long are forgotten."""
        found = []
        for place in sorted(self._counts):
            both, only_candidate, only_stable, neither = self._counts[place]
            moments = tuple(self._sums.get(place, ()))
            found.append(PairCounts(*place, both, only_candidate, only_stable, neither, moments))
        self._counts, self._sums = {}, {}
        if now_s is not None:
            old = [key for key, (_, _, since) in self._waiting.items() if now_s - since > _WAIT_S]
            for key in old:
                del self._waiting[key]
        return tuple(found)
