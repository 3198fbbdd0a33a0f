"""One container of a pod: start its process, watch it, start it again, end it.

Run by the pod's worker as one task. All that the outside sees is its `view`; each change is reported by `changed`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tools.devcluster.node import handlers, images
from tools.devcluster.node.context import LimitedProcess, NodeContext
from tools.devcluster.node.environment import ReferenceMissing, expand, make_environment, parse_quantity
from tools.devcluster.node.kinds import Object, now_text
from tools.devcluster.node.launch import Command, Surroundings, make_command
from tools.devcluster.node.probes import run_probes
from tools.devcluster.node.rewrite import PathRewriter
from tools.devcluster.node.runtime import Process, StartError
from tools.devcluster.node.status import ContainerView
from tools.devcluster.node.volumes import PodVolumes

RETRY_SECONDS = 2.0  # for what a person or a controller must create first
MIN_STOP_SECONDS = 2.0  # left for SIGTERM when preStop used up the grace
START_ERROR, KILLED = 128, 137
LOG_TAIL_BYTES = 2048


class PodHost(Protocol):
    """What a container needs of its pod."""

    pod: Object
    volumes: PodVolumes
    surroundings: Surroundings
    log_folder: Path

    def changed(self) -> None: ...


class ContainerRunner:
    """Runs one container under a restart policy (``Always``, ``OnFailure``, ``Never``)."""

    def __init__(self, node: NodeContext, host: PodHost, view: ContainerView, policy: str) -> None:
        self.node, self.host, self.view, self.policy = node, host, view, policy
        self.spec = view.spec
        self.name: str = view.spec["name"]
        self.process: Process | None = None
        self.target: handlers.Target | None = None
        self.limit: LimitedProcess | None = None
        self.log: Path | None = None
        self.stopping = asyncio.Event()
        self.started = asyncio.Event()
        self.done = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self._noted: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Until the container has ended for good."""
        try:
            failures = 0
            while not self.stopping.is_set():
                began = time.monotonic()
                await self._run_once()
                if not self._is_restarted():
                    break
                failures = failures + 1 if time.monotonic() - began < self.node.backoff.reset_seconds else 1
                await self._back_off(self.node.backoff.delay_seconds(failures - 1))
                self.view.restart_count += 1
        finally:
            self.view.finished = True
            self.view.ready = False
            self.done.set()
            self.host.changed()

    async def stop(self, grace_seconds: float) -> None:
        """End the container for good within the grace; returns when its process is gone."""
        self.stopping.set()
        await self._end_process(grace_seconds)
        await self.done.wait()

    def _is_restarted(self) -> bool:
        if self.stopping.is_set() or self.policy == "Never":
            return False
        return self.policy == "Always" or self.view.exit_code != 0

    async def _run_once(self) -> None:
        """Prepare, start, and wait for the end of one run; the view then says how it ended."""
        prepared = await self._prepare()
        if prepared is None:
            return
        command, log = prepared
        self.log = log
        began = now_text()
        try:
            self.process = Process(command.argv, command.env, command.cwd, log)
        except StartError as error:
            self._set_terminated(START_ERROR, "StartError", str(error), began)
            self._event("Warning", "Failed", str(error))
            return
        self._record(self.process)
        self.view.container_id = f"process://{self.process.pid}"
        self._set_state({"running": {"startedAt": began}})
        self._event("Normal", "Started", f"Started container {self.name} as process {self.process.pid}")
        lifecycle = asyncio.get_running_loop().create_task(self._watch_over())
        code = await self.process.wait()
        lifecycle.cancel()
        await asyncio.gather(lifecycle, return_exceptions=True)
        self._set_terminated(*self._judge(code), self._termination_message(code, log), began)

    def _judge(self, code: int) -> tuple[int, str]:
        if self.limit and self.limit.is_over:
            return KILLED, "OOMKilled"
        return code, "Completed" if code == 0 else "Error"

    async def _prepare(self) -> tuple[Command, Path] | None:
        """Command and log file, as soon as the image and all references are there; None when told to stop before."""
        attempts = 0
        while not self.stopping.is_set():
            try:
                return self._make_command(), self._log_file()
            except images.ImageUnknown:
                reason = "ImagePullBackOff" if attempts else "ErrImagePull"
                table = self.node.state.images_in_force
                message = f'no entry for image "{self.spec["image"]}" in the image table {table}'
                attempts += 1
                await self._wait_for(reason, message, self.node.backoff.delay_seconds(attempts))
            except ReferenceMissing as error:
                await self._wait_for("CreateContainerConfigError", str(error), RETRY_SECONDS)
            except StartError as error:
                self._set_terminated(START_ERROR, "StartError", str(error), now_text())
                self._event("Warning", "Failed", str(error))
                return None
        return None

    def _make_command(self) -> Command:
        image = self.node.find_image(self.spec["image"])
        shims = images.write_shims(image, self.node.state.bins)
        namespace = self.host.pod["metadata"]["namespace"]
        sources = partial(self.node.store.get_in, namespace)
        values = make_environment(self.spec, self.host.pod, sources)
        mounts = self.spec.get("volumeMounts") or []
        subpaths = {m["mountPath"]: expand(m["subPathExpr"], values) for m in mounts if m.get("subPathExpr")}
        root = self.host.volumes.mount(self.spec, subpaths)
        (root / "root").mkdir(exist_ok=True)
        command = make_command(self.spec, image, shims, root, values, self.host.surroundings)
        rewrite = PathRewriter(str(root), [mount["mountPath"] for mount in mounts])
        self.target = handlers.Target(self.spec, self.host.surroundings.pod_ip, command, shims, rewrite)
        return command

    def _log_file(self) -> Path:
        folder = self.host.log_folder / self.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self.view.restart_count}.log"

    def _record(self, process: Process) -> None:
        """Leave word of the process for whoever cleans up after a crash of the node."""
        if process.identity:
            process.identity.save(self.host.volumes.folder / self.name / "process.json")
        limit = ((self.spec.get("resources") or {}).get("limits") or {}).get("memory")
        self.limit = self.node.limit_memory(process, int(parse_quantity(limit))) if limit else None

    async def _watch_over(self) -> None:
        """The start hook, then the probes, for as long as the process runs."""
        hook = (self.spec.get("lifecycle") or {}).get("postStart")
        if hook:
            try:
                await self._act(hook, 3600)
            except handlers.HandlerFailed as failure:
                self._event("Warning", "FailedPostStartHook", str(failure))
                self._restart(f"postStart hook failed: {failure}")
                return
        await run_probes(self.spec, self, self._act)

    async def _act(self, handler: Mapping[str, Any], timeout_seconds: float) -> None:
        assert self.target is not None  # made before the process was started
        await handlers.act(handler, self.target, self.node.session, timeout_seconds)

    def set_started(self) -> None:
        self.view.started = True
        self.started.set()
        self.host.changed()

    def set_ready(self, ready: bool) -> None:
        if self.view.ready != ready:
            self.view.ready = ready
            self.host.changed()

    def set_unhealthy(self, kind: str, message: str) -> None:
        """A startup or liveness probe gave the container up."""
        if not self.stopping.is_set():
            self._restart(f"Container {self.name} {message}, will be restarted", kind)

    def note_failure(self, kind: str, message: str) -> None:
        """One failed probe; told once per text, or a slow start would fill the event list."""
        if (kind, message) not in self._noted:
            self._noted.add((kind, message))
            self._event("Warning", "Unhealthy", f"{kind} probe failed: {message}")

    def _restart(self, message: str, kind: str = "") -> None:
        self._event("Normal", "Killing", message)
        probe = self.spec.get(f"{kind.lower()}Probe") or {}
        grace = probe.get("terminationGracePeriodSeconds", self.host.pod["spec"]["terminationGracePeriodSeconds"])
        self._ending = asyncio.get_running_loop().create_task(self._end_process(grace))

    async def _end_process(self, grace_seconds: float) -> None:
        process = self.process
        if process is None or not process.is_running:
            return
        began = time.monotonic()
        hook = (self.spec.get("lifecycle") or {}).get("preStop")
        if hook and grace_seconds > 0:
            try:
                await self._act(hook, grace_seconds)
            except handlers.HandlerFailed as failure:
                self._event("Warning", "FailedPreStopHook", str(failure))
        left = grace_seconds - (time.monotonic() - began)
        await process.stop(max(left, MIN_STOP_SECONDS) if grace_seconds > 0 else 0.0)

    async def _back_off(self, delay_seconds: float) -> None:
        """Wait before the next start, shown as CrashLoopBackOff."""
        if delay_seconds <= 0:
            self.view.last_state = self.view.state
            return
        metadata = self.host.pod["metadata"]
        message = (
            f"back-off {delay_seconds:g}s restarting failed container={self.name} "
            f"pod={metadata['name']}_{metadata['namespace']}({metadata['uid']})"
        )
        self.view.last_state = self.view.state
        self._event("Warning", "BackOff", message)
        await self._wait_for("CrashLoopBackOff", message, delay_seconds)

    async def _wait_for(self, reason: str, message: str, seconds: float) -> None:
        """Show a waiting state for some time, or until told to stop."""
        self._set_state({"waiting": {"reason": reason, "message": message}})
        if (reason, message) not in self._noted and reason != "CrashLoopBackOff":
            self._noted.add((reason, message))
            self._event("Warning", "Failed", message)
        try:
            await asyncio.wait_for(self.stopping.wait(), seconds)
        except TimeoutError:
            return

    def _set_state(self, state: Object) -> None:
        self.view.state = state
        self.host.changed()

    def _set_terminated(self, code: int, reason: str, message: str, began: str) -> None:
        self.view.ready = self.view.started = False
        self.started.clear()
        ended = {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": now_text()}
        if message:
            ended["message"] = message
        self._set_state({"terminated": ended | {"containerID": self.view.container_id}})

    def _termination_message(self, code: int, log: Path) -> str:
        if code == 0 or self.spec.get("terminationMessagePolicy") != "FallbackToLogsOnError":
            return ""
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
            return stream.read().decode(errors="replace")

    def _event(self, kind: str, reason: str, message: str) -> None:
        self.node.event(self.host.pod, kind, reason, message)
