"""A namespace that is deleted in mid-attempt goes, although the operator's Role in it goes first."""

import signal

import pytest

from tests.e2e.kube import Namespace, wait_until
from tests.e2e.rollout import AT_ONCE, Rollout
from tests.e2e.system import System
from tools import release

pytestmark = pytest.mark.e2e
OPERATOR = f"system:serviceaccount:{release.NAMESPACE}:weighlock-operator"


def weighed_in(system: System, name: str) -> Rollout:
    """A rollout in mid-attempt: its candidate serves a share of live requests."""
    rollout = Rollout(system, Namespace(system.cluster.api(), name), replicas=1, gpus=0, gates=1)
    rollout.install()
    rollout.begin(rollout.spec(steps=AT_ONCE))
    rollout.wait_weight(20)
    return rollout


def take_rights(rollout: Rollout) -> None:
    """The worst order: the operator's rights in the namespace are gone before anything else is."""
    version = "rbac.authorization.k8s.io/v1"
    rollout.system.call("DELETE", rollout.namespace.path("rolebindings", "weighlock-operator", version))

    def is_refused() -> bool:
        asked = ("kubectl", f"--as={OPERATOR}", "auth", "can-i", "delete", "deployments", "-n", rollout.namespace.name)
        return rollout.system.run("admin", *asked).stdout.strip() == "no"

    wait_until("the rights to be gone", is_refused)


def wait_gone(rollout: Rollout) -> None:
    path = f"/api/v1/namespaces/{rollout.namespace.name}"
    wait_until("the namespace to go", lambda: rollout.system.cluster.api().call("GET", path)[0] == 404, 60)


def test_c95_a_namespace_is_deleted_in_mid_attempt(system: System) -> None:
    rollout = weighed_in(system, "doomed")
    take_rights(rollout)
    system.call("DELETE", "/api/v1/namespaces/doomed")
    wait_gone(rollout)
    assert not rollout.get()


def test_c95_a_namespace_is_deleted_in_mid_attempt_while_the_operator_is_down(system: System) -> None:
    rollout = weighed_in(system, "doomed-blind")
    operator = system.part("operator")
    operator.signal(signal.SIGSTOP)
    try:
        take_rights(rollout)
        system.call("DELETE", "/api/v1/namespaces/doomed-blind")
        wait_until("the rollout to be deleted", lambda: rollout.get()["metadata"].get("deletionTimestamp"), 60)
        assert rollout.get()["metadata"]["finalizers"]
    finally:
        operator.signal(signal.SIGKILL)  # the node starts a new one, which never saw what was in the namespace
    wait_gone(rollout)


def test_c109_the_operator_may_write_its_finalizer_alone(system: System) -> None:
    """Its cluster-wide right to patch is worth no more than that, and nothing where it does not watch."""
    elsewhere = Namespace(system.cluster.api(), "elsewhere")
    elsewhere.open()
    watched = Rollout(system, Namespace(system.cluster.api(), "watched"), "narrow", replicas=1, gpus=0, gates=1)
    foreign = Rollout(system, elsewhere, "narrow", replicas=1, gpus=0, gates=1)
    for rollout in (watched, foreign):
        rollout.apply({**rollout.spec(), "paused": True, "policyRef": {"name": "none"}})

    def patch(rollout: Rollout, body: str) -> str:
        command = ("kubectl", f"--as={OPERATOR}", "-n", rollout.namespace.name, "patch", "iro", "narrow")
        done = system.run("admin", *command, "--type=merge", "-p", body)
        return "" if done.returncode == 0 else done.stderr

    try:
        ours = '{"metadata": {"finalizers": ["weighlock.dev/rollout"]}}'
        assert patch(watched, ours) == ""
        assert "that it does not watch" in patch(foreign, ours)
        assert "spec, labels" in patch(watched, '{"spec": {"paused": false}}')
        assert "spec, labels" in patch(watched, '{"metadata": {"labels": {"a": "b"}}}')
        others = '{"metadata": {"finalizers": ["weighlock.dev/rollout", "example.com/x"]}}'
        assert "finalizer weighlock.dev/rollout alone" in patch(watched, others)
    finally:
        system.call("DELETE", watched.path)
        system.call("DELETE", "/api/v1/namespaces/elsewhere")
        wait_until("the rollout to go", lambda: not watched.get(), 60)
