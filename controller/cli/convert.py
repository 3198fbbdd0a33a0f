"""`weighlock convert`: Argo, Flagger and Kruise rollouts as our objects. The readers are in `manifests.convert`."""

import argparse
from typing import Any

from controller.cli.errors import BadInput
from controller.cli.manifest_files import read_bytes
from controller.cli.output import emit, note
from manifests.convert import Converted, ConvertRefused, convert_files


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of `weighlock convert`."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="rollouts and metric templates of other tools; - for stdin"
    )


def run(args: argparse.Namespace) -> int:
    """Print our objects; what has no counterpart goes to stderr, or beside the objects in JSON."""
    try:
        converted = convert_files((name, read_bytes(name)) for name in args.files)
    except ConvertRefused as error:
        refusal = error.refusal
        raise BadInput(refusal.file, refusal.path, refusal.problem, refusal.remedy) from error
    emit(args, _document(converted), lambda: _text(converted))
    return 0


def _document(converted: Converted) -> dict[str, Any]:
    return {"objects": converted.objects, "notes": [finding.to_json() for finding in converted.notes]}


def _text(converted: Converted) -> str:
    """YAML that `kubectl apply -f -` takes, with the notes on stderr."""
    import yaml

    for finding in converted.notes:
        note(f"{finding.file}: {finding.level}: {finding.path}: {finding.message}")
    return "---\n".join(yaml.safe_dump(obj, sort_keys=False, allow_unicode=True) for obj in converted.objects)
