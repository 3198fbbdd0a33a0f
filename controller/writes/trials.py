"""Dry runs of a variant's objects by the API server, and what it said. Called by act.py.

What is kept is a cache: a process that never asked asks again.
"""

from collections.abc import Iterator
from typing import Any

from controller.core import variants
from controller.core.snapshot import Frozen, Snapshot, Trial
from controller.ports import Clock, Cluster, Retryable, Terminal

_NO_DRY_RUN = "does not support dry run"
_WEBHOOK = "webhook"


class Trials:
    """Makes dry runs and keeps the last answer of each rollout."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self._made: dict[str, tuple[str, int, Trial]] = {}

    def of(self, key: str, rev10: str, attempt: int) -> Trial | None:
        """The answer for this revision in this attempt; None where nobody asked."""
        made = self._made.get(key)
        return made[2] if made is not None and made[:2] == (rev10, attempt) else None

    def forget(self, key: str) -> None:
        """A rollout is gone."""
        self._made.pop(key, None)

    def make(self, s: Snapshot, frozen: Frozen, attempt: int) -> None:
        """Try every object of a revision that does not exist yet; Retryable where the API server does not answer."""
        refused, unproven = "", ""
        for obj, plural in self._objects(s, frozen):
            words = self._try(obj, plural)
            if _NO_DRY_RUN in words:
                unproven = unproven or words
            else:
                refused = refused or words
        self._made[s.key] = (frozen.rev10, attempt, Trial(self._clock.now(), refused, unproven))

    def _try(self, obj: dict[str, Any], plural: str) -> str:
        """Why the API server would not take an object, in its words; "" when it would."""
        try:
            self._cluster.try_apply(obj, plural)
        except Terminal as error:
            return _sentence(obj, error)
        except Retryable as error:
            if _WEBHOOK not in str(error):
                raise
            return _sentence(obj, error)  # a webhook that does not answer refuses for as long as that lasts
        return ""

    def _objects(self, s: Snapshot, frozen: Frozen) -> Iterator[tuple[dict[str, Any], str]]:
        for source, name in frozen.config_maps.items():
            data = frozen.manifest.config_maps[source]
            yield variants.make_config_map(s.name, s.namespace, source, name, data), "configmaps"
        for role in frozen.manifest.roles:
            workload = variants.make_workload(s.name, s.namespace, frozen, role, role.replicas)
            if self._cluster.get_cached("deployments", s.namespace, workload["metadata"]["name"]) is None:
                yield workload, "deployments"


def _sentence(obj: dict[str, Any], error: Exception) -> str:
    return f"{obj['kind']} {obj['metadata']['name']}: {str(error)[:500].rstrip('.')}."
