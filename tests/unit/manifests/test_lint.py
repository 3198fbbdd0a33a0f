"""Findings: every code is documented, and each rule fires where it should and nowhere else."""

from pathlib import Path
from typing import Any

import pytest

from manifests.codes import CODES
from manifests.lint import lint
from manifests.model import ImportResult
from tests.unit.manifests.builders import build_import

SGLANG = ["python3", "-m", "sglang.launch_server", "--model-path", "org/m"]


def codes(result: ImportResult) -> set[str]:
    return {finding.code for finding in lint(result)}


@pytest.mark.parametrize(
    ("code", "keywords"),
    [
        ("gpu-count", {"args": ["--model", "m", "-tp", "4"], "gpu": 2}),
        ("gpu-unused", {"args": ["--model", "m"], "gpu": 4}),
        ("branch-revision", {"args": ["--model", "org/m", "--revision", "main"]}),
        ("moving-tag", {"image": "vllm/vllm-openai:latest", "args": ["--model", "m"]}),
        ("moving-tag", {"image": "vllm/vllm-openai", "args": ["--model", "m"]}),
        ("secret-in-argv", {"args": ["--model", "m", "--api-key", "abc"]}),
        ("secret-in-env", {"args": ["--model", "m"], "env": {"HF_TOKEN": "hf_secret"}}),
        ("env-unread", {"args": ["--model", "m"], "env": {"MAX_MODEL_LEN": "4096"}}),
        ("host-localhost", {"image": "lmsysorg/sglang:v0.5.10", "command": SGLANG}),
        ("metrics-off", {"image": "lmsysorg/sglang:v0.5.10", "command": SGLANG}),
        ("shm-missing", {"args": ["--model", "m", "-tp", "2"], "gpu": 2, "terminationGracePeriodSeconds": 60}),
        (
            "expert-parallel-dense",
            {"args": ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--enable-expert-parallel"]},
        ),
        (
            "bad-value",
            {
                "args": [
                    "--model",
                    "m",
                    "--no-enable-chunked-prefill",
                    "--max-num-batched-tokens",
                    "512",
                    "--max-model-len",
                    "4096",
                ]
            },
        ),
        (
            "unprofitable-mechanism",
            {
                "args": ["--model", "m", "--kv-cache-dtype", "fp8"],
                "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
            },
        ),
        ("stream-interval", {"args": ["--model", "m", "--stream-interval", "10"], "image": "vllm/vllm-openai:v0.20.0"}),
        (
            "spec-relaxed",
            {"image": "lmsysorg/sglang:v0.5.10", "command": [*SGLANG, "--speculative-accept-threshold-single", "0.9"]},
        ),
    ],
)
def test_a_rule_fires(code: str, keywords: dict[str, Any]) -> None:
    assert code in codes(build_import(**keywords))


def test_a_clean_manifest_has_no_findings() -> None:
    args = ["--model", "org/m", "--revision", "0123456789abcdef", "--served-model-name", "m"]
    assert codes(build_import("vllm/vllm-openai:v0.20.0", args=args)) == set()


@pytest.mark.parametrize(
    ("keywords", "code"),
    [
        ({"args": ["--model", "m", "-tp", "2"], "gpu": 2}, "gpu-count"),
        ({"args": ["--model", "m"], "gpu": None}, "gpu-count"),
        ({"args": ["--model", "$(MODEL)"], "env": {"MODEL": "org/m", "DP_SIZE": "1"}, "gpu": 1}, "missing-model"),
        ({"args": ["--model", "m"], "env": {"HF_TOKEN": ""}}, "secret-in-env"),
        ({"image": "vllm/vllm-openai@sha256:" + "0" * 64, "args": ["--model", "m"]}, "moving-tag"),
    ],
)
def test_a_rule_is_silent(keywords: dict[str, Any], code: str) -> None:
    assert code not in codes(build_import(**keywords))


def test_errors_come_first() -> None:
    found = lint(build_import("vllm/vllm-openai:latest", args=["--model", "org/m", "-tp", "4"], gpu=1))
    levels = [finding.level for finding in found]
    assert levels == sorted(levels, key=["error", "warning", "info"].index)


def test_the_page_of_codes_has_a_row_for_every_code() -> None:
    from tools.catalog.lint_codes import page

    written = (Path(__file__).resolve().parents[3] / "docs" / "lint-codes.md").read_text(encoding="utf-8")
    assert written == page()
    assert all(f"| `{code}` |" in written for code in CODES)


def test_every_code_in_the_source_is_in_the_table() -> None:
    import re

    folder = Path(__file__).resolve().parents[3] / "manifests"
    used = {
        code
        for path in folder.rglob("*.py")
        for code in re.findall(r'make_finding\(\s*"([a-z0-9-]+)"', path.read_text(encoding="utf-8"))
    }
    assert used and used <= set(CODES)
