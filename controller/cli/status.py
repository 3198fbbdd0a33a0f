"""`weighlock status [NAME] [--watch]`: where a rollout is, what is missing, who must act."""

import argparse
import time
from typing import Any

from controller.adapters.evidence_client import EvidenceProblem, parse_live
from controller.cli.errors import BadInput
from controller.cli.evidence import fetch_evidence
from controller.cli.kube import Cluster, register_cluster
from controller.cli.output import emit
from controller.dashboard.page import Page, make_line, make_page
from controller.evidence.views import LiveView
from controller.person import who_acts

_WATCH_SECONDS = 2.0


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="InferenceRollout (default: all of the namespace)")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="all namespaces")
    parser.add_argument("-w", "--watch", action="store_true", help="a live screen, until interrupted")
    register_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Print it once, or keep a screen up to date."""
    if args.watch and args.output != "text":
        raise BadInput("status", "--watch", f"cannot be combined with -o {args.output}", "drop one of them")
    cluster = Cluster(args)
    if args.watch:
        return _watch(args, cluster)
    document, view = _look(args, cluster)
    emit(args, document, lambda: _plain_text(view))
    return 0


def _look(args: argparse.Namespace, cluster: Cluster) -> tuple[dict[str, Any], Any]:
    """The JSON document, and what rich prints."""
    from controller.cli import screen

    if not args.name:
        rollouts = cluster.rollouts(args.all_namespaces)
        entries = [{**r["metadata"], "status": r.get("status") or {}, "who_acts": who_acts(r)} for r in rollouts]
        return {"rollouts": [_short(entry) for entry in entries]}, screen.Listing(make_line(r) for r in rollouts)
    rollout = cluster.rollout(args.name)
    live, problem = _live(cluster, args.name)
    page = make_page(rollout, (), live, None, problem)
    return _document(page, rollout), screen.rollout(page, who_acts(rollout))


def _short(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: entry[key] for key in ("namespace", "name", "status", "who_acts")}


def _live(cluster: Cluster, name: str) -> tuple[LiveView | None, str]:
    """The operator's view, or why there is none: the status of the object is enough to go on."""
    try:
        return parse_live(fetch_evidence(cluster, name)), ""
    except EvidenceProblem as error:
        return None, str(error)


def _document(page: Page, rollout: dict[str, Any]) -> dict[str, Any]:
    return {
        "namespace": page.namespace,
        "name": page.name,
        "phase": page.phase,
        "attempt": page.attempt,
        "step": {"index": page.step_index, "name": page.step_name, "weight": page.weight},
        "stable": page.stable,
        "candidate": page.candidate,
        "message": page.message,
        "conditions": (rollout.get("status") or {}).get("conditions") or [],
        "verdict": dict(page.verdict) or (rollout.get("status") or {}).get("verdict"),
        "who_acts": who_acts(rollout),
        "live": page.live.model_dump(mode="json") if page.live else None,
        "evidence_problem": page.evidence_problem or None,
    }


def _plain_text(view: Any) -> str:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


def _watch(args: argparse.Namespace, cluster: Cluster) -> int:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as screen:
        screen.update(_look(args, cluster)[1], refresh=True)
        while True:
            time.sleep(_WATCH_SECONDS)
            screen.update(_look_again(args, cluster), refresh=True)


def _look_again(args: argparse.Namespace, cluster: Cluster) -> Any:
    """The next screen; a server that is away for a moment ends no watch."""
    try:
        return _look(args, cluster)[1]
    except BadInput as error:
        from rich.text import Text

        return Text(f"{error}\nTrying again every {_WATCH_SECONDS:g} s.")
