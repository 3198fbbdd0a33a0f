"""C45: the accelerators that pods really run on, and the judge's hold where the arms differ."""

from dataclasses import replace
from typing import Any

import pytest

from controller.core.snapshot import Pod
from controller.ports import Retryable
from controller.reads.hardware import HardwareReader, hardware_holds
from policies.verdict import HoldReason
from tests.unit.controller.shell.fakes import FakeClock, FakeCluster
from tests.unit.controller.shell.shell import NS, Shell

H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"


def pod_on(node: str, resource: str = "nvidia.com/gpu") -> dict[str, Any]:
    return {"spec": {"nodeName": node, "containers": [{"resources": {"limits": {resource: "1"}}}]}}


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster([])
    for name, labels in (("a", {"nvidia.com/gpu.product": H100}), ("b", {"amd.com/gpu.product-name": "MI300X"})):
        cluster.put({"kind": "Node", "metadata": {"name": name, "labels": labels}})
    return cluster


def test_the_node_says_what_a_pod_runs_on(cluster: FakeCluster) -> None:
    reader = HardwareReader(cluster, FakeClock())
    assert reader.of(pod_on("a")) == H100
    assert reader.of(pod_on("b", "amd.com/gpu")) == "MI300X"
    assert reader.of(pod_on("a", "nvidia.com/mig-1g.10gb")) == f"{H100} mig-1g.10gb"
    assert reader.of(pod_on("nowhere")) == ""
    assert reader.of({"spec": {"nodeName": "a", "containers": [{}]}}) == ""
    assert reader.of({"spec": {"containers": pod_on("a")["spec"]["containers"]}}) == ""


def test_a_silent_server_makes_nothing_unknown_that_was_known(cluster: FakeCluster) -> None:
    clock = FakeClock()
    reader = HardwareReader(cluster, clock)
    cluster.is_down = True
    with pytest.raises(Retryable):
        cluster._answer()
    assert reader.of(pod_on("a")) == ""
    cluster.is_down = False
    assert reader.of(pod_on("a")) == H100
    cluster.is_down = True
    clock.now_s += 10_000.0
    assert reader.of(pod_on("a")) == H100


def pods(*products: str) -> tuple[Pod, ...]:
    return tuple(Pod(f"p{n}", "rev", "server", ready=True, product=product) for n, product in enumerate(products))


def test_different_accelerators_hold_and_name_both() -> None:
    (hold,) = hardware_holds(pods(H100, H100), pods(H100, A100), None, None)
    assert hold.reason is HoldReason.HARDWARE_DIFFERS
    assert H100 in hold.message and A100 in hold.message


def test_equal_or_unknown_accelerators_do_not_hold() -> None:
    assert hardware_holds(pods(H100), pods(H100, H100), None, None) == ()
    assert hardware_holds(pods(H100), pods(""), None, None) == ()
    assert hardware_holds(pods(), pods(A100), None, None) == ()
    loading = tuple(replace(pod, ready=False) for pod in pods(A100))
    assert hardware_holds(pods(H100), loading, None, None) == ()


def test_the_judge_is_told() -> None:
    shell = Shell()
    for name, product in (("old", H100), ("new", A100)):
        shell.cluster.put({"kind": "Node", "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product}}})
    shell.apply()
    shell.run_to("Completed")
    place(shell, "old")
    shell.apply(image="vllm/vllm-openai:v0.32.0")
    shell.run_to("Canary")
    assert shell.judge.guards == ()
    place(shell, "new")
    shell.observer.observe(NS, "chat")
    assert [hold.reason for hold in shell.judge.guards] == [HoldReason.HARDWARE_DIFFERS]


def place(shell: Shell, node: str) -> None:
    """All pods that are nowhere yet run there."""
    for (plural, _, _), obj in shell.cluster.objects.items():
        if plural == "pods" and not obj.get("spec", {}).get("nodeName"):
            obj["spec"] = {**obj.get("spec", {}), **pod_on(node)["spec"]}
