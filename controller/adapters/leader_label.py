"""The label by which Services find the leader's pod: for gates (xDS) and readers (evidence API).

Called by the operator's start-up. A process that was frozen cannot take its own label away, so the next leader does.
"""

import structlog

from controller.adapters.kube import KubeCluster
from controller.adapters.rest import path_of
from controller.ports import Ref, Retryable, Terminal

log = structlog.get_logger("weighlock.leader")

LABEL = "weighlock.dev/leader"


class LeaderLabel:
    """The label on the pods of one installation.

    Args:
        namespace, pod: this process; pod "" where it runs in none (then nothing is labelled).
    """

    def __init__(self, cluster: KubeCluster, namespace: str, pod: str) -> None:
        self._cluster, self._namespace, self._pod = cluster, namespace, pod

    def drop(self) -> None:
        """Before this process campaigns: the one that ran in this pod before it may have led."""
        self._each(self._labelled() & {self._pod}, None)

    def take(self) -> None:
        """This process leads: it alone has the label."""
        self._each(self._labelled() - {self._pod}, None)
        self._each({self._pod}, "true")

    def _labelled(self) -> set[str]:
        if not self._pod:
            return set()
        path = path_of(Ref("v1", "pods", self._namespace))
        try:
            found = self._cluster.rest.call("GET", path, query={"labelSelector": f"{LABEL}=true"}) or {}
        except (Retryable, Terminal) as error:
            log.warning("leader's pods not listed", error=str(error))
            return set()
        return {str(pod["metadata"]["name"]) for pod in found.get("items") or ()}

    def _each(self, pods: set[str], value: str | None) -> None:
        for pod in sorted(filter(None, pods)):
            try:
                self._cluster.patch(Ref("v1", "pods", self._namespace, pod), {"metadata": {"labels": {LABEL: value}}})
            except (Retryable, Terminal) as error:
                log.warning("label not written", pod=pod, value=value, error=str(error))
