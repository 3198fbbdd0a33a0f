"""The commands: shapes of their answers, exit codes, one line for bad input."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.cli.main import main
from tests.unit.manifests.builders import deployment


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def make(file: str, content: str | None = None, **keywords: Any) -> str:
        path = tmp_path / file
        path.write_text(
            content if content is not None else yaml.safe_dump_all(deployment(**keywords)), encoding="utf-8"
        )
        return str(path)

    return make


def answer(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, Any, str]:
    code = main([*args, "-o", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def test_import_answers_the_good_files_and_names_the_bad_one(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, err = answer(capsys, "import", write("a.yaml", args=["--model", "m"]), write("b.yaml", "a:\n\tb: 1"))
    assert code == 2 and len(found["manifests"]) == 1
    assert [(entry["handled"], entry["index"]) for entry in found["documents"]] == [("manifest", 0), ("refused", 0)]
    assert err.count("\n") == 1 and "2:1" in err and "tab" in err
    manifest = found["manifests"][0]
    assert set(manifest) >= {
        "name",
        "namespace",
        "role",
        "source",
        "engine",
        "model",
        "argv",
        "settings",
        "environment",
        "resources",
        "unresolved",
        "digest",
    }
    assert manifest["settings"]["model"] == {"value": "m", "origin": "args", "written": "--model m", "line": 10}


def test_diff_and_its_exit_codes(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = write("a.yaml", args=["--model", "m"]), write("b.yaml", args=["--model", "m", "--max-num-seqs", "64"])
    code, found, _ = answer(capsys, "diff", old, new)
    assert code == 0 and found["effective"] and found["primary"] == {"mechanisms": ["scheduler"], "bundle": False}
    assert set(found["changes"][0]) >= {
        "setting",
        "old",
        "new",
        "origin",
        "mechanism",
        "ledgers",
        "class",
        "witness",
        "why",
    }
    assert answer(capsys, "diff", old, new, "--exit-code")[0] == 1
    assert answer(capsys, "diff", old, old, "--exit-code")[0] == 0
    assert main(["diff", old, new]) == 0
    text = capsys.readouterr().out
    assert "max-num-seqs" in text and "\x1b" not in text
    assert main(["diff", old, new, "--colour", "always"]) == 0
    assert "\x1b[" in capsys.readouterr().out


def test_a_diff_reads_what_import_prints(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    old = write("a.yaml", args=["--model", "m"])
    assert main(["import", old, "-o", "yaml"]) == 0
    stored = write("stored.yaml", capsys.readouterr().out)
    assert answer(capsys, "diff", stored, old, "--exit-code")[:2][0] == 0


def test_our_own_objects_are_read(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    template = deployment(args=["--model", "m", "--max-num-seqs", "8"])[0]["spec"]["template"]
    rollout = {
        "apiVersion": "weighlock.dev/v1alpha1",
        "kind": "InferenceRollout",
        "metadata": {"name": "chat"},
        "spec": {"replicas": 2, "template": template},
    }
    frozen = {
        "apiVersion": "weighlock.dev/v1alpha1",
        "kind": "RunManifest",
        "metadata": {"name": "chat-0123456789"},
        "spec": {"roles": [{"name": "chat", "replicas": 2, "template": template}]},
    }
    code, found, _ = answer(
        capsys, "diff", write("r.yaml", yaml.safe_dump(rollout)), write("m.yaml", yaml.safe_dump(frozen)), "--exit-code"
    )
    assert code == 0 and found["changes"] == []


@pytest.mark.parametrize(
    "args",
    [
        ["diff", "/nowhere/a.yaml", "/nowhere/b.yaml"],
        ["ledger", "/nowhere/a.yaml"],
        ["metrics", "/nowhere/m"],
        ["diagnose"],
    ],
)
def test_bad_input_is_one_line_and_exit_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("weighlock: ") and err.count("\n") == 1 and ";" in err


def test_what_cannot_be_paired_names_the_choices(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    two = yaml.safe_dump_all(
        [*deployment(name="a", args=["--model", "m"]), *deployment(name="b", args=["--model", "m"])]
    )
    one = write("one.yaml", name="c", args=["--model", "m"])
    assert main(["diff", one, write("two.yaml", two)]) == 2
    err = capsys.readouterr().err
    assert "a/engine" in err and "b/engine" in err and "--select" in err


def test_lint_exits_1_for_errors_only(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, _ = answer(capsys, "lint", write("a.yaml", args=["--model", "org/m", "-tp", "4"], gpu=1))
    assert code == 1 and found["findings"][0]["code"] == "gpu-count"
    assert answer(capsys, "lint", write("b.yaml", args=["--model", "org/m"]))[0] == 0


def test_ledger_shape(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("a.yaml", args=["--model", "meta-llama/Llama-3.1-8B-Instruct"])
    code, found, _ = answer(
        capsys,
        "ledger",
        path,
        "--hardware",
        "H100",
        "--context",
        "8192",
        "--concurrency",
        "16",
        "--share",
        "0.05",
        "--speedup",
        "2",
    )
    assert code == 0 and found["kv_bytes_per_token"] == 131072 and found["fits"] is True
    assert found["amdahl_bound"] == pytest.approx(1.0256, abs=1e-4)
    assert set(found["terms"][0]) >= {"name", "formula", "value", "unit"}
    assert main(["ledger", path, "--hardware", "nothing"]) == 2
    assert main(["ledger", path, "--context", "-5"]) == 2


def test_metrics_and_diagnose(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = write(
        "m.prom", "vllm:kv_cache_usage_perc 0.99\nvllm:num_preemptions_total 30\nvllm:request_success_total 100\n"
    )
    code, found, _ = answer(capsys, "metrics", page)
    assert code == 0 and found["engine"] == "vllm" and found["metrics"]["kv_usage_ratio"]["value"] == 0.99
    manifest = write("a.yaml", args=["--model", "m", "--kv-cache-dtype", "fp8"])
    code, found, _ = answer(capsys, "diagnose", "--metrics", page, "--for", manifest)
    assert code == 0 and found["bottleneck"] == "kv_almost_full"
    assert found["mechanisms"][0]["addresses"] is True and found["witnesses"][0]["state"] == "cannot_tell"
    assert main(["metrics", manifest]) == 2
