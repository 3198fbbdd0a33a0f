"""The generated files are current, structural, and small enough for plain `kubectl apply`."""

import json
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from crds import generate
from crds.v1alpha1.policy import LengthBuckets, RolloutPolicySpec
from crds.v1alpha1.rollout import InferenceRolloutSpec

LAST_APPLIED_LIMIT_BYTES = 262_144


def walk(schema: dict[str, Any]) -> list[dict[str, Any]]:
    children = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return [schema, *(node for child in children for node in walk(child))]


def test_generated_files_are_current() -> None:
    assert generate.main(["--check"]) == 0


@pytest.mark.parametrize("name", generate.make_crds())
def test_every_field_is_typed_and_described(name: str) -> None:
    crd = generate.make_crds()[name]
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for node in walk(schema["properties"]["spec"]):
        assert "type" in node or node.get("x-kubernetes-preserve-unknown-fields"), node
        assert "additionalProperties" not in node or "properties" not in node, node
    for field, node in schema["properties"]["spec"]["properties"].items():
        assert node.get("description"), field


@pytest.mark.parametrize("name", generate.make_crds())
def test_small_enough_for_plain_apply(name: str) -> None:
    assert len(json.dumps(generate.make_crds()[name])) < LAST_APPLIED_LIMIT_BYTES


def test_bucket_names() -> None:
    assert LengthBuckets(edges=(512, 2048)).names() == ("0-512", "513-2048", "2049+")


@pytest.mark.parametrize(
    ("gate", "field"),
    [
        ("{metric: ttft, percentile: '99'}", "margin"),
        ("{metric: ttft, margin: 25%}", "percentile"),
        ("{metric: ttft, percentile: '99', limit: 99%}", "unit"),
        ("{metric: success, limit: 2s}", "unit"),
        ("{metric: ttft, percentile: '100', margin: 25%}", "between 0 and 100"),
        ("{metric: ttft, percentile: '99', margin: '25'}", "ratio"),
    ],
)
def test_gates_that_cannot_be_meant_are_refused(gate: str, field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        RolloutPolicySpec.model_validate({"gates": [yaml.safe_load(gate)]})


@pytest.mark.parametrize(
    "steps",
    [
        "[{canary: {weight: 50}}, {ramp: {weight: 25}}]",
        "[{ramp: {weight: 5}}, {shadow: {}}]",
        "[{shadow: {}, pause: {}}]",
    ],
)
def test_steps_that_cannot_be_meant_are_refused(steps: str) -> None:
    with pytest.raises(ValidationError):
        InferenceRolloutSpec.model_validate(
            {"template": {"spec": {}}, "policyRef": {"name": "p"}, "steps": yaml.safe_load(steps)}
        )


def test_single_template_is_one_entrypoint_role() -> None:
    spec = InferenceRolloutSpec.model_validate({"template": {"spec": {}}, "replicas": 3, "policyRef": {"name": "p"}})
    (role,) = spec.effective_roles()
    assert (role.name, role.replicas, role.entrypoint) == ("server", 3, True)
