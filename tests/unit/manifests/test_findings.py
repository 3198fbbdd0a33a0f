"""Findings of reading and comparing: the smallest input of each, and no code that nothing gives."""

from pathlib import Path
from typing import Any

import pytest

import manifests
from manifests.codes import CODES
from manifests.diff import diff
from manifests.model import ImportResult
from tests.unit.manifests.builders import build_import, configmap, mounted

FILE = ["--model", "m", "--config", "/c/v.yaml"]


def with_file(text: str, *args: str) -> ImportResult:
    return build_import(args=[*FILE, *args], others=(configmap("c", v__yaml=text),), **mounted("c", "/c"))


def script(text: str) -> ImportResult:
    return build_import(command=["bash", "-c", text])


def levels(result: ImportResult) -> dict[str, str]:
    return {finding.code: finding.level for finding in result.warnings}


def test_a_false_in_a_config_file_is_dropped_by_its_reader() -> None:
    found = with_file("enable-prefix-caching: false\nmax-num-seqs: 64\n")
    assert levels(found)["config-false-ignored"] == "warning"
    assert "enable-prefix-caching" not in found.manifests[0].settings
    assert "config-false-ignored" not in levels(with_file("no-enable-prefix-caching: true\n"))


def test_the_command_line_wins_over_the_config_file() -> None:
    found = with_file("max-num-seqs: 64\n", "--max-num-seqs", "32")
    assert "config-overridden" in levels(found) and found.manifests[0].value("max-num-seqs") == 32
    assert "config-overridden" not in levels(with_file("max-num-seqs: 32\n", "--max-num-seqs", "32"))


def test_a_config_file_that_is_not_in_the_input_is_unresolved() -> None:
    found = build_import(args=FILE)
    assert "config-file-not-found" in levels(found)
    assert "file:/c/v.yaml" in {entry.what for entry in found.manifests[0].unresolved}


@pytest.mark.parametrize(
    ("code", "keywords"),
    [
        ("comma-list", {"args": ["m", "--cudagraph-capture-sizes", "1,2"], "image": "vllm/vllm-openai:v0.13.0"}),
        (
            "env-ignored",
            {
                "args": ["m"],
                "env": {"VLLM_ATTENTION_BACKEND": "FLASHINFER"},
                "image": "vllm/vllm-openai:v0.20.0",
            },
        ),
        ("not-a-string", {"args": ["m", "--max-num-seqs", 64]}),
        ("not-a-string", {"args": ["m"], "container": {"env": [{"name": "A", "value": 1}]}}),
        ("helm-placeholder", {"args": ["m", "{{.Arguments}}"]}),
    ],
)
def test_an_argument_or_variable_that_does_not_arrive_as_meant(code: str, keywords: dict[str, Any]) -> None:
    assert code in levels(build_import(**keywords))
    assert code not in levels(build_import(args=["m", "--max-num-seqs", "64"], env={"A": "1"}))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("shell-syntax", "vllm serve m 'open"),
        ("shell-too-deep", 'x=\'eval "$x"\'; eval "$x"; vllm serve m'),
        ("shell-too-long", "true\n" * 5_000 + "vllm serve m"),
    ],
)
def test_a_script_that_cannot_be_followed_says_so(code: str, text: str) -> None:
    assert code in levels(script(text)) and code not in levels(script("vllm serve m"))


def test_an_upgrade_names_new_switches_that_are_on_and_variables_whose_default_differs() -> None:
    sides = [build_import(f"vllm/vllm-openai:v{version}", args=["m"]) for version in ("0.10.2", "0.32.0")]
    found = {finding.code: finding.message for finding in diff(*sides).warnings}
    assert "scheduler-reserve-full-isl" in found["new-switch-on"]
    assert "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE" in found["variable-defaults"]
    assert not {"new-switch-on", "variable-defaults"} & {finding.code for finding in diff(sides[0], sides[0]).warnings}


def test_every_documented_code_is_given_somewhere() -> None:
    folder = Path(manifests.__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py") if path.name != "codes.py")
    assert [code for code in CODES if f'"{code}"' not in source] == []
