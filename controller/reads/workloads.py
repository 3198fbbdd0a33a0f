"""What runs: variants with their replicas and drift, pods with their probes, the gates.

Called by observe.py. Tells the prober which pods to ask.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from controller.core import variants
from controller.core.snapshot import Frozen, Pod, Variant
from controller.ports import Clock, Cluster, Prober
from controller.reads.hardware import HardwareReader
from controller.reads.memo import Memo
from controller.reads.pods import host_of, is_ready, make_pod, was_proven
from crds.v1alpha1.rollout import InferenceRolloutSpec, InferenceRolloutStatus
from manifests.digest import equal_after_normalisation


class WorkloadReader:
    """Reads Deployments and pods from caches."""

    def __init__(self, cluster: Cluster, prober: Prober, clock: Clock) -> None:
        self._cluster, self._prober, self._memo = cluster, prober, Memo()
        self._hardware = HardwareReader(cluster, clock)

    def variants(
        self,
        namespace: str,
        name: str,
        stored: Mapping[str, Frozen],
        spec: InferenceRolloutSpec | None,
        status: InferenceRolloutStatus,
    ) -> dict[str, Variant]:
        """What runs of each revision."""
        replicas: dict[str, dict[str, int]] = {}
        drift: dict[str, list[str]] = {}
        for obj in self._cluster.cached("deployments", namespace, {variants.ROLLOUT: name}):
            labels, meta = obj["metadata"]["labels"], obj["metadata"]
            rev10, role = labels.get(variants.REVISION), labels.get(variants.ROLE)
            if rev10 is None or role is None or meta.get("deletionTimestamp"):
                continue
            replicas.setdefault(rev10, {})[role] = int(obj["spec"].get("replicas", 1))
            drift.setdefault(rev10, []).extend(self._drift(obj, stored.get(rev10), role))
        pods = self._pods(namespace, name, spec, status)
        return {
            rev: Variant(rev, replicas.get(rev, {}), tuple(pods.get(rev, ())), ", ".join(drift.get(rev, ())[:5]))
            for rev in {*replicas, *pods}
        }

    def gates(self, namespace: str, name: str) -> list[str]:
        """Names of ready gate pods."""
        pods = self._cluster.cached("pods", namespace, {variants.GATE: name})
        return [p["metadata"]["name"] for p in pods if is_ready(p) and not p["metadata"].get("deletionTimestamp")]

    def _drift(self, obj: Mapping[str, Any], frozen: Frozen | None, role: str) -> list[str]:
        if frozen is None:
            return []
        wanted = next((r for r in frozen.manifest.roles if r.name == role), None)
        if wanted is None:
            return [f"role {role} is not in the stored manifest"]

        def compare() -> list[str]:
            labels = obj["metadata"]["labels"]
            stored = variants.make_template(wanted, labels, frozen.config_maps)
            return equal_after_normalisation(stored, obj["spec"]["template"])

        meta = obj["metadata"]
        return self._memo.get(("drift", meta["uid"], meta.get("generation"), frozen.rev10), compare)

    def _pods(
        self, namespace: str, name: str, spec: InferenceRolloutSpec | None, status: InferenceRolloutStatus
    ) -> dict[str, list[Pod]]:
        port = spec.traffic.port if spec else 8000
        found: dict[str, list[Pod]] = {}
        targets: dict[str, str] = {}
        for obj in self._cluster.cached("pods", namespace, {variants.ROLLOUT: name}):
            labels, meta = obj["metadata"]["labels"], obj["metadata"]
            if variants.REVISION not in labels:
                continue
            pod = replace(make_pod(obj), product=self._hardware.of(obj))
            uid = meta["uid"]
            if labels[variants.REVISION] == status.candidate and pod.ip and pod.ready and not pod.terminating:
                targets[uid] = f"http://{host_of(pod.ip)}:{port}"
                answered, failures, error = self._prober.result(uid)
                is_servable = answered or was_proven(pod, status)
                pod = replace(pod, servable=is_servable, probe_failures=failures, probe_error=error)
            found.setdefault(pod.revision, []).append(pod)
        self._prober.watch(f"{namespace}/{name}", targets)
        return found
