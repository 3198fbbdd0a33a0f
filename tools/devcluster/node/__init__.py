"""The process node: one process that plays every kubelet of the cluster and runs containers as plain processes.

Started by the cluster as ``python -m tools.devcluster.node --state DIR``. It reaches the cluster only through the API
server and must not know which product is being developed.
"""
