"""A pod's object as the core knows it: ready or not, where, and how it died.

Pure; called by workloads.py and live.py.
"""

from collections.abc import Mapping
from typing import Any

from controller.core import times, variants
from controller.core.snapshot import Pod
from crds.v1alpha1.rollout import InferenceRolloutStatus
from manifests.secrets import redact_text


def make_pod(obj: Mapping[str, Any]) -> Pod:
    """The parts of a pod that decisions depend on."""
    meta, status = obj["metadata"], obj.get("status") or {}
    labels = meta["labels"]
    containers = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    ended = [t for c in containers for t in (_ended(c, "state"), _ended(c, "lastState")) if t]
    ready = _condition(obj, "Ready")
    is_up = ready.get("status") == "True"
    placed = _condition(obj, "PodScheduled")
    is_unplaced = placed.get("status") == "False" and placed.get("reason") == "Unschedulable"
    bad = [t for t in ended if t.get("exitCode") not in (0, None) or t.get("reason") == "OOMKilled"]
    return Pod(
        name=meta["name"],
        revision=labels[variants.REVISION],
        role=labels.get(variants.ROLE, variants.SINGLE_ROLE),
        ip=status.get("podIP") or "",
        created_s=times.from_text(meta.get("creationTimestamp")) or 0.0,
        ready=is_up,
        ready_since_s=times.from_text(ready.get("lastTransitionTime")) if is_up else None,
        terminating=bool(meta.get("deletionTimestamp")),
        servable=is_up,
        restarts=sum(int(c.get("restartCount") or 0) for c in containers),
        oom_killed=any(t.get("reason") == "OOMKilled" for t in ended),
        crash=_last_words(bad[-1]) if bad else "",
        waiting=next(filter(None, map(_waits_for, containers)), ""),
        unschedulable=str(placed.get("message") or "no node fits") if is_unplaced else "",
    )


def is_ready(obj: Mapping[str, Any]) -> bool:
    """Whether a pod's Ready condition is true."""
    return _condition(obj, "Ready").get("status") == "True"


def was_proven(pod: Pod, status: InferenceRolloutStatus) -> bool:
    """Whether a pod was ready before the step in force began: the step could not have begun without its answer.

    A new leader has no probe results yet; it must not take that for a dead candidate.
    """
    began_s = times.from_text(status.step.started_at)
    if began_s is None and status.step.weight > 0:
        began_s = times.from_text(status.phase_started_at)
    return began_s is not None and pod.ready_since_s is not None and pod.ready_since_s <= began_s


def host_of(address: str) -> str:
    """An address as it stands in a URL."""
    return f"[{address}]" if ":" in address else address


def _condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == kind), {})


def _ended(container: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = (container.get(name) or {}).get("terminated")
    return found


def _waits_for(container: Mapping[str, Any]) -> str:
    """Why a container cannot even start (an image that cannot be pulled, a Secret that is missing)."""
    waiting = (container.get("state") or {}).get("waiting") or {}
    if waiting.get("reason") in (None, "ContainerCreating", "PodInitializing"):
        return ""
    message = redact_text(" ".join(str(waiting.get("message") or "").split())[:300])
    return f"{waiting['reason']}: {message}" if message else str(waiting["reason"])


def _last_words(ended: Mapping[str, Any]) -> str:
    reason = f"{ended.get('reason', 'Error')}, exit code {ended.get('exitCode')}"
    message = redact_text(" ".join(str(ended.get("message") or "").split())[-300:])
    return f"{reason}: {message}" if message else reason
