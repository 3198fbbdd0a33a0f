"""Every real file: documents, engine, role, settings, unresolved and warnings, checked by hand once, kept since.

``WEIGHLOCK_GOLDEN=write`` rewrites the table; a review then reads the difference.
"""

import json
import os
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


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_real_file_reads_as_its_authors_meant_it(name: str, shared_data: Path) -> None:
    found = summary(import_files([(name, (shared_data / "k8s" / name).read_bytes())]))
    if os.environ.get("WEIGHLOCK_GOLDEN") == "write":
        TABLE[name] = found
        GOLDEN.write_text(json.dumps(TABLE, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
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
