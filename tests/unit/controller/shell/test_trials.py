"""Before Shadow the API server is asked, by a dry run, whether it takes the candidate; nothing moves before it does."""

import pytest

from controller.ports import Retryable, Terminal
from crds.v1alpha1.conditions import Reason
from tests.unit.controller.shell.shell import NS, Shell

DENIED = Terminal(
    Reason.PREFLIGHT_FAILED, 'PATCH /x: 403 admission webhook "gpu.example.com" denied the request: no GPU quota left'
)
NO_DRY_RUN = Terminal(
    Reason.PREFLIGHT_FAILED, 'PATCH /x: 400 admission webhook "old.example.com" does not support dry run'
)
DEAD = Retryable('PATCH /x: 500 failed calling webhook "gpu.example.com": connection refused')


def wait_in_preflight(shell: Shell) -> str:
    """The candidate, after several decisions in Preflight."""
    shell.apply("vllm/vllm-openai:v0.32.0")
    shell.run_to("Preflight")
    for _ in range(3):
        shell.once()
    assert shell.status["phase"] == "Preflight"
    return str(shell.status["candidate"])


@pytest.mark.parametrize(
    ("error", "words"),
    [(DENIED, 'webhook "gpu.example.com" denied the request: no GPU quota left'), (DEAD, "failed calling webhook")],
)
def test_what_admission_refuses_is_told_in_its_words_and_nothing_moves(
    shell: Shell, error: Exception, words: str
) -> None:
    shell.cluster.refusals = {"chat-": error}
    stable = shell.status["stable"]
    candidate = wait_in_preflight(shell)
    told = shell.condition("Stalled")
    assert (told["status"], told["reason"]) == ("True", "DryRunRefused")
    assert f"Deployment chat-{candidate}: " in told["message"] and words in told["message"]
    assert shell.cluster.get_cached("deployments", NS, f"chat-{candidate}") is None
    assert shell.status["stable"] == stable and shell.status["step"]["weight"] == 0
    shell.cluster.refusals = {}
    shell.clock.now_s += 30
    shell.run_to("Shadow")
    assert shell.condition("Stalled")["status"] == "False"


def test_it_is_asked_again_now_and_then_and_not_all_the_time(shell: Shell) -> None:
    shell.cluster.refusals = {"chat-": DENIED}
    wait_in_preflight(shell)
    shell.journal.clear()
    for _ in range(10):  # a second each
        shell.once()
    assert sum(entry.startswith("try ") for entry in shell.journal) <= 1


def test_a_webhook_that_takes_no_dry_run_is_a_warning_and_no_stop(shell: Shell) -> None:
    shell.cluster.refusals = {"chat-": NO_DRY_RUN}
    shell.apply("vllm/vllm-openai:v0.32.0")
    shell.run_to("Shadow")
    ((_, message),) = [event for event in shell.cluster.events if event[0] == "DryRunUnproven"]
    assert "old.example.com" in message and "not tried before Shadow" in message


def test_config_map_copies_are_tried_as_well(shell: Shell) -> None:
    volume = {"name": "c", "configMap": {"name": "settings"}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": NS}}
    shell.cluster.put({**config, "data": {"max": "64"}})
    shell.cluster.refusals = {
        "settings-": Terminal(Reason.PREFLIGHT_FAILED, "422 Too long: may not be more than 1 MiB")
    }
    container = {"name": "vllm", "image": "vllm/vllm-openai:v0.31.0"}
    shell.apply(template={"spec": {"containers": [container], "volumes": [volume]}})
    for _ in range(8):
        shell.once()
    assert "ConfigMap settings-" in shell.condition("Stalled")["message"]
    assert "Too long" in shell.condition("Stalled")["message"]


def test_a_silent_api_server_is_asked_until_it_answers(shell: Shell) -> None:
    shell.cluster.refusals = {"chat-": Retryable("the API server does not answer PATCH /x: ReadTimeoutError")}
    wait_in_preflight(shell)
    assert shell.condition("Stalled")["status"] == "False"
    shell.cluster.refusals = {}
    shell.run_to("Shadow")


def test_a_new_leader_asks_again(shell: Shell) -> None:
    """What was answered is a cache of the process, never a fact of the rollout."""
    shell.cluster.refusals = {"chat-": DENIED}
    candidate = wait_in_preflight(shell)
    attempt = shell.status["attempt"]
    assert shell.actor.trial(f"{NS}/chat", candidate, attempt) is not None
    assert shell.actor.trial(f"{NS}/chat", candidate, attempt + 1) is None
    shell.actor.forget(f"{NS}/chat")
    assert shell.actor.trial(f"{NS}/chat", candidate, attempt) is None
