"""Reasons to stay at a weight that are not missing evidence of a gate: time, data, input, comparability.

Called by `Judge.holds`; reads the judge, changes nothing. What each reason means: docs/judge.md.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from policies.blocks import GOOD_FRACTION, GOODPUT, LATENCIES
from policies.contract import SERVED
from policies.guards import uneven_tenants
from policies.records import CANDIDATE, STABLE
from policies.rollback import strongest_stratum
from policies.rowwords import bucket_words, what
from policies.verdict import Hold, HoldReason

if TYPE_CHECKING:
    from policies.judge import Judge

WARN = 5.0
ENVIRONMENT = 20.0
COVER = 0.8
UNMEASURED_SHARE = 0.05
_OF_SLO = frozenset({GOOD_FRACTION, GOODPUT})
_IMPOSSIBLE = ("badNumber", "badTime", "unknownOutcome", "swappedTimes", "future")


def find_holds(judge: "Judge", now_s: float) -> list[Hold]:
    """Reasons to stay that are not missing evidence of a gate."""
    found = [*_of_time(judge, now_s), *_of_data(judge), *_of_comparison(judge)]
    if judge.fired is None and (evidence := judge.rollback_evidence()) >= WARN:
        found.append(_rising(judge, evidence))
    return found


def _rising(judge: "Judge", evidence: float) -> Hold:
    """Evidence of a breach on its way, and where most of it is."""
    check, (tenant, bucket) = strongest_stratum(judge)
    where = f"{tenant}, {bucket_words(bucket)}, {what(check)}" if bucket else f"{tenant}, {what(check)}"
    limit = 1.0 / judge.contract.alpha_rollback
    words = f"evidence of a breach is at {evidence:.1f} and rolls back at {limit:.0f}; most of it: {where}"
    return Hold(HoldReason.EVIDENCE_RISING, words, tenant, bucket, check.metric)


def _of_time(judge: "Judge", now_s: float) -> Iterable[Hold]:
    start_s = judge.step_start_s if judge.step_start_s is not None else now_s
    age = max(0.0, now_s - start_s)  # a clock that jumped back gives no negative age
    c = judge.contract
    if age < c.min_step_s or judge.blocks_in_step < c.min_blocks:
        whose = "both arms" if judge.setup.baseline else "the candidate"
        words = f"the step is {age:.0f} s old and has {judge.blocks_in_step} blocks with requests of {whose}"
        words += f"; it needs {c.min_step_s:.0f} s and {c.min_blocks} such blocks"
        yield Hold(HoldReason.MIN_STEP, words)
    silent = {v for v in (STABLE, CANDIDATE) if now_s - judge.last_data_s.get(v, start_s) > c.freshness_s}
    if CANDIDATE in silent and (STABLE in silent or not judge.setup.baseline):
        yield Hold(HoldReason.NO_FRESH_DATA, f"no request for {c.freshness_s:.0f} s at this weight")
    elif CANDIDATE in silent:
        yield Hold(HoldReason.TELEMETRY_SILENT, f"the candidate answered nothing for {c.freshness_s:.0f} s, stable did")
    elif STABLE in silent and judge.needs_stable:
        yield Hold(
            HoldReason.NO_FRESH_DATA, f"stable answered nothing for {c.freshness_s:.0f} s: nothing to compare with"
        )
    total = judge.missing_in_step + judge.seen_in_step
    if total >= 5 and judge.missing_in_step > (1.0 - COVER) * total:
        yield Hold(HoldReason.MISSING_BLOCKS, f"{judge.missing_in_step} of {total} blocks of this step are missing")


def _of_data(judge: "Judge") -> Iterable[Hold]:
    yield from _of_required(judge)
    yield from _of_buckets(judge)
    yield from _of_input(judge)
    yield from _of_measurement(judge)
    for variant, names in sorted(judge.revisions.items()):
        if len(names) > 1:
            words = f"{variant} was served by several revisions: {', '.join(names)}"
            yield Hold(HoldReason.MIXED_REVISIONS, words)


def _of_required(judge: "Judge") -> Iterable[Hold]:
    """Required tenants that nobody hears of: at once where the history has none either, else after `minBlocks`."""
    for tenant in judge.contract.required:
        places = [p for p, (t, _) in enumerate(judge.strata.names) if t == tenant]
        if any(judge.step_requests_of(p) for p in places):
            continue
        past = sum(judge.setups[p].n_history for p in places)
        if not past:
            yield Hold(HoldReason.NO_TRAFFIC, f"required tenant {tenant} has no traffic", tenant)
        elif judge.seen_in_step >= judge.contract.min_blocks:
            words = f"required tenant {tenant} has no traffic in this step ({past} requests in stable's history)"
            yield Hold(HoldReason.NO_TRAFFIC, words, tenant)


def _of_input(judge: "Judge") -> Iterable[Hold]:
    """Too many late or impossible entries: what is left out must not decide by its absence."""
    total = sum(float(seen.sum()) for seen in judge.step_requests.values())
    late = judge.dropped.get("late", 0)
    if late > 0.05 * total and late > 5:
        yield Hold(HoldReason.CLOCK_SKEW, f"{late} of {total:.0f} requests ended before their block was opened")
    broken = sum(judge.dropped.get(name, 0) for name in _IMPOSSIBLE)
    if broken > 0.01 * total:
        yield Hold(HoldReason.UNREADABLE, f"{broken} records of {total:.0f} have impossible or unreadable values")


def is_unmeasured(judge: "Judge", number: int, place: int) -> bool:
    """Whether a check's metric (or a part of the SLO) is unknown for more than 5 % of an arm's requests in a
    stratum.
    """
    total, metric = judge.tracks[number].total, judge.checks[number].metric
    metrics = {metric} if metric in LATENCIES else {m for m in judge.contract.slo_us if metric in _OF_SLO}
    for variant, n in ((STABLE, total.n_b), (CANDIDATE, total.n_c)):
        unknown = max((judge.unknown.get((variant, place, m), 0) for m in metrics), default=0)
        if unknown > UNMEASURED_SHARE * (unknown + float(n[place])):
            return True
    return False


def _of_measurement(judge: "Judge") -> Iterable[Hold]:
    """Strata in which a gate's metric is mostly guessed at: what is not known is not good."""
    if not judge.unknown:
        return
    required = np.flatnonzero(judge.required_strata())
    for number, check in enumerate(judge.checks):
        if not judge.decides(check):
            continue
        for place in required:
            if is_unmeasured(judge, number, int(place)):
                tenant, bucket = judge.strata.names[place]
                words = f"{check.metric} is unknown for more than 5 % of the requests; nothing is proven without it"
                yield Hold(HoldReason.UNMEASURED, words, tenant, bucket, check.metric)


def _of_buckets(judge: "Judge") -> Iterable[Hold]:
    """A tenant with more than 1 % of requests in no stratum."""
    totals = judge.step_requests[STABLE] + judge.step_requests[CANDIDATE]
    for number, tenant in enumerate(judge.strata.tenants):
        place = judge.strata.get((tenant, ""))
        if place is None:
            continue
        n, without = float(totals[judge.strata.tenant_of == number].sum()), float(totals[place])
        if without > 0.01 * n:
            words = f"{without:.0f} of {n:.0f} requests of {tenant} have neither bucket nor prompt tokens"
            yield Hold(HoldReason.UNBUCKETED, words, tenant)


def _of_comparison(judge: "Judge") -> Iterable[Hold]:
    if not judge.setup.baseline:
        return
    weights = judge.weights(SERVED) * sum(1 for c in judge.checks if c.enforce)
    for guard in judge.guards:
        if judge.has_shift(guard):
            c, s = guard.shares()
            yield Hold(guard.kind.reason, f"{guard.kind.words}: {c:.1%} on the candidate, {s:.1%} on stable")
    for check, track in zip(judge.checks, judge.tracks, strict=True):
        if check.sentinel:
            evidence = float(weights @ track.fail_evidence()) + 1.0 - float(weights.sum())
            if evidence >= 1.0 / judge.contract.alpha_rollback:
                words = f"{check.metric} P90 is beyond the margin, which is no gate: look before you advance"
                yield Hold(HoldReason.SENTINEL, words, metric=check.metric)
    for tenant, c, s in uneven_tenants(_comparable_routed(judge)):
        words = f"{tenant} is {c:.0%} of the candidate's requests and {s:.0%} of stable's"
        yield Hold(HoldReason.NOT_LOAD_MATCHED, words, tenant)
    for check, track in zip(judge.checks, judge.tracks, strict=True):
        if track.stable_fail is not None and judge.decides(check):
            breach = float(weights @ track.stable_evidence()) + 1.0 - float(weights.sum())
            if breach >= ENVIRONMENT:
                cell = int(np.argmax(weights * track.stable_evidence()))
                tenant, bucket = judge.strata.cell_name(cell)
                words = f"stable breaks {check.metric} {check.gate} too: no rollback for it, and no advance"
                yield Hold(HoldReason.ENVIRONMENT_BREACH, words, tenant, bucket, check.metric)


def _comparable_routed(judge: "Judge") -> dict[tuple[str, str], int]:
    """Routed requests of tenants that both arms are meant to serve in this kind of step."""
    if judge.step_kind != "shadow":
        return judge.routed
    return {where: count for where, count in judge.routed.items() if judge.contract.may_be_copied(where[1])}
