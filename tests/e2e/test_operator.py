"""The operator on a real API server, scheduler, Envoy and recorder: install, crash, promotion under SIGKILL, rollback,
deletion; requests run all the time and none of them may fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.kube import Namespace, wait_until
from tests.e2e.trickle import Trickle
from tools.devcluster import Cluster
from tools.release import free_port

pytestmark = pytest.mark.e2e
CHECKOUT = Path(__file__).resolve().parents[2]
API = "weighlock.dev/v1alpha1"
POLICY = {
    "tenants": {"from": {"header": "x-tenant"}, "required": ["acme"]},
    "lengthBuckets": {"edges": [2048]},
    "gates": [{"metric": "success", "limit": "50%"}],
    "evidence": {"history": "20s", "minStep": "8s", "minBlocks": 1, "warmup": "1s", "freshness": "30s"},
}


class Installation:
    """Recorder and operator as processes, watching one namespace."""

    def __init__(self, cluster: Cluster, namespace: Namespace, folder: Path) -> None:
        self.cluster, self.namespace, self.folder = cluster, namespace, folder
        host = "127.91.0.1"
        self.http, self.xds, self.blocks, self.als = (f"{host}:{free_port(host)}" for _ in range(4))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def operator(self, name: str, http: str, xds: str, advertised: str) -> list[str]:
        """Arguments of an operator process; its database is its own, so that one sees what it decided."""
        return [
            "operator",
            f"--namespace={self.namespace.name}",
            f"--watch-namespaces={self.namespace.name}",
            f"--bind={http}",
            f"--xds-bind={xds}",
            f"--advertise-xds={advertised}",
            f"--advertise-recorder={self.als}",
            f"--recorder-url=http://{self.blocks}",
            f"--database=sqlite:///{self.folder}/{name}.db",
        ]

    def arguments(self, name: str) -> list[str]:
        if name == "recorder":
            return ["recorder", f"--bind={self.blocks}", f"--als-bind={self.als}", f"--data={self.folder}/spool"]
        return self.operator(name, self.http, self.xds, self.xds)

    def start(self, name: str) -> None:
        arguments = self.arguments(name)
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig()), "POD_NAME": f"the-one-{name}"}
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "controller.cli.main", *arguments]
            self._processes[name] = subprocess.Popen(command, cwd=CHECKOUT, env=environment, stderr=log, stdout=log)

    def process(self, name: str) -> subprocess.Popen[bytes]:
        return self._processes[name]

    def kill(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGKILL)
        self._processes[name].wait()

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(timeout=30)

    # --- the rollout ---

    def rollout(self) -> dict[str, Any]:
        found: dict[str, Any] = self.namespace.get("inferencerollouts", "chat", API) or {}
        return found

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.rollout().get("status") or {}
        return found

    def wait_for(self, phase: str, timeout_seconds: float = 120.0) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            status = self.status()
            return status if status.get("phase") == phase else None

        return wait_until(f"{phase}; see {self.folder}", look, timeout_seconds)

    def create(self) -> None:
        env = [{"name": "ENGINESIM_HARDWARE", "value": "H100"}, {"name": "ENGINESIM_START_S", "value": "1"}]
        container = {
            "name": "vllm",
            "image": "vllm/vllm-openai:v0.31.0",
            "args": ["--model=Qwen/Qwen3-30B-A3B", "--served-model-name=m", "--max-num-seqs=64"],
            "env": env,
            "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1},
        }
        spec = {
            "replicas": 1,
            "policy": POLICY,
            "traffic": {"gateReplicas": 1},
            "capacity": {"maxRestarts": 1, "readyDeadline": "3m"},
            "steps": [{"shadow": {}}, {"canary": {"weight": 20}}, {"ramp": {"weight": 50, "approval": True}}],
            "bake": "5s",
            "template": {"spec": {"terminationGracePeriodSeconds": 5, "containers": [container]}},
        }
        meta = {"name": "chat"}
        body = {"apiVersion": API, "kind": "InferenceRollout", "metadata": meta, "spec": spec}
        self.namespace.call("POST", self.namespace.path("inferencerollouts", version=API), body)

    def set_argument(self, text: str) -> None:
        """As `kubectl patch` does: the operator writes status meanwhile, and that must not refuse it."""
        changes = [{"op": "replace", "path": "/spec/template/spec/containers/0/args/2", "value": text}]
        path = self.namespace.path("inferencerollouts", "chat", API)
        self.namespace.call("PATCH", path, changes, "application/json-patch+json")

    def act(self, action: str, **binding: Any) -> None:
        status = self.status()
        spec = {
            "rollout": "chat",
            "action": action,
            "user": "admin",
            "attempt": status["attempt"],
            "step": status["step"]["index"],
            "reason": "end-to-end test",
            **binding,
        }
        body = {"apiVersion": API, "kind": "RolloutAction", "metadata": {"generateName": f"{action}-"}, "spec": spec}
        self.namespace.call("POST", self.namespace.path("rolloutactions", version=API), body)

    def gate_url(self) -> str:
        pods = [p for p in self.namespace.list("pods") if "weighlock.dev/gate" in p["metadata"]["labels"]]
        return f"http://{pods[0]['status']['podIP']}:8000"

    def variants(self) -> set[str]:
        items = self.namespace.call("GET", self.namespace.path("deployments", version="apps/v1"))["items"]
        return {i["metadata"]["labels"].get("weighlock.dev/revision", "gate") for i in items}


def apply_crds(cluster: Cluster) -> None:
    for file in sorted((CHECKOUT / "crds" / "yaml").glob("*.yaml")):
        for obj in yaml.safe_load_all(file.read_text()):
            if obj["kind"] == "CustomResourceDefinition":
                path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
                assert cluster.api().call("POST", path, obj)[0] in (201, 409)
    wait_until("CRDs", lambda: cluster.api().call("GET", f"/apis/{API}/inferencerollouts")[0] == 200)


@pytest.fixture
def installation(cluster: Cluster, namespace: Namespace, tmp_path: Path) -> Iterator[Installation]:
    apply_crds(cluster)
    own = Installation(cluster, namespace, tmp_path)
    own.start("recorder")
    own.start("operator")
    try:
        yield own
    finally:
        own.stop()


def test_life_of_a_rollout(installation: Installation) -> None:
    installation.create()
    first = installation.wait_for("Completed")["stable"]
    with Trickle(installation.gate_url(), threads=4, pause_seconds=0.2, model="m", stream=True) as requests:
        crash_promote_and_roll_back(installation, first)
    answers = Counter(requests.answers)
    assert set(answers) == {"200"} and answers["200"] > 100, answers

    installation.namespace.call("DELETE", installation.namespace.path("inferencerollouts", "chat", API))
    wait_until("the rollout to go", lambda: not installation.rollout())
    assert installation.variants() == {first}
    selector = installation.namespace.get("services", "chat-gate")["spec"]["selector"]
    assert selector["weighlock.dev/revision"] == first and "weighlock.dev/gate" not in selector


def crash_promote_and_roll_back(installation: Installation, first: str) -> None:
    """A revision that crashes, one that is promoted while the operator is killed twice, and a rollback of that."""
    installation.set_argument("--no-such-flag=1")
    crashed = installation.wait_for("RolledBack")
    assert crashed["reason"] == "CandidateCrashed" and crashed["stable"] == first
    wait_until("the crashed variant to go", lambda: installation.variants() == {first, "gate"})

    installation.set_argument("--max-num-seqs=96")
    installation.wait_for("Canary")
    weight = installation.status()["step"]["weight"]
    installation.kill("operator")
    installation.start("operator")
    wait_until("approval to be asked for", lambda: is_true(installation.status(), "AwaitingApproval"), 120)
    status = installation.status()
    assert status["step"]["weight"] == weight == 20
    installation.act("approve", revision=status["candidate"], evidence="0" * 16)
    wait_until("refusal", lambda: installation.status().get("appliedActions"))
    assert installation.status()["step"]["weight"] == 20
    evidence = installation.status()["verdict"]["evidence"]
    installation.act("approve", revision=status["candidate"], evidence=evidence)
    wait_until("the ramp", lambda: installation.status()["step"]["weight"] == 50)
    installation.kill("operator")
    installation.start("operator")
    second = installation.wait_for("Completed", 180)["stable"]
    assert second != first
    wait_until("the old variant to go", lambda: installation.variants() == {second, "gate"})

    installation.act("rollback", revision=first)
    back = installation.wait_for("RolledBack")
    assert back["stable"] == first and second in back["rejected"]
    wait_until("the variant to go", lambda: installation.variants() == {first, "gate"})
    assert not [c for c in back["conditions"] if c["type"] == "BaselineChanged" and c["status"] == "True"]


def is_true(status: dict[str, Any], kind: str) -> bool:
    """Whether a condition is true."""
    return any(c["type"] == kind and c["status"] == "True" for c in status.get("conditions") or ())
