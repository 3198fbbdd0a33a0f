"""`weighlock approve`, `reject`, `pause`, `resume`, `abort`, `rollback`, `retry`, `skip`: one RolloutAction each.

Prints what is signed, asks, creates the object as the person of the kubeconfig, and says what the operator made of it.
What the API server refuses is reported to the rollout's audit trail, as the dashboard does.
"""

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

from controller.adapters.evidence_client import EvidenceProblem, post_audit
from controller.cli.errors import BadInput
from controller.cli.evidence import fetch_evidence, where_and_who
from controller.cli.kube import Cluster, Refused, register_cluster
from controller.cli.output import emit, note
from controller.person import WORDS, Signed, make_signed, why_not
from crds.v1alpha1.action import ActionKind

OUTCOME_SECONDS = 5.0
"""How long the operator gets to say what becomes of an act; it needs a fraction of a second."""

_POLL_SECONDS = 0.3
APPLIED = "applied"


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of all actions; `rollback` has a target."""
    parser.add_argument("name", metavar="NAME", help="InferenceRollout")
    parser.add_argument("--reason", default="", help="why; kept with your name (an approval needs one)")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    if parser.get_default("command") == ActionKind.ROLLBACK.value:
        parser.add_argument(
            "--to", default="", metavar="REVISION", help="revision to put back (default: the one before)"
        )
    register_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Sign and create; 0 when it was taken, 1 when the person said no or the operator found it without effect."""
    action = ActionKind(args.command)
    if action is ActionKind.APPROVE and not args.reason.strip():
        raise BadInput("approve", "--reason", "an approval without a reason is refused", "say what you looked at")
    cluster = Cluster(args)
    rollout = cluster.rollout(args.name)
    signed = make_signed(rollout, action, cluster.user(), args.reason.strip(), getattr(args, "to", ""))
    pointless = why_not(rollout, action)
    print(_describe(signed), file=sys.stderr)
    if pointless:
        note(f"{pointless} It will probably have no effect.")
    if not args.yes and not _agreed(signed):
        note("nothing was done")
        return 1
    created = _create(cluster, signed)
    outcome, why = _outcome(cluster, args.name, str(created["metadata"].get("uid") or ""))
    name = created["metadata"]["name"]
    document = {"created": name, "namespace": signed.namespace, "spec": created["spec"]}
    emit(args, {**document, "outcome": outcome, "message": why}, lambda: _result(name, args.name, outcome, why))
    return 0 if outcome in (None, APPLIED) else 1


def _create(cluster: Cluster, signed: Signed) -> dict[str, Any]:
    """Create the object; a refusal of the API server goes to the audit trail, then on to the person."""
    try:
        return cluster.create_action(signed.to_object())
    except Refused as error:
        try:
            url, token = where_and_who(cluster)
            post_audit(url, token, signed.namespace, signed.rollout, signed.action.value, error.problem)
            note("the refusal is kept in the rollout's audit trail, with your name")
        except EvidenceProblem as problem:
            note(f"the refusal is in the API server's audit log only: {problem}")
        raise


def _outcome(cluster: Cluster, name: str, uid: str) -> tuple[str | None, str]:
    """What the operator made of an act: (`applied` or the reason why not, a sentence); None while nobody knows."""
    deadline_s = time.monotonic() + OUTCOME_SECONDS
    while True:
        try:
            rows = fetch_evidence(cluster, name, "/history")["actions"]
        except EvidenceProblem as problem:
            return None, str(problem)
        row: Mapping[str, Any] | None = next((r for r in rows if r["spec"].get("uid") == uid), None)
        if row is not None:
            return str(row["outcome"]), str(row["spec"].get("message") or "")
        if time.monotonic() > deadline_s:
            return None, "The operator has not dealt with it yet; an approval is kept until its step can begin."
        time.sleep(_POLL_SECONDS)


def _result(created: str, rollout: str, outcome: str | None, why: str) -> str:
    if outcome == APPLIED:
        return f"rolloutaction/{created} created and in force"
    if outcome is None:
        return f"rolloutaction/{created} created. {why} weighlock status {rollout} shows what becomes of it."
    return f"rolloutaction/{created} created, WITHOUT EFFECT ({outcome}): {why}"


def _describe(signed: Signed) -> str:
    title, meaning = WORDS[signed.action]
    step = f"{signed.step} ({signed.step_name})" if signed.step_name else str(signed.step)
    lines = [
        f"{title} {signed.namespace}/{signed.rollout}: {meaning}",
        f"  as        {signed.user}",
        f"  revision  {signed.revision or 'none named'}",
        f"  attempt   {signed.attempt}",
        f"  step      {step}",
        f"  evidence  {signed.evidence or 'none bound'}",
        f"  reason    {signed.reason or 'none given'}",
    ]
    return "\n".join(lines)


def _agreed(signed: Signed) -> bool:
    if not sys.stdin.isatty():
        raise BadInput(signed.action.value, "", "nobody is here to ask", "say --yes")
    print("Sign it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
