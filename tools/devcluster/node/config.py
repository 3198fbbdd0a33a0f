"""The nodes' YAML file, and the Node objects made from it. Pure."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

GPU = "nvidia.com/gpu"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class ConfigError(ValueError):
    """The file has an unknown or missing field; the message names it."""


@dataclass(frozen=True)
class NodeSpec:
    """One node. `gpus` and `product` describe accelerators, `labels` are added to the usual ones."""

    name: str
    zone: str = "a"
    gpus: int = 0
    product: str = ""
    cpu: str = "128"
    memory: str = "1Ti"
    pods: int = 110
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Backoff:
    """Waiting times of failing containers, in seconds; a run of `reset_seconds` starts anew."""

    initial_seconds: float = 10.0
    max_seconds: float = 300.0
    reset_seconds: float = 600.0

    def delay_seconds(self, failures: int) -> float:
        """The wait after `failures` failures in a row (1 is the first): initial, doubled each time, capped."""
        if failures < 1:
            return 0.0
        doubled: float = self.initial_seconds * 2.0 ** min(failures - 1, 32)
        return min(doubled, self.max_seconds)


@dataclass(frozen=True)
class NodeConfig:
    nodes: tuple[NodeSpec, ...]
    backoff: Backoff

    @classmethod
    def load(cls, path: Path) -> NodeConfig:
        """Read a file like ``nodes.yaml``.

        Raises:
            ConfigError: a field is unknown or a node has no name.
        """
        document = yaml.safe_load(path.read_text()) or {}
        try:
            nodes = tuple(NodeSpec(**node) for node in document.pop("nodes"))
            backoff = Backoff(**{snake(key): float(value) for key, value in document.pop("backoff", {}).items()})
        except (TypeError, KeyError) as error:
            raise ConfigError(f"{path}: {error}") from error
        if document:
            raise ConfigError(f"{path}: unknown field {next(iter(document))}")
        return cls(nodes, backoff)


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def make_labels(spec: NodeSpec) -> dict[str, str]:
    labels = {
        "kubernetes.io/hostname": spec.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "topology.kubernetes.io/zone": spec.zone,
        "topology.kubernetes.io/region": "local",
        "node.kubernetes.io/instance-type": f"process.{spec.gpus}gpu",
    }
    if spec.gpus:
        labels |= {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": str(spec.gpus)}
        labels["nvidia.com/gpu.product"] = spec.product
    return labels | spec.labels


def make_node(spec: NodeSpec) -> dict[str, Any]:
    """The Node object to create; its status is written apart."""
    metadata = {"name": spec.name, "labels": make_labels(spec)}
    taints: dict[str, Any] = {"taints": spec.taints} if spec.taints else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": taints}


def make_node_status(spec: NodeSpec, address: str, kubelet_port: int, version: str, now: str) -> dict[str, Any]:
    """Status of a healthy node at time `now` (RFC 3339)."""
    capacity = {"cpu": spec.cpu, "memory": spec.memory, "pods": str(spec.pods), "ephemeral-storage": "1Ti"}
    if spec.gpus:
        capacity[GPU] = str(spec.gpus)
    healthy = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ]
    conditions = [
        {"type": kind, "status": status, "reason": reason, "message": "process node", "lastHeartbeatTime": now}
        for kind, status, reason in healthy
    ]
    addresses = [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": spec.name}]
    return {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": [condition | {"lastTransitionTime": now} for condition in conditions],
        "addresses": addresses,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
        "nodeInfo": {
            "machineID": spec.name,
            "systemUUID": spec.name,
            "bootID": spec.name,
            "kernelVersion": platform.release(),
            "osImage": "process node (no containers)",
            "containerRuntimeVersion": "process://1.0",
            "kubeletVersion": version,
            "kubeProxyVersion": version,
            "operatingSystem": "linux",
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        },
    }
