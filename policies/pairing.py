"""Joins the two members of a pair (a live request and its copy) and counts concordant and discordant exceedances.

Used by the block builder only. A pair counts once, in the block in which its second member is known; members that
never meet are forgotten after a while (they still count in the unpaired test).
"""

from collections.abc import Mapping

from policies.blocks import LATENCIES, PairCounts
from policies.records import CANDIDATE, RequestRecord

PairThresholds = Mapping[tuple[str, str, str], tuple[tuple[int, int], ...]]
_Values = tuple[tuple[float, bool] | None, ...]
_WAIT_S = 900.0


class Pairing:
    """Open halves of pairs and the counts of the pairs that were completed since `take`."""

    def __init__(self) -> None:
        self._thresholds: dict[tuple[str, str, str], tuple[tuple[int, int], ...]] = {}
        self._waiting: dict[str, tuple[bool, _Values, float]] = {}
        self._counts: dict[tuple[str, str, str, int, int], list[int]] = {}

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
            for stable_us, candidate_us in self._thresholds.get((tenant, bucket, metric), ()):
                over_s, over_c = s[0] > stable_us / 1e6, c[0] > candidate_us / 1e6
                if not ((over_s or s[1]) and (over_c or c[1])):
                    continue  # a lower bound below the threshold says nothing
                place = (tenant, bucket, metric, stable_us, candidate_us)
                counts = self._counts.setdefault(place, [0, 0, 0, 0])
                counts[0 if over_s and over_c else 1 if over_c else 2 if over_s else 3] += 1

    def take(self, now_s: float | None = None) -> tuple[PairCounts, ...]:
        """The counts since the last call, in a stable order; halves that waited too long are forgotten."""
        found = tuple(PairCounts(*place, *self._counts[place]) for place in sorted(self._counts))
        self._counts = {}
        if now_s is not None:
            old = [key for key, (_, _, since) in self._waiting.items() if now_s - since > _WAIT_S]
            for key in old:
                del self._waiting[key]
        return found
