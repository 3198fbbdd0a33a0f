"""`weighlock judge`: PASS, FAIL or INCONCLUSIVE from files of request records, by the operator's own judge.

Reads files, prints one document; all judging is in `policies`. Reports of benchmark tools are taken for records where
they hold every request with its time, else judged in one look.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from controller.cli.errors import BadInput
from controller.cli.metrics import cache_use
from controller.cli.output import emit, note, printable
from controller.cli.progress import Progress
from controller.cli.records import load_contract, read_columns, refuse_nothing
from controller.cli.reports import add_runs, runs_in, tenant_of
from crds.v1alpha1.common import parse_duration_seconds
from policies.contract import Contract
from policies.frames import TooLarge
from policies.guards import cache_hold
from policies.offline import align_arms, is_candidate, judge_columns, leave_out_step, unequal_load
from policies.record_files import Columns
from policies.reports.judge import judge_runs, unequal_runs
from policies.reports.summary import Run
from policies.verdict import GateRow, Hold, Result, Verdict

EXIT = {Result.PASS: 0, Result.FAIL: 1, Result.INCONCLUSIVE: 3}
_ARMS = ("stable", "candidate")


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of `weighlock judge`."""
    parser.add_argument("--policy", required=True, metavar="FILE", help="RolloutPolicy object, or its bare spec (YAML)")
    parser.add_argument("--records", metavar="FILE", action="append", default=[], help="records of both variants")
    either = "records, or a report of vLLM bench, AIPerf, GuideLLM, genai-bench, inference-perf or LLMPerf"
    parser.add_argument("--stable", metavar="FILE", action="append", default=[], help=f"stable's {either}")
    parser.add_argument("--candidate", metavar="FILE", action="append", default=[], help="the candidate's, likewise")
    parser.add_argument(
        "--history", metavar="FILE", action="append", default=[], help="stable's records before the step"
    )
    parser.add_argument("--every", metavar="SECONDS", type=float, default=0.0, help="look at most this often")
    parser.add_argument("--tenant", metavar="NAME", help="for whom reports stand (the only required tenant)")
    for arm in _ARMS:
        parser.add_argument(
            f"--{arm}-metrics",
            metavar="FILE|URL",
            action="append",
            default=[],
            help=f"/metrics of {arm}'s engine after the step (given twice: before and after): is its cache as warm?",
        )
    parser.add_argument(
        "--tpot-floor", metavar="DURATION", help="least time per token, step_floor_s of `weighlock ledger`: 4ms"
    )


@dataclass(frozen=True, slots=True)
class Arms:
    """The files of a step: names of record files, and runs of reports, by variant; `both` hold both variants."""

    both: tuple[str, ...]
    files: dict[str, list[str]]
    runs: dict[str, list[Run]]

    @property
    def has_reports(self) -> bool:
        return any(self.runs.values())

    @property
    def are_requests(self) -> bool:
        """Whether reports can be read as records: one run an arm, every request with its time."""
        alike = all(len(runs) + bool(self.files[arm]) == 1 for arm, runs in self.runs.items())
        return alike and all(run.records is not None for runs in self.runs.values() for run in runs)


def run(args: argparse.Namespace) -> int:
    """Judge the files; 0 PASS, 1 FAIL, 3 INCONCLUSIVE."""
    contract = load_contract(args.policy)
    if not 0.0 <= args.every < math.inf:
        raise BadInput("--every", str(args.every), "is no time", "write seconds, 0 or more")
    floor_s = _floor(args.tpot_floor)
    arms = _arms(args)
    if arms.has_reports and not arms.are_requests:
        verdict = _judge_reports(args, contract, arms, floor_s)
    else:
        verdict = _judge_records(args, contract, arms, floor_s)
    for warning in verdict.warnings:
        note(printable(warning))
    emit(args, judge_document(verdict), lambda: _text(verdict))
    return EXIT[verdict.result]


def _floor(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration_seconds(text)
    except ValueError as error:
        raise BadInput("--tpot-floor", text, str(error), "write for example 4ms") from error


def _arms(args: argparse.Namespace) -> Arms:
    """Which files are given, and which of them are reports."""
    if bool(args.records) == bool(args.stable or args.candidate):
        raise BadInput("--records", "", "says nothing, or says it twice", "give --records, or --stable and --candidate")
    for name in args.records:
        if runs_in(name) is not None:
            raise BadInput(name, "", "is a report, which is of one variant", "give it as --stable or --candidate")
    files: dict[str, list[str]] = {arm: [] for arm in _ARMS}
    runs: dict[str, list[Run]] = {arm: [] for arm in _ARMS}
    for arm, names in zip(_ARMS, (args.stable, args.candidate), strict=True):
        for name in names:
            found = runs_in(name)
            if found is None:
                files[arm].append(name)
            else:
                runs[arm].extend(found)
    return Arms(tuple(args.records), files, runs)


# --- reports without requests ---


def _judge_reports(args: argparse.Namespace, contract: Contract, arms: Arms, floor_s: float | None) -> Verdict:
    for arm in _ARMS:
        if arms.files[arm] and not arms.runs[arm]:
            problem = "holds request records, the other variant's report has no requests with their times"
            raise BadInput(arms.files[arm][0], "", problem, "give records, or reports, of both variants")
    if not arms.runs["candidate"]:
        raise BadInput("--candidate", "", "is missing", "give the candidate's report")
    if args.history:
        raise BadInput("--history", "", "has no use beside reports", "leave it out: reports have no order")
    return judge_runs(contract, arms.runs["stable"], arms.runs["candidate"], tenant_of(contract, args.tenant), floor_s)


# --- records ---


def _judge_records(args: argparse.Namespace, contract: Contract, arms: Arms, floor_s: float | None) -> Verdict:
    progress = Progress()
    try:
        return _judge_columns(args, contract, arms, floor_s, progress)
    finally:
        progress.done()


def _judge_columns(
    args: argparse.Namespace, contract: Contract, arms: Arms, floor_s: float | None, progress: Progress
) -> Verdict:
    step, guards = _step_columns(args, contract, arms, progress)
    guards = [*guards, *_cache_holds(args)]
    history = _history(args, step, progress) if args.history else None
    try:
        doing = progress.doing("judged")
        return judge_columns(contract, step, history, args.every, doing, guards, floor_s).verdict
    except TooLarge as error:
        raise BadInput(_first_file(args), "", str(error), "give the records of one step, or fewer tenants") from error


def _history(args: argparse.Namespace, step: Columns, progress: Progress) -> Columns:
    """Stable's records before the step; what is the candidate's, or of the step itself, is left out."""
    remedy = "give stable's records before the step, or leave --history out"
    history = Columns(assumed="stable")
    for name in args.history:
        read_columns(name, history, None, progress)
    refuse_nothing(args.history[0], history, remedy)
    of_candidate = is_candidate(history)
    step.treat("historyOfCandidate", int(of_candidate.sum()))
    history.leave_out(of_candidate)
    step.treat("historyOfStep", leave_out_step(history, step))
    if not len(history.floats("t_start_s")):
        raise BadInput(args.history[0], "", "holds no request of stable from before the step", remedy)
    return history


def _step_columns(
    args: argparse.Namespace, contract: Contract, arms: Arms, progress: Progress
) -> tuple[Columns, Sequence[Hold]]:
    columns = Columns()
    for name in arms.both:
        read_columns(name, columns, None, progress)
    for arm in _ARMS:
        for name in arms.files[arm]:
            read_columns(name, columns, arm, progress)
        if arms.runs[arm]:
            add_runs(arms.runs[arm], columns, arm, tenant_of(contract, args.tenant))
    refuse_nothing(_first_file(args), columns, "record some")
    progress.done()
    if arms.both or (shift := align_arms(columns, arms.has_reports)) is None:
        return columns, ()
    note(f"the arms were recorded at different times: candidate moved by {shift:.0f} s to stable's start")
    if all(arms.runs[arm] for arm in _ARMS):
        unequal = unequal_runs(*(arms.runs[arm][0].summary for arm in _ARMS))
    else:
        unequal = unequal_load(columns)
    return columns, () if unequal is None else (unequal,)


def _first_file(args: argparse.Namespace) -> str:
    return str((args.records or args.stable or args.candidate)[0])


def _cache_holds(args: argparse.Namespace) -> list[Hold]:
    """Whether the arms' prefix caches were equally warm, where both pages are given."""
    pages = (args.stable_metrics, args.candidate_metrics)
    if not any(pages):
        return []
    if not all(pages):
        raise BadInput("--stable-metrics", "", "and --candidate-metrics go together", "give both, or none")
    found = cache_hold(cache_use(args.stable_metrics), cache_use(args.candidate_metrics))
    return [] if found is None else [found]


def judge_document(verdict: Verdict) -> dict[str, Any]:
    """The document of `-o json`."""
    data = verdict.to_dict()
    return {
        "verdict": data["result"],
        "decided_at_s": data["decided_at_s"],
        "rollback": data["rollback"],
        "strata": data["rows"],
        "holds": data["holds"],
        "sentences": data["sentences"],
        "worst": data["worst"],
        "warnings": data["warnings"],
    }


_ADVICE = {
    Result.PASS: "the step may advance",
    Result.FAIL: "roll back",
    Result.INCONCLUSIVE: "stay at this weight",
}
_ORDER = (Result.FAIL, Result.INCONCLUSIVE, Result.PASS)
_MOST_LINES = 40


def _text(verdict: Verdict) -> str:
    """What to do, why, then the checks: broken ones, open ones, and how many passed."""
    when = "" if verdict.decided_at_s is None else f" after {verdict.decided_at_s:.0f} s"
    lines = [f"{verdict.result.value}{when}: {_ADVICE[verdict.result]}"]
    lines += [f"  {sentence}" for sentence in verdict.sentences]
    told = [r for r in verdict.rows if r.verdict is not Result.PASS or verdict.result is Result.PASS]
    told.sort(key=lambda r: _ORDER.index(r.verdict))
    lines += ["", *(_line(row, verdict.result) for row in told[:_MOST_LINES])]
    if len(told) > _MOST_LINES:
        lines.append(f"and {len(told) - _MOST_LINES} more checks, see -o json")
    if passed := len(verdict.rows) - len(told):
        lines.append(f"pass  {passed} {'other ' if told else ''}check{'' if passed == 1 else 's'}")
    return "\n".join(map(printable, lines))


def _line(row: GateRow, result: Result) -> str:
    mark = {Result.PASS: "pass", Result.FAIL: "FAIL", Result.INCONCLUSIVE: "open"}[row.verdict]
    eta = "" if row.eta_s is None else f", {_time(row.eta_s)} at this rate"
    words = row.reason
    if result is Result.FAIL and row.verdict is Result.INCONCLUSIVE:
        words, eta = words.split("; about ", 1)[0], ""  # nobody waits for these any more
    dry = " (dry run)" if row.mode == "dryRun" else ""
    return f"{mark}  {row.gate:<11} {words}{eta}{dry}"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
