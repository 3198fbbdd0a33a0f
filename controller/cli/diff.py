"""`weighlock diff`: compare two manifests by their effective values. All comparing is in `manifests`."""

import argparse
import os
import shutil
import sys

from controller.cli.errors import BadInput
from controller.cli.manifest_files import import_names, refuse_bad
from controller.cli.output import emit
from manifests.diff import PairingError, diff
from manifests.hardware import find_accelerator, names
from manifests.model import ImportResult
from manifests.render import render_text


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of `weighlock diff`."""
    parser.add_argument("old", metavar="OLD", help="Kubernetes YAML or a RunManifest; - for stdin")
    parser.add_argument("new", metavar="NEW", help="Kubernetes YAML or a RunManifest")
    parser.add_argument("--select", metavar="NAME", help="compare this manifest only (NAME or NAME/CONTAINER)")
    parser.add_argument("--hardware", metavar="H", help="accelerator of both sides, by its name in the catalogue")
    parser.add_argument("--exit-code", action="store_true", help="exit 1 when something changes effectively")
    parser.add_argument("--colour", "--color", choices=("auto", "always", "never"), default="auto")


def run(args: argparse.Namespace) -> int:
    """0, or 1 with `--exit-code` when the diff is effective."""
    check_hardware(args.hardware)
    salt = os.urandom(16)
    old, new = import_names([args.old], salt=salt), import_names([args.new], salt=salt)
    for side in (old, new):
        refuse_bad(side)
    try:
        result = diff(old, new, args.hardware, args.select)
    except PairingError as error:
        remedy = (
            f"choose with --select: {', '.join(error.choices)}"
            if error.choices
            else "give a workload; `weighlock import` says what was found"
        )
        raise BadInput(_blame(args, old), "", str(error), remedy) from error
    emit(args, result.to_json(), lambda: render_text(result, _colour(args.colour), _width()).rstrip("\n"))
    return 1 if args.exit_code and result.effective else 0


def check_hardware(name: str | None) -> None:
    """Refuse an accelerator that the catalogue does not have."""
    if name is not None and find_accelerator(name) is None:
        raise BadInput("--hardware", name, "is not in the catalogue", f"use one of {', '.join(names())}")


def _blame(args: argparse.Namespace, old: ImportResult) -> str:
    return str(args.old if not old.manifests else args.new)


def _width() -> int:
    """Columns of the terminal, within what reads well."""
    return min(120, max(60, shutil.get_terminal_size((80, 24)).columns))


def _colour(choice: str) -> bool:
    return choice == "always" or (choice == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ)
