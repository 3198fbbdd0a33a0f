"""The operator's own diff says what `weighlock diff` and `weighlock lint` would say of the same two revisions."""

from typing import Any

from controller.core import freezing
from controller.core.snapshot import Frozen
from crds.v1alpha1.rollout import InferenceRolloutSpec


def frozen(*flags: str) -> Frozen:
    container: dict[str, Any] = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.11.0",
        "args": ["--model=Qwen/Qwen3-8B", *flags],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    spec = {"replicas": 1, "policyRef": {"name": "p"}, "template": {"spec": {"containers": [container]}}}
    return freezing.freeze("ns", "chat", InferenceRolloutSpec.model_validate(spec), None, {}, "2026-01-01T00:00:00Z")


def test_findings_of_the_new_revision_are_in_the_diff() -> None:
    found = freezing.effective_diff(frozen(), frozen("--tensor-parallel-size=4", "--max-num-seqs=64"))
    assert found is not None and found.effective
    codes = {(finding.level, finding.code) for finding in found.warnings}
    assert ("error", "gpu-count") in codes


def test_what_the_importer_said_of_the_arguments_is_in_the_diff() -> None:
    found = freezing.effective_diff(frozen(), frozen("--max-num-seqs=64", "--max-num-seqs=96"))
    assert found is not None
    assert "duplicate-flag" in {finding.code for finding in found.warnings}
    assert not [finding for finding in found.warnings if finding.level == "info"]
