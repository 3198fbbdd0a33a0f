"""A rollout whose whole namespace is being deleted: it is let go at once.

Called by reconcile.py before anything is observed. Kubernetes deletes what is in a namespace in no order: the
operator's rights in it, its pods and workloads may be gone before the rollout is, so nothing can be put in order there
any more, and nothing needs to be: no request comes in, and what the finalizer would clean up goes with the namespace.
Only the rollout itself is read here, by rights that do not lie in the namespace (helm/weighlock/templates/rbac.yaml).
"""

from controller.core.variants import FINALIZER
from controller.ports import Cluster, Ref, Terminal
from crds.v1alpha1.common import API_VERSION


def let_go_with_namespace(cluster: Cluster, namespace: str, name: str) -> bool:
    """Remove our finalizer from a rollout that is deleted together with its namespace; whether that was so.

    Raises:
        Retryable: a conflict, or a silent API server.
        Terminal: the right to do it is missing.
    """
    obj = cluster.get_known("inferencerollouts", namespace, name)
    if obj is None or not obj["metadata"].get("deletionTimestamp"):
        return False
    finalizers = obj["metadata"].get("finalizers") or []
    if FINALIZER not in finalizers or not _is_terminating(cluster, namespace):
        return False
    kept = [one for one in finalizers if one != FINALIZER]
    body = {"metadata": {"finalizers": kept, "resourceVersion": obj["metadata"]["resourceVersion"]}}
    cluster.patch(Ref(API_VERSION, "inferencerollouts", namespace, name), body)
    return True


def _is_terminating(cluster: Cluster, namespace: str) -> bool:
    """Whether a namespace is being deleted; an installation without the right to ask takes it for one that stays."""
    try:
        found = cluster.get(Ref("v1", "namespaces", "", namespace))
    except Terminal:
        return False
    return found is not None and bool(found["metadata"].get("deletionTimestamp"))
