"""Small fakes of the outside: an API server in memory with resource versions, gates and a store that write down."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from controller.core.snapshot import DataPlane as DataPlaneView
from controller.core.snapshot import JudgeView, Traffic
from controller.ports import Ref, Retryable
from policies.setup import JudgeSetup
from policies.verdict import Hold
from shadow.plan import GateConfig

PLURALS = {
    "InferenceRollout": "inferencerollouts",
    "RolloutPolicy": "rolloutpolicies",
    "RunManifest": "runmanifests",
    "RolloutAction": "rolloutactions",
    "Deployment": "deployments",
    "Pod": "pods",
    "ConfigMap": "configmaps",
}


class FakeCluster:
    """Objects by plural, namespace and name. `journal` keeps every write in order (shared with other fakes)."""

    def __init__(self, journal: list[str]) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.journal = journal
        self.conflicts = 0
        self.is_down = False
        self.refusals: dict[str, Exception] = {}  # part of a name -> how a dry run of such an object ends
        self.events: list[tuple[str, str]] = []
        self._versions = itertools.count(1)

    def put(self, obj: dict[str, Any]) -> dict[str, Any]:
        """The test writes an object."""
        meta = obj["metadata"]
        meta.setdefault("uid", f"uid-{meta['name']}")
        meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        meta["resourceVersion"] = str(next(self._versions))
        self.objects[PLURALS.get(obj["kind"], obj["kind"].lower() + "s"), meta.get("namespace", ""), meta["name"]] = obj
        return obj

    def cached(self, plural: str, namespace: str, labels: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        wanted = (labels or {}).items()
        return [
            obj
            for (kind, ns, _), obj in self.objects.items()
            if kind == plural and ns == namespace and wanted <= (obj["metadata"].get("labels") or {}).items()
        ]

    def get_cached(self, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        return self.objects.get((plural, namespace, name))

    def get_known(self, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        return self.objects.get((plural, namespace, name))

    def fetch(self, ref: Ref) -> dict[str, Any] | None:
        return self.get(ref)

    def refresh(self, ref: Ref) -> None:
        self.journal.append(f"refresh {ref.name}")

    def get(self, ref: Ref) -> dict[str, Any] | None:
        self._answer()
        return self.objects.get((ref.plural, ref.namespace, ref.name))

    def apply(self, obj: Mapping[str, Any], plural: str) -> dict[str, Any]:
        self._answer()
        self.journal.append(f"apply {plural} {obj['metadata']['name']}")
        meta = {**obj["metadata"]}
        kept = self.objects.get((plural, meta.get("namespace", ""), meta["name"]))
        meta |= {"uid": kept["metadata"]["uid"]} if kept else {}
        return self.put({**obj, "metadata": meta})

    def try_apply(self, obj: Mapping[str, Any], plural: str) -> None:
        self._answer()
        self.journal.append(f"try {plural} {obj['metadata']['name']}")
        for word, error in self.refusals.items():
            if word in obj["metadata"]["name"]:
                raise error

    def patch(self, ref: Ref, patch: Any, subresource: str = "") -> dict[str, Any] | None:
        self._answer()
        self.journal.append(f"patch {ref.plural} {ref.name}")
        obj = self.objects.get((ref.plural, ref.namespace, ref.name))
        if obj is None:
            return None
        obj["metadata"]["generation"] = obj["metadata"].get("generation", 1) + 1
        if isinstance(patch, list):
            for step in patch:
                obj["spec"][step["path"].rsplit("/", 1)[-1]] = step["value"]
        else:
            _merge(obj, patch)
        return self.put(obj)

    def delete(self, ref: Ref) -> None:
        self._answer()
        self.journal.append(f"delete {ref.plural} {ref.name}")
        self.objects.pop((ref.plural, ref.namespace, ref.name), None)

    def replace_status(self, obj: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
        self._answer()
        if self.conflicts:
            self.conflicts -= 1
            raise Retryable("PUT status: 409 the object has been modified")
        self.journal.append("status")
        kept = self.objects["inferencerollouts", obj["metadata"]["namespace"], obj["metadata"]["name"]]
        if kept["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            raise Retryable("PUT status: 409 the object has been modified")
        return self.put({**kept, "status": dict(status)})

    def has_ready_pods(self, namespace: str, selector: Mapping[str, str]) -> bool:
        return bool(selector) and bool(self.cached("pods", namespace, selector))

    def emit(self, obj: Mapping[str, Any], reason: str, message: str, warning: bool) -> None:
        self.journal.append("event")
        self.events.append((reason, message))

    def is_reachable(self) -> bool:
        return not self.is_down

    def _answer(self) -> None:
        if self.is_down:
            raise Retryable("the API server does not answer")


def _merge(target: dict[str, Any], patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if isinstance(value, Mapping):
            _merge(target.setdefault(key, {}), value)
        elif value is None:
            target.pop(key, None)
        else:
            target[key] = value


class FakeGates:
    """Takes plans and acknowledges them at once."""

    def __init__(self, journal: list[str]) -> None:
        self.journal = journal
        self.sent: GateConfig | None = None

    def publish(self, config: GateConfig) -> None:
        if config != self.sent:
            self.journal.append(f"publish {config.plan.weight}")
        self.sent = config

    def forget(self, rollout: str) -> None:
        self.journal.append("forget")

    def view(self, rollout: str, gates: Sequence[str]) -> DataPlaneView:
        plan = self.sent.plan if self.sent else None
        return DataPlaneView(gates=tuple(gates), connected=len(gates), synced=plan is not None, published=plan)


class FakeJudgement:
    """A judge that says what the test sets."""

    def __init__(self) -> None:
        self.now = JudgeView(reachable=True, rebuilt=True)
        self.setups: list[int] = []
        self.guards: tuple[Hold, ...] = ()
        self.seen: Traffic | None = None
        self.setup: tuple[JudgeSetup, Mapping[str, Any] | None] | None = None

    def view(
        self, rollout: str, attempt: int, rev10: str, step: int, since_s: float, guards: tuple[Hold, ...] = ()
    ) -> JudgeView:
        self.guards = guards
        return self.now

    def put_setup(self, rollout: str, attempt: int, policy: Mapping[str, Any], stable: str) -> None:
        self.setups.append(attempt)

    def put_history_contract(self, rollout: str, policy: Mapping[str, Any]) -> None:
        return None

    def open_requests(self, rollout: str) -> Mapping[str, int] | None:
        return {}

    def prepared(self, rollout: str) -> tuple[JudgeSetup, Mapping[str, Any] | None] | None:
        return self.setup

    def traffic(self, rollout: str) -> Traffic | None:
        return self.seen

    def body_size(self, rollout: str) -> tuple[tuple[tuple[str, float], ...], tuple[tuple[str, float], ...]]:
        return (("", 4.0),), ()

    def forget(self, rollout: str) -> None:
        return None


class FakeStore:
    """A sink that remembers kinds."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, Any]] = []
        self.is_healthy = True

    def put_blocks(self, blocks: Any) -> None:
        self.rows.append(("blocks", list(blocks)))

    def put_setup(self, rollout: str, attempt: int, setup: Mapping[str, Any], at_s: float | None = None) -> None:
        self.rows.append(("setup", attempt))

    def put_verdict(self, rollout: str, attempt: int, last_seq: int, verdict: Any, evidence: str = "") -> str:
        self.rows.append(("verdict", verdict))
        return "key"

    def put_decision(
        self, rollout: str, attempt: int, step: int, content: Mapping[str, Any], at_s: float | None = None
    ) -> str:
        self.rows.append(("decision", content))
        return "key"

    def put_action(
        self, rollout: str, uid: str, spec: Mapping[str, Any], outcome: str, at_s: float | None = None
    ) -> str:
        self.rows.append(("action", outcome))
        return "key"

    def put_audit(
        self, rollout: str, who: str, what: str, content: Mapping[str, Any], attempt: int = 0, step: int = 0
    ) -> str:
        self.rows.append(("audit", what))
        return "key"

    def healthy(self) -> bool:
        return self.is_healthy


class FakeLease:
    """Held, unless the test says otherwise."""

    def __init__(self) -> None:
        self.held, self.lowering = True, True

    def is_held(self) -> bool:
        return self.held

    def may_lower(self) -> bool:
        return self.lowering


class FakeProber:
    """Every pod answers, unless it is in `silent`."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.targets: dict[str, str] = {}

    def watch(self, rollout: str, targets: Mapping[str, str]) -> None:
        self.targets = dict(targets)

    def result(self, uid: str) -> tuple[bool, int, str]:
        return (uid not in self.silent, 0, "")


class FakeClock:
    """Stands still until the test moves it."""

    def __init__(self, now_s: float = 1_800_000_000.0) -> None:
        self.now_s = now_s

    def now(self) -> float:
        return self.now_s
