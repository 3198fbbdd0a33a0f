"""Blocks over the columns of requests: all counts of a stretch of time at once, as the streaming builder gives them one
by one.

Called by `offline`. A test holds the two paths equal on the same records. Memory: about 150 bytes per record.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from policies import blocks
from policies.blocks import Block, Cell, MetricCounts
from policies.columns import OUTCOME_CODE, Bools, Requests
from policies.contract import SERVED, Check, CheckKind, Contract
from policies.guards import GuardKind
from policies.histogram import bin_indices
from policies.projection import Counts, Ints, Keys, Projected
from policies.record_files import OUTCOMES
from policies.records import CANDIDATE, STABLE
from policies.sequential import Array

MAX_CELLS = 4_000_000  # blocks x strata of one file: about 2 GB


class TooLarge(ValueError):
    """A file of more time and more strata than a step can have."""


class Frame:
    """Blocks of a stretch of time over `Requests`: all counts at once, float64[blocks, strata]."""

    def __init__(self, requests: Requests, start_s: float, end_s: float, block_s: float) -> None:
        self.r, self.start_s, self.block_s = requests, start_s, block_s
        self.count = max(1, int(np.ceil((end_s - start_s) / block_s - 1e-9)))
        if self.count * requests.strata.size > MAX_CELLS:
            words = f"{(end_s - start_s) / 3600:.0f} h of {requests.strata.size} strata are too many for one step"
            raise TooLarge(words)
        self.inside: Bools = (requests.start >= start_s) & (requests.start < end_s)
        self.end_block = self.block_of(requests.end)

    def block_of(self, times: Array) -> Ints:
        """Block of each moment; what lies beyond the last block is counted in none (the number `count`)."""
        index = np.floor((np.nan_to_num(times, nan=0.0) - self.start_s) / self.block_s)
        return np.clip(index, 0, self.count).astype(np.int64)

    def table(self, mask: Bools, block: Ints) -> Array:
        """Number of masked records by block and stratum."""
        mask = mask & (block < self.count)
        size = self.r.strata.size
        flat = np.bincount(block[mask] * size + self.r.stratum[mask], minlength=self.count * size)
        return np.asarray(flat.reshape(self.count, size), dtype=np.float64)

    def latency(self, metric: str, thresholds: Array, mask: Bools) -> tuple[Array, Array]:
        """(n, k) tables of a latency against a threshold per stratum in seconds (NaN = not counted)."""
        reading = self.r.readings[metric]
        limit = thresholds[self.r.stratum]
        known = np.where(np.isnan(reading.value), reading.bound, reading.value)
        over = mask & (known > limit)
        below = mask & (reading.value <= limit)
        at = np.where(np.isnan(reading.base), self.r.end, self.r.start + reading.base + limit)
        k = self.table(over, self.block_of(at))
        return self.table(below, self.end_block) + k, k

    def check(self, check: Check, keys: Ints, mask: Bools) -> tuple[Array, Array]:
        """(n, k) tables of a check in one arm; `keys` are thresholds per stratum in microseconds, -1 = none."""
        r = self.r
        if check.metric in blocks.LATENCIES:
            return self.latency(check.metric, np.where(keys >= 0, keys / 1e6, np.nan), mask)
        if check.metric in (blocks.SUCCESS, SERVED.metric):
            ok, refused = r.outcome == OUTCOME_CODE["ok"], r.outcome == OUTCOME_CODE["client_error"]
            attempted = np.isin(r.outcome, [OUTCOME_CODE[name] for name in r.contract.attempted])
            if check.metric == SERVED.metric:
                open_or_gone = (r.outcome == OUTCOME_CODE["open"]) | (r.outcome == OUTCOME_CODE["cancelled"])
                return self.table(mask & ~open_or_gone, self.end_block), self.table(mask & refused, self.end_block)
            n = self.table(mask & attempted, self.end_block)
            return n, n - self.table(mask & ok, self.end_block)
        counted = r.good_attempted if check.metric == blocks.GOOD_FRACTION else np.ones(len(r.start), dtype=bool)
        good = self.table(mask & counted & r.good, self.end_block)
        bad = self.table(mask & counted & r.bad, self.block_of(r.bad_at))
        return good + bad, good if check.kind is CheckKind.GOODPUT_REL else bad

    def guard(self, kind: GuardKind, medians: Mapping[str, Array], mask: Bools) -> tuple[Array, Array]:
        """(n, k) tables of a comparability guard in one arm.

        Medians[metric][stratum] are sketch indices (NaN = none).
        """
        r = self.r
        mask = mask & r.is_live if kind.live_only else mask
        if kind.name in ("cancelled", "rejected"):
            code = OUTCOME_CODE["cancelled" if kind.name == "cancelled" else "client_error"]
            n = self.table(mask & (r.outcome != OUTCOME_CODE["open"]), self.end_block)
            return n, self.table(mask & (r.outcome == code), self.end_block)
        values = r.tokens if kind.name == "output" else r.prompt
        metric = blocks.OUTPUT_TOKENS if kind.name == "output" else blocks.PROMPT_TOKENS
        median = medians[metric][r.stratum]
        mask = mask & (r.outcome == OUTCOME_CODE["ok"]) & ~np.isnan(values) & ~np.isnan(median)
        index = bin_indices(np.nan_to_num(values, nan=1.0))
        with np.errstate(invalid="ignore"):
            return self.table(mask, self.end_block), self.table(mask & (index > median), self.end_block)

    def bins(self, metric: str, mask: Bools, until: int) -> dict[int, dict[int, int]]:
        """Sketches by stratum of what was completed before block `until`."""
        value = self.r.readings[metric].value
        mask = mask & (self.end_block < until) & ~np.isnan(value)
        index = bin_indices(value[mask]).astype(np.int64)
        code = self.r.stratum[mask] * 4096 + (index + 2048)
        unique, counts = np.unique(code, return_counts=True)
        found: dict[int, dict[int, int]] = {}
        for c, count in zip(unique.tolist(), counts.tolist(), strict=True):
            found.setdefault(c // 4096, {})[c % 4096 - 2048] = count
        return found

    def unknown(self, metric: str, mask: Bools) -> dict[int, dict[int, int]]:
        """Completions whose value could not be read, by block and stratum."""
        table = self.table(mask & self.r.readings[metric].unknown, self.end_block)
        found: dict[int, dict[int, int]] = {}
        for block, place in np.argwhere(table > 0).tolist():
            found.setdefault(block, {})[place] = int(table[block, place])
        return found


def projections(
    frame: Frame,
    checks: Sequence[Check],
    keys: Keys,
    kinds: Sequence[GuardKind],
    medians: Mapping[str, Array],
    ready_s: Sequence[Array],
) -> Iterator[Projected]:
    """Blocks as the judge takes them, without sketches (see `Frame.bins`).

    ready_s[check][stratum]: requests that start earlier are no evidence of that check (its threshold was not known
    yet).
    """
    r = frame.r
    arms = {STABLE: frame.inside & ~r.is_candidate, CANDIDATE: frame.inside & r.is_candidate}
    tables = []
    for number, check in enumerate(checks):
        since = r.start >= ready_s[number][r.stratum]
        pair = [frame.check(check, keys.arms[v][number], arms[v] & since) for v in (CANDIDATE, STABLE)]
        if (keys.tie_us[number] >= 0).any():
            _, tied = frame.check(check, keys.tie_us[number], arms[STABLE] & since)
            n, k = pair[1]
            pair[1] = n, k + keys.tie_share[number] * np.maximum(0.0, tied - k)
        tables.append((*pair[0], *pair[1]))
    guards = []
    for kind in kinds:
        pair = [frame.guard(kind, medians, arms[v]) for v in (CANDIDATE, STABLE)]
        guards.append((*pair[0], *pair[1]))
    everything = np.ones(len(r.start), dtype=bool)
    finished = {v: frame.table(arms[v] & everything, frame.end_block) for v in arms}
    started = {v: frame.table(arms[v], frame.block_of(r.start)) for v in arms}
    unknown = {(v, metric): frame.unknown(metric, arms[v]) for v in arms for metric in blocks.LATENCIES}
    for u in range(frame.count):
        routed: dict[tuple[str, str], int] = {}
        for variant, table in started.items():
            per_tenant = np.bincount(r.strata.tenant_of, weights=table[u], minlength=len(r.strata.tenants))
            routed.update({(variant, t): int(c) for t, c in zip(r.strata.tenants, per_tenant, strict=True) if c})
        yield Projected(
            seq=u,
            start_s=frame.start_s + u * frame.block_s,
            end_s=frame.start_s + (u + 1) * frame.block_s,
            counts=[Counts(*(a[u].copy() for a in four)) for four in tables],
            guards=[Counts(*(a[u].copy() for a in four)) for four in guards],
            finished={v: table[u] for v, table in finished.items()},
            routed=routed,
            bins={},
            unknown={
                (v, place, metric): count
                for (v, metric), found in unknown.items()
                for place, count in found.get(u, {}).items()
            },
        )


def stable_blocks(contract: Contract, requests: Requests, start_s: float, end_s: float, counted: Bools) -> list[Block]:
    """History blocks of stable (for `history.prepare`), by pod; sketches only, because no threshold exists yet."""
    frame = Frame(requests, start_s, end_s, contract.block_s)
    r = requests
    mask = counted & frame.inside & ~r.is_candidate & (frame.end_block < frame.count)
    names = sorted({r.sources[s][5] for s in np.unique(r.source[mask])})
    pods = [f"half-{i}" for i in range(min(2, len(names)))]  # dealt as the A/A comparison deals them
    deal = {name: i % 2 for i, name in enumerate(names)}
    pod_code = np.array([deal.get(s[5], 0) for s in r.sources] or [0], dtype=np.int64)
    half = r.half if len(pods) == 1 else np.full(len(r.half), -1)
    cell = (r.stratum * max(1, len(pods)) + pod_code[r.source]) * 3 + (half + 1) if len(r.source) else r.stratum
    groups = _CellCounts(frame, mask, cell)
    tables = {m: groups.bins(r.readings[m].value) for m in blocks.LATENCIES}
    tables[blocks.PROMPT_TOKENS] = groups.bins(np.where(r.outcome == OUTCOME_CODE["ok"], r.prompt, np.nan))
    tables[blocks.OUTPUT_TOKENS] = groups.bins(np.where(r.outcome == OUTCOME_CODE["ok"], r.tokens, np.nan))
    outcomes = groups.codes(r.outcome)
    every = np.ones(len(r.start), dtype=bool)
    good = {
        metric: (groups.codes((counted & r.good).astype(np.int64)), groups.codes((counted & r.bad).astype(np.int64)))
        for metric, counted in ((blocks.GOOD_FRACTION, r.good_attempted), (blocks.GOODPUT, every))
    }
    found = []
    for u in range(frame.count):
        cells = []
        for code in sorted(outcomes.get(u, {})):
            tenant, bucket = r.strata.names[code // 3 // max(1, len(pods))]
            pod = pods[code // 3 % max(1, len(pods))]
            ends = {OUTCOMES[o]: n for o, n in outcomes[u][code].items()}
            metrics = {
                m: MetricCounts(n=sum(bins[u][code].values()), bins=bins[u][code])
                for m, bins in tables.items()
                if code in bins.get(u, {})
            }
            for metric, (yes, no) in good.items():
                below, over = yes[u][code].get(1, 0), no[u][code].get(1, 0)
                if below or over:
                    metrics[metric] = MetricCounts(
                        n=below,
                        over={blocks.BINARY: over} if over else {},
                        below={blocks.BINARY: below} if below else {},
                    )
            routed = sum(ends.values())
            cells.append(Cell(STABLE, "", "live", tenant, bucket, pod, code % 3 - 1, routed, ends, metrics))
        begin = start_s + u * contract.block_s
        found.append(Block(u, "", 0, 0, begin, begin + contract.block_s, tuple(cells)))
    return found


class _CellCounts:
    """Counts by block and cell as nested dictionaries."""

    def __init__(self, frame: Frame, mask: Bools, cell: Ints) -> None:
        self.mask, self.block, self.cell = mask, frame.end_block, cell

    def codes(self, codes: Ints) -> dict[int, dict[int, dict[int, int]]]:
        return self._nest(codes, self.mask)

    def bins(self, values: Array) -> dict[int, dict[int, dict[int, int]]]:
        mask = self.mask & ~np.isnan(values)
        return self._nest(bin_indices(np.nan_to_num(values, nan=1.0)).astype(np.int64), mask)

    def _nest(self, codes: Ints, mask: Bools) -> dict[int, dict[int, dict[int, int]]]:
        rows = np.stack([self.block[mask], self.cell[mask], codes[mask]], axis=1)
        unique, counts = np.unique(rows, axis=0, return_counts=True)
        found: dict[int, dict[int, dict[int, int]]] = {}
        for (u, cell, code), count in zip(unique.tolist(), counts.tolist(), strict=True):
            found.setdefault(u, {}).setdefault(cell, {})[code] = count
        return found
