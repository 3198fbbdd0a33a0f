"""Reports of runs judged under a policy, in one look: the same document as from records, with what cannot be said.

Called by `weighlock judge` where a tool wrote no requests with times. Each run of the candidate is compared with the
run of stable at the same offered load. The evidence of one look is all or nothing: a check that is proven at level
alpha / m counts m / alpha, so that their average over m checks reaches 1 / alpha as soon as one is (the same rule as
for records). phi is at least 4: a report says nothing about dependence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policies import blocks
from policies.contract import Check, CheckKind, Contract
from policies.reports.bounds import (
    Bounds,
    below_floor,
    fewest_requests,
    implausible,
    quantile_bounds,
    share_bounds,
    shifted,
)
from policies.reports.summary import Run, Summary
from policies.rowwords import amount, between, bucket_words, what
from policies.verdict import Culprit, GateRow, Hold, HoldReason, Result, Rollback, Verdict, WorstStratum

LEAST_PHI = 4.0
ANY_BUCKET = "*"
_TOLD = 5  # findings in words above the rows


@dataclass(frozen=True, slots=True)
class Question:
    """One check of one run of the candidate: with what it is compared, and at which levels."""

    contract: Contract
    check: Check
    candidate: Summary
    stable: Summary | None
    alpha_fail: float
    phi: float
    blocked: Mapping[str, Hold]  # by metric ("" = every latency): why nothing is to be said

    def bounds(self, run: Summary | None, alpha: float) -> Bounds:
        """Of the percentile, or of the share of failed requests; `alpha` on each side."""
        if run is None:
            return None, None
        if self.check.metric == blocks.SUCCESS:
            return share_bounds(run.failed, run.succeeded + run.failed, alpha, self.phi)
        return quantile_bounds(run, self.check.metric, self.check.quantile or 0.99, alpha, self.phi)


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one question; bounds at the level of a PASS."""

    result: Result
    words: str
    hold: HoldReason | None = None
    stable: Bounds = (None, None)
    candidate: Bounds = (None, None)
    needed: int | None = None

    @property
    def is_blocked(self) -> bool:
        """Whether the reports say nothing to this question, however many requests they are of."""
        return self.hold not in (None, HoldReason.TOO_FEW_REQUESTS) and self.candidate == (None, None)


def judge_runs(
    contract: Contract, stable: Sequence[Run], candidate: Sequence[Run], tenant: str, floor_s: float | None = None
) -> Verdict:
    """The verdict on all runs of the candidate together: FAIL if one fails, PASS if all pass and nothing holds.

    tenant: for whom the runs stand (reports name none); floor_s: least time per token by the ledger.
    """
    checks = [c for c in contract.checks if not c.sentinel]
    count = max(1, sum(c.enforce for c in checks) * len(candidate))
    rows: list[GateRow] = []
    holds = list(_holds_of_tenants(contract, tenant))
    for run in (r.summary for r in candidate):
        partner = _partner(run, [r.summary for r in stable])
        bucket, found = _bucket_of(contract, run, tenant)
        holds += found
        blocked = _blocked(run, partner, floor_s)
        for check in checks:
            question = Question(contract, check, run, partner, contract.alpha_rollback / count, _phi(contract), blocked)
            rows.append(_row(question, _answer(question), tenant, bucket, count))
    return _verdict(contract, rows, holds, [r.summary for r in (*stable, *candidate)])


def _phi(contract: Contract) -> float:
    return max(LEAST_PHI, contract.phi_floor)


def _partner(run: Summary, stable: Sequence[Summary]) -> Summary | None:
    """The run of stable whose offered load is nearest."""
    alike = [s for s in stable if s.load is not None and run.load is not None and s.load.kind == run.load.kind]
    if not alike:
        return stable[0] if len(stable) == 1 else None
    load = run.load
    assert load is not None
    return min(alike, key=lambda s: abs(s.load.value - load.value) if s.load is not None else 0.0)


def _holds_of_tenants(contract: Contract, tenant: str) -> list[Hold]:
    others = [t for t in contract.required if t != tenant]
    words = "a report is of one run, which stands for {}: {} has no requests in it"
    return [Hold(HoldReason.NO_TRAFFIC, words.format(tenant, t), t) for t in others]


def _bucket_of(contract: Contract, run: Summary, tenant: str) -> tuple[str, list[Hold]]:
    """The length bucket that holds all prompts of a run; one of several cannot be told from a mix."""
    if len(contract.bucket_names) == 1:
        return contract.bucket_names[0], []
    if run.prompt_range is not None:
        low, high = (sum(tokens > edge for edge in contract.bucket_edges) for tokens in run.prompt_range)
        if low == high:
            return contract.bucket_names[low], []
    words = "the report says nothing about prompt lengths"
    if run.prompt_range is not None:
        words = f"prompts of {run.prompt_range[0]:g} to {run.prompt_range[1]:g} tokens are mixed in one report"
    remedy = "give request records, or one run per bucket"
    return ANY_BUCKET, [Hold(HoldReason.UNBUCKETED, f"{words}: no length bucket is proven by them; {remedy}", tenant)]


def _blocked(run: Summary, partner: Summary | None, floor_s: float | None) -> dict[str, Hold]:
    """Why latencies of these runs say nothing: by metric, "" = all of them, "margin" = only the comparison."""
    found: dict[str, Hold] = {}
    for arm, summary in (("candidate", run), ("stable", partner)):
        if summary is None:
            continue
        wrong = implausible(summary)
        if floor_s is not None and (fast := below_floor(summary, floor_s)) is not None:
            wrong.setdefault(blocks.TPOT, fast)
        for metric, why in wrong.items():
            found.setdefault(metric, Hold(HoldReason.IMPLAUSIBLE, f"{arm}'s {metric} is not used: {why}"))
    if (compared := _incomparable(run, partner)) is not None:
        found["margin"] = compared
    if run.keeps_up is False:
        found["pass"] = _lagging("candidate", run)
    return found


def _lagging(arm: str, run: Summary) -> Hold:
    words = f"{arm}'s tool sent {run.achieved_rps:.4g} of {run.load}: latencies leave out what waited in the client"
    return Hold(HoldReason.NOT_LOAD_MATCHED, words)


def unequal_runs(stable: Summary, candidate: Summary) -> Hold | None:
    """Why two runs were not offered the same load; None where they were."""
    if candidate.load is None or stable.load is None:
        return Hold(HoldReason.NOT_LOAD_MATCHED, "a report does not say at which load it was made")
    if stable.load.is_like(candidate.load):
        return None
    words = f"offered loads differ: candidate {candidate.load}, stable {stable.load}"
    return Hold(HoldReason.NOT_LOAD_MATCHED, words)


def _incomparable(run: Summary, partner: Summary | None) -> Hold | None:
    if partner is None:
        return Hold(HoldReason.NO_BASELINE, f"no run of stable at a load like {run.load or 'an unknown one'}")
    if (unequal := unequal_runs(partner, run)) is not None:
        return unequal
    if partner.keeps_up is False:
        return _lagging("stable", partner)
    for reason, name in ((HoldReason.OUTPUT_LENGTH_SHIFT, "output"), (HoldReason.PROMPT_MIX_SHIFT, "prompt")):
        theirs, ours = (getattr(s, f"{name}_tokens") for s in (partner, run))
        if shifted(theirs, ours):
            words = f"{name} tokens per request: candidate {ours:.4g}, stable {theirs:.4g}: other work was done"
            return Hold(reason, words)
    return None


# --- answers ---


def _answer(q: Question) -> Answer:
    check, metric = q.check, q.check.metric
    if check.kind is CheckKind.GOODPUT_REL or metric in (blocks.GOOD_FRACTION, blocks.GOODPUT):
        words = f"{metric} needs request records: a report has no count of requests within this policy's SLO"
        return Answer(Result.INCONCLUSIVE, words, HoldReason.UNMEASURED)
    missing = _missing(q)
    if missing is not None:
        return missing
    if check.margin is not None and "margin" in q.blocked:
        hold = q.blocked["margin"]
        return Answer(Result.INCONCLUSIVE, hold.message, hold.reason)
    return _decide(q)


def _missing(q: Question) -> Answer | None:
    """Why the metric of a check cannot be read from the reports that it needs."""
    metric, arms = q.check.metric, [("candidate", q.candidate)]
    if q.check.margin is not None and q.stable is not None:
        arms.append(("stable", q.stable))
    for arm, summary in arms:
        if metric == blocks.SUCCESS:
            if metric in summary.absent or summary.succeeded + summary.failed == 0:
                why = summary.absent.get(metric, "it counts no requests")
                return Answer(Result.INCONCLUSIVE, f"{arm}'s report: {why}", HoldReason.UNMEASURED)
            continue
        if not summary.quantiles.get(metric):
            why = summary.absent.get(metric) or (
                "only an average: a mean says nothing about a percentile" if metric in summary.means else "absent"
            )
            words = f"{arm}'s report ({summary.tool}) has no percentiles of it: {why}"
            return Answer(Result.INCONCLUSIVE, words, HoldReason.UNMEASURED)
    if metric in q.blocked:
        return Answer(Result.INCONCLUSIVE, q.blocked[metric].message, HoldReason.IMPLAUSIBLE)
    return None


def _decide(q: Question) -> Answer:
    """PASS, FAIL or neither from the bounds of both arms; two arms share the level."""
    check, arms = q.check, 2 if q.check.margin is not None else 1
    ours, theirs = (q.bounds(run, q.contract.alpha_promote / arms) for run in (q.candidate, q.stable))
    hard_ours, hard_theirs = (q.bounds(run, q.alpha_fail / arms) for run in (q.candidate, q.stable))
    words = _words(check, ours, theirs)
    allowed = _allowed(check, theirs[0])
    if ours[1] is not None and allowed is not None and ours[1] <= allowed:
        if "pass" in q.blocked and check.metric in blocks.LATENCIES:
            hold = q.blocked["pass"]
            return Answer(Result.INCONCLUSIVE, f"{words}; {hold.message}", hold.reason, theirs, ours)
        return Answer(Result.PASS, words, None, theirs, ours)
    broken = _allowed(check, hard_theirs[1])
    if hard_ours[0] is not None and broken is not None and hard_ours[0] > broken:
        return Answer(Result.FAIL, words, None, theirs, ours)
    needed = None
    if check.quantile is not None and (ours[1] is None or (arms == 2 and theirs[0] is None)):
        needed = fewest_requests(check.quantile, q.contract.alpha_promote / arms, q.phi)
        needed = needed if needed > q.candidate.succeeded else None
    return Answer(Result.INCONCLUSIVE, words, HoldReason.TOO_FEW_REQUESTS if needed else None, theirs, ours, needed)


def _allowed(check: Check, stable: float | None) -> float | None:
    """The bound for the candidate: the limit, or stable's value and the margin."""
    if check.margin is None:
        return check.limit
    if stable is None:
        return None
    return stable + check.margin if check.margin_points else stable * (1 + check.margin)


def _words(check: Check, ours: Bounds, theirs: Bounds) -> str:
    def span(bounds: Bounds) -> str:
        low, high = (None if b is None else amount(b, check) for b in bounds)
        return between(low, high).rstrip(",")

    if check.margin is None:
        return f"candidate {span(ours)}, limit {amount(check.limit, check)}"
    limit = f"+{check.margin * 100:g} points" if check.margin_points else f"{1 + check.margin:g}x"
    return f"candidate {span(ours)}, stable {span(theirs)}, limit {limit}"


# --- the document ---


def _row(q: Question, a: Answer, tenant: str, bucket: str, count: int) -> GateRow:
    check, run = q.check, q.candidate
    load = "" if run.load is None else f" at {run.load}"
    n_candidate, n_stable = (0 if s is None else s.succeeded + s.failed for s in (run, q.stable))
    after = "" if a.is_blocked else f" after {n_candidate} requests, one look"
    more = "" if a.needed is None else f"; needs {a.needed} requests"
    head = f"{tenant}, {bucket_words(bucket) if bucket != ANY_BUCKET else 'all lengths'}, {what(check)}{load}"
    ratios = _ratios(a) if check.margin is not None else (None, None)
    estimates = [_estimate(check, s) for s in (q.stable, run)]
    return GateRow(
        tenant=tenant,
        bucket=bucket,
        metric=check.metric,
        gate=check.gate,
        verdict=a.result,
        n_stable=n_stable,
        n_candidate=n_candidate,
        exceed_stable=q.stable.failed if q.stable is not None and check.metric == blocks.SUCCESS else None,
        exceed_candidate=run.failed if check.metric == blocks.SUCCESS else None,
        estimate_stable=estimates[0],
        estimate_candidate=estimates[1],
        ratio_low=ratios[0],
        ratio_high=ratios[1],
        low=a.candidate[0],
        high=a.candidate[1],
        limit=_allowed(check, estimates[0]),
        e_pass=1.0 / q.contract.alpha_promote if a.result is Result.PASS else 0.0,
        e_fail=count / q.contract.alpha_rollback if a.result is Result.FAIL else 0.0,
        phi=q.phi,
        needed_requests=None if a.needed is None else a.needed - run.succeeded,
        eta_s=None,
        reason=f"{head}: {a.words}{after}{more}",
        mode="enforce" if check.enforce else "dryRun",
        hold=a.hold,
    )


def _ratios(a: Answer) -> Bounds:
    (s_low, s_high), (c_low, c_high) = a.stable, a.candidate
    low = c_low / s_high if c_low is not None and s_high else None
    return low, (c_high / s_low if c_high is not None and s_low else None)


def _estimate(check: Check, run: Summary | None) -> float | None:
    if run is None:
        return None
    if check.metric == blocks.SUCCESS:
        n = run.succeeded + run.failed
        return run.failed / n if n else None
    return next((v for p, v in run.quantiles.get(check.metric, ()) if abs(p - (check.quantile or 0)) < 1e-9), None)


def _verdict(contract: Contract, rows: list[GateRow], holds: list[Hold], runs: Sequence[Summary]) -> Verdict:
    enforced = [r for r in rows if r.mode == "enforce"]
    failing = [r for r in enforced if r.verdict is Result.FAIL]
    open_rows = [r for r in enforced if r.verdict is Result.INCONCLUSIVE]
    result = Result.INCONCLUSIVE if open_rows or holds or not enforced else Result.PASS
    result = Result.FAIL if failing else result
    holds = list(dict.fromkeys([*holds, *(_hold_of(r) for r in open_rows)]))
    threshold = 1.0 / contract.alpha_rollback
    culprits = tuple(Culprit(r.tenant, r.bucket, r.metric, r.gate, r.e_fail, True) for r in failing)
    worst = next(iter(failing or open_rows or enforced), None)
    told = [r.reason for r in (failing or open_rows)]
    more = [f"and {len(told) - _TOLD} more, see the rows"] if len(told) > _TOLD else []
    sentences = (*told[:_TOLD], *more) or (f"All {len(enforced)} checks passed in every run of the reports.",)
    return Verdict(
        result=result,
        now_s=0.0,
        step=0,
        decided_at_s=None,
        holds=() if result is Result.PASS else tuple(holds),
        rows=tuple(rows),
        rollback=Rollback(threshold * len(failing) if failing else 0.0, threshold, culprits),
        worst=None if worst is None else WorstStratum(worst.tenant, worst.bucket, worst.metric),
        requests_needed=max((r.needed_requests or 0 for r in open_rows), default=0) or None,
        eta_s=None,
        sentences=(*sentences, *(f"{h.reason.value}: {h.message}" for h in holds[:3] if h.metric == "")),
        warnings=tuple(_warnings(runs)),
    )


def _hold_of(row: GateRow) -> Hold:
    return Hold(row.hold or HoldReason.TOO_FEW_REQUESTS, row.reason, row.tenant, row.bucket, row.metric)


def _warnings(runs: Sequence[Summary]) -> list[str]:
    tools = sorted({run.tool for run in runs})
    found = [f"reports of {', '.join(tools)}: one look without dependence or order, phi {LEAST_PHI:g}"]
    if len(tools) > 1:
        found.append("the arms were measured by different tools, which start and stop their clocks differently")
    if any(run.output_tokens is None for run in runs):
        found.append("a report does not say how long answers were: a shift would go unseen")
    return found
