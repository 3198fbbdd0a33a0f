"""`weighlock ledger`: memory, KV capacity and step-time floor per GPU, every number with its formula. Computed in
`manifests`."""

import argparse
import json

from controller.cli.diff import check_hardware
from controller.cli.errors import BadInput
from controller.cli.manifest_files import import_names, one_manifest, read_bytes
from controller.cli.output import emit
from manifests.ledger import Ledger, amdahl_bound, compare_ledgers, ledger
from manifests.models import ModelFacts, from_config


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of `weighlock ledger`."""
    parser.add_argument("file", metavar="FILE", help="Kubernetes YAML or a RunManifest; - for stdin")
    parser.add_argument("--select", metavar="NAME", help="the manifest to compute (NAME or NAME/CONTAINER)")
    parser.add_argument("--hardware", metavar="H", help="accelerator, by its name in the catalogue")
    parser.add_argument("--concurrency", type=int, metavar="N", help="sequences that decode together")
    parser.add_argument("--context", type=int, metavar="N", help="tokens of each sequence")
    parser.add_argument(
        "--model-config", metavar="FILE", help="config.json of the model, instead of the catalogue's facts"
    )
    parser.add_argument("--bandwidth", type=float, metavar="B/S", help="bytes per second that a benchmark attained")
    parser.add_argument("--against", metavar="FILE", help="the old manifest, to compare with")
    parser.add_argument("--share", type=float, metavar="F", help="Amdahl: share of the time that gets faster, 0..1")
    parser.add_argument("--speedup", type=float, metavar="S", help="Amdahl: how many times faster that share gets")


def run(args: argparse.Namespace) -> int:
    """0, also when it does not fit: the answer says so."""
    check_hardware(args.hardware)
    for name in ("concurrency", "context", "bandwidth"):
        value = getattr(args, name)
        if value is not None and value <= 0:
            raise BadInput(f"--{name}", str(value), "is not above 0", "give a positive number")
    facts = _facts(args.model_config)
    book = _ledger(args, args.file, facts)
    document = book.to_json()
    if args.against:
        document["against"] = compare_ledgers(_ledger(args, args.against, facts), book)
    if args.share is not None or args.speedup is not None:
        document["amdahl_bound"] = _amdahl(args.share, args.speedup)
    emit(args, document, lambda: _text(book, document))
    return 0


def _ledger(args: argparse.Namespace, name: str, facts: ModelFacts | None) -> Ledger:
    manifest = one_manifest(import_names([name]), name, args.select)
    return ledger(manifest, args.hardware, args.concurrency, args.context, facts, args.bandwidth)


def _amdahl(share: float | None, speedup: float | None) -> float:
    if share is None or speedup is None:
        raise BadInput("--share", "", "and --speedup belong together", "give both")
    try:
        return amdahl_bound(share, speedup)
    except ValueError as error:
        raise BadInput("--share", str(share), str(error), "correct the numbers") from error


def _facts(name: str | None) -> ModelFacts | None:
    if name is None:
        return None
    try:
        config = json.loads(read_bytes(name))
        if not isinstance(config, dict):
            raise ValueError("no JSON object")
        return from_config(config, name)
    except (ValueError, RecursionError) as error:
        raise BadInput(name, "", f"is no model config.json ({error})", "give the model's own file") from error


def _text(book: Ledger, document: dict[str, object]) -> str:
    out = [
        f"model {book.model or 'unknown'}, accelerator {book.hardware or 'unknown'}, {book.gpus} per replica group; "
        "per accelerator:"
    ]
    for term in book.terms:
        mark = "~" if term.estimate else " "
        out.append(f" {mark}{term.name:<26} {_amount(term.value, term.unit):>22}   {term.formula}")
    out.append(f"fits: {'unknown' if book.fits is None else 'yes' if book.fits else 'NO'}")
    out += [f"unknown: {text}" for text in book.unknown]
    against = document.get("against")
    if isinstance(against, list):
        out += [f"against old: {row['name']} {row['old']} -> {row['new']}" for row in against]
    if "amdahl_bound" in document:
        out.append(f"Amdahl bound: {document['amdahl_bound']:.4g}")
    return "\n".join(out)


def _amount(value: float | int | None, unit: str) -> str:
    if value is None:
        return "unknown"
    if unit == "bytes" and value >= 2**20:
        return f"{value / 2**30:,.3f} GiB"
    if unit == "seconds":
        return f"{value * 1000:,.3f} ms"
    return f"{value:,.6g} {unit}" if isinstance(value, float) else f"{value:,} {unit}"
