"""On which accelerator a pod really runs, by the labels of its node, and whether both arms run on the same.

Called by workloads.py and observe.py. Labels are asked for once per node and kept: a node does not change its GPUs.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from controller.core.snapshot import Frozen, Pod
from controller.ports import Clock, Cluster, Ref, Retryable, Terminal
from manifests.pods import accelerators
from policies.verdict import Hold, HoldReason

PRODUCT_LABELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "gpu.intel.com/product",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-tpu-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
)
_KEPT_SECONDS = 600.0


class HardwareReader:
    """Accelerators of pods; "" for a pod without any, or where nobody can say."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self._nodes: dict[str, tuple[float, str]] = {}

    def of(self, pod: Mapping[str, Any]) -> str:
        """Product of the node that a pod was placed on; a slice of a GPU is told apart from the whole one."""
        spec = pod.get("spec") or {}
        resources = sorted({name for container in spec.get("containers") or () for name in accelerators(container)})
        if not resources or not spec.get("nodeName"):
            return ""
        product = self._product(str(spec["nodeName"]))
        slices = [name.partition("/")[2] for name in resources if "mig-" in name]
        return " ".join(filter(None, (product, *slices))) if product else ""

    def _product(self, node: str) -> str:
        known = self._nodes.get(node)
        if known is not None and self._clock.now() - known[0] < _KEPT_SECONDS:
            return known[1]
        try:
            found = self._cluster.get(Ref("v1", "nodes", "", node))
        except (Retryable, Terminal):
            return known[1] if known is not None else ""
        labels = ((found or {}).get("metadata") or {}).get("labels") or {}
        product = next((str(labels[name]) for name in PRODUCT_LABELS if labels.get(name)), "")
        self._nodes[node] = (self._clock.now(), product)
        return product


def hardware_holds(
    stable: Iterable[Pod], candidate: Iterable[Pod], old: Frozen | None, new: Frozen | None
) -> tuple[Hold, ...]:
    """The judge's hold where both arms are known to run on different accelerators.

    Not where the revisions themselves say so: then the hardware (`spec.manifest.hardware`) is the change under test.
    """
    ours, theirs = _products(stable), _products(candidate)
    if not ours or not theirs or ours == theirs or _declared(old) != _declared(new):
        return ()
    words = (
        f"stable runs on {' and '.join(sorted(ours))}, the candidate on {' and '.join(sorted(theirs))}; bind both to "
        "one accelerator (nodeSelector), or name the new one in spec.manifest.hardware if it is the change under test"
    )
    return (Hold(HoldReason.HARDWARE_DIFFERS, words),)


def _products(pods: Iterable[Pod]) -> set[str]:
    return {pod.product for pod in pods if pod.product and pod.ready and not pod.terminating}


def _declared(frozen: Frozen | None) -> Any:
    return frozen.manifest.manifest.get("hardware") if frozen is not None else None
