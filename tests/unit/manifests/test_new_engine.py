"""An engine is added by the checklist of ``manifests/catalog/README.md``: one file of switches, one entry of
``engines.json``, and nothing else."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from manifests import catalog
from manifests.diff import diff
from manifests.engines import profiles
from manifests.engines.metrics import parse_metrics
from manifests.layout import layout_of
from manifests.ledger import ledger
from manifests.lint import lint
from tests.unit.manifests.builders import build_import

SWITCHES = {
    "engine": "toy",
    "sampled": ["1.0", "1.2", "2.0"],
    "switches": [
        {"f": "--model", "t": "str", "d": "None", "m": "model_identity", "l": ["W"], "c": "contract-change"},
        {"f": "--ranks", "t": "int", "d": "1", "m": "parallelism", "l": ["W", "COMM"], "c": "semantic-exact"},
        {"f": "--context", "t": "int", "d": "4096", "m": "limits", "l": ["KV"], "c": "contract-change"},
        {
            "f": "--memory-share",
            "t": "float",
            "d": "0.8",
            "m": "paged_kv",
            "l": ["KV"],
            "c": "semantic-exact",
            "s": ["1.0", "2.0"],
            "h": [["1.0", "0.7"], ["2.0", "0.8"]],
        },
        {"f": "--metrics", "t": "bool", "d": "False", "m": "observability", "l": [], "c": "none", "n": "--no-metrics"},
    ],
}
PROFILE = {
    "name": "toy",
    "title": "Toy",
    "launchers": [{"command": "toy-server run"}, {"module": "toy.server"}],
    "images": [{"match": "/toy-server", "entrypoint": ["toy-server", "run"]}],
    "env": {"prefix": "TOY_"},
    "parallel": [["ranks"], [], [], []],
    "context": ["context"],
    "memory_share": ["memory-share"],
    "listens_locally": True,
    "metrics_switch": ["metrics", "Toy exports metrics only with --metrics"],
    "metric_prefixes": ["toy_"],
    "metrics": {"requests_running": ["running"]},
}
IMAGE = "registry.example.org/toy-server:1.2"


@pytest.fixture(autouse=True)
def _with_toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "catalog"
    shutil.copytree(Path(catalog.__file__).parent, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (folder / "toy.json").write_text(json.dumps(SWITCHES), encoding="utf-8")
    engines = json.loads((folder / "engines.json").read_text(encoding="utf-8"))
    engines["engines"].append(PROFILE)
    (folder / "engines.json").write_text(json.dumps(engines), encoding="utf-8")
    monkeypatch.setattr(profiles, "folder", lambda: folder)
    monkeypatch.setattr(catalog, "folder", lambda: folder)
    _forget()
    yield
    _forget()


def _forget() -> None:
    for cached in (profiles.profiles, profiles.commands, profiles.modules, profiles.catalog_files, catalog.load):
        cached.cache_clear()
    catalog._raw.cache_clear()


def test_it_is_read_from_image_command_flags_and_variables() -> None:
    found = build_import(IMAGE, args=["--model", "org/m", "--ranks=2", "--metrix"], env={"TOY_CONTEXT": "8192"}, gpu=2)
    manifest = found.manifests[0]
    assert (manifest.engine.name, manifest.engine.version, manifest.model.id) == ("toy", "1.2", "org/m")
    assert {name: setting.value for name, setting in manifest.settings.items() if name != "metrix"} == {
        "model": "org/m",
        "ranks": 2,
        "context": 8192,
    }
    assert any("nearest known one is `--metrics`" in warning.message for warning in found.warnings)
    module = build_import("any/image:1", command=["python3", "-m", "toy.server", "--model", "org/m"]).manifests[0]
    assert module.engine.name == "toy"


def test_layout_ledger_and_lint_know_it() -> None:
    args = ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--ranks", "2"]
    found = build_import(IMAGE, args=args, gpu=4)
    manifest = found.manifests[0]
    assert layout_of(manifest).tensor == 2
    book = ledger(manifest, hardware="H100-SXM-80GB", context=4096)
    assert book.kv_bytes_per_token == 65_536 and book.fits is True
    assert {"gpu-unused", "host-localhost", "metrics-off"} <= {finding.code for finding in lint(found)}


def test_a_default_that_flips_is_a_line_of_the_diff() -> None:
    old = build_import(IMAGE, args=["--model", "org/m"])
    new = build_import(IMAGE.replace("1.2", "2.0"), args=["--model", "org/m"])
    lines = {line.setting: (line.old, line.new, line.mechanism) for line in diff(old, new).changes}
    assert lines["memory-share"] == (0.7, 0.8, "paged_kv")


def test_its_metrics_have_canonical_names() -> None:
    page = parse_metrics("# TYPE toy_running gauge\ntoy_running 3\n")
    assert page.engine == "toy" and page.value("requests_running") == 3
