"""Ports and addresses that one cluster has taken, remembered in its state folder. Called by the cluster at `up`."""

from __future__ import annotations

import json
import random
import socket
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

# Below the kernel's range for outgoing connections, so that no client socket takes a server's port between two starts.
PORT_RANGE = (20000, 32000)
KUBELET_PORT = 10250
PATIENCE_SECONDS = 3.0


@dataclass(frozen=True)
class Settings:
    """`network` is the second octet of the cluster's loopback network 127.<network>.0.0/16."""

    etcd_client: int
    etcd_peer: int
    apiserver: int
    network: int

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.apiserver}"

    @property
    def etcd(self) -> str:
        return f"http://127.0.0.1:{self.etcd_client}"

    def node_address(self, index: int) -> str:
        return f"127.{self.network}.0.{index + 1}"

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Settings | None:
        try:
            known = json.loads(path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return cls(**{field.name: known[field.name] for field in fields(cls)})


def choose(previous: Settings | None, keep_network: bool, keep_etcd: bool = False) -> Settings:
    """Free ports and a free network; what a stopped cluster had before is taken again where it is still free.

    Args:
        previous: of an earlier start.
        keep_network: the cluster's own nodes are listening there.
        keep_etcd: the cluster's own etcd is listening on its ports; only the API server is started again.
    """
    taken: set[int] = set()
    ports = {}
    for name in ("etcd_client", "etcd_peer", "apiserver"):
        wanted = getattr(previous, name) if previous else None
        is_ours = keep_etcd and name != "apiserver"
        ports[name] = wanted if wanted and (is_ours or is_free_soon("127.0.0.1", wanted)) else free_port(taken)
        taken.add(ports[name])
    if previous and (keep_network or is_free_soon(previous.node_address(0), KUBELET_PORT)):
        return Settings(**ports, network=previous.network)
    return Settings(**ports, network=free_network())


def free_port(taken: set[int]) -> int:
    """A port in PORT_RANGE that nobody listens on and that is not in `taken`."""
    for port in random.sample(range(*PORT_RANGE), 200):
        if port not in taken and is_free("127.0.0.1", port):
            return port
    raise OSError(f"no free port between {PORT_RANGE[0]} and {PORT_RANGE[1]}")


def free_network() -> int:
    """Second octet of a loopback network in which no other cluster's nodes listen."""
    for octet in random.sample(range(16, 240), 224):
        if is_free(f"127.{octet}.0.1", KUBELET_PORT):
            return octet
    raise OSError("all loopback networks 127.16.0.0 to 127.239.0.0 are taken")


def is_free_soon(address: str, port: int) -> bool:
    """`is_free`, with patience: a killed process holds its sockets for a moment longer than it is listed."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_free(address, port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True
