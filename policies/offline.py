"""Judges and plans from record files: the operator's judge over columns of records instead of a stream of blocks.

Called by the CLI and by judge-bench. Without history, stable's first 10 minutes (at most 300 requests a stratum) set
the thresholds of margin gates; requests that start before its stratum has them are no evidence of those gates. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from policies.blocks import E2E, LATENCIES, OUTPUT_TOKENS, PROMPT_TOKENS, TPOT, TTFT, Block
from policies.columns import Bools, Requests, out_of_time
from policies.contract import CheckKind, Contract
from policies.frames import Frame, projections, stable_blocks
from policies.guards import floor_holds, unit_holds
from policies.history import ENOUGH, History, prepare
from policies.judge import CALIBRATION_S, Judge
from policies.notices import mended
from policies.projection import Strata, Stratum
from policies.record_files import Columns
from policies.records import CANDIDATE, STABLE
from policies.sequential import Array
from policies.setup import JudgeSetup, StratumSetup
from policies.verdict import Hold, HoldReason, Verdict


@dataclass(frozen=True, slots=True)
class Judged:
    """The outcome of one file: the last verdict and the judge that gave it."""

    verdict: Verdict
    judge: Judge


def judge_columns(
    contract: Contract,
    step: Columns,
    history: Columns | None = None,
    every_s: float = 0.0,
    progress: Callable[[float], None] | None = None,
    guards: Sequence[Hold] = (),
    tpot_floor_s: float | None = None,
) -> Judged:
    """Judge one step from its records; the first decision stops, the end of the input closes the last block.

    every_s: look at most this often (0: after every block); progress: called with the part done, 0..1; guards: what
    the caller found against a PASS. A guard that says that the arms had different loads keeps their latencies from
    being compared at all. tpot_floor_s: least time per token that the accelerator can have, see `guards.floor_holds`.
    """
    strata = Strata()
    requests = Requests(contract, step, strata)
    guards = [*guards, *floor_holds(requests.readings[TPOT].value, requests.is_candidate, tpot_floor_s)]
    guards += unit_holds({m: requests.readings[m].value for m in (TTFT, E2E)}, requests.is_candidate)
    start_s = float(requests.start.min()) if len(requests.start) else 0.0
    end_s = float(requests.end.max()) + 1e-6 if len(requests.start) else 1.0
    setup, ready = _setup(contract, requests, history, start_s)
    judge = Judge(setup)
    requests = _renumber(contract, step, judge, requests)
    judge.enter_step(0, start_s, 50.0)
    judge.dropped = dict(requests.dropped)
    for source in requests.sources:
        if source[1] and source[2] != "probe" and source[1] not in judge.revisions[source[0]]:
            judge.revisions[source[0]].append(source[1])
    frame = Frame(requests, start_s, end_s, contract.block_s)
    blocks = projections(
        frame,
        judge.checks,
        judge.keys,
        tuple(guard.kind for guard in judge.guards),
        _medians(judge),
        _all_ready(judge, ready, start_s, guards),
    )
    last = 0
    for block in blocks:
        judge.take(block)
        last = block.seq + 1
        is_look = every_s <= 0 or (block.end_s - start_s) % every_s < contract.block_s
        if progress is not None and block.seq % 20 == 0:
            progress(last / frame.count)
        if is_look and (judge.fired is not None or (judge.passed_at_s is not None and not guards)):
            break
    _add_sketches(judge, frame, last)
    return Judged(judge.verdict(judge.now_s, guards), judge)


def align_arms(columns: Columns, always: bool = False) -> float | None:
    """Shift the candidate's records to stable's start where the arms were recorded at different times.

    Returns the shift, if any. always: the clocks of the arms have nothing to do with each other.
    """
    start = columns.floats("t_start_s")
    of_candidate = is_candidate(columns)
    if not of_candidate.any() or of_candidate.all():
        return None
    c, s = (arm[~out_of_time(arm)] for arm in (start[of_candidate], start[~of_candidate]))
    overlap = min(c.max(), s.max()) - max(c.min(), s.min())
    if not always and overlap >= 0.5 * min(np.ptp(c), np.ptp(s)):
        return None
    shift = float(s.min() - c.min())
    columns.shift(of_candidate, shift)
    return shift


def leave_out_step(history: Columns, step: Columns) -> int:
    """Remove requests of the step itself (same id, variant and start) from its history; returns how many.

    Thresholds and dependence that were measured on the judged requests would be no history.
    """
    idents, start = history.codes("ident"), history.floats("t_start_s")
    alike = np.isin(step.codes("ident"), idents)
    when = dict(zip(step.codes("ident")[alike].tolist(), step.floats("t_start_s")[alike].tolist(), strict=True))
    same = np.array([when.get(i) == t for i, t in zip(idents.tolist(), start.tolist(), strict=True)], dtype=bool)
    if same.any():
        history.leave_out(same)
    return int(same.sum())


def is_candidate(columns: Columns) -> Bools:
    """Which records are the candidate's."""
    return np.array([s[0] == CANDIDATE for s in columns.sources], dtype=bool)[columns.codes("source")]


def unequal_load(columns: Columns, tolerance: float = 0.15) -> Hold | None:
    """Why arms that were recorded one after the other are not comparable: one had more requests per second."""
    start, of_candidate = columns.floats("t_start_s"), is_candidate(columns)
    rates = []
    for arm in (start[of_candidate], start[~of_candidate]):
        arm = arm[~out_of_time(arm)]
        span = float(np.ptp(arm)) if len(arm) > 1 else 0.0
        if span <= 0.0:
            return None
        rates.append((len(arm) - 1) / span)
    candidate, stable = rates
    noise = 4.0 * np.sqrt(1.0 / of_candidate.sum() + 1.0 / (~of_candidate).sum())
    if abs(candidate / stable - 1.0) <= max(tolerance, noise):
        return None
    words = f"recorded one after the other at different loads: candidate {candidate:.3g} req/s, stable {stable:.3g}"
    return Hold(HoldReason.NOT_LOAD_MATCHED, f"{words}; record both at the same load")


def _renumber(contract: Contract, step: Columns, judge: Judge, requests: Requests) -> Requests:
    """The same requests in the judge's numbering of strata; strata without history are newcomers of the judge."""
    if requests.strata.names == judge.strata.names:
        requests.strata = judge.strata
        return requests
    judge.register(requests.strata.names)
    return Requests(contract, step, judge.strata)


def _setup(
    contract: Contract, requests: Requests, history: Columns | None, start_s: float
) -> tuple[JudgeSetup, dict[Stratum, float] | None]:
    """The setup, and (where the step itself sets thresholds) the moment at which each stratum has its own."""
    present = [name for name in requests.strata.names if name[1]]
    if history is None:
        return _setup_of_step(contract, requests, present, start_s)
    past, words = _past(contract, history)
    setup = prepare(contract, past, True, present)
    setup = replace(setup, warnings=(*setup.warnings, *words))
    unknown = {(s.tenant, s.bucket) for s in setup.strata if _lacks_threshold(setup, s)}
    if not unknown:
        return setup, None
    calibrated, ready = _setup_of_step(contract, requests, present, start_s)
    if ready is None:
        return setup, None
    known_since = {name: start_s for name in present if name not in unknown}
    return _completed(setup, calibrated, unknown), {**ready, **known_since}


def _lacks_threshold(setup: JudgeSetup, stratum: StratumSetup) -> bool:
    """Whether a margin of a percentile has nothing to compare with: the history has too few requests with the metric,
    in this stratum and in all.
    """
    return any(
        check.kind is CheckKind.QUANTILE_REL and values.stable_us < 0
        for check, values in zip(setup.checks, stratum.checks, strict=True)
    )


def _completed(setup: JudgeSetup, calibrated: JudgeSetup, unknown: set[Stratum]) -> JudgeSetup:
    """The setup with the thresholds of some strata taken from stable's first requests of the step."""
    by_name = {(s.tenant, s.bucket): s.checks for s in calibrated.strata}
    strata = []
    for stratum in setup.strata:
        name = (stratum.tenant, stratum.bucket)
        theirs = by_name.get(name) if name in unknown else None
        checks = (
            stratum.checks
            if theirs is None
            else tuple(new if old.stable_us < 0 else old for old, new in zip(stratum.checks, theirs, strict=True))
        )
        strata.append(replace(stratum, checks=checks))
    names = ", ".join(f"{t} {b}" for t, b in sorted(unknown))
    words = f"the history sets no threshold for {names}: the step's first requests of stable do"
    return replace(setup, strata=tuple(strata), warnings=(*setup.warnings, words))


def _setup_of_step(
    contract: Contract, requests: Requests, present: Sequence[Stratum], start_s: float
) -> tuple[JudgeSetup, dict[Stratum, float] | None]:
    """The setup from stable's first requests of the step, and when each stratum had enough of them."""
    is_stable = ~requests.is_candidate & (requests.start < start_s + CALIBRATION_S)
    if not is_stable.any():  # with a margin gate this stays undecided: nothing to compare with is no proof
        is_compared = any(check.margin is not None and check.enforce for check in contract.checks)
        return prepare(contract, [], is_compared, present), None
    rank = np.zeros(len(requests.start), dtype=np.int64)
    order = np.lexsort((requests.end, requests.stratum, ~is_stable))
    ordered = requests.stratum[order]
    first = np.flatnonzero(np.diff(np.concatenate([[-1], np.where(is_stable[order], ordered, -2)])))
    group_start = np.zeros(len(order), dtype=np.int64)
    group_start[first] = first
    rank[order] = np.arange(len(order)) - np.maximum.accumulate(group_start)
    counted = is_stable & (rank < ENOUGH)
    sizes = np.bincount(requests.stratum[counted], minlength=requests.strata.size)
    latest = np.zeros(requests.strata.size)
    np.maximum.at(latest, requests.stratum[counted], requests.end[counted])
    ready = {name: float(latest[i]) for i, name in enumerate(requests.strata.names) if sizes[i] >= ENOUGH}
    end_s = float(requests.end[counted].max()) + 1e-6
    past = stable_blocks(contract, requests, start_s, end_s, counted)
    setup = prepare(contract, past, True, present)
    return setup, ready


def _all_ready(
    judge: Judge, ready: Mapping[Stratum, float] | None, start_s: float, guards: Sequence[Hold]
) -> list[Array]:
    """`_ready_of` of every check; latencies of arms with different loads are never compared."""
    found = [_ready_of(judge, number, ready, start_s) for number in range(len(judge.checks))]
    if any(g.reason is HoldReason.NOT_LOAD_MATCHED for g in guards):
        for number, check in enumerate(judge.checks):
            if check.kind is CheckKind.QUANTILE_REL:
                found[number] = np.full(judge.strata.size, np.inf)
    return found


def _ready_of(judge: Judge, number: int, ready: Mapping[Stratum, float] | None, start_s: float) -> Array:
    """From when on requests are evidence of a check, per stratum of the judge: limits at once, margins when they
    have a threshold.
    """
    kind = judge.checks[number].kind
    is_limit = judge.checks[number].limit is not None or kind is CheckKind.GOODPUT_REL
    if ready is None or is_limit:
        return np.full(judge.strata.size, start_s)
    return np.array([ready.get(name, start_s + CALIBRATION_S) for name in judge.strata.names])


def _medians(judge: Judge) -> dict[str, Array]:
    return {
        metric: np.array([float(s.medians.get(metric, np.nan)) for s in judge.setups])
        for metric in (PROMPT_TOKENS, OUTPUT_TOKENS)
    }


def _add_sketches(judge: Judge, frame: Frame, until: int) -> None:
    """What the rows show beside the counts, for the blocks that were taken."""
    arms = {STABLE: frame.inside & ~frame.r.is_candidate, CANDIDATE: frame.inside & frame.r.is_candidate}
    for variant, mask in arms.items():
        for metric in LATENCIES:
            for place, bins in frame.bins(metric, mask, until).items():
                judge.sketches[variant, place, metric] = bins
                judge.step_sketches[variant, place, metric] = bins


def _past(contract: Contract, columns: Columns) -> tuple[list[Block], list[str]]:
    """History blocks of stable's records, whole ones from the first start to the last end; and in words what was mended
    or left out.
    """
    requests = Requests(contract, columns, Strata())
    words = [f"history: {finding}" for finding in mended(requests.dropped)]
    stable = ~requests.is_candidate
    if not stable.any():
        return [], words
    start_s = float(requests.start[stable].min())
    count = max(1, round((float(requests.end[stable].max()) - start_s) / contract.block_s))
    return stable_blocks(contract, requests, start_s, start_s + count * contract.block_s, stable), words


def plan_history(contract: Contract, columns: Columns) -> tuple[JudgeSetup, History]:
    """What the planner needs of a file of stable's records."""
    past, words = _past(contract, columns)
    setup = prepare(contract, past)
    return replace(setup, warnings=(*setup.warnings, *words)), History(contract, past)
