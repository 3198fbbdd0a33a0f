"""A manifest that cannot work stops before any GPU is touched; people see thresholds, ledger, plan and need."""

from dataclasses import replace
from typing import Any

from controller.core import freezing
from crds.v1alpha1.conditions import Phase
from crds.v1alpha1.rollout import InferenceRolloutSpec
from tests.unit.controller.world import installed


def spec(*args: str, gpus: int = 1) -> InferenceRolloutSpec:
    container: dict[str, Any] = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.11.0",
        "args": ["--model=org/m", *args],
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
    }
    raw = {
        "replicas": 2,
        "policy": {"gates": [{"metric": "success", "limit": "99%"}]},
        "template": {"spec": {"containers": [container]}},
    }
    return InferenceRolloutSpec.model_validate(raw)


def test_a_frozen_manifest_knows_its_errors_stored_or_not() -> None:
    wrong = freezing.freeze("ns", "chat", spec("--tensor-parallel-size=4"), None, {}, "2026-01-01T00:00:00Z")
    assert any(text.startswith("gpu-count: ") for text in wrong.findings)
    read_back = freezing.from_object(freezing.manifest_object("ns", "chat", wrong, 1))
    assert any(text.startswith("gpu-count: ") for text in read_back.findings)
    right = freezing.freeze("ns", "chat", spec("--tensor-parallel-size=4", gpus=4), None, {}, "2026-01-01T00:00:00Z")
    assert right.findings == ()


def test_an_error_blocks_preflight_and_names_itself() -> None:
    world = installed().apply("v2")
    world.overrides["target"] = replace(world.frozen(), findings=("gpu-count: 4 ranks need 4 accelerators",))
    world.settle()
    assert world.status.phase is Phase.PREFLIGHT
    assert world.condition("Stalled") == ("True", "PreflightFailed")
    assert "gpu-count" in world.status.message and "4 ranks need 4 accelerators" in world.status.message
    assert set(world.running) == {world.status.stable}
    del world.overrides["target"]
    world.run_to(Phase.SHADOW)
