"""`weighlock approve`, `reject`, `pause`, `resume`, `abort`, `rollback`, `retry`, `skip`: one RolloutAction each.

Prints what is signed, asks, and creates the object as the person of the kubeconfig.
"""

import argparse
import sys

from controller.cli.errors import BadInput
from controller.cli.kube import Cluster, register_cluster
from controller.cli.output import emit, note
from controller.person import WORDS, Signed, make_signed, why_not
from crds.v1alpha1.action import ActionKind


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
    """Sign and create; 0 when the API server took it, 1 when the person said no."""
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
    created = cluster.create_action(signed.to_object())
    name = created["metadata"]["name"]
    document = {"created": name, "namespace": signed.namespace, "spec": created["spec"]}
    emit(args, document, lambda: f"rolloutaction/{name} created; weighlock status {args.name} shows what becomes of it")
    return 0


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
