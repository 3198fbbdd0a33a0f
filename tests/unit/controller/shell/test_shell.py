"""Observe, decide, act over small fakes: order of writes, conflicts, a silent API server, equality of what serves."""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from controller.act import Actor, is_raising
from controller.adapters.metrics import OperatorMetrics
from controller.core import variants
from controller.core.machine import decide
from controller.core.snapshot import JudgeView
from controller.observe import Observer
from controller.ports import Retryable, Terminal
from controller.queue import WorkQueue
from controller.reads.parsing import known_status
from controller.reconcile import Reconciler
from controller.writes.gate import GateSettings
from crds.v1alpha1.conditions import Reason
from crds.v1alpha1.rollout import InferenceRolloutStatus
from policies.verdict import Result
from shadow.envoy.bootstrap import Upstream
from shadow.plan import Stage, TrafficPlan
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

    def __init__(self) -> None:
        self.journal: list[str] = []
        self.cluster, self.gates = FakeCluster(self.journal), FakeGates(self.journal)
        self.judge, self.store, self.lease = FakeJudgement(), FakeStore(), FakeLease()
        self.prober, self.clock, self.queue = FakeProber(), FakeClock(), WorkQueue()
        shared = (self.cluster, self.gates, self.judge)
        self.observer = Observer(*shared, self.prober, self.store, self.lease, self.clock)
        upstream = Upstream("127.0.0.1", 1)
        gates = GateSettings("weighlock/gate:test", upstream, upstream)
        self.actor = Actor(*shared, self.store, self.lease, self.clock, gates)
        self.observer.set_gate_applied(self.actor.gate_applied)
        self.reconciler = Reconciler(
            self.cluster, self.observer, self.actor, self.queue, OperatorMetrics(), lambda *_: None
        )
        self._addresses = itertools.count(1)

    def apply(self, image: str = "vllm/vllm-openai:v0.31.0", **spec: Any) -> None:
        old = self.cluster.get_cached("inferencerollouts", NS, NAME)
        meta = old["metadata"] if old else {"name": NAME, "namespace": NS}
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
        self.reconciler.reconcile(f"{NS}/{NAME}")
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
        obj = self.cluster.get_cached("inferencerollouts", NS, NAME)
        return obj["status"] if obj else {}


@pytest.fixture
def shell() -> Shell:
    shell = Shell()
    shell.apply()
    shell.run_to("Completed")
    shell.once()
    return shell


def weighing(shell: Shell) -> None:
    shell.apply("vllm/vllm-openai:v0.32.0")
    shell.run_to("Shadow")
    shell.run_to("Canary")
    shell.once()
    shell.journal.clear()


def test_a_rise_is_in_status_before_the_gates_hear_of_it(shell: Shell) -> None:
    shell.apply("vllm/vllm-openai:v0.32.0")
    shell.run_to("Canary")
    rise = shell.journal.index("publish 5")
    assert shell.journal[:rise][-1] == "status" or "status" in shell.journal[rise - 3 : rise]


def test_a_fall_is_at_the_gates_before_anything_else(shell: Shell) -> None:
    weighing(shell)
    shell.say("FAIL")
    shell.once()
    assert shell.journal[0] == "publish 0" and "status" in shell.journal
    assert shell.status["phase"] == "RollingBack"


def test_a_fall_needs_neither_api_server_nor_store(shell: Shell) -> None:
    weighing(shell)
    shell.cluster.is_down, shell.store.is_healthy = True, False
    shell.say("FAIL")
    shell.once()
    assert shell.gates.sent is not None and shell.gates.sent.plan.weight == 0
    shell.cluster.is_down = False
    shell.run_to("RolledBack")


def test_a_fall_happens_also_after_the_lease_ran_out_on_a_silent_server(shell: Shell) -> None:
    weighing(shell)
    shell.lease.held, shell.cluster.is_down = False, True
    shell.say("FAIL")
    shell.once()
    assert shell.journal[0] == "publish 0" and "status" not in shell.journal


def test_c111_a_leader_that_lost_its_lease_writes_nothing(shell: Shell) -> None:
    weighing(shell)
    shell.lease.held = shell.lease.lowering = False
    shell.say("FAIL")
    shell.once()
    assert shell.journal == []


def test_c85_a_conflict_publishes_no_rise_and_is_tried_again(shell: Shell) -> None:
    weighing(shell)
    shell.say("PASS")
    shell.cluster.conflicts = 3
    for _ in range(3):
        shell.once()
        assert "publish 50" not in shell.journal
    shell.run_to("Ramp")
    assert shell.gates.sent is not None and shell.gates.sent.plan.weight == 50


def test_c111_a_write_from_an_old_state_is_refused(shell: Shell) -> None:
    weighing(shell)
    shell.say("PASS")
    snapshot = shell.observer.observe(NS, NAME)
    assert snapshot is not None
    decision = decide(snapshot)
    shell.cluster.put({**shell.cluster.objects["inferencerollouts", NS, NAME]})
    stale = {**shell.cluster.objects["inferencerollouts", NS, NAME]}
    stale["metadata"] = {**stale["metadata"], "resourceVersion": "1"}
    shell.cluster.get_cached = lambda *_: stale  # type: ignore[method-assign]  # the cache of a paused process
    with pytest.raises(Retryable):
        shell.actor.carry_out(snapshot, decision)
    assert not [entry for entry in shell.journal if entry.startswith("publish 50")]


def test_c83_a_rollback_serves_exactly_what_was_stored(shell: Shell) -> None:
    weighing(shell)
    stable = shell.status["stable"]
    live = shell.cluster.objects["deployments", NS, variants.variant_name(NAME, stable, "server")]
    stored = [dict(c) for c in live["spec"]["template"]["spec"]["containers"]]
    live["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "X", "value": "1"}]
    live["spec"]["template"]["spec"]["nodeSelector"] = {"x": "y"}
    live["metadata"]["generation"] = 2
    shell.say("FAIL")
    shell.run_to("RolledBack")
    template = shell.cluster.objects["deployments", NS, variants.variant_name(NAME, stable, "server")]["spec"][
        "template"
    ]
    assert template["spec"]["containers"] == stored and "nodeSelector" not in template["spec"]
    assert "equal to its stored manifest" in shell.status["message"]


def test_config_maps_are_copied_by_content_and_restored(shell: Shell) -> None:
    volume = {"name": "c", "configMap": {"name": "settings"}}
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.31.0",
        "envFrom": [{"configMapRef": {"name": "settings"}}],
    }
    template = {"spec": {"containers": [container], "volumes": [volume]}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": NS}}
    shell.cluster.put({**config, "data": {"max": "64"}})
    shell.apply(template=template)
    shell.run_to("Shadow")
    shell.once()
    copies = [o for o in shell.cluster.cached("configmaps", NS) if o.get("immutable")]
    assert len(copies) == 1 and copies[0]["metadata"]["annotations"][variants.SOURCE] == "settings"
    candidate = shell.status["candidate"]
    pod = shell.cluster.objects["deployments", NS, f"{NAME}-{candidate}"]["spec"]["template"]["spec"]
    assert pod["volumes"][0]["configMap"]["name"] == copies[0]["metadata"]["name"]
    assert pod["containers"][0]["envFrom"][0]["configMapRef"]["name"] == copies[0]["metadata"]["name"]
    shell.cluster.put({**config, "data": {"max": "96"}})
    shell.once()
    assert shell.status["reason"] == "Superseded"


def test_a_missing_config_map_is_told_and_nothing_starts(shell: Shell) -> None:
    volume = {"name": "c", "configMap": {"name": "nowhere"}}
    container = {"name": "vllm", "image": "vllm/vllm-openai:v0.31.0"}
    shell.apply(template={"spec": {"containers": [container], "volumes": [volume]}})
    for _ in range(3):
        shell.once()
    stalled = next(c for c in shell.status["conditions"] if c["type"] == "Stalled")
    assert stalled["status"] == "True" and "nowhere" in stalled["message"] and shell.status["phase"] == "Completed"


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


def test_deletion_orphans_what_serves_and_the_service_points_to_it(shell: Shell) -> None:
    weighing(shell)
    stable, candidate = shell.status["stable"], shell.status["candidate"]
    obj = shell.cluster.objects["inferencerollouts", NS, NAME]
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for _ in range(4):
        shell.once()
    assert shell.cluster.objects["inferencerollouts", NS, NAME]["metadata"]["finalizers"] == []
    assert ("deployments", NS, f"{NAME}-{stable}") in shell.cluster.objects
    assert ("deployments", NS, f"{NAME}-{candidate}") not in shell.cluster.objects
    service = shell.cluster.objects["services", NS, f"{NAME}-gate"]
    assert service["spec"]["selector"][variants.REVISION] == stable
    assert "weighlock.dev/gate" not in service["spec"]["selector"]
    assert shell.cluster.cached("runmanifests", NS) == []


def test_acts_on_a_deleted_namesake_are_ignored(shell: Shell) -> None:
    spec = {"rollout": NAME, "action": "rollback", "user": "ann", "attempt": 1}
    meta = {"name": "old", "namespace": NS, "creationTimestamp": "2025-01-01T00:00:00Z"}
    shell.cluster.put({"apiVersion": "weighlock.dev/v1alpha1", "kind": "RolloutAction", "metadata": meta, "spec": spec})
    shell.once()
    assert shell.status["phase"] == "Completed" and not shell.status.get("appliedActions")


def test_no_write_at_all_while_nothing_happens(shell: Shell) -> None:
    """A steady rollout costs the API server nothing."""
    shell.once()
    shell.journal.clear()
    for _ in range(10):
        shell.once()
    assert shell.journal == []


def test_one_reconcile_of_a_steady_rollout_is_cheap(shell: Shell) -> None:
    import time

    shell.once()
    began = time.process_time()
    for _ in range(20):
        shell.reconciler.reconcile(f"{NS}/{NAME}")
    assert (time.process_time() - began) / 20 < 0.05


@pytest.mark.parametrize(
    ("published", "weight", "copies", "rises"),
    [(None, 5, 0.0, True), (5, 5, 0.5, False), (5, 25, 0.0, True), (50, 5, 1.0, False), (None, 0, 0.0, False)],
)
def test_what_counts_as_a_rise(published: int | None, weight: int, copies: float, rises: bool) -> None:
    def plan(percent: int, share: float) -> TrafficPlan:
        return TrafficPlan("ns/chat", 1, 1, Stage.RAMP, percent, share, 1.0, "a", "b")

    before = plan(published, 0.0) if published is not None else None
    assert is_raising(before, plan(weight, copies)) is rises


def test_the_fail_result_is_the_judges(shell: Shell) -> None:
    weighing(shell)
    shell.say("FAIL")
    shell.once()
    assert shell.status["verdict"]["result"] == Result.FAIL


def legacy_service() -> dict[str, Any]:
    spec = {"selector": {"app": "legacy"}, "ports": [{"name": "http", "port": 80, "targetPort": "web"}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "llm", "namespace": NS}, "spec": spec}


@pytest.mark.parametrize("legacy_runs", [True, False])
def test_a_taken_over_service_gets_back_what_it_had(shell: Shell, legacy_runs: bool) -> None:
    shell.cluster.put(legacy_service())
    if legacy_runs:
        meta = {"name": "old", "namespace": NS, "labels": {"app": "legacy"}}
        shell.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}, "status": {}})
    shell.apply(traffic={"takeOverService": "llm"})
    for _ in range(4):
        shell.once()
        if legacy_runs:
            shell.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}, "status": {}})
    service = shell.cluster.objects["services", NS, "llm"]
    assert service["spec"]["selector"] == {"weighlock.dev/gate": NAME}
    assert service["spec"]["ports"][0]["targetPort"] == 8000
    shell.cluster.objects["inferencerollouts", NS, NAME]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for _ in range(4):
        shell.reconciler.reconcile(f"{NS}/{NAME}")
    service = shell.cluster.objects["services", NS, "llm"]
    if legacy_runs:
        assert service["spec"] == legacy_service()["spec"]
    else:
        assert service["spec"]["selector"][variants.REVISION] == shell.status["stable"]
    assert not any(key.startswith("weighlock.dev") for key in service["metadata"].get("annotations", {}))


def test_a_service_of_another_rollout_is_not_taken(shell: Shell) -> None:
    service = legacy_service()
    service["metadata"]["annotations"] = {"weighlock.dev/taken-over-by": "another"}
    shell.cluster.put(service)
    shell.apply(traffic={"takeOverService": "llm"})
    for _ in range(3):
        shell.once()
    assert shell.cluster.objects["services", NS, "llm"]["spec"]["selector"] == {"app": "legacy"}
    stalled = next(c for c in shell.status["conditions"] if c["type"] == "Stalled")
    assert stalled["reason"] == "RouteConflict"


# --- what nobody foresaw ---


def condition(shell: Shell, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in shell.status["conditions"] if c["type"] == kind)
    return found


def test_an_error_of_our_own_is_told_on_the_rollout_and_forgotten_when_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell = Shell()
    shell.apply()
    shell.run_to("Completed")
    with monkeypatch.context() as broken:
        broken.setattr("controller.reconcile.decide", lambda _snapshot: 1 / 0)
        shell.once()
        told = condition(shell, "Stalled")
        assert (told["status"], told["reason"]) == ("True", "OperatorDefect")
        assert "ZeroDivisionError" in told["message"]
        assert shell.status["phase"] == "Completed"  # everything else stays as it was
        version = shell.cluster.get_cached("inferencerollouts", NS, NAME)["metadata"].get("resourceVersion")
        shell.once()
        again = shell.cluster.get_cached("inferencerollouts", NS, NAME)["metadata"].get("resourceVersion")
        assert again == version  # told once, however often it is tried
    shell.once()
    assert condition(shell, "Stalled")["status"] == "False"


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
    assert condition(shell, "Stalled")["reason"] == "InvalidSpec"
    assert condition(shell, "Stalled")["message"].startswith(words)


def test_c105_what_is_told_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell()
    shell.apply()
    shell.run_to("Completed")

    def fail(_snapshot: object) -> None:
        raise ValueError("unexpected argument --api-key sk-marker123456789012345")

    monkeypatch.setattr("controller.reconcile.decide", fail)
    shell.once()
    told = condition(shell, "Stalled")
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
        told = condition(shell, "Stalled")
        assert told["status"] == "True" and "spec.selector: field is immutable" in told["message"]
        assert shell.status["stable"] == stable and shell.status["step"]["weight"] == 0
    for _ in range(3):
        shell.once()
    assert condition(shell, "Stalled")["status"] == "False"


def test_c75_what_others_write_into_a_running_variant_starts_no_attempt(shell: Shell) -> None:
    shell.apply()
    shell.run_to("Completed")
    attempt, stable = shell.status["attempt"], shell.status["stable"]
    live = shell.cluster.objects["deployments", NS, variants.variant_name(NAME, stable, "server")]
    template = live["spec"]["template"]
    template["metadata"]["annotations"] = {"sidecar.istio.io/status": "injected"}
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}  # an autoscaler's
    for replicas in (3, 5) * 5:
        shell.apply(replicas=replicas)
        shell.once()
    assert (shell.status["attempt"], shell.status["stable"]) == (attempt, stable)
    assert shell.status["phase"] == "Completed"
