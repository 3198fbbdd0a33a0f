"""What goes wrong is told on the rollout, in words without secrets, and stops no other rollout."""

from collections.abc import Mapping
from typing import Any

import pytest

from controller.core import variants
from controller.ports import Terminal
from controller.reads.parsing import known_status
from crds.v1alpha1.conditions import Reason
from crds.v1alpha1.rollout import InferenceRolloutStatus
from tests.unit.controller.shell.shell import NAME, NS, Shell


def test_a_missing_config_map_is_told_and_nothing_starts(shell: Shell) -> None:
    volume = {"name": "c", "configMap": {"name": "nowhere"}}
    container = {"name": "vllm", "image": "vllm/vllm-openai:v0.31.0"}
    shell.apply(template={"spec": {"containers": [container], "volumes": [volume]}})
    for _ in range(3):
        shell.once()
    stalled = next(c for c in shell.status["conditions"] if c["type"] == "Stalled")
    assert stalled["status"] == "True" and "nowhere" in stalled["message"] and shell.status["phase"] == "Completed"


def test_binary_contents_that_would_be_lost_are_told_and_nothing_moves(shell: Shell) -> None:
    """A copy of the ConfigMap would lack them, and the engine its file."""
    stable = shell.status["stable"]
    meta = {"name": "weights", "namespace": NS}
    content = {"data": {"a": "1"}, "binaryData": {"tokenizer.model": "AAEC"}}
    shell.cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **content})
    volume = {"name": "c", "configMap": {"name": "weights"}}
    container = {"name": "vllm", "image": "vllm/vllm-openai:v0.31.0"}
    shell.apply(template={"spec": {"containers": [container], "volumes": [volume]}})
    for _ in range(3):
        shell.once()
    told = shell.condition("Stalled")
    assert told["status"] == "True" and "ConfigMap weights holds binaryData" in told["message"]
    assert (shell.status["phase"], shell.status["stable"]) == ("Completed", stable)


def test_an_unreadable_spec_of_one_rollout_does_not_stop_another(shell: Shell) -> None:
    bad = {"apiVersion": "weighlock.dev/v1alpha1", "kind": "InferenceRollout", "spec": {"bake": "soon"}}
    shell.cluster.put({**bad, "metadata": {"name": "bad", "namespace": NS}})
    shell.reconciler.reconcile(f"{NS}/bad")
    conditions = shell.cluster.objects["inferencerollouts", NS, "bad"]["status"]["conditions"]
    stalled = next(c for c in conditions if c["type"] == "Stalled")
    assert stalled["reason"] == "InvalidSpec" and "bake" in stalled["message"]
    shell.apply(replicas=3)
    shell.once()
    assert len(shell.cluster.cached("pods", NS, {variants.ROLLOUT: NAME, variants.ROLE: "server"})) == 3


def test_acts_on_a_deleted_namesake_are_ignored(shell: Shell) -> None:
    spec = {"rollout": NAME, "action": "rollback", "user": "ann", "attempt": 1}
    meta = {"name": "old", "namespace": NS, "creationTimestamp": "2025-01-01T00:00:00Z"}
    shell.cluster.put({"apiVersion": "weighlock.dev/v1alpha1", "kind": "RolloutAction", "metadata": meta, "spec": spec})
    shell.once()
    assert shell.status["phase"] == "Completed" and not shell.status.get("appliedActions")


def test_an_error_of_our_own_is_told_on_the_rollout_and_forgotten_when_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell = Shell()
    shell.apply()
    shell.run_to("Completed")
    with monkeypatch.context() as broken:
        broken.setattr("controller.reconcile.decide", lambda _snapshot: 1 / 0)
        shell.once()
        told = shell.condition("Stalled")
        assert (told["status"], told["reason"]) == ("True", "OperatorDefect")
        assert "ZeroDivisionError" in told["message"]
        assert shell.status["phase"] == "Completed"  # everything else stays as it was
        version = shell.cluster.get_cached("inferencerollouts", NS, NAME)["metadata"].get("resourceVersion")
        shell.once()
        again = shell.cluster.get_cached("inferencerollouts", NS, NAME)["metadata"].get("resourceVersion")
        assert again == version  # told once, however often it is tried
    shell.once()
    assert shell.condition("Stalled")["status"] == "False"


def test_status_of_a_newer_release_is_read_at_any_depth() -> None:
    raw = {
        "phase": "Ramp",
        "newField": 1,
        "step": {"index": 2, "newer": True},
        "verdict": {"result": "PASS", "worst": {"tenant": "acme", "region": "eu"}},
        "history": [{"attempt": 1, "revision": "a", "result": "Completed", "cost": "2"}],
    }
    status = InferenceRolloutStatus.model_validate(known_status(raw))
    assert (status.step.index, status.history[0].attempt) == (2, 1)
    assert status.verdict is not None and status.verdict.worst is not None
    assert status.verdict.worst.tenant == "acme"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"steps": [{"canary": {"weight": 5}}, {"ramp": {"weight": 5}}]}, "spec: steps: weights must rise"),
        ({"steps": [{"canary": {"weight": 500}}]}, "spec.steps.0.canary.weight: "),
        ({"policyRef": {"name": "x"}}, "spec: set exactly one of policy and policyRef"),
    ],
)
def test_a_wrong_spec_names_its_field(spec: dict[str, Any], words: str) -> None:
    shell = Shell()
    shell.apply(**spec)
    shell.once()
    assert shell.condition("Stalled")["reason"] == "InvalidSpec"
    assert shell.condition("Stalled")["message"].startswith(words)


def test_c105_what_is_told_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell()
    shell.apply()
    shell.run_to("Completed")

    def fail(_snapshot: object) -> None:
        raise ValueError("unexpected argument --api-key sk-marker123456789012345")

    monkeypatch.setattr("controller.reconcile.decide", fail)
    shell.once()
    told = shell.condition("Stalled")
    assert told["reason"] == "OperatorDefect" and "sk-marker" not in str(shell.status)


def test_c115_what_the_api_server_refuses_for_ever_is_told_on_the_rollout(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = shell.cluster.apply

    def refuse(obj: Mapping[str, Any], plural: str) -> dict[str, Any]:
        if plural == "deployments" and "gate" not in obj["metadata"]["name"]:
            raise Terminal(Reason.PREFLIGHT_FAILED, "422 spec.selector: field is immutable")
        return apply(obj, plural)

    shell.apply()
    shell.run_to("Completed")
    stable = shell.status["stable"]
    with monkeypatch.context() as refusing:
        refusing.setattr(shell.cluster, "apply", refuse)
        shell.apply("vllm/vllm-openai:v0.32.0")
        shell.run_to("Shadow")
        for _ in range(3):
            shell.once()
        told = shell.condition("Stalled")
        assert told["status"] == "True" and "spec.selector: field is immutable" in told["message"]
        assert shell.status["stable"] == stable and shell.status["step"]["weight"] == 0
    for _ in range(3):
        shell.once()
    assert shell.condition("Stalled")["status"] == "False"
