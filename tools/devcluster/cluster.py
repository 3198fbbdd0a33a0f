"""One development cluster: start, stop, and what its users need to reach it.

Called by the command line, by ``make cluster`` and by end-to-end tests. It starts processes and asks them whether they
are ready; what the node does with pods is in ``tools.devcluster.node``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.devcluster import binaries, components, identities, processes, settings
from tools.devcluster.bootstrap import ApiClient, reconcile_basics
from tools.devcluster.node.config import NodeConfig
from tools.devcluster.paths import CHECKOUT, State
from tools.devcluster.processes import Identity
from tools.devcluster.progress import step
from tools.devcluster.settings import KUBELET_PORT

START_SECONDS = 120.0
GRACE_SECONDS = {"node": 40.0, "kube-apiserver": 20.0}


class ClusterError(RuntimeError):
    """The cluster cannot be brought up; the message names the process and its log."""


class Cluster:
    """A cluster at `state_dir`. Several clusters with different folders may run side by side.

    Args:
        state_dir: folder of this cluster, by default ``.weighlock/cluster`` of the checkout.
        nodes: YAML file of the nodes (see ``nodes.yaml`` beside this module).
        images: YAML file of the image table (see ``images.yaml``).
    """

    def __init__(
        self, state_dir: Path | str | None = None, nodes: Path | None = None, images: Path | None = None
    ) -> None:
        self.state = State.at(state_dir)
        self.nodes, self.images = nodes, images

    def up(self) -> Cluster:
        """Bring everything up and return when the control plane answers and all nodes are Ready. Idempotent.

        Raises:
            ClusterError: a process ended or was not ready in time.
            binaries.BuildError: the control plane could not be built.
        """
        found = binaries.ensure()
        with self._locked():
            chosen = self._choose_settings()
            self._copy_files()
            commands = components.make_commands(found, self.state, chosen)
            with step("Starting the control plane"):
                self._start("etcd", commands, lambda: True)
                self._start("kube-apiserver", commands, self._is_ready)
                reconcile_basics(self.api())
                self._start("kube-controller-manager", commands, self._has_service_accounts)
                self._start("kube-scheduler", commands, lambda: True)
            with step("Starting the nodes"):
                self._start("node", commands, self._has_ready_nodes)
        return self

    def down(self, keep_state: bool = False) -> None:
        """Stop this cluster's own processes, pods included, and remove its folder unless `keep_state`."""
        with self._locked():
            self._stop_processes()
            if not keep_state and self.state.settings.exists():  # never a folder that is no cluster's
                shutil.rmtree(self.state.root)
        self.state.lock.unlink(missing_ok=True)

    def status(self) -> dict[str, Any]:
        """Whether each process runs (its pid or None), and each node's readiness when the API server answers."""
        running = {name: Identity.load(self._pid_file(name)) for name in reversed(components.STOP_ORDER)}
        pids = {name: process.pid if process else None for name, process in running.items()}
        nodes = self._node_readiness() if running["kube-apiserver"] and self._is_ready() else {}
        return {"state": str(self.state.root), "processes": pids, "nodes": nodes}

    def kubeconfig(self, user: str = "admin") -> Path:
        """The kubeconfig of ``admin``, ``approver``, ``viewer`` or ``stranger``."""
        if user not in identities.USERS:
            raise KeyError(f"no user {user}; there are {', '.join(identities.PEOPLE)}")
        return self.state.kubeconfig(user)

    def token(self, user: str = "admin") -> str:
        """The bearer token of a user."""
        return identities.ensure_tokens(self.state)[user]

    @property
    def server(self) -> str:
        """URL of the API server.

        Raises:
            ClusterError: this cluster was never brought up.
        """
        known = settings.Settings.load(self.state.settings)
        if known is None:
            raise ClusterError(f"no cluster at {self.state.root}; run `make cluster`")
        return known.server

    def api(self, user: str = "admin") -> ApiClient:
        """A small blocking client with a user's token."""
        return ApiClient(self.server, self.token(user), self.state.pki / "ca.crt")

    def env(self) -> dict[str, str]:
        """Environment variables for a shell or a test that uses this cluster."""
        return {
            "KUBECONFIG": str(self.kubeconfig("admin")),
            "WEIGHLOCK_DEVCLUSTER": str(self.state.root),
            "WEIGHLOCK_DEVCLUSTER_SERVER": self.server,
        }

    def _stop_processes(self) -> None:
        for name in components.STOP_ORDER:
            process = Identity.load(self._pid_file(name))
            if process:
                processes.stop(process, GRACE_SECONDS.get(name, 10.0))
            self._pid_file(name).unlink(missing_ok=True)
            if name == "node":
                self._kill_containers()

    def _copy_files(self) -> None:
        for source, target in ((self.nodes, self.state.nodes), (self.images, self.state.images)):
            if source:
                shutil.copyfile(source, target)

    def _choose_settings(self) -> settings.Settings:
        self.state.root.mkdir(parents=True, exist_ok=True)
        known = settings.Settings.load(self.state.settings)
        if known is None and any(self.state.root.iterdir()):
            raise ClusterError(f"{self.state.root} holds something else; give --state an empty or a new folder")
        if known and Identity.load(self._pid_file("kube-apiserver")):
            chosen = known
        else:
            has_nodes = Identity.load(self._pid_file("node")) is not None
            has_etcd = Identity.load(self._pid_file("etcd")) is not None
            chosen = settings.choose(known, keep_network=has_nodes, keep_etcd=has_etcd)
            if known and chosen != known:
                self._stop_processes()  # what still runs would talk to the old ports
            chosen.save(self.state.settings)
        identities.ensure_certificates(self.state)
        identities.write_kubeconfigs(self.state, chosen.server, identities.ensure_tokens(self.state))
        return chosen

    def _start(self, name: str, commands: dict[str, list[str]], is_ready: Callable[[], bool]) -> None:
        log = self.state.logs / f"{name}.log"
        process = Identity.load(self._pid_file(name))
        if process is None:
            if name == "node":
                self._kill_containers()
            environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)} if name == "node" else None
            process = processes.start(commands[name], log, env=environment, cwd=self.state.root)
            process.save(self._pid_file(name))
        deadline = time.monotonic() + START_SECONDS
        while not is_ready():
            if not process.is_alive():
                raise ClusterError(f"{name} ended; see {log}\n{tail(log)}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{name} is not ready after {START_SECONDS:.0f} s; see {log}\n{tail(log)}")
            time.sleep(0.1)

    def _kill_containers(self) -> None:
        killed = processes.kill_with_environment("CONTAINER_ROOT", f"{self.state.files}/")
        if killed:
            print(f"Ended {killed} container processes that a node had left behind", file=sys.stderr)

    def _is_ready(self) -> bool:
        try:
            return self.api().call("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def _has_service_accounts(self) -> bool:
        names = ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
        return all(self.api().call("GET", f"/api/v1/namespaces/default/{name}")[0] == 200 for name in names)

    def _node_readiness(self) -> dict[str, bool]:
        _, nodes = self.api().call("GET", "/api/v1/nodes")
        return {
            node["metadata"]["name"]: any(
                condition["type"] == "Ready" and condition["status"] == "True"
                for condition in node.get("status", {}).get("conditions", [])
            )
            and not any("not-ready" in taint["key"] for taint in node["spec"].get("taints", []))
            for node in nodes.get("items", [])
        }

    def _has_ready_nodes(self) -> bool:
        nodes = NodeConfig.load(self.state.nodes_in_force).nodes
        ready = self._node_readiness()
        known = settings.Settings.load(self.state.settings)
        # The conditions may be those of an earlier process; that this one serves shows on the kubelet's port.
        is_serving = known is not None and not settings.is_free(known.node_address(len(nodes) - 1), KUBELET_PORT)
        return is_serving and all(ready.get(node.name, False) for node in nodes)

    def _pid_file(self, name: str) -> Path:
        return self.state.run / f"{name}.json"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.state.lock.parent.mkdir(parents=True, exist_ok=True)
        with self.state.lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def tail(log: Path, lines: int = 10) -> str:
    """The last lines of a log file."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""
