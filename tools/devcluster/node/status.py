"""A pod's status, computed from its containers. Pure: called by the pod's worker whenever something changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tools.devcluster.node.kinds import Object, is_sidecar


@dataclass
class ContainerView:
    """What the status says about one container."""

    spec: Object
    state: Object = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last_state: Object = field(default_factory=dict)
    restart_count: int = 0
    ready: bool = False
    started: bool = False
    container_id: str = ""
    finished: bool = False  # it will not be started again

    @property
    def exit_code(self) -> int | None:
        """Of the last run, when the container is not running."""
        terminated = self.state.get("terminated") or self.last_state.get("terminated")
        return terminated["exitCode"] if terminated and "running" not in self.state else None

    @property
    def has_run(self) -> bool:
        return "waiting" not in self.state or bool(self.last_state)


def make_container_status(view: ContainerView) -> Object:
    return {
        "name": view.spec["name"],
        "image": view.spec["image"],
        "imageID": f"process://{view.spec['image']}" if view.has_run else "",
        "containerID": view.container_id,
        "state": view.state,
        "lastState": view.last_state,
        "ready": view.ready,
        "started": view.started,
        "restartCount": view.restart_count,
    }


def make_phase(inits: Sequence[ContainerView], mains: Sequence[ContainerView]) -> str:
    """Pending, Running, Succeeded or Failed."""
    once = [view for view in inits if not is_sidecar(view.spec)]
    if any(view.finished and view.exit_code != 0 for view in once):
        return "Failed"
    if mains and all(view.finished for view in mains):
        return "Succeeded" if all(view.exit_code == 0 for view in mains) else "Failed"
    return "Running" if any(view.has_run for view in mains) else "Pending"


def is_initialized(inits: Sequence[ContainerView]) -> bool:
    return all(view.started if is_sidecar(view.spec) else view.finished and view.exit_code == 0 for view in inits)


def make_status(
    pod: Object, inits: Sequence[ContainerView], mains: Sequence[ContainerView], address: Object, now: str
) -> Object:
    """The status to write.

    Args:
        pod: the pod as last seen; its conditions give the transition times that stay, and readiness gates' results.
        inits, mains: its containers in the order of the spec.
        address: ``podIP``, ``podIPs``, ``hostIP``, ``hostIPs`` and ``startTime``.
        now: RFC 3339.
    """
    phase = make_phase(inits, mains)
    sidecars = [view for view in inits if is_sidecar(view.spec)]
    unready = [view.spec["name"] for view in [*sidecars, *mains] if not view.ready]
    done = phase in ("Succeeded", "Failed")
    containers_ready = not unready and not done
    reason = "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
    message = f"containers with unready status: [{' '.join(unready)}]"
    verdict = {} if containers_ready else {"reason": reason, "message": message}
    gates_ready = all(has_condition(pod, gate["conditionType"]) for gate in pod["spec"].get("readinessGates") or [])
    gate_verdict = {} if gates_ready else {"reason": "ReadinessGatesNotReady"}
    initialized = is_initialized(inits) or any(view.has_run for view in mains)
    init_verdict = {} if initialized else {"reason": "ContainersNotInitialized"}
    conditions = [
        make_condition(pod, "PodReadyToStartContainers", not done, {}, now),
        make_condition(pod, "Initialized", initialized, init_verdict, now),
        make_condition(pod, "ContainersReady", containers_ready, verdict, now),
        make_condition(pod, "Ready", containers_ready and gates_ready, verdict or gate_verdict, now),
    ]
    return {
        "phase": phase,
        "observedGeneration": pod["metadata"].get("generation", 0),
        "conditions": conditions,
        "initContainerStatuses": [make_container_status(view) for view in inits],
        "containerStatuses": [make_container_status(view) for view in mains],
        **address,
    }


def make_condition(pod: Object, kind: str, holds: bool, verdict: Object, now: str) -> Object:
    """A condition whose transition time moves only when its status flips. Absent reasons are nulls in the patch."""
    status = "True" if holds else "False"
    known = find_condition(pod, kind)
    since = known["lastTransitionTime"] if known and known["status"] == status else now
    generation = pod["metadata"].get("generation", 0)
    return {
        "type": kind,
        "status": status,
        "reason": verdict.get("reason"),
        "message": verdict.get("message"),
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }


def find_condition(pod: Object, kind: str) -> Object | None:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == kind), None)


def has_condition(pod: Object, kind: str) -> bool:
    found = find_condition(pod, kind)
    return found is not None and found["status"] == "True"
