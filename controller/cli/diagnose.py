"""`weighlock diagnose`: which bottleneck an engine's metrics point to. The selection matrix is in `manifests`."""

import argparse
import json

from controller.cli.errors import BadInput
from controller.cli.manifest_files import import_names, one_manifest, read_bytes
from controller.cli.metrics import read_page
from controller.cli.output import emit
from manifests.diagnose import Diagnosis, diagnose
from manifests.model import Manifest
from manifests.witness import witnesses


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of `weighlock diagnose`."""
    parser.add_argument("--metrics", metavar="FILE|URL", help="the engine's /metrics")
    parser.add_argument("--stages", metavar="FILE", help="stage summary: a JSON object of observation -> number")
    parser.add_argument("--for", dest="proposed", metavar="MANIFEST", help="the manifest that is proposed")
    parser.add_argument("--mechanism", action="append", metavar="NAME", help="a mechanism that is proposed")
    parser.add_argument("--select", metavar="NAME", help="the manifest of the file (NAME or NAME/CONTAINER)")


def run(args: argparse.Namespace) -> int:
    """0 whatever the diagnosis says; 2 for bad input."""
    if not args.metrics and not args.stages:
        raise BadInput("--metrics", "", "is missing", "give the engine's /metrics, or --stages")
    stages = _stages(args.stages)
    manifest = one_manifest(import_names([args.proposed]), args.proposed, args.select) if args.proposed else None
    page = read_page(args.metrics) if args.metrics else None
    proposed: Manifest | list[str] | None = manifest if manifest is not None else args.mechanism
    answer = diagnose(page, proposed, stages) if page is not None else diagnose(stages, proposed)
    document = answer.to_json()
    if page is not None and manifest is not None:
        document["witnesses"] = [judgement.to_json() for judgement in witnesses(manifest, page)]
    emit(args, document, lambda: _text(answer))
    return 0


def _stages(name: str | None) -> dict[str, float]:
    if name is None:
        return {}
    try:
        loaded = json.loads(read_bytes(name))
    except (ValueError, RecursionError) as error:
        raise BadInput(name, "", f"is no JSON ({error})", "give an object of observation -> number") from error
    if not isinstance(loaded, dict):
        raise BadInput(name, "", "is no JSON object", "give an object of observation -> number")
    out = {}
    for key, value in loaded.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadInput(name, str(key), "is no number", "give numbers only")
        out[str(key)] = float(value)
    return out


def _text(answer: Diagnosis) -> str:
    out = [
        f"bottleneck: {answer.bottleneck}"
        + (f" (rule out first: {answer.rule_out_first})" if answer.rule_out_first else "")
    ]
    out += [f"  {entry.observation} = {entry.value:g} {entry.unit} ({entry.source})" for entry in answer.evidence]
    out += [f"{'helps' if addresses else 'does not help'}: {name}: {why}" for name, addresses, why in answer.mechanisms]
    out += [f"missing: {text}" for text in answer.missing]
    return "\n".join(out)
