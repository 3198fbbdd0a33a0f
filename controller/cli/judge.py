"""`weighlock judge`: PASS, FAIL or INCONCLUSIVE from files of request records, by the operator's own judge.

Reads files, prints one document; all judging is in `policies`.
"""

import argparse
import sys
import time
from typing import Any

from controller.cli.errors import BadInput
from controller.cli.output import emit, note
from controller.cli.records import load_contract, read_columns
from policies.offline import align_arms, judge_columns
from policies.record_files import Columns
from policies.verdict import GateRow, Result, Verdict

EXIT = {Result.PASS: 0, Result.FAIL: 1, Result.INCONCLUSIVE: 3}
_PROGRESS_SECONDS = 2.0


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of `weighlock judge`."""
    parser.add_argument("--policy", required=True, metavar="FILE", help="RolloutPolicy object, or its bare spec (YAML)")
    parser.add_argument("--records", metavar="FILE", action="append", default=[], help="records of both variants")
    parser.add_argument("--stable", metavar="FILE", action="append", default=[], help="records of stable")
    parser.add_argument("--candidate", metavar="FILE", action="append", default=[], help="records of the candidate")
    parser.add_argument(
        "--history", metavar="FILE", action="append", default=[], help="stable's records before the step"
    )
    parser.add_argument("--every", metavar="SECONDS", type=float, default=0.0, help="look at most this often")


def run(args: argparse.Namespace) -> int:
    """Judge the files; 0 PASS, 1 FAIL, 3 INCONCLUSIVE."""
    contract = load_contract(args.policy)
    step = _step_columns(args)
    history = None
    if args.history:
        history = Columns()
        for name in args.history:
            read_columns(name, history, "stable")
    judged = judge_columns(contract, step, history, args.every, _Progress() if sys.stderr.isatty() else None)
    verdict = judged.verdict
    for warning in verdict.warnings:
        note(warning)
    emit(args, judge_document(verdict), lambda: _text(verdict))
    return EXIT[verdict.result]


def _step_columns(args: argparse.Namespace) -> Columns:
    if bool(args.records) == bool(args.stable or args.candidate):
        raise BadInput("--records", "", "says nothing, or says it twice", "give --records, or --stable and --candidate")
    columns = Columns()
    for name in args.records:
        read_columns(name, columns)
    for variant, names in (("stable", args.stable), ("candidate", args.candidate)):
        for name in names:
            read_columns(name, columns, variant)
    if not columns.lines:
        raise BadInput((args.records or args.stable or args.candidate)[0], "", "holds no request record", "record some")
    if args.stable and args.candidate and (shift := align_arms(columns)) is not None:
        note(f"the arms were recorded at different times: candidate moved by {shift:.0f} s to stable's start")
    return columns


class _Progress:
    """A line on the terminal, rewritten."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, part: float) -> None:
        now = time.monotonic()
        if now - self._last >= _PROGRESS_SECONDS:
            self._last = now
            print(f"\rweighlock: judged {part:.0%}", end="", file=sys.stderr, flush=True)


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


def _text(verdict: Verdict) -> str:
    when = "" if verdict.decided_at_s is None else f" after {verdict.decided_at_s:.0f} s"
    lines = [f"{verdict.result.value}{when}"]
    lines += [f"  {sentence}" for sentence in verdict.sentences]
    lines += ["", *(_line(row) for row in verdict.rows)]
    return "\n".join(lines)


def _line(row: GateRow) -> str:
    mark = {Result.PASS: "pass", Result.FAIL: "FAIL", Result.INCONCLUSIVE: "open"}[row.verdict]
    eta = "" if row.eta_s is None else f", about {row.eta_s / 60:.0f} min"
    dry = " (dry run)" if row.mode == "dryRun" else ""
    return f"{mark}  {row.gate:<11} {row.reason}{eta}{dry}"
