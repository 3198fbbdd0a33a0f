"""A development Kubernetes cluster: the real control plane plus nodes that run pods as plain processes.

Used by ``make cluster``, the demo and the end-to-end tests. It must not know Weighlock's API: what it runs is decided
by the manifests that are applied and by ``images.yaml``.
"""

from tools.devcluster.cluster import Cluster

__all__ = ["Cluster"]
