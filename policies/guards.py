"""Comparability: is the candidate doing the same work as stable? Where not, latencies must not be compared, and the
step holds.

Each guard is a two-sided test of one kind of event (cancelled, refused, long answer, long prompt) between the arms,
under continuous looking, with the same banks as the gates; it never rolls back. Called by the judge at every block.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies import blocks
from policies.blocks import Block, Cell
from policies.projection import Counts, Strata, judged
from policies.records import CANDIDATE
from policies.sequential import FAIL_FACTORS, PASS_FACTORS, Array
from policies.track import Track
from policies.verdict import Hold, HoldReason


@dataclass(frozen=True, slots=True)
class GuardKind:
    """What one guard watches.

    bound: for `relative` guards how much the event's rate may differ between the arms, in either direction; for the
    others the share that an arm must exceed, and the other arm not, to be a shift. live_only: copies do not count.
    """

    name: str
    reason: HoldReason
    bound: float
    relative: bool
    live_only: bool
    words: str

    @property
    def is_work(self) -> bool:
        """Whether it says that the arms did other work (not that clients or the engine refused some)."""
        return self.name in ("output", "prompt")


def guard_kinds(cancel_share: float, refused_share: float, counts_cancelled: bool) -> tuple[GuardKind, ...]:
    """The guards of an attempt; the one on cancels is off where the policy counts cancelled requests as attempted."""
    rejected, output, prompt = HoldReason.REJECT_SHIFT, HoldReason.OUTPUT_LENGTH_SHIFT, HoldReason.PROMPT_MIX_SHIFT
    kinds = [
        GuardKind("rejected", rejected, refused_share + 0.02, False, False, "requests refused as wrong"),
        GuardKind("output", output, 1.15, True, False, "answers longer than stable's median"),
        GuardKind("prompt", prompt, 1.15, True, False, "prompts longer than stable's median"),
    ]
    if not counts_cancelled:
        words = "requests cancelled by clients"
        kinds.insert(0, GuardKind("cancelled", HoldReason.CANCEL_SHIFT, cancel_share + 0.02, False, True, words))
    return tuple(kinds)


class Guard:
    """Both directions of one guard."""

    def __init__(self, kind: GuardKind, strata: Strata, cap: float, plan_blocks: int, phi_floor: float) -> None:
        self.kind = kind
        null = np.full(strata.size, kind.bound)

        def make() -> Track:
            factors = (FAIL_FACTORS, PASS_FACTORS)
            return Track(strata, null, kind.relative, cap, plan_blocks, phi_floor, {}, {}, *factors, has_pass=False)

        self.more, self.fewer = make(), make()

    def step(self, counts: Counts, groups: Any) -> None:
        """One closed block."""
        self.more.step(counts, groups)
        self.fewer.step(Counts(counts.n_b, counts.k_b, counts.n_c, counts.k_c), groups)

    def grow(self, before: tuple[int, int, int], size: int) -> None:
        for track in (self.more, self.fewer):
            track.grow(before, np.full(size, self.kind.bound))

    def evidence(self, weights: Array) -> tuple[float, float]:
        """Weighted e-values of "more on the candidate" and "fewer on the candidate"."""
        rest = 1.0 - float(weights.sum())
        return tuple(float(weights @ t.fail_evidence()) + rest for t in (self.more, self.fewer))  # type: ignore[return-value]

    def shares(self) -> tuple[float, float]:
        """Observed shares (candidate, stable) over all strata."""
        t = self.more.total
        return tuple(float(k.sum() / max(n.sum(), 1.0)) for k, n in ((t.k_c, t.n_c), (t.k_b, t.n_b)))  # type: ignore[return-value]

    def state(self) -> dict[str, Any]:
        return {"more": self.more.state(), "fewer": self.fewer.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.more.load(state["more"])
        self.fewer.load(state["fewer"])


def guard_counts(
    block: Block, strata: Strata, kinds: tuple[GuardKind, ...], medians: Mapping[int, Mapping[str, int]]
) -> list[Counts]:
    """Counts per guard; `medians[stratum][metric]` are sketch indices, strata without them take no part."""
    found = [Counts.zeros(strata.size) for _ in kinds]
    for cell in judged(block):
        place = strata.get((cell.tenant, cell.bucket))
        assert place is not None
        for number, kind in enumerate(kinds):
            if kind.live_only and cell.kind not in ("live", "replay"):
                continue
            n, k = _events(cell, kind.name, medians.get(place, {}))
            if n:
                into_n, into_k = found[number].arm(cell.variant)
                into_n[place] += n
                into_k[place] += k
    return found


def _events(cell: Cell, name: str, medians: Mapping[str, int]) -> tuple[int, int]:
    if name in ("cancelled", "rejected"):
        n = sum(count for outcome, count in cell.outcomes.items() if outcome != "open")
        return n, cell.outcomes.get("cancelled" if name == "cancelled" else "client_error", 0)
    metric = blocks.OUTPUT_TOKENS if name == "output" else blocks.PROMPT_TOKENS
    counts, median = cell.metrics.get(metric), medians.get(metric)
    if counts is None or median is None:
        return 0, 0
    return counts.n, sum(count for index, count in counts.bins.items() if index > median)


def floor_holds(tpot_s: Array, is_candidate: NDArray[np.bool_], floor_s: float | None) -> list[Hold]:
    """Arms whose median time per token is below what the accelerator needs to read the weights once (the ledger's step
    floor): tokens are counted twice, or several come out of one step and the floor is to be divided.
    """
    found = []
    for arm, mask in (("candidate", is_candidate), ("stable", ~is_candidate)):
        values = tpot_s[mask & ~np.isnan(tpot_s)]
        if floor_s is None or not len(values) or (median := float(np.median(values))) >= floor_s:
            continue
        words = f"{arm}'s median time per token is {median * 1e3:.3g} ms, the floor {floor_s * 1e3:.3g} ms"
        why = "tokens are counted twice, or several come out of one step (then divide the floor)"
        found.append(Hold(HoldReason.IMPLAUSIBLE, f"{words}: {why}"))
    return found


UNIT_RATIO = 100.0
"""Medians this far apart are taken for a mistake of units, not for a change."""
_LEAST_FOR_UNITS = 20


def unit_holds(latencies: Mapping[str, Array], is_candidate: NDArray[np.bool_]) -> list[Hold]:
    """Latencies (seconds, NaN = unknown) whose medians lie a hundredfold apart: one arm was written in milliseconds."""
    found = []
    for metric, values in latencies.items():
        arms = [values[mask & ~np.isnan(values)] for mask in (is_candidate, ~is_candidate)]
        if min(len(arm) for arm in arms) < _LEAST_FOR_UNITS:
            continue
        c, s = (float(np.median(arm)) for arm in arms)
        if max(c, s) < UNIT_RATIO * min(c, s):
            continue
        words = f"the median {metric} is {c:.3g} s on the candidate and {s:.3g} s on stable"
        found.append(Hold(HoldReason.IMPLAUSIBLE, f"{words}: are both in seconds?", metric=metric))
    return found


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Prompt tokens that an arm looked up in its prefix cache in the time judged, and how many it found there."""

    hits: float
    queries: float

    @property
    def share(self) -> float | None:
        """Hit rate; None for too few tokens to say."""
        return self.hits / self.queries if self.queries >= _LEAST_CACHE_TOKENS else None


_LEAST_CACHE_TOKENS = 10_000.0


def cache_hold(stable: CacheUse, candidate: CacheUse, tolerance: float = 0.1) -> Hold | None:
    """Why latencies are not comparable: the arms found different shares of their prompts in the prefix cache (points).

    An arm that skips prefill does less work; a new candidate starts cold and gets slower numbers than it deserves.
    """
    theirs, ours = stable.share, candidate.share
    if theirs is None or ours is None or abs(ours - theirs) <= tolerance:
        return None
    words = f"prefix cache hits: {ours:.0%} of the candidate's prompt tokens, {theirs:.0%} of stable's"
    remedy = "wait until it is warm" if ours < theirs else "did it get the same prompts?"
    return Hold(HoldReason.CACHE_WARMTH, f"{words}: other work is done; {remedy}")


def uneven_tenants(routed: Mapping[tuple[str, str], int], tolerance: float = 0.15) -> list[tuple[str, float, float]]:
    """Tenants whose share differs between the arms by more than `tolerance` and by more than chance: (tenant,
    candidate, stable).

    routed: requests that started, by (variant, tenant).
    """
    totals: dict[str, int] = {}
    for (variant, _), count in routed.items():
        totals[variant] = totals.get(variant, 0) + count
    candidate = totals.pop(CANDIDATE, 0)
    stable = sum(totals.values())
    if not candidate or not stable:
        return []
    found = []
    for tenant in sorted({t for _, t in routed}):
        c = routed.get((CANDIDATE, tenant), 0) / candidate
        s = sum(v for (variant, t), v in routed.items() if t == tenant and variant != CANDIDATE) / stable
        p = (c * candidate + s * stable) / (candidate + stable)
        noise = 4.0 * float(np.sqrt(p * (1 - p) * (1 / candidate + 1 / stable)))
        if abs(c - s) > max(tolerance * s, noise):
            found.append((tenant, c, s))
    return found
