"""`weighlock plan`: how long a step needs to prove every gate in every stratum, from stable's records.

Reads files, prints one document; all planning is in `policies`.
"""

import argparse
from typing import Any

from controller.cli.errors import BadInput
from controller.cli.output import emit, note, printable
from controller.cli.records import load_contract, read_columns, refuse_nothing
from policies.contract import Contract
from policies.offline import plan_history
from policies.plan import Plan, PlanRow, make_plan
from policies.record_files import Columns

_MOST_LINES = 20


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of `weighlock plan`."""
    parser.add_argument("--policy", required=True, metavar="FILE", help="RolloutPolicy object, or its bare spec (YAML)")
    parser.add_argument("--records", metavar="FILE", action="append", default=[], help="stable's records")
    parser.add_argument("--history", metavar="FILE", action="append", default=[], help="more of stable's records")
    parser.add_argument("--share", default="50%", help="share of a stratum's requests that the candidate gets (50%%)")
    parser.add_argument("--steps", default="", metavar="W1,W2,..", help="weights of several steps, in percent")


def run(args: argparse.Namespace) -> int:
    """Plan; 0 whatever the plan says, strata that cannot pass are named in it."""
    contract = load_contract(args.policy)
    files = [*args.records, *args.history]
    if not files:
        raise BadInput("--records", "", "is missing", "give a file of stable's request records")
    columns = Columns()
    for name in files:
        read_columns(name, columns)
    remedy = "give records of stable's traffic"
    refuse_nothing(files[0], columns, remedy)
    setup, history = plan_history(contract, columns)
    if not history.strata:
        raise BadInput(files[0], "", "holds no request of stable", remedy)
    steps = [text.strip() for text in args.steps.split(",") if text.strip()]
    shares = [_share(f"{text.rstrip('%')}%", "--steps") for text in steps] or [_share(args.share, "--share")]
    plans = [make_plan(setup, history, share) for share in shares]
    for warning in setup.warnings:
        note(printable(warning))
    emit(args, _document(plans, shares), lambda: _text(contract, plans, shares))
    return 0


def _share(text: str, option: str) -> float:
    """`25%`, `25` or `0.25` as a fraction; a share of everything leaves nothing to compare with."""
    try:
        value = float(text.strip().rstrip("%"))
    except ValueError as error:
        raise BadInput(option, text, "is no share", 'write for example "25%"') from error
    value = value / 100.0 if text.strip().endswith("%") or value > 1.0 else value
    if not 0.0 < value < 1.0:
        raise BadInput(option, text, "is not between 0 and 100 %", "stable needs requests to compare with")
    return value


def _row(row: PlanRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in PlanRow.__dataclass_fields__}


def _document(plans: list[Plan], shares: list[float]) -> dict[str, Any]:
    last = plans[-1]
    minutes = [p.minutes_90 for p in plans if p.minutes_90 is not None]
    found: dict[str, Any] = {
        "strata": [_row(row) for row in last.strata],
        "minutes_90": max(minutes) if minutes else None,
        "cannot_pass": [_row(row) for row in last.cannot_pass],
        "warnings": list(last.warnings),
    }
    if len(plans) > 1:
        found["steps"] = [
            {"share": s, "minutes_90": p.minutes_90, "cannot_pass": [_row(r) for r in p.cannot_pass]}
            for s, p in zip(shares, plans, strict=True)
        ]
    return found


def _text(contract: Contract, plans: list[Plan], shares: list[float]) -> str:
    lines = []
    for share, plan in zip(shares, plans, strict=True):
        total = "no check can pass" if plan.minutes_90 is None else f"{plan.minutes_90:.0f} min for the slowest check"
        lines.append(f"share {share:.0%}: {total} (90 %), maxHold {contract.max_hold_s / 60:.0f} min")
        slowest = sorted(plan.strata, key=lambda r: -(r.minutes_90 if r.minutes_90 is not None else 1e9))
        for row in slowest[:_MOST_LINES]:
            minutes = "never" if row.minutes_90 is None else f"{row.minutes_90:6.0f} min"
            need = "?" if row.requests_needed_90 is None else f"{row.requests_needed_90}"
            words = f"  {row.advice}" if row.advice else ""
            lines.append(f"  {minutes}  {row.tenant} {row.bucket} {row.metric} {row.gate}: {need} requests{words}")
        if len(slowest) > _MOST_LINES:
            never = f"{len(plan.cannot_pass)} of all {len(slowest)} cannot pass in time"
            lines.append(f"  and {len(slowest) - _MOST_LINES} faster checks, see -o json; {never}")
    return "\n".join(map(printable, lines))
