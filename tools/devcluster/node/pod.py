"""One pod of the process node: its volumes, its containers in their order, its status, its end.

Made by the agent when a pod is bound to one of its nodes. `update` brings news of the object; everything else happens
in the pod's own task.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import structlog

from tools.devcluster.node.api import STRATEGIC, TRANSPORT_ERRORS, ApiError
from tools.devcluster.node.container import KILLED, ContainerRunner
from tools.devcluster.node.context import NodeContext
from tools.devcluster.node.environment import ReferenceMissing
from tools.devcluster.node.kinds import Object, is_finished, is_sidecar, name_of, now_text, pod_path
from tools.devcluster.node.launch import Surroundings
from tools.devcluster.node.status import ContainerView, has_condition, make_status
from tools.devcluster.node.volumes import PodVolumes

log = structlog.get_logger()
REPLACE = {"$patch": "replace"}  # or a patch would add to the addresses of an earlier network
COALESCE_SECONDS = 0.02
RETRY_SECONDS = 1.0


class PodWorker:
    """Runs one pod from its binding to its removal from the API."""

    def __init__(self, node: NodeContext, pod: Object, pod_ip: str, host_ip: str) -> None:
        self.node, self.pod = node, pod
        namespace, name = name_of(pod)
        uid = pod["metadata"]["uid"]
        self.log_folder = node.state.pods / f"{namespace}_{name}_{uid}"
        folder = node.state.files / uid[:8]
        self.volumes = PodVolumes(pod, folder, node.state.claims, node.store, node.api)
        known = pod.get("status") or {}
        self.address: Object = {
            "podIP": pod_ip,
            "podIPs": [REPLACE, {"ip": pod_ip}],
            "hostIP": host_ip,
            "hostIPs": [REPLACE, {"ip": host_ip}],
            "startTime": known.get("startTime") or now_text(),
        }
        host, port = "127.0.0.1", str(node.settings.apiserver)
        self.surroundings = Surroundings(pod["spec"].get("hostname") or name, pod_ip, host, port)
        self.inits = self._make_views("initContainers", "initContainerStatuses")
        self.mains = self._make_views("containers", "containerStatuses")
        self.runners: list[ContainerRunner] = []
        self.deleting = asyncio.Event()
        self.volumes_changed = asyncio.Event()
        self.is_silent = False  # the node shuts down: what ends now is none of the pod's business
        self._dirty = asyncio.Event()
        self._written: Object = {}
        self.update(pod)

    def update(self, pod: Object) -> None:
        """Take the newest object."""
        status = {**(pod.get("status") or {}), "podIP": self.address["podIP"], "hostIP": self.address["hostIP"]}
        self.pod = {**pod, "status": status}
        self.volumes.pod = self.pod
        if pod["metadata"].get("deletionTimestamp"):
            self.deleting.set()
        if pod["spec"].get("readinessGates"):
            self.changed()
        if has_condition(pod, "Ready") != has_condition({"status": self._written}, "Ready") and self._written:
            # The control plane calls pods of a node unready that it did not hear of for a while; here they still run.
            self._written = {}
            self.changed()

    def changed(self) -> None:
        self._dirty.set()

    async def run(self) -> None:
        """Everything; returns when the pod is gone from the API, its processes and files too."""
        writer = asyncio.create_task(self._write_status_forever())
        life = asyncio.create_task(self._live())
        life.add_done_callback(self._report_failure)
        upkeep = asyncio.create_task(self._keep_volumes())
        try:
            await self.deleting.wait()
            grace = self.pod["metadata"].get("deletionGracePeriodSeconds")
            await self.stop(30.0 if grace is None else float(grace))
        finally:
            for task in (life, writer, upkeep):
                task.cancel()
            await asyncio.gather(life, writer, upkeep, return_exceptions=True)
        await self._remove()

    async def stop(self, grace_seconds: float) -> None:
        """End all containers: the ordinary ones together, then sidecars in reverse order, all within the grace."""
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_seconds
        sidecars = [runner for runner in self.runners if is_sidecar(runner.spec)]
        others = [runner for runner in self.runners if not is_sidecar(runner.spec) and not runner.done.is_set()]
        await asyncio.gather(*(runner.stop(grace_seconds) for runner in others))
        for runner in reversed(sidecars):
            if not runner.done.is_set():
                await runner.stop(max(0.0, until - loop.time()))

    def find_log(self, container: str, previous: bool) -> Path | None:
        return last_log(self.log_folder / container, previous)

    def is_writing(self, log: Path) -> bool:
        """Whether a running process of this pod writes to `log`."""
        return any(
            runner.process is not None and runner.process.is_running and runner.log == log for runner in self.runners
        )

    async def _live(self) -> None:
        """Volumes, init containers one by one, containers together; then sidecars end."""
        if is_finished(self.pod) or self.deleting.is_set():
            return
        self.changed()
        await self._prepare_volumes()
        policy = self.pod["spec"].get("restartPolicy", "Always")
        async with asyncio.TaskGroup() as group:
            for view in self.inits:
                if is_sidecar(view.spec):
                    runner = self._add(view, "Always")
                    group.create_task(runner.run())
                    await runner.started.wait()
                elif not view.finished:
                    await self._add(view, "Never" if policy == "Never" else "OnFailure").run()
                if view.finished and view.exit_code != 0:
                    break
            else:
                mains = [self._add(view, policy) for view in self.mains if not view.finished]
                await asyncio.gather(*(runner.run() for runner in mains))
            for runner in reversed(self.runners):
                if is_sidecar(runner.spec):
                    await runner.stop(float(self.pod["spec"].get("terminationGracePeriodSeconds") or 30))

    def _add(self, view: ContainerView, policy: str) -> ContainerRunner:
        runner = ContainerRunner(self.node, self, view, policy)
        if self.deleting.is_set():
            runner.stopping.set()
        self.runners.append(runner)
        return runner

    async def _prepare_volumes(self) -> None:
        told = ""
        while True:
            try:
                await self.volumes.update()
                return
            except (ReferenceMissing, ApiError, *TRANSPORT_ERRORS) as error:
                if str(error) != told:
                    told = str(error)
                    self.node.event(self.pod, "Warning", "FailedMount", f"MountVolume.SetUp failed: {error}")
            await self._wait_volumes_changed(RETRY_SECONDS)

    async def _keep_volumes(self) -> None:
        """Update volumes when a source changed or a token is to be renewed."""
        while True:
            delay: float | None = RETRY_SECONDS
            try:
                delay = await self.volumes.update()
            except (ReferenceMissing, ApiError, *TRANSPORT_ERRORS) as error:
                log.debug("volumes not updated", pod=self.pod["metadata"]["name"], error=str(error))
            await self._wait_volumes_changed(delay)

    async def _wait_volumes_changed(self, seconds: float | None) -> None:
        try:
            await asyncio.wait_for(self.volumes_changed.wait(), seconds)
        except TimeoutError:
            return
        self.volumes_changed.clear()

    def _make_views(self, containers: str, statuses: str) -> list[ContainerView]:
        known = {status["name"]: status for status in (self.pod.get("status") or {}).get(statuses) or []}
        specs = self.pod["spec"].get(containers) or []
        return [restore_view(spec, known.get(spec["name"]), self._policy_of(spec, containers)) for spec in specs]

    def _policy_of(self, spec: Object, containers: str) -> str:
        policy = str(spec.get("restartPolicy") or self.pod["spec"].get("restartPolicy", "Always"))
        return "OnFailure" if containers == "initContainers" and policy == "Always" and not is_sidecar(spec) else policy

    async def _write_status_forever(self) -> None:
        while True:
            await self._dirty.wait()
            await asyncio.sleep(COALESCE_SECONDS)
            self._dirty.clear()
            try:
                await self._write_status()
            except TRANSPORT_ERRORS as error:
                log.warning("status not written", pod=self.pod["metadata"]["name"], error=repr(error))
                await asyncio.sleep(RETRY_SECONDS)
                self._dirty.set()

    async def _write_status(self) -> None:
        if self.is_silent:
            return
        if not self.runners and (is_finished(self.pod) or self.deleting.is_set()):
            return  # nothing ran here, and a pod that finalizers hold must not be written again and again
        status = make_status(self.pod, self.inits, self.mains, self.address, now_text())
        if status == self._written:
            return
        body = {"metadata": {"uid": self.pod["metadata"]["uid"]}, "status": status}
        try:
            await self.node.api.call("PATCH", pod_path(self.pod, "status"), body, STRATEGIC)
            self._written = status
        except ApiError as error:
            if error.status not in (404, 409):
                log.warning("status refused", pod=self.pod["metadata"]["name"], error=str(error))

    async def _remove(self) -> None:
        """The pod's files, then the last status and the object; its logs stay for a while."""
        self.volumes.remove()
        while True:
            try:
                await self._write_status()
                uid = self.pod["metadata"]["uid"]
                body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
                await self.node.api.call("DELETE", pod_path(self.pod), body)
                break
            except ApiError as error:
                if error.status in (404, 409):
                    break
                log.warning("pod not deleted", pod=self.pod["metadata"]["name"], error=str(error))
            except TRANSPORT_ERRORS as error:
                log.warning("pod not deleted", pod=self.pod["metadata"]["name"], error=repr(error))
            await asyncio.sleep(RETRY_SECONDS)

    def _report_failure(self, life: asyncio.Task[None]) -> None:
        if not life.cancelled() and life.exception():
            log.error("pod failed inside the node", pod=self.pod["metadata"]["name"], exc_info=life.exception())


def restore_view(spec: Object, known: Object | None, policy: str) -> ContainerView:
    """The view of a container that an earlier node process may have run; what was running then was ended with it."""
    view = ContainerView(spec)
    if not known:
        return view
    view.restart_count = known.get("restartCount", 0)
    view.last_state = known.get("lastState") or {}
    state = known.get("state") or {}
    if "running" in state:
        ended = {"exitCode": KILLED, "reason": "Error", "message": "the node process was restarted"}
        state = {"terminated": {**ended, "startedAt": state["running"].get("startedAt"), "finishedAt": now_text()}}
    if "terminated" not in state:
        return view
    view.state = state
    code = state["terminated"]["exitCode"]
    view.finished = policy == "Never" or (policy == "OnFailure" and code == 0)
    if not view.finished:
        view.last_state = state
        view.restart_count += 1
    return view


def last_log(folder: Path, previous: bool) -> Path | None:
    """The newest log of a container's folder, or the one before it."""
    logs = sorted(folder.glob("*.log"), key=lambda path: int(path.stem), reverse=True)
    position = 1 if previous else 0
    return logs[position] if len(logs) > position else None


def prune_logs(folder: Path, running: set[Path], keep: int) -> None:
    """Remove the logs of all but the `keep` latest pods that are gone."""
    gone = sorted((path for path in folder.iterdir() if path not in running), key=lambda path: path.stat().st_mtime)
    for path in gone[: max(0, len(gone) - keep)]:
        shutil.rmtree(path)
