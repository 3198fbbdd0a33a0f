"""Rows and sentences of a verdict: what was counted, the intervals, what is missing, in words a person can act on.

Called by `Judge.verdict` only; reads the judge, changes nothing. All intervals are time-uniform (valid however often
one looks).
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from policies.contract import SERVED, Check, CheckKind
from policies.growth import absolute_drift, ratio_drift, requests_for
from policies.notices import grouped, mended, reasons, withheld
from policies.rowbounds import row_bounds
from policies.rowwords import with_reason
from policies.sequential import Array
from policies.track import Track
from policies.verdict import GateRow, Hold, HoldReason, Result, Rollback, Verdict, WorstStratum

if TYPE_CHECKING:
    from policies.judge import Judge


def make_verdict(judge: "Judge", now_s: float, result: Result, holds: Sequence[Hold]) -> Verdict:
    """The verdict with all rows; `result` and `holds` are the judge's."""
    rows = [row for number in range(len(judge.checks)) for row in _rows(judge, number, now_s, result)]
    order = {name: number for number, name in enumerate(judge.contract.bucket_names)}
    rows.sort(key=lambda r: (r.tenant, order.get(r.bucket, -1)))
    rows = rows if result is Result.FAIL else withheld(rows, holds)
    open_rows = [r for r in rows if r.mode == "enforce" and r.verdict is Result.INCONCLUSIVE and r.hold is None]
    all_holds = list(holds)
    if open_rows and result is Result.INCONCLUSIVE:
        words = f"{len(open_rows)} of {len(rows)} checks have not enough requests yet{_slowest(open_rows)}"
        all_holds.append(Hold(HoldReason.TOO_FEW_REQUESTS, words))
    named = {(h.reason, h.tenant, h.bucket, h.metric) for h in holds}
    for row in rows:
        is_named = (row.hold, row.tenant, row.bucket, row.metric) in named
        if row.hold is not None and result is Result.INCONCLUSIVE and row.mode == "enforce" and not is_named:
            all_holds.append(Hold(row.hold, row.reason, row.tenant, row.bucket, row.metric))
    worst = _worst(rows)
    fired = judge.fired
    evidence = judge.rollback_evidence()
    rollback = Rollback(
        e=max(evidence, fired.evidence) if fired else evidence,
        threshold=1.0 / judge.contract.alpha_rollback,
        culprits=fired.culprits if fired else judge.culprits(),
    )
    decided = fired.at_s if fired else judge.passed_at_s if result is Result.PASS else None
    start_s = judge.step_start_s if judge.step_start_s is not None else now_s
    etas = [(r.eta_s, r.needed_requests) for r in open_rows if r.eta_s is not None]
    eta = max(etas, key=lambda pair: pair[0]) if etas else (None, None)
    return Verdict(
        result=result,
        now_s=now_s,
        step=judge.step,
        decided_at_s=None if decided is None else round(decided - start_s, 6),
        holds=tuple(all_holds),
        rows=tuple(rows),
        rollback=rollback,
        worst=None if worst is None else WorstStratum(worst.tenant, worst.bucket, worst.metric),
        requests_needed=eta[1],
        eta_s=eta[0],
        sentences=_sentences(result, rows, all_holds, rollback),
        warnings=(*grouped(judge.setup.warnings), *mended(judge.dropped)),
    )


def _slowest(open_rows: Sequence[GateRow]) -> str:
    """What the check that takes longest still needs."""
    known = [r for r in open_rows if r.eta_s is not None]
    if not known:
        return ""
    last = max(known, key=lambda r: r.eta_s or 0.0)
    head = last.reason.split(": ", 1)[0]
    eta_s = last.eta_s or 0.0
    time = f"{eta_s:.0f} s" if eta_s < 90 else f"{eta_s / 60:.0f} min"
    return f"; the slowest, {head}, needs about {last.needed_requests} more, {time}"


def _worst(rows: Sequence[GateRow]) -> GateRow | None:
    """A failing row first, then the enforced one furthest from passing."""
    rank = {Result.FAIL: 0, Result.INCONCLUSIVE: 1, Result.PASS: 2}
    enforced = [r for r in rows if r.mode == "enforce"]
    return min(enforced, key=lambda r: (rank[r.verdict], -r.e_fail, r.e_pass), default=None)


def _sentences(result: Result, rows: Sequence[GateRow], holds: Sequence[Hold], rollback: Rollback) -> tuple[str, ...]:
    if result is Result.PASS:
        return (f"All {sum(r.mode == 'enforce' for r in rows)} checks passed in every required stratum.",)
    if result is Result.FAIL:
        worst = [r.reason for r in rows if r.verdict is Result.FAIL and r.mode == "enforce"]
        if worst:
            return tuple(worst[:5])
        return tuple(
            f"{c.tenant}, {c.bucket}: {c.metric} {c.gate} is breached (e = {c.e:.3g})." for c in rollback.culprits
        )
    return reasons(holds)[:10]


# --- rows of one check ---


def _rows(judge: "Judge", number: int, now_s: float, result: Result) -> list[GateRow]:
    check, track = judge.checks[number], judge.tracks[number]
    if check.margin is not None and check.metric != SERVED.metric and not judge.setup.baseline:
        return []  # a first install has nothing to compare with; the warnings say so
    size = judge.strata.size
    e_fail = track.fail_evidence()[:size]
    e_pass = np.exp(np.minimum(track.log_pass_evidence(), 700.0)) if track.has_pass else np.ones(size)
    bounds = row_bounds(judge, check, number, track)
    failing = _failing(judge, check, judge.fail_evidence(check, track, judge.does_other_work())[:size])
    correlation = None if track.pairs is None else track.pairs.correlation()
    rows = []
    for place, (tenant, bucket) in enumerate(judge.names()):
        is_shown = judge.is_seen(place)
        if not bucket or check.sentinel or (check.metric == SERVED.metric and not failing[place]):
            continue
        t = track.total
        counts = [round(float(a[place])) for a in (t.n_b, t.n_c, t.k_b, t.k_c)]
        verdict = Result.FAIL if failing[place] else Result.INCONCLUSIVE
        if verdict is not Result.FAIL and bool(track.latched[place]):
            verdict = Result.PASS
        hold = _row_hold(judge, number, place, is_shown) if verdict is not Result.FAIL else None
        if hold is HoldReason.UNMEASURED:
            verdict = Result.INCONCLUSIVE
        needed, eta = (None, None)
        if verdict is Result.INCONCLUSIVE:
            needed, eta = _needed(judge, check, number, track, place, now_s)
        low, high, ratio_low, ratio_high, stable, candidate, limit = (_clean(a[place]) for a in bounds)
        row = GateRow(
            tenant=tenant,
            bucket=bucket,
            metric=check.metric,
            gate=check.gate,
            verdict=verdict,
            n_stable=counts[0],
            n_candidate=counts[1],
            exceed_stable=counts[2],
            exceed_candidate=counts[3],
            estimate_stable=stable,
            estimate_candidate=candidate,
            ratio_low=ratio_low,
            ratio_high=ratio_high,
            low=low,
            high=high,
            limit=limit,
            e_pass=float(e_pass[place]),
            e_fail=float(e_fail[place]),
            phi=float(track.phi[place]),
            needed_requests=needed,
            eta_s=eta,
            reason="",
            mode="enforce" if check.enforce else "dryRun",
            hold=hold,
            pairs=0 if track.pairs is None else int(track.pairs.pairs[place]),
            correlation=None if correlation is None else _clean(correlation[place]),
        )
        rows.append(with_reason(row, check, is_shown, (tenant, bucket) in judge.setup.thin))
    return rows


def _failing(judge: "Judge", check: Check, e_fail: Array) -> list[bool]:
    """Strata whose own evidence fires, and after a FAIL those that are proven bad."""
    alpha = judge.contract.alpha_rollback
    weights = judge.weights(check)[: len(e_fail)]
    alone = e_fail * weights >= 1.0 / alpha
    named = set()
    if judge.fired is not None and check.enforce:
        here = [c for c in judge.fired.culprits if c.metric == check.metric and c.gate == check.gate]
        named = {(c.tenant, c.bucket) for c in here if c.proven or c.e >= 1.0 / alpha}
    found = []
    for place, (tenant, bucket) in enumerate(judge.names()):
        is_named = (tenant, bucket) in named or (
            bool(named & {(tenant, "*"), ("*", bucket), ("*", "*")}) and e_fail[place] >= 1.0 / alpha
        )
        found.append(bool(alone[place]) or is_named)
    return found


def _row_hold(judge: "Judge", number: int, place: int, is_shown: bool) -> HoldReason | None:
    if not is_shown:
        return None
    if judge.is_unmeasured(number, place):
        return HoldReason.UNMEASURED
    return HoldReason.NO_BASELINE if judge.setups[place].checks[number].null is None else None


def _clean(value: float) -> float | None:
    return None if not math.isfinite(value) else float(value)


def _needed(
    judge: "Judge", check: Check, number: int, track: Track, place: int, now_s: float
) -> tuple[int | None, float | None]:
    """(candidate requests, seconds at the present rate) until the check passes here, if things stay as they look."""
    null = float(track.null[place])
    t = track.total
    n_c, n_b, k_c, k_b = (float(a[place]) for a in (t.n_c, t.n_b, t.k_c, t.k_b))
    if not math.isfinite(null) or not track.has_pass or n_c <= 0:
        return None, None
    level = -math.log(judge.contract.alpha_promote)
    if check.kind.is_relative:
        if n_b <= 0:
            return None, None
        p_c, p_b = (k_c + 0.25) / (n_c + 0.5), (k_b + 0.25) / (n_b + 0.5)
        if check.kind is CheckKind.QUANTILE_REL:
            p_b = max(p_b, check.share / 2)
        drift = ratio_drift(p_c, p_b, n_c / (n_c + n_b), null, track.pass_factors[place])
    else:
        p = (k_c + k_b + 0.1) / (n_c + n_b + 10.0)
        drift = absolute_drift(p, null, track.pass_factors[place])
    need = requests_for(drift[0], drift[1], level, 0.0, track.log_pass[place])
    if need is None:
        return None, None
    requests = math.ceil(need * float(track.phi[place]))
    age = now_s - (judge.step_start_s if judge.step_start_s is not None else now_s)
    rate = float(track.step_n[place]) / age if age > 0 else 0.0
    return requests, requests / rate if rate > 0 else None
