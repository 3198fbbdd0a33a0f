"""One InferenceRollout of the system under test: apply, ask, break, approve, wait.

Nothing here decides about a rollout. Used by the fixtures `rollout` and `watched` of the end-to-end tests.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from policies.blocks import Block
from tests.e2e.chaos import live_weight
from tests.e2e.kube import Namespace, wait_until
from tests.e2e.system import System

API = "weighlock.dev/v1alpha1"
CONTROL_PORT = 9901
HISTORY_SECONDS = 5
POLICY: dict[str, Any] = {
    "tenants": {"from": {"header": "x-tenant"}, "required": ["acme", "globex"], "other": "pooled"},
    "lengthBuckets": {"edges": [8192]},
    "gates": [
        {"metric": "ttft", "percentile": "90", "margin": "200%", "limit": "3s"},
        {"metric": "success", "limit": "90%"},
    ],
    "evidence": {
        "history": f"{HISTORY_SECONDS}s",
        "minStep": "5s",
        "minBlocks": 1,
        "warmup": "2s",
        "freshness": "30s",
        "maxSilence": "60s",
        "thinStrata": "hold",
    },
    "approval": {"expires": "15m", "requireReason": True},
}
"""Decides in tens of seconds at 24 requests/s and tenant; a production policy would ask for far more."""

AT_ONCE = ({"canary": {"weight": 20}}, {"ramp": {"weight": 50, "approval": True}})
"""Steps for tests about people and faults: live traffic as soon as the candidate is servable."""

FULL = ({"shadow": {}}, {"canary": {"weight": 20}}, {"ramp": {"weight": 50, "approval": True}})
Status = dict[str, Any]


def is_true(status: Mapping[str, Any], kind: str) -> bool:
    """Whether a condition is True."""
    return condition(status, kind).get("status") == "True"


def condition(status: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """A condition, empty where it is not there."""
    return next((c for c in status.get("conditions") or () if c["type"] == kind), {})


def shown(status: Mapping[str, Any]) -> str:
    """What a failing test tells about a rollout: where it is, why, and which conditions hold."""
    told = {key: status.get(key) for key in ("phase", "attempt", "step", "reason", "message", "verdict")}
    return json.dumps([told, *(c for c in status.get("conditions") or () if c["status"] == "True")])


def has_ended(status: Mapping[str, Any], attempt: int) -> bool:
    """Whether this attempt (not an earlier one) is over."""
    return status.get("attempt", 0) >= attempt and status.get("phase") in ("Completed", "RolledBack")


@dataclass
class Rollout:
    """One InferenceRollout of a namespace, and the engine flags that its next revision shall have."""

    system: System
    namespace: Namespace
    name: str = "chat"
    replicas: int = 2
    gpus: int = 1
    gates: int = 2
    policy: Mapping[str, Any] | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(129))
    _stable_spec: dict[str, Any] = field(default_factory=dict)

    # --- asking ---

    @property
    def path(self) -> str:
        return self.namespace.path("inferencerollouts", self.name, API)

    def get(self) -> dict[str, Any]:
        """The object, empty where there is none."""
        found: dict[str, Any] = self.namespace.get("inferencerollouts", self.name, API) or {}
        return found

    def status(self) -> Status:
        found: Status = self.get().get("status") or {}
        return found

    def wait(self, what: str, holds: Callable[[Status], object], timeout_seconds: float = 60.0) -> Status:
        """The first status for which `holds`; a failing test shows the last one."""
        seen: list[Status] = [{}]

        def look() -> Status | None:
            seen[0] = self.status()
            return seen[0] if holds(seen[0]) else None

        class Words(str):
            __slots__ = ()

            def __str__(self) -> str:
                return f"{what}; last seen {shown(seen[0])}"

            def __format__(self, spec: str) -> str:
                return str(self)

        return wait_until(Words(what), look, timeout_seconds)

    def wait_ended(self, attempt: int, phase: str, timeout_seconds: float = 60.0) -> Status:
        """Until the attempt is over, and that it ended in `phase`."""
        status = self.wait(f"end of attempt {attempt}", lambda s: has_ended(s, attempt), timeout_seconds)
        assert status["phase"] == phase, f"{status['phase']}: {status['reason']} {status['message']}"
        return status

    def wait_weight(self, weight: int, timeout_seconds: float = 60.0) -> Status:
        """Until the step in force has this weight and every gate holds it."""
        status = self.wait(f"weight {weight}", lambda s: (s.get("step") or {}).get("weight") == weight, timeout_seconds)
        wait_until(f"gates to hold {weight}", lambda: set(self.weights()) == {weight}, 15)
        return status

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Pods by label, oldest first."""
        found = self.namespace.call("GET", f"{self.namespace.path('pods')}?labelSelector={selector}")["items"]
        return sorted(found, key=lambda pod: pod["metadata"]["creationTimestamp"])

    def engines(self, revision: str) -> list[dict[str, Any]]:
        """Engine pods of a revision."""
        return self.pods(f"weighlock.dev/rollout={self.name},weighlock.dev/revision={revision}")

    def uids(self, revision: str) -> set[str]:
        """Pod uids of a revision."""
        return {pod["metadata"]["uid"] for pod in self.engines(revision)}

    def variants(self) -> set[str]:
        """Revisions that have workloads."""
        path = (
            f"{self.namespace.path('deployments', version='apps/v1')}?labelSelector=weighlock.dev/rollout={self.name}"
        )
        items = self.namespace.call("GET", path)["items"]
        labels = [item["metadata"]["labels"].get("weighlock.dev/revision") for item in items]
        return {label for label in labels if label}

    def weights(self) -> list[int | None]:
        """Weight of the candidate that each gate's Envoy holds now."""
        pods = self.pods(f"weighlock.dev/gate={self.name}")
        return [live_weight(pod["metadata"]["name"]) for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def blocks(self, attempt: int) -> list[Block]:
        """Closed blocks of an attempt, as the database has them."""
        url = f"{self.system.evidence_url}/api/v1/rollouts/{self.namespace.name}/{self.name}/blocks?attempt={attempt}"
        answer = httpx.get(url, headers={"Authorization": f"Bearer {self.system.cluster.token()}"}, timeout=30)
        answer.raise_for_status()
        return [Block.from_mapping(json.loads(line)) for line in answer.text.splitlines()]

    def weight_of(self, gate: str) -> int | None:
        """Weight that one gate holds now; needs no API server."""
        return live_weight(gate)

    def story(self) -> str:
        """Status and the newest events, for the report of a test that failed."""
        found = self.namespace.call("GET", f"{self.namespace.path('events')}?limit=2000")["items"]
        found.sort(key=lambda event: event["lastTimestamp"] or event["metadata"]["creationTimestamp"])
        lines = [f"{e['lastTimestamp']} {e['involvedObject']['name']} {e['reason']}: {e['message']}" for e in found]
        return "\n".join([shown(self.status()), *lines[-40:]])

    def events(self, reason: str) -> list[str]:
        """Messages of events about the rollout, oldest first."""
        found = self.namespace.call("GET", f"{self.namespace.path('events')}?limit=2000")["items"]
        found.sort(key=lambda event: event["metadata"]["creationTimestamp"])
        return [e["message"] for e in found if e["involvedObject"]["name"] == self.name and e["reason"] == reason]

    # --- changing ---

    def spec(self, *flags: str, steps: Sequence[Mapping[str, Any]] = FULL, **container: Any) -> dict[str, Any]:
        """A spec whose engine has these flags; without any it has a number that makes it a revision of its own."""
        usual = ["--model=Qwen/Qwen3-30B-A3B", "--max-model-len=16384", "--stream-interval=4"]
        engine = {
            "name": "vllm",
            "image": "vllm/vllm-openai:v0.31.0",
            "args": [*usual, *(flags or (f"--max-num-seqs={next(self._numbers)}",))],
            "env": [
                {"name": "ENGINESIM_HARDWARE", "value": "H100"},
                {"name": "ENGINESIM_FRONTEND_MS", "value": "200"},
                {"name": "ENGINESIM_START_S", "value": "0.5"},
            ],
            "resources": {"limits": {"nvidia.com/gpu": self.gpus}} if self.gpus else {},
            "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1},
            "volumeMounts": [{"name": "chat", "mountPath": "/etc/chat"}],
            **container,
        }
        volume = {"name": "chat", "configMap": {"name": "chat-template"}}
        pod = {"terminationGracePeriodSeconds": 5, "containers": [engine], "volumes": [volume]}
        policy = {"policyRef": {"name": "light"}} if self.policy is None else {"policy": dict(self.policy)}
        return {
            "replicas": self.replicas,
            **policy,
            "traffic": {"gateReplicas": self.gates},
            "capacity": {"maxRestarts": 1, "readyDeadline": "60s"},
            "steps": list(steps),
            "bake": "6s",
            "template": {"spec": pod},
        }

    def apply(self, spec: Mapping[str, Any]) -> None:
        """Server-side apply as a user would."""
        body = {"apiVersion": API, "kind": "InferenceRollout", "metadata": {"name": self.name}, "spec": dict(spec)}
        path = f"{self.path}?fieldManager=user&force=true"
        self.system.call("PATCH", path, body, "application/apply-patch+yaml")

    def begin(self, spec: Mapping[str, Any], timeout_seconds: float = 30.0) -> int:
        """Apply a new revision; the number of its attempt, once that has begun."""
        attempt = int(self.status().get("attempt") or 0) + 1
        self.apply(spec)
        self.wait(f"attempt {attempt}", lambda s: s.get("attempt", 0) >= attempt, timeout_seconds)
        return attempt

    def install(self) -> None:
        """Policy, ConfigMap and the first revision; it becomes stable without anything to compare with."""
        if self.get():  # of a cluster that was kept
            self._stable_spec = self.get()["spec"]
            self._numbers = itertools.count(129 + 16 * int(self.status()["attempt"]))
            return
        policy = {"apiVersion": API, "kind": "RolloutPolicy", "metadata": {"name": "light"}, "spec": POLICY}
        template = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "chat-template"}}
        template["data"] = {"template.jinja": "{% for m in messages %}{{ m.content }}{% endfor %}\n"}
        self.namespace.call("POST", self.namespace.path("rolloutpolicies", version=API), policy)
        self.namespace.call("POST", self.namespace.path("configmaps"), template)
        self._stable_spec = self.spec()
        self.apply(self._stable_spec)
        self.wait("first install", lambda s: is_true(s, "Completed"), 90)

    def take_as_stable(self, spec: Mapping[str, Any]) -> None:
        """What was promoted is what `settle` applies from now on."""
        self._stable_spec = dict(spec)

    def settle(self) -> Status:
        """Apply the stable revision again, and wait until it serves alone, in sync and with nothing running."""
        self.apply(self._stable_spec)

        def is_calm(status: Status) -> bool:
            is_done = status.get("phase") in ("Completed", "RolledBack") and is_true(status, "InSync")
            return is_done and not is_true(status, "EvidenceNotStored") and not status.get("pausedByAction")

        status = self.wait("stable to serve alone", is_calm, 90)
        wait_until("other variants to go", lambda: self.variants() == {status["stable"]}, 60)
        wait_until("gates to hold nothing", lambda: set(self.weights()) == {0}, 30)
        return status

    def set_fault(self, revision: str, **fault: Any) -> None:
        """Switch a fault on in every engine of a revision, at the simulator's control port."""
        for pod in self.engines(revision):
            url = f"http://{pod['status']['podIP']}:{CONTROL_PORT}/faults"
            httpx.put(url, json=fault, timeout=5).raise_for_status()

    def act(self, action: str, by: str = "approver", **binding: Any) -> tuple[int, Any]:
        """Create a RolloutAction as a person, bound to what is in force now; status code and answer."""
        status = self.status()
        spec = {
            "rollout": self.name,
            "action": action,
            "user": by,
            "reason": "end-to-end test",
            "attempt": status["attempt"],
            "step": status["step"]["index"],
            "revision": status.get("candidate") or "",
            **binding,
        }
        if action == "approve":
            spec.setdefault("evidence", status["verdict"]["evidence"])
        body = {"apiVersion": API, "kind": "RolloutAction", "metadata": {"generateName": f"{action}-"}, "spec": spec}
        return self.system.cluster.api(by).call("POST", self.namespace.path("rolloutactions", version=API), body)

    def takes(self, action: str, by: str = "approver", **binding: Any) -> str:
        """An act that the API server must take; its uid."""
        code, answer = self.act(action, by, **binding)
        assert code == 201, answer
        return str(answer["metadata"]["uid"])
