"""`weighlock history NAME [--attempt N] [--rejudge]`: what was decided, on which evidence, by whom."""

import argparse
from typing import Any

from controller.adapters.evidence_client import EvidenceProblem
from controller.cli.errors import BadInput
from controller.cli.evidence import fetch_evidence
from controller.cli.kube import Cluster, register_cluster
from controller.cli.output import emit, note
from controller.dashboard import words


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("name", metavar="NAME", help="InferenceRollout")
    parser.add_argument("--attempt", type=int, metavar="N", help="one attempt (default: all; for --rejudge the last)")
    parser.add_argument(
        "--rejudge", action="store_true", help="judge again from stored counts alone and compare every verdict"
    )
    register_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """0, or 1 when a stored verdict does not come out again."""
    cluster = Cluster(args)
    rollout = cluster.rollout(args.name)
    if args.rejudge:
        return _rejudge(args, cluster, rollout)
    document = _history(args, cluster, rollout)
    emit(args, document, lambda: _text(document))
    return 0


def _history(args: argparse.Namespace, cluster: Cluster, rollout: dict[str, Any]) -> dict[str, Any]:
    """From the store; where the evidence API does not answer, what the object itself remembers."""
    params = {} if args.attempt is None else {"attempt": args.attempt}
    try:
        return dict(fetch_evidence(cluster, args.name, "/history", **params))
    except EvidenceProblem as error:
        note(f"{error} Shown is what the object's status remembers.")
    remembered = (rollout.get("status") or {}).get("history") or []
    attempts = [
        {
            "attempt": entry.get("attempt"),
            "revision": entry.get("revision"),
            "started_at_s": None,
            "finished_at_s": words.moment(entry.get("finishedAt")),
            "phase": entry.get("result"),
            "reason": entry.get("reason"),
        }
        for entry in remembered
        if args.attempt in (None, entry.get("attempt"))
    ]
    empty: list[Any] = []
    rollout_name = f"{cluster.namespace}/{args.name}"
    return {
        "rollout": rollout_name,
        "attempts": attempts,
        "decisions": empty,
        "verdicts": empty,
        "actions": empty,
        "audit": empty,
    }


def _rejudge(args: argparse.Namespace, cluster: Cluster, rollout: dict[str, Any]) -> int:
    attempt = args.attempt if args.attempt is not None else int((rollout.get("status") or {}).get("attempt") or 0)
    try:
        report = dict(fetch_evidence(cluster, args.name, "/rejudge", attempt=attempt))
    except EvidenceProblem as error:
        raise BadInput(args.name, "--rejudge", str(error), "stored counts are at the operator only") from None
    if report["problem"]:
        raise BadInput(args.name, f"attempt {attempt}", report["problem"], "choose another one with --attempt")
    emit(args, report, lambda: _rejudge_text(report))
    return 0 if report["same"] else 1


def _text(document: dict[str, Any]) -> str:
    lines = [f"{'ATTEMPT':>7}  {'REVISION':<10}  {'PHASE':<12}  {'REASON':<22}  LAST CHANGE"]
    for entry in document["attempts"]:
        row = (entry["revision"] or "", entry["phase"] or "", entry["reason"] or "")
        when = words.clock(entry["finished_at_s"])
        lines.append(f"{entry['attempt']:>7}  {row[0]:<10}  {row[1]:<12}  {row[2]:<22}  {when}")
    events = [(row["at_s"], _decision(row)) for row in document["decisions"]]
    events += [(row["at_s"], _action(row)) for row in document["actions"]]
    events += [
        (row["at_s"], f"{row['what']} by {row['who']}: {row['content'].get('message', '')}")
        for row in document["audit"]
    ]
    if events:
        lines += ["", *(f"{words.clock(at_s)}  {text}" for at_s, text in sorted(events))]
    return "\n".join(lines)


def _decision(row: dict[str, Any]) -> str:
    message = (row.get("decision") or {}).get("message", "")
    late = " (stored late)" if row.get("late") else ""
    return f"attempt {row['attempt']}: {row['phase']} at {row['weight']} % ({row['reason']}) {message}{late}"


def _action(row: dict[str, Any]) -> str:
    spec = row["spec"]
    reason = spec.get("reason") or "no reason given"
    why = f": {spec['message']}" if spec.get("message") else ""
    outcome = f"[{row['outcome']}{why}]"
    return f"attempt {row.get('attempt', 0)}: {spec.get('action')} by {spec.get('user')}: {reason} {outcome}"


def _rejudge_text(report: dict[str, Any]) -> str:
    lines = [f"{'BLOCK':>8}  {'STEP':>4}  {'STORED':<12}  {'REJUDGED':<12}  SAME  AT"]
    for entry in report["verdicts"]:
        mark = "yes" if entry["same"] else "NO"
        again = entry["rejudged"] or "unknown"
        place = f"{entry['last_seq']:>8}  {entry['step']:>4}  {entry['stored']:<12}  {again:<12}"
        lines.append(f"{place}  {mark:<4}  {words.clock(entry['at_s'])}")
        lines += [f"          {difference}" for difference in entry["differences"]]
    equal = sum(entry["same"] for entry in report["verdicts"])
    lines.append(f"{equal} of {len(report['verdicts'])} verdicts follow from stored counts alone.")
    return "\n".join(lines)
