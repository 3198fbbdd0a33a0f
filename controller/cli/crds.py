"""`weighlock crds`: the CustomResourceDefinitions and the admission policy, ready for `kubectl apply -f -`."""

import argparse
from typing import Any

from controller.cli.output import emit
from crds.admission import admission_objects
from crds.generate import make_crds


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--only", choices=("crds", "admission"), help="one of the two")


def run(args: argparse.Namespace) -> int:
    """Print them: as text (and `-o yaml`) a stream of YAML documents, as JSON a List."""
    objects: list[dict[str, Any]] = []
    if args.only != "admission":
        objects += make_crds().values()
    if args.only != "crds":
        objects += admission_objects()
    if args.output == "yaml":
        args.output = "text"  # one document per object is what kubectl reads
    emit(args, {"apiVersion": "v1", "kind": "List", "items": objects}, lambda: _documents(objects))
    return 0


def _documents(objects: list[dict[str, Any]]) -> str:
    import yaml

    return "---\n" + yaml.safe_dump_all(objects, sort_keys=False, width=110)
