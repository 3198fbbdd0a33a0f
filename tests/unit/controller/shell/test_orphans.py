"""An act on a rollout that does not exist: told on the act, kept in the store, removed after a minute."""

from typing import Any

from controller.core import times
from controller.orphans import KEPT_SECONDS
from tests.unit.controller.shell.shell import NAME, NS, Shell


def put_act(shell: Shell, name: str, rollout: str) -> None:
    meta: dict[str, Any] = {"name": name, "namespace": NS, "creationTimestamp": times.to_short_text(shell.clock.now_s)}
    spec = {"rollout": rollout, "action": "pause", "user": "ann", "reason": "why not"}
    shell.cluster.put({"apiVersion": "weighlock.dev/v1alpha1", "kind": "RolloutAction", "metadata": meta, "spec": spec})


def acts(shell: Shell) -> set[str]:
    return {obj["metadata"]["name"] for obj in shell.cluster.cached("rolloutactions", NS)}


def test_it_is_told_once_with_what_to_do_and_then_removed(shell: Shell) -> None:
    put_act(shell, "typo", "caht")
    for _ in range(3):
        shell.reconciler.reconcile(f"{NS}/caht")
    ((reason, message),) = [e for e in shell.cluster.events if "caht" in e[1]]
    assert reason == "ActionRefused"
    assert "There is no InferenceRollout caht in ns: pause by ann has no effect" in message
    assert shell.store.rows[-1] == ("action", "ActionRefused")
    assert acts(shell) == {"typo"}
    shell.clock.now_s += KEPT_SECONDS
    shell.reconciler.reconcile(f"{NS}/caht")
    assert acts(shell) == set()


def test_it_is_looked_at_again_when_its_minute_is_over(shell: Shell) -> None:
    put_act(shell, "typo", "caht")
    assert shell.orphans.look(NS, "caht") == KEPT_SECONDS
    shell.clock.now_s += 59.5
    assert shell.orphans.look(NS, "caht") == 1.0
    shell.clock.now_s += 1.0
    assert shell.orphans.look(NS, "caht") is None


def test_an_old_one_is_removed_without_a_word_after_a_restart(shell: Shell) -> None:
    put_act(shell, "old", "caht")
    shell.clock.now_s += KEPT_SECONDS + 1
    shell.reconciler.reconcile(f"{NS}/caht")
    assert acts(shell) == set() and not [e for e in shell.cluster.events if "caht" in e[1]]


def test_acts_on_a_rollout_that_exists_are_left_alone(shell: Shell) -> None:
    """Also where the cache does not know the rollout yet: the server is asked."""
    put_act(shell, "real", NAME)
    shell.cluster.get_cached = lambda *_: None  # type: ignore[method-assign]  # a cache that is behind
    shell.clock.now_s += 2 * KEPT_SECONDS
    assert shell.orphans.look(NS, NAME) is None
    assert acts(shell) == {"real"}
