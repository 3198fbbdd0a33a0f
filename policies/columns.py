"""Requests of a record file as columns, mended and placed in strata: the same attribution as `attribution`, vectorised.

Called by `offline`; `frames` counts them in blocks.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies import blocks
from policies.contract import OTHER_TENANT, Contract
from policies.projection import Ints, Strata
from policies.record_files import OUTCOMES, Columns
from policies.records import CANDIDATE
from policies.sequential import Array

Bools = NDArray[np.bool_]
OUTCOME_CODE = {name: code for code, name in enumerate(OUTCOMES)}
LONGEST_GAP_S = 6 * 3600.0
SHORTEST_S = 1e-6  # the width of a threshold; an answer in less was not measured
MAX_TENANTS = 500  # beside the required ones, as in the streaming builder; the rest is pooled
_REACHED = np.array([name in ("truncated", "timeout", "cancelled", "open") for name in OUTCOMES])


@dataclass(slots=True)
class Reading:
    """One latency of every record: value or lower bound, NaN where there is none.

    Base: seconds before the crossing (NaN = at the end).
    """

    value: Array
    bound: Array
    base: Array
    unknown: Bools


class Requests:
    """All usable records of the input, in one frame of strata; made by `make_requests`.

    is_candidate, stratum, start, end, kind_live: per record; readings by latency metric; good / good_known /
    good_attempted / bad_at: the SLO's view; outcome codes. `dropped` counts what was left out.
    """

    def __init__(self, contract: Contract, columns: Columns, strata: Strata) -> None:
        self.contract, self.strata = contract, strata
        self.dropped: dict[str, int] = dict(columns.treated)
        source = columns.codes("source")
        table = _SourceTable(contract, columns, strata)
        keep = self._kept(columns, source, table)
        floats = {name: columns.floats(name)[keep] for name in ("t_start_s", "e2e_s", "ttft_s", "max_gap_s")}
        self.start: Array = floats["t_start_s"]
        self.ttft, self.e2e = floats["ttft_s"], floats["e2e_s"]
        self.gap, self.gap_at = floats["max_gap_s"], columns.floats("max_gap_at_s")[keep]
        self.gaps_n, self.tokens = columns.floats("gaps_n")[keep], columns.floats("output_tokens")[keep]
        self.prompt = columns.floats("prompt_tokens")[keep]
        self.outcome, self.stream = columns.codes("outcome")[keep], columns.codes("stream")[keep]
        self.half, self.pair, self.source = columns.codes("half")[keep], columns.codes("pair")[keep], source[keep]
        self.sources = columns.sources
        self._mend()
        self._drop("pooledTenants", table.is_pooled[self.source])
        self.is_candidate: Bools = table.is_candidate[self.source]
        self.is_live: Bools = table.is_live[self.source]
        self.stratum: Ints = table.strata_of(self.source, self.prompt)
        self.readings = self._readings()
        self._goodness()

    def _kept(self, columns: Columns, source: Ints, table: "_SourceTable") -> Ints:
        """Records that count: no duplicates (the first is kept), no probes, no warming pods, no ignored tenants."""
        ident = columns.codes("ident")
        _, first = np.unique(ident, return_index=True)
        keep = np.zeros(len(ident), dtype=bool)
        keep[first] = True
        self._drop("duplicate", ~keep)
        for reason, mask in (
            ("probe", table.is_probe[source]),
            ("warmup", columns.floats("pod_age_s") < self.contract.warmup_s),
            ("ignoredTenants", table.is_ignored[source]),
            ("badTime", out_of_time(columns.floats("t_start_s"))),
        ):
            self._drop(reason, keep & mask)
            keep &= ~mask
        return np.flatnonzero(keep)

    def _drop(self, reason: str, mask: Bools) -> None:
        count = int(mask.sum())
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + count

    def _mend(self) -> None:
        """Age of open requests at the last moment of the input; a first token after the end makes both unknown, an
        answer that took no time at all is one that was not measured, and one of more than six hours ends with the
        file.
        """
        for values in (self.ttft, self.e2e):
            instant = (values < SHORTEST_S) & (self.outcome == OUTCOME_CODE["ok"])
            self._drop("badNumber", instant)
            values[instant] = np.nan
        swapped = self.ttft > self.e2e
        self._drop("swappedTimes", swapped)
        self.ttft = np.where(swapped, np.nan, self.ttft)
        self.e2e = np.where(swapped, np.nan, self.e2e)
        age = np.where(np.isnan(self.e2e), np.where(np.isnan(self.ttft), 0.0, self.ttft), self.e2e)
        endless = age > LONGEST_GAP_S  # it stays an exceedance, but the file does not last so long
        self._drop("endless", endless)
        last = float((self.start + np.where(endless, 0.0, age)).max()) if len(age) else 0.0
        age = np.where(endless, last - self.start, age)
        is_open = (self.outcome == OUTCOME_CODE["open"]) & np.isnan(self.e2e)
        self.e2e = np.where(is_open, last - self.start, self.e2e)
        self.whole: Array = np.where(is_open, last - self.start, age)
        self.end: Array = self.start + self.whole

    def _readings(self) -> dict[str, Reading]:
        nothing = np.full(len(self.start), np.nan)
        zero = np.zeros(len(self.start))
        is_ok = self.outcome == OUTCOME_CODE["ok"]
        reached = _REACHED[self.outcome]
        counts = is_ok | reached
        streams = self.stream != 0
        with np.errstate(invalid="ignore", divide="ignore"):
            tpot = np.where(self.tokens >= 2, (self.e2e - self.ttft) / (self.tokens - 1), np.nan)
        has_first = ~np.isnan(self.ttft)
        bound = np.where(reached & ~has_first & streams, self.e2e, np.nan)
        ttft = Reading(np.where(counts, self.ttft, np.nan), bound, zero, is_ok & ~has_first & streams)
        pace = Reading(np.where(counts, tpot, np.nan), nothing, nothing, is_ok & np.isnan(tpot) & ~(self.tokens < 2))
        base = np.maximum(0.0, np.minimum(self.gap_at, self.whole) - self.gap)  # a gap ends with its request
        no_gap = is_ok & np.isnan(self.gap) & streams & ~(self.gaps_n == 0)
        gap = Reading(np.where(counts, self.gap, np.nan), nothing, base, no_gap)
        whole = Reading(
            np.where(is_ok, self.e2e, np.nan), np.where(reached, self.e2e, np.nan), zero, is_ok & np.isnan(self.e2e)
        )
        return {blocks.TTFT: ttft, blocks.TPOT: pace, blocks.MAX_GAP: gap, blocks.E2E: whole}

    def _goodness(self) -> None:
        n = len(self.start)
        over, unknown = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        crossed = np.full(n, np.nan)
        for metric, key in self.contract.slo_us.items():
            reading, limit = self.readings[metric], key / 1e6
            known = np.where(np.isnan(reading.value), reading.bound, reading.value)
            here = known > limit
            over |= here
            unknown |= ~here & np.isnan(known) & reading.unknown
            crossed = np.where(here, np.fmin(crossed, reading.base + limit), crossed)
        is_ok, is_open = self.outcome == OUTCOME_CODE["ok"], self.outcome == OUTCOME_CODE["open"]
        attempted = np.isin(self.outcome, [OUTCOME_CODE[name] for name in self.contract.attempted]) & ~is_open
        self.good: Bools = is_ok & ~over & ~unknown
        self.bad: Bools = over | (~is_ok & ~is_open)
        self.good_attempted: Bools = over | attempted
        self.bad_at: Array = self.start + np.where(np.isnan(crossed), self.end - self.start, crossed)


def out_of_time(start: Array) -> Bools:
    """Starts that a wrong clock or a wrong unit gave: more than six hours without any request lie between them and
    the bulk of the file.
    """
    if not len(start):
        return np.zeros(0, dtype=bool)
    order = np.argsort(start, kind="stable")
    group = np.zeros(len(start), dtype=np.int64)
    group[order] = np.concatenate([[0], np.cumsum(np.diff(start[order]) > LONGEST_GAP_S)])
    return np.asarray(group != np.argmax(np.bincount(group)))


class _SourceTable:
    """What the sources of a file mean under a contract: strata, arms, kinds."""

    def __init__(self, contract: Contract, columns: Columns, strata: Strata) -> None:
        self.contract, self.strata = contract, strata
        names = columns.sources
        self.is_candidate = np.array([s[0] == CANDIDATE for s in names], dtype=bool)
        self.is_live = np.array([s[2] in ("live", "replay") for s in names], dtype=bool)
        self.is_probe = np.array([s[2] == "probe" for s in names], dtype=bool)
        unnamed = dict.fromkeys(s[3] for s in names if s[3] not in contract.required)
        self._own = {*contract.required, *list(unnamed)[:MAX_TENANTS]}
        is_each = contract.other == "each"
        self.is_pooled = np.array([is_each and s[3] not in self._own for s in names], dtype=bool)
        tenants = [self._tenant(s[3]) for s in names]
        self.is_ignored = np.array([t is None for t in tenants], dtype=bool)
        self._tenants = [t or "" for t in tenants]
        self._fixed = [contract.bucket_names.index(s[4]) if s[4] in contract.bucket_names else -1 for s in names]

    def _tenant(self, name: str) -> str | None:
        if name in self.contract.required or (self.contract.other == "each" and name in self._own):
            return name
        return None if self.contract.other == "ignore" else OTHER_TENANT

    def strata_of(self, source: Ints, prompt: Array) -> Ints:
        """Stratum of every record; new strata are numbered in order of tenant and bucket."""
        edges = np.array(self.contract.bucket_edges, dtype=float)
        by_tokens = np.where(np.isnan(prompt), len(edges) + 1, np.searchsorted(edges, np.nan_to_num(prompt)))
        fixed = np.array(self._fixed, dtype=np.int64)[source]
        bucket = np.where(fixed >= 0, fixed, by_tokens).astype(np.int64)
        names = (*self.contract.bucket_names, "")
        code = source * len(names) + bucket
        unique, inverse = np.unique(code, return_inverse=True)
        places = [(self._tenants[int(c) // len(names)], names[int(c) % len(names)]) for c in unique]
        for place in sorted(set(places)):
            self.strata.index(place)
        self.strata.seal()
        numbers = np.array([self.strata.get(place) for place in places], dtype=np.int64)
        return np.asarray(numbers[inverse], dtype=np.int64)
