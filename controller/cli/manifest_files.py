"""Reading manifest files for the commands that take them: files, standard input, one bad file among several.

Called by `import`, `diff`, `lint`, `ledger` and `diagnose`.
"""

import os

from controller.cli.errors import BadInput
from controller.cli.input_files import read_at_most
from controller.cli.output import note
from manifests.importing import import_files
from manifests.model import ImportResult, Manifest
from manifests.yamlsafe import MAX_BYTES


def read_bytes(name: str) -> bytes:
    """The content of a file, `-` for standard input; what is too large is refused by whoever reads it."""
    return read_at_most(name, MAX_BYTES)


def import_names(names: list[str], engine_version: str | None = None, salt: bytes | None = None) -> ImportResult:
    """The manifests of several files, read together."""
    return import_files([(name, read_bytes(name)) for name in names], engine_version, salt or os.urandom(16))


def refuse_bad(result: ImportResult) -> None:
    """Raise for the first bad file, after naming the others on stderr."""
    for refusal in result.refused[1:]:
        note(f"{refusal.file}: {refusal.path}: {refusal.problem}; {refusal.remedy}")
    if result.refused:
        first = result.refused[0]
        raise BadInput(first.file, first.path, first.problem, first.remedy)


def one_manifest(result: ImportResult, file: str, select: str | None) -> Manifest:
    """The manifest that a command is about: the only server, or the one that `--select` names."""
    refuse_bad(result)
    names = [f"{m.name}/{m.container}" for m in result.manifests]
    if not result.manifests:
        raise BadInput(
            file, "", "holds no manifest that serves a model", "give a workload; `weighlock import` says what was found"
        )
    if select is not None:
        chosen = [m for m in result.manifests if select in (m.name, f"{m.name}/{m.container}")]
    else:
        chosen = [m for m in result.manifests if m.role not in ("sidecar", "router", "frontend") and m.rank != "worker"]
    if len(chosen) != 1:
        problem = f"nothing is called `{select}`" if select and not chosen else "holds several manifests"
        raise BadInput(file, "", problem, f"choose one with --select: {', '.join(names)}")
    return chosen[0]
