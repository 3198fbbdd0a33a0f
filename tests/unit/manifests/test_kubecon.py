"""The public A/B set: each diff names exactly what its authors changed, and what they did not know they changed."""

from pathlib import Path

import pytest

from manifests.diff import Diff, diff
from manifests.importing import import_files
from manifests.model import ImportResult
from tests.unit.manifests.builders import build_import


@pytest.fixture(scope="module")
def kubecon(shared_data: Path) -> dict[str, ImportResult]:
    names = {"baseline": "01-kubecon-vllm-baseline", "batch": "05-kubecon-vllm-batch", "v0": "06-kubecon-vllm-v0"}
    return {
        key: import_files([(name, (shared_data / "k8s" / f"{name}.yaml").read_bytes())]) for key, name in names.items()
    }


def names(result: Diff, *origins: str) -> set[str]:
    return {line.setting for line in result.changes if line.origin in origins}


def test_the_batch_variant_changes_one_setting(kubecon: dict[str, ImportResult]) -> None:
    result = diff(kubecon["baseline"], kubecon["batch"])
    assert [(line.setting, line.old, line.new, line.mechanism) for line in result.changes] == [
        ("max-num-seqs", 128, 192, "scheduler")
    ]
    assert result.primary == {"mechanisms": ["scheduler"], "bundle": False} and not result.unresolved


def test_the_v0_variant_changes_the_image_a_variable_and_two_defaults_that_nobody_wrote(
    kubecon: dict[str, ImportResult],
) -> None:
    result = diff(kubecon["baseline"], kubecon["v0"])
    assert names(result, "written", "image") == {"image", "env:VLLM_USE_V1"}
    assert names(result, "version-default") == {"prefix-caching-hash-algo", "env:VLLM_USE_DEEP_GEMM"}
    assert result.primary["bundle"] and result.split_order[0].mechanism == "engine_version"


def test_a_flag_that_never_reaches_the_engine_is_no_effective_change_and_an_error() -> None:
    args = ["--model=meta-llama/Llama-3.1-8B-Instruct", "--max-num-seqs=128"]
    old = build_import(args=args)
    new = build_import(args=[*args, "--quantization bitsandbytes"])
    result = diff(old, new)
    assert not result.effective and result.changes == ()
    errors = {warning.code for warning in result.warnings if warning.level == "error"}
    assert errors == {"flag-and-value-in-one-token", "no-effective-change"}


def test_the_same_file_twice_has_no_difference(kubecon: dict[str, ImportResult]) -> None:
    for result in kubecon.values():
        found = diff(result, result)
        assert found.changes == () and not found.unresolved and not found.effective


def test_every_real_file_equals_itself(shared_data: Path) -> None:
    for path in sorted((shared_data / "k8s").glob("*.yaml")):
        result = import_files([(path.name, path.read_bytes())])
        if result.manifests:
            assert not diff(result, result).effective, path.name
