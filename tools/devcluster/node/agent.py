"""The kubelet's outer half for all nodes: registration, leases, and one worker for each pod that is bound to a node."""

from __future__ import annotations

import asyncio
import ipaddress
import shutil
from pathlib import Path

import structlog

from tools.devcluster.node.api import STRATEGIC, TRANSPORT_ERRORS, Api, ApiError
from tools.devcluster.node.claims import ClaimProvisioner
from tools.devcluster.node.config import NodeConfig, NodeSpec, make_node, make_node_status
from tools.devcluster.node.context import NodeContext
from tools.devcluster.node.kinds import Object, is_finished, name_of, now_text
from tools.devcluster.node.kubelet import KubeletServer
from tools.devcluster.node.pod import PodWorker, last_log, prune_logs
from tools.devcluster.settings import KUBELET_PORT

log = structlog.get_logger()
LEASE_SECONDS = 40
RENEW_SECONDS = 10.0
STATUS_EVERY = 30  # renewals between two writes of the node's status
SHUTDOWN_GRACE_SECONDS = 5.0
KEPT_LOGS = 50


class Addresses:
    """Addresses of pods in the cluster's loopback network, handed out in a circle so that none comes back at once."""

    def __init__(self, network: int) -> None:
        base = int(ipaddress.ip_address(f"127.{network}.1.0"))
        self._pool = [number for number in range(base, base + 254 * 256) if number % 256 not in (0, 255)]
        self._next = 0
        self._taken: dict[str, str] = {}  # by pod uid

    def take(self, uid: str, known: str | None) -> str:
        """The pod's address: the one it is known to have, else the next free one."""
        taken = set(self._taken.values())
        is_ours = known is not None and int(ipaddress.ip_address(known)) in self._pool
        address = known if known and is_ours and known not in taken else ""
        while not address or address in taken:
            address = str(ipaddress.ip_address(self._pool[self._next % len(self._pool)]))
            self._next += 1
        self._taken[uid] = address
        return address

    def reserve(self, used: list[str]) -> None:
        """Start behind the addresses that are in use."""
        numbers = {int(ipaddress.ip_address(address)) for address in used}
        positions = [index for index, number in enumerate(self._pool) if number in numbers]
        self._next = max(positions, default=-1) + 1

    def give_back(self, uid: str) -> None:
        self._taken.pop(uid, None)


class Agent:
    """All nodes of the cluster in one process."""

    def __init__(self, node: NodeContext, config: NodeConfig, version: str) -> None:
        self.node, self.config, self.version = node, config, version
        self.specs = {spec.name: spec for spec in config.nodes}
        self.hosts = {spec.name: node.settings.node_address(index) for index, spec in enumerate(config.nodes)}
        self.addresses = Addresses(node.settings.network)
        self.workers: dict[str, PodWorker] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.kubelet = KubeletServer(node.state, self)
        self._listed = False

    async def run(self) -> None:
        """For ever, until cancelled."""
        await self.kubelet.start(list(self.hosts.values()))
        async with asyncio.TaskGroup() as group:
            group.create_task(self.node.store.run())
            group.create_task(self.node.enforce_limits())
            group.create_task(ClaimProvisioner(self.node.api, self.node.state.claims).run())
            for spec in self.config.nodes:
                group.create_task(self._keep_node(spec))
            await self.node.store.wait_listed()
            selector = "spec.nodeName!="
            group.create_task(self.node.api.reflect("/api/v1/pods", self._replace, self._change, selector))

    async def shut_down(self) -> None:
        """End all containers, leaving the pods' objects as they are: another node process takes them up."""
        await self.kubelet.stop()
        workers, tasks = list(self.workers.values()), list(self.tasks.values())
        for worker in workers:
            worker.is_silent = True
        await asyncio.gather(*(worker.stop(SHUTDOWN_GRACE_SECONDS) for worker in workers))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def find_log(self, namespace: str, pod: str, container: str, previous: bool) -> Path | None:
        """The log of a container's current run, of its last one where none is running, or of the run before."""
        for worker in self.workers.values():
            if name_of(worker.pod) == (namespace, pod):
                return worker.find_log(container, previous)
        finished = sorted(self.node.state.pods.glob(f"{namespace}_{pod}_*"), key=lambda path: path.stat().st_mtime)
        return last_log(finished[-1] / container, previous) if finished else None

    def is_being_written(self, log: Path) -> bool:
        """Whether some container's current run writes this file."""
        return any(worker.is_writing(log) for worker in self.workers.values())

    def on_object_changed(self, kind: str, namespace: str, name: str) -> None:
        """A ConfigMap or Secret changed: wake the pods that show it."""
        for worker in self.workers.values():
            if worker.pod["metadata"]["namespace"] == namespace and worker.volumes.uses(kind, name):
                worker.volumes_changed.set()

    def _replace(self, pods: list[Object]) -> None:
        if not self._listed:
            self.addresses.reserve([pod["status"]["podIP"] for pod in pods if pod["status"].get("podIP")])
            self._remove_strangers({pod["metadata"]["uid"][:8] for pod in pods})
            self._listed = True
        present = {pod["metadata"]["uid"] for pod in pods}
        for uid in set(self.workers) - present:
            self._forget(uid)
        for pod in pods:
            self._change("MODIFIED", pod)

    def _remove_strangers(self, present: set[str]) -> None:
        """Folders of pods that went away while no node process ran."""
        if self.node.state.files.exists():
            for folder in self.node.state.files.iterdir():
                if folder.name not in present:
                    shutil.rmtree(folder)

    def _change(self, event: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if pod["spec"].get("nodeName") not in self.specs:
            return
        if event == "DELETED":
            self._forget(uid)
        elif uid in self.workers:
            self.workers[uid].update(pod)
        elif not is_finished(pod) or pod["metadata"].get("deletionTimestamp"):
            self._adopt(pod)

    def _adopt(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        host_ip = self.hosts[pod["spec"]["nodeName"]]
        known = (pod.get("status") or {}).get("podIP")
        pod_ip = host_ip if pod["spec"].get("hostNetwork") else self.addresses.take(uid, known)
        worker = PodWorker(self.node, pod, pod_ip, host_ip)
        self.workers[uid] = worker
        task = asyncio.get_running_loop().create_task(worker.run())
        self.tasks[uid] = task
        task.add_done_callback(lambda _: self._finished(uid))

    def _forget(self, uid: str) -> None:
        """The object is gone (force deletion): whatever still runs ends at once."""
        worker = self.workers.get(uid)
        if worker and not worker.deleting.is_set():
            worker.pod["metadata"]["deletionGracePeriodSeconds"] = 0
            worker.deleting.set()

    def _finished(self, uid: str) -> None:
        task = self.tasks.pop(uid)
        self.workers.pop(uid, None)
        self.addresses.give_back(uid)
        if task.cancelled():
            return
        if task.exception():
            log.error("pod worker failed", uid=uid, exc_info=task.exception())
        if self.node.state.pods.exists():
            prune_logs(self.node.state.pods, {worker.log_folder for worker in self.workers.values()}, KEPT_LOGS)

    async def _keep_node(self, spec: NodeSpec) -> None:
        """Register the node, then renew its lease and now and then its status."""
        renewals = 0
        while True:
            try:
                if renewals % STATUS_EVERY == 0:
                    await self._register(spec)
                await renew_lease(self.node.api, spec.name)
                renewals += 1
                delay = RENEW_SECONDS
            except (ApiError, *TRANSPORT_ERRORS) as error:
                log.warning("lease not renewed", node=spec.name, error=str(error))
                renewals, delay = 0, 1.0
            await asyncio.sleep(delay)

    async def _register(self, spec: NodeSpec) -> None:
        api = self.node.api
        status = make_node_status(spec, self.hosts[spec.name], KUBELET_PORT, self.version, now_text())
        try:
            await api.call("POST", "/api/v1/nodes", make_node(spec) | {"status": status})
        except ApiError as error:
            if error.status != 409:
                raise
            known = await api.call("GET", f"/api/v1/nodes/{spec.name}")
            keep_transitions(status, known)
            await api.call("PATCH", f"/api/v1/nodes/{spec.name}/status", {"status": status}, STRATEGIC)


def keep_transitions(status: Object, known: Object) -> None:
    """A condition that did not flip keeps the time of its last transition."""
    before = {condition["type"]: condition for condition in known.get("status", {}).get("conditions") or []}
    for condition in status["conditions"]:
        old = before.get(condition["type"])
        if old and old["status"] == condition["status"]:
            condition["lastTransitionTime"] = old["lastTransitionTime"]


async def renew_lease(api: Api, name: str) -> None:
    """Create or renew the node's Lease."""
    collection = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now_text(micro=True)}
    try:
        merge = "application/merge-patch+json"
        await api.call("PATCH", f"{collection}/{name}", {"spec": spec}, merge)
    except ApiError as error:
        if error.status != 404:
            raise
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
        await api.call("POST", collection, body)
