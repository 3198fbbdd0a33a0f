"""An operator over small fakes, with a kubelet that makes pods of its deployments; used by the tests of this folder."""

import itertools
from typing import Any

from controller.act import Actor
from controller.adapters.metrics import OperatorMetrics
from controller.core.snapshot import JudgeView
from controller.observe import Observer
from controller.orphans import OrphanActs
from controller.queue import WorkQueue
from controller.reconcile import Reconciler
from controller.writes.gate import GateSettings
from shadow.envoy.bootstrap import Upstream
from tests.unit.controller.shell.fakes import (
    FakeClock,
    FakeCluster,
    FakeGates,
    FakeJudgement,
    FakeLease,
    FakeProber,
    FakeStore,
)
from tests.unit.controller.world import make_verdict

NS, NAME = "ns", "chat"


class Shell:
    """An operator over fakes; `kubelet` makes pods of deployments."""

    def __init__(self, beside: "Shell | None" = None, name: str = NAME) -> None:
        """beside: the world of another rollout, to share (an operator of its own each: nothing in memory is shared)."""
        self.name = name
        self.journal: list[str] = beside.journal if beside else []
        self.cluster = beside.cluster if beside else FakeCluster(self.journal)
        self.clock = beside.clock if beside else FakeClock()
        self.gates, self.judge = FakeGates(self.journal), FakeJudgement()
        self.store, self.lease, self.prober = FakeStore(), FakeLease(), FakeProber()
        self._addresses = beside._addresses if beside else itertools.count(1)
        self.start_operator()

    def start_operator(self) -> None:
        """A new operator process in the same world."""
        self.queue = WorkQueue()
        shared = (self.cluster, self.gates, self.judge)
        self.observer = Observer(*shared, self.prober, self.store, self.lease, self.clock)
        upstream = Upstream("127.0.0.1", 1)
        gates = GateSettings("weighlock/gate:test", upstream, upstream)
        self.actor = Actor(*shared, self.store, self.lease, self.clock, gates)
        self.observer.set_actor(self.actor.gate_applied, self.actor.trial)
        self.orphans = OrphanActs(self.cluster, self.store, self.clock)
        self.reconciler = Reconciler(
            self.cluster, self.observer, self.actor, self.queue, OperatorMetrics(), self.orphans, lambda *_: None
        )

    def apply(self, image: str = "vllm/vllm-openai:v0.31.0", **spec: Any) -> None:
        old = self.cluster.get_cached("inferencerollouts", NS, self.name)
        meta = old["metadata"] if old else {"name": self.name, "namespace": NS}
        meta["generation"] = meta.get("generation", 0) + 1
        container = {"name": "vllm", "image": image, "args": ["--model=m", "--max-num-seqs=64"]}
        raw = {
            "replicas": 2,
            "policy": {"gates": [{"metric": "success", "limit": "99%"}]},
            "template": {"spec": {"containers": [container]}},
            "steps": [{"canary": {"weight": 5}}, {"ramp": {"weight": 50}}],
            "bake": "10s",
        }
        obj = {"apiVersion": "weighlock.dev/v1alpha1", "kind": "InferenceRollout", "metadata": meta}
        self.cluster.put({**obj, "spec": raw | spec, "status": (old or {}).get("status", {})})

    def kubelet(self) -> None:
        """Deployments get ready pods, deleted ones lose them."""
        wanted: dict[str, dict[str, str]] = {}
        for obj in self.cluster.cached("deployments", NS):
            labels = obj["spec"]["template"]["metadata"]["labels"]
            for n in range(obj["spec"]["replicas"]):
                wanted[f"{obj['metadata']['name']}-{n}"] = labels
        for _, _, name in [key for key in self.cluster.objects if key[0] == "pods" and key[2] not in wanted]:
            del self.cluster.objects["pods", NS, name]
        for name, labels in wanted.items():
            if self.cluster.get_cached("pods", NS, name) is None:
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                status = {"podIP": f"127.9.0.{next(self._addresses)}", "conditions": [ready]}
                meta = {"name": name, "namespace": NS, "labels": dict(labels)}
                self.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}, "status": status})

    def once(self) -> None:
        self.reconciler.reconcile(f"{NS}/{self.name}")
        self.kubelet()
        self.clock.now_s += 1.0

    def run_to(self, phase: str) -> None:
        for _ in range(60):
            self.once()
            attempt = self.status.get("attempt", 0)
            if self.judge.setups and self.judge.now.setup_attempt != attempt and attempt in self.judge.setups:
                self.say(None)
            if self.status.get("phase") == phase:
                return
        raise AssertionError(f"{phase} not reached: {self.status.get('phase')} {self.status.get('message')}")

    def say(self, result: str | None) -> None:
        step = self.status.get("step", {}).get("index", 0)
        verdict = make_verdict(result, step) if result else None
        attempt = self.status.get("attempt", 0)
        self.judge.now = JudgeView(
            reachable=True, rebuilt=True, setup_attempt=attempt, verdict=verdict, evidence="evidence"
        )

    @property
    def status(self) -> dict[str, Any]:
        obj = self.cluster.get_cached("inferencerollouts", NS, self.name)
        return obj["status"] if obj else {}

    def condition(self, kind: str) -> dict[str, Any]:
        found: dict[str, Any] = next(c for c in self.status["conditions"] if c["type"] == kind)
        return found

    def weigh(self) -> None:
        """Until a new revision serves the canary's share."""
        self.apply("vllm/vllm-openai:v0.32.0")
        self.run_to("Shadow")
        self.run_to("Canary")
        self.once()
        self.journal.clear()
