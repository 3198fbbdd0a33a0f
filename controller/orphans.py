"""Acts of people on a rollout that does not exist (any more): told on the act itself, kept in the store, then removed.

The admission policy cannot know which rollouts there are, so the API server takes such an act without a word. Called by
reconcile.py where there is no rollout under a key.
"""

from collections.abc import Mapping
from typing import Any

import structlog

from controller.core import times
from controller.ports import Clock, Cluster, Ref, Store
from crds.v1alpha1.common import API_VERSION
from crds.v1alpha1.conditions import Reason

log = structlog.get_logger("weighlock.orphans")

KEPT_SECONDS = 60.0
"""How long the act stays, so that its author finds it, and the event about it, where it was made."""


class OrphanActs:
    """Looks after acts without a rollout."""

    def __init__(self, cluster: Cluster, store: Store, clock: Clock) -> None:
        self._cluster, self._store, self._clock = cluster, store, clock
        self._told: set[str] = set()

    def look(self, namespace: str, rollout: str) -> float | None:
        """Tell and remove the acts on a rollout that does not exist; seconds until there is more to do.

        Raises:
            Retryable, Terminal: from the API server.
        """
        acts = [obj for obj in self._cluster.cached("rolloutactions", namespace) if obj["spec"]["rollout"] == rollout]
        if not acts or self._cluster.get(Ref(API_VERSION, "inferencerollouts", namespace, rollout)) is not None:
            return None  # a cache may be behind, the server is not
        waits = [self._look_at(act, namespace, rollout) for act in acts]
        return min((wait for wait in waits if wait > 0), default=None)

    def _look_at(self, act: Mapping[str, Any], namespace: str, rollout: str) -> float:
        meta = act["metadata"]
        created_s = times.from_text(meta["creationTimestamp"]) or 0.0
        left_s = created_s + KEPT_SECONDS - self._clock.now()
        if left_s <= 0:
            self._cluster.delete(Ref(API_VERSION, "rolloutactions", namespace, meta["name"]))
            self._told.discard(meta["uid"])
            return 0.0
        if meta["uid"] not in self._told:
            self._told.add(meta["uid"])
            self._tell(act, namespace, rollout)
        return max(left_s, 1.0)

    def _tell(self, act: Mapping[str, Any], namespace: str, rollout: str) -> None:
        spec = act["spec"]
        text = f"There is no InferenceRollout {rollout} in {namespace}: {spec['action']} by {spec['user']} has no "
        text += f"effect and is removed in a minute. `kubectl get iro -n {namespace}` lists the names."
        about = {**act, "apiVersion": API_VERSION, "kind": "RolloutAction"}
        self._cluster.emit(about, Reason.ACTION_REFUSED.value, text, warning=True)
        content = {**spec, "message": text}
        uid, now_s = act["metadata"]["uid"], self._clock.now()
        self._store.put_action(f"{namespace}/{rollout}", uid, content, Reason.ACTION_REFUSED.value, now_s)
        log.info("act without a rollout", rollout=f"{namespace}/{rollout}", action=spec["action"], user=spec["user"])
