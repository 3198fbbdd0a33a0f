"""Every real file: documents, engine, role, settings, unresolved and warnings, checked by hand once, kept since.

"Checked" means: for every row of ``tests/golden/manifests/k8s.json`` a person read the file beside it and compared
(1) that each YAML document stands there once, with its kind, its name and what became of it; (2) engine and version
with the image's tag; (3) role, rank, replicas, accelerators and pods with the object; (4) every setting: that it is
written in the file, with that value, on that line (of its flag, or of the text block that holds it; none for what a
chart, an operator or a file inside a script composes), and that nothing that is written is missing; (5) that
``unresolved`` holds what only the running pod can know, and nothing else; (6) each finding's code. The expected values
are ours, the files stay where they are. :func:`test_no_written_flag_is_lost` repeats (4) mechanically: it finds the
flags of the files with a pattern, not with the product's reader.

``WEIGHLOCK_GOLDEN=write`` rewrites the table (one setting a line); a review then reads the difference.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from manifests.importing import import_files
from manifests.model import ImportResult

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "manifests" / "k8s.json"
TABLE: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))


def summary(result: ImportResult) -> dict[str, Any]:
    """What the table keeps of an import."""
    return {
        "refused": [[entry.path, entry.problem] for entry in result.refused],
        "documents": [[entry.index, entry.kind, entry.name, entry.handled] for entry in result.documents],
        "warnings": sorted({warning.code for warning in result.warnings}),
        "manifests": [
            {
                "name": m.name,
                "container": m.container,
                "role": m.role,
                "rank": m.rank,
                "engine": m.engine.name,
                "version": m.engine.version,
                "model": m.model.id,
                "replicas": m.replicas,
                "gpu": m.resources.get("gpu"),
                "accelerator": m.resources.get("accelerator"),
                "pods": m.resources.get("pods"),
                "unresolved": [entry.what for entry in m.unresolved],
                "settings": {name: [s.value, s.origin, s.line] for name, s in m.settings.items()},
            }
            for m in result.manifests
        ],
    }


def table_text(table: dict[str, Any]) -> str:
    """The table as it is kept: one setting a line, so that a review sees single values."""
    return "{\n" + ",\n".join(f"{_line(name)}: {_entry(entry)}" for name, entry in table.items()) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _entry(entry: dict[str, Any]) -> str:
    head = "".join(f'  "{key}": {_line(entry[key])},\n' for key in ("refused", "documents", "warnings"))
    manifests = ",\n".join(f"   {_manifest(manifest)}" for manifest in entry["manifests"])
    return "{\n" + head + '  "manifests": [' + (f"\n{manifests}" if manifests else "") + "]}"


def _manifest(manifest: dict[str, Any]) -> str:
    head = _line({key: value for key, value in manifest.items() if key != "settings"})
    lines = ",\n".join(f"     {_line(name)}: {_line(value)}" for name, value in manifest["settings"].items())
    return f'{head[:-1]}, "settings": {{' + (f"\n{lines}" if lines else "") + "}}"


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_real_file_reads_as_its_authors_meant_it(name: str, shared_data: Path) -> None:
    found = summary(import_files([(name, (shared_data / "k8s" / name).read_bytes())]))
    if os.environ.get("WEIGHLOCK_GOLDEN") == "write":
        TABLE[name] = found
        GOLDEN.write_text(table_text(TABLE), encoding="utf-8")
    assert json.loads(json.dumps(found)) == TABLE[name]


def test_no_real_file_is_left_out(shared_data: Path) -> None:
    assert {path.name for path in (shared_data / "k8s").glob("*.yaml")} == set(TABLE)


def test_all_files_in_one_call_answer_the_good_ones_and_name_the_bad_ones(shared_data: Path) -> None:
    files = [(path.name, path.read_bytes()) for path in sorted((shared_data / "k8s").glob("*.yaml"))]
    result = import_files(files)
    assert [entry.file[:2] for entry in result.refused] == ["12", "14", "23"]
    assert len(result.manifests) == sum(len(entry["manifests"]) for entry in TABLE.values())
    keys = [(entry.file, entry.index) for entry in result.documents]
    assert len(keys) == len(set(keys)) == sum(len(entry["documents"]) for entry in TABLE.values())


_FLAG = re.compile(r"""(?:^|[\s"'\[,`])--?([A-Za-z][\w-]+)(?=[\s=."',\]]|$)""")
_FILES_OF_ANOTHER_PROGRAM = re.compile(r"^\s*(?:#|\w+=.*\$\(|.*\b(?:curl|sleep|ray start|pip|apt|find|awk|mkdir)\b)")


def flags_of(text: str) -> list[tuple[int, str]]:
    """``(line, flag)`` of everything that looks like a long flag on a line that is no comment."""
    out = []
    for number, line in enumerate(text.splitlines(), 1):
        if not _FILES_OF_ANOTHER_PROGRAM.match(line):
            out += [(number, name) for name in _FLAG.findall(line.split(" #")[0]) if f"--{name}" in line]
    return out


@pytest.mark.parametrize("name", [name for name in sorted(TABLE) if TABLE[name]["manifests"]])
def test_no_written_flag_is_lost(name: str, shared_data: Path) -> None:
    """Every flag that a pattern finds in the file reaches a program that the import shows, or a finding speaks of
    it."""
    text = (shared_data / "k8s" / name).read_text(encoding="utf-8")
    result = import_files([(name, text.encode())])
    shown = " ".join(word for m in result.manifests for word in m.argv) + " ".join(w.message for w in result.warnings)
    shown += " ".join(str(m.settings.keys()) for m in result.manifests)
    lost = {flag for _, flag in flags_of(text) if f"--{flag}" not in shown and f"'{flag}'" not in shown}
    assert lost - NO_FLAGS_OF_A_SERVER.get(name, set()) == set()


# what the pattern finds, but no serving program gets: init containers, tools in a script, comments behind a value
NO_FLAGS_OF_A_SERVER: dict[str, set[str]] = {
    "38-pstack-helm-values.yaml": {"gpu-memory-utilization"},
    "64-llmd-multilora.yaml": {"depth"},
    "72-lws-vllm-405b.yaml": {"ray_cluster_size", "ray_address"},
    "86-dynamo-nemotron-mtp.yaml": {"format", "query-gpu"},
}
