"""Closed time blocks: what the recorder hands to the judge and what the store keeps.

A block is the only input of the judge's evidence; its JSON form is stable and compact (additive changes only).
Written by the block builder, read by the judge, the store, the dashboard. Thresholds are whole microseconds, so that
a user's limit is exact.

Every request is attributed once per threshold: an exceedance at the moment the threshold was crossed, anything else
at completion. So for threshold `t` of metric `m` in one cell: exceedances k = `over[t]`, requests n = `below[t] +
over[t]`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import orjson

from policies import histogram

TTFT = "ttft"
TPOT = "tpot"
MAX_GAP = "maxGap"
E2E = "e2e"
SUCCESS = "success"
GOOD_FRACTION = "goodFraction"
GOODPUT = "goodput"
PROMPT_TOKENS = "promptTokens"
OUTPUT_TOKENS = "outputTokens"

LATENCIES = (TTFT, TPOT, MAX_GAP, E2E)
"""Metrics with thresholds in time; counted per threshold and in the sketch (seconds)."""

BINARY = 0
"""Threshold key of goodFraction and goodput: `over[0]` counts requests that are not good, `below[0]` good ones."""


def threshold_us(seconds: float) -> int:
    """Key of a threshold: whole microseconds."""
    return round(seconds * 1e6)


@dataclass(frozen=True, slots=True)
class MetricCounts:
    """Counts of one metric in one cell of one block.

    n: completions with a known value; bins: their sketch (seconds, or tokens); over / below: requests above / at or
    below each threshold (keys in microseconds, see the module); unknown: completions whose value could not be known.
    """

    n: int = 0
    bins: Mapping[int, int] = field(default_factory=dict)
    over: Mapping[int, int] = field(default_factory=dict)
    below: Mapping[int, int] = field(default_factory=dict)
    unknown: int = 0

    def counts(self, key: int) -> tuple[int, int]:
        """(n, k) at a threshold that was counted at the source, else read from the sketch with FAIL counts low."""
        if key in self.over or key in self.below:
            k = self.over.get(key, 0)
            return self.below.get(key, 0) + k, k
        low, _ = histogram.count_above_bounds(self.bins, key / 1e6)
        return self.n, low

    def to_list(self) -> list[Any]:
        keys = sorted(self.over.keys() | self.below.keys())
        counted = [[key, self.below.get(key, 0), self.over.get(key, 0)] for key in keys]
        return [self.n, self.unknown, counted, [x for i in sorted(self.bins) for x in (i, self.bins[i])]]

    @staticmethod
    def from_list(raw: list[Any]) -> "MetricCounts":
        n, unknown, counted, flat = raw
        return MetricCounts(
            n=n,
            bins=dict(zip(flat[::2], flat[1::2], strict=True)),
            over={key: over for key, _, over in counted if over},
            below={key: below for key, below, _ in counted if below},
            unknown=unknown,
        )


@dataclass(frozen=True, slots=True)
class Cell:
    """One variant x revision x kind x tenant x bucket x pod within a block.

    bucket "" = the request belongs to its tenant and to the whole, but to no stratum. half: 0 or 1 by hash of the
    request id while the variant has a single pod (for the A/A split), else -1. routed: requests that started in the
    block.
    """

    variant: str
    revision: str
    kind: str
    tenant: str
    bucket: str
    pod: str
    half: int = -1
    routed: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, MetricCounts] = field(default_factory=dict)

    def to_list(self) -> list[Any]:
        head = [self.variant, self.revision, self.kind, self.tenant, self.bucket, self.pod, self.half, self.routed]
        return [*head, dict(self.outcomes), {name: m.to_list() for name, m in self.metrics.items()}]

    @staticmethod
    def from_list(raw: list[Any]) -> "Cell":
        variant, revision, kind, tenant, bucket, pod, half, routed, outcomes, metrics = raw
        counts = {name: MetricCounts.from_list(m) for name, m in metrics.items()}
        return Cell(variant, revision, kind, tenant, bucket, pod, half, routed, outcomes, counts)


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Resolved pairs (a live request and its copy) of one stratum, metric and threshold pair in one block.

    The stable member exceeds when above `stable_us`, the candidate's when above `candidate_us`.
    """

    tenant: str
    bucket: str
    metric: str
    stable_us: int
    candidate_us: int
    both: int = 0
    only_candidate: int = 0
    only_stable: int = 0
    neither: int = 0
    moments: tuple[
        float, ...
    ] = ()  # of pairs with both values: count, sums of x, y, xx, yy, xy; x, y = log of stable, candidate

    def to_list(self) -> list[Any]:
        where = [self.tenant, self.bucket, self.metric, self.stable_us, self.candidate_us]
        return [*where, self.both, self.only_candidate, self.only_stable, self.neither, list(self.moments)]

    @staticmethod
    def from_list(raw: list[Any]) -> "PairCounts":
        moments = tuple(raw[9]) if len(raw) > 9 else ()  # blocks of the first release have none
        return replace(PairCounts(*raw[:9]), moments=moments)


@dataclass(frozen=True, slots=True)
class Block:
    """One closed block of an attempt.

    seq: numbered from 0 without holes, in order of time; start_s / end_s: Unix seconds; missing: variants whose
    metering was interrupted in the block (its counts of them are not evidence); late: entries that belong to an
    earlier, closed block and are counted here; dropped: requests left out, by reason (`warmup`, `duplicate`,
    `pooledTenants`, ...); stored: read back from the store, not from the recorder; stage / weight: what the data plane
    stated for the requests that started under this step (`shadow`, `canary`, `ramp`, `bake`, `idle`, ...; percent).
    """

    seq: int
    rollout: str
    attempt: int
    step: int
    start_s: float
    end_s: float
    cells: tuple[Cell, ...] = ()
    pairs: tuple[PairCounts, ...] = ()
    missing: tuple[str, ...] = ()
    late: int = 0
    stored: bool = False
    dropped: Mapping[str, int] = field(default_factory=dict)
    stage: str = ""
    weight: int = 0

    def to_json(self) -> bytes:
        """Compact JSON; the same block gives the same bytes."""
        return orjson.dumps(
            {
                "v": 1,
                "seq": self.seq,
                "rollout": self.rollout,
                "attempt": self.attempt,
                "step": self.step,
                "stage": self.stage,
                "weight": self.weight,
                "start_s": self.start_s,
                "end_s": self.end_s,
                "missing": list(self.missing),
                "late": self.late,
                "stored": self.stored,
                "dropped": dict(self.dropped),
                "cells": [c.to_list() for c in self.cells],
                "pairs": [p.to_list() for p in self.pairs],
            },
            option=orjson.OPT_SORT_KEYS,
        )

    @staticmethod
    def from_json(raw: bytes | str) -> "Block":
        """Inverse of `to_json`; ValueError for another schema version."""
        return Block.from_mapping(orjson.loads(raw))

    @staticmethod
    def from_mapping(raw: Mapping[str, Any]) -> "Block":
        """A block from decoded JSON; ValueError for another schema version."""
        data = dict(raw)
        if data.pop("v", None) != 1:
            raise ValueError("this block was written in another schema version; read it with the release that wrote it")
        cells = tuple(Cell.from_list(c) for c in data.pop("cells"))
        pairs = tuple(PairCounts.from_list(p) for p in data.pop("pairs"))
        return Block(cells=cells, pairs=pairs, missing=tuple(data.pop("missing")), **data)


Thresholds: TypeAlias = Mapping[tuple[str, str, str], tuple[int, ...]]
"""(tenant, bucket, metric) -> threshold keys in microseconds, to be counted at the source from the next block on.

A tenant or bucket "*" stands for all: limits of the policy apply to every stratum before any history exists.
"""
