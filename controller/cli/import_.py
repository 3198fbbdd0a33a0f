"""`weighlock import`: read Kubernetes YAML and print the run manifests in it. All reading is in `manifests`."""

import argparse

from controller.cli.manifest_files import import_names
from controller.cli.output import emit, note
from manifests.lines import show
from manifests.model import ImportResult

EXIT_BAD_INPUT = 2


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of `weighlock import`."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="Kubernetes YAML, Helm values, RunManifests; - for stdin"
    )
    parser.add_argument("--engine-version", metavar="V", help="the engine's version where the image does not say it")


def run(args: argparse.Namespace) -> int:
    """0 even with warnings; 2 when a file is bad (the others are answered all the same)."""
    result = import_names(args.files, args.engine_version)
    emit(args, result.to_json(), lambda: _text(result))
    for refusal in result.refused:
        where = f"{refusal.file}: {refusal.path}" if refusal.path else refusal.file
        note(f"{where}: {refusal.problem}; {refusal.remedy}")
    return EXIT_BAD_INPUT if result.refused else 0


def _text(result: ImportResult) -> str:
    out: list[str] = []
    for manifest in result.manifests:
        rank = f" {manifest.rank}" if manifest.rank else ""
        version = manifest.engine.version or "version unknown"
        out.append(f"{manifest.name}/{manifest.container}  {manifest.role}{rank}  {manifest.engine.name} {version}")
        out.append(
            "  model     "
            f"{manifest.model.id or 'unknown'}{' @ ' + manifest.model.revision if manifest.model.revision else ''}"
        )
        out.append(f"  resources {', '.join(f'{key}={value}' for key, value in manifest.resources.items())}")
        out += [
            f"  {_spelt(name):<34} {show(setting.value)}  ({setting.origin})"
            for name, setting in manifest.settings.items()
        ]
        out += [f"  ? {entry.what}: {entry.why}" for entry in manifest.unresolved]
        out += [f"  note: {manifest.reason}"] if manifest.reason else []
        out.append("")
    for document in result.documents:
        out.append(
            f"{document.file}[{document.index}] {document.kind or '-'} {document.name or '-'}: {document.handled}, "
            f"{document.reason}"
        )
    out += [
        f"{warning.level}: {warning.code}: {warning.message} ({warning.file} {warning.path})"
        for warning in result.warnings
    ]
    return "\n".join(out) or ("" if result.refused else "nothing to read: the input holds no YAML document")


def _spelt(name: str) -> str:
    """A setting as its author writes it: a flag with dashes, a variable and a key of a config file without."""
    return name if name.startswith(("env:", "llm_args.")) else f"--{name}"
