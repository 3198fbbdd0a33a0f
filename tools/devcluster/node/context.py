"""What all pods of the process node share. Made once at its start, handed to every pod's worker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import structlog

from tools.devcluster.node import images
from tools.devcluster.node.api import TRANSPORT_ERRORS, Api, ApiError
from tools.devcluster.node.config import Backoff
from tools.devcluster.node.kinds import Object, name_of, now_text
from tools.devcluster.node.runtime import Process
from tools.devcluster.node.store import ObjectStore
from tools.devcluster.paths import State
from tools.devcluster.settings import Settings

log = structlog.get_logger()


@dataclass
class LimitedProcess:
    """A running process with a memory limit; `is_over` is set before it is killed."""

    process: Process
    limit_bytes: int
    is_over: bool = False


@dataclass
class NodeContext:
    state: State
    settings: Settings
    backoff: Backoff
    api: Api
    session: aiohttp.ClientSession
    store: ObjectStore
    _limits: dict[int, LimitedProcess] = field(default_factory=dict)
    _table: tuple[float, Path, tuple[images.Image, ...]] | None = None
    _background: set[asyncio.Task[None]] = field(default_factory=set)

    def find_image(self, image: str) -> images.Image:
        """The entry of the image table, which is read again after it changed.

        Raises:
            ImageUnknown: there is none.
        """
        path = self.state.images_in_force
        changed = path.stat().st_mtime
        if self._table is None or self._table[:2] != (changed, path):
            self._table = (changed, path, images.load_table(path))
        return images.find(self._table[2], image)

    def limit_memory(self, process: Process, limit_bytes: int) -> LimitedProcess:
        """Have `process` killed when its tree holds more than the limit."""
        entry = LimitedProcess(process, limit_bytes)
        self._limits[process.pid] = entry
        return entry

    async def enforce_limits(self) -> None:
        """Look at all limited processes once a second, for ever."""
        while True:
            await asyncio.sleep(1)
            for pid, entry in list(self._limits.items()):
                if not entry.process.is_running:
                    del self._limits[pid]
                elif entry.process.rss_bytes() > entry.limit_bytes:
                    entry.is_over = True
                    entry.process.signal(9)

    def event(self, pod: Object, kind: str, reason: str, message: str) -> None:
        """Record an Event about a pod, in the background."""
        task = asyncio.get_running_loop().create_task(self._post_event(pod, kind, reason, message))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _post_event(self, pod: Object, kind: str, reason: str, message: str) -> None:
        namespace, name = name_of(pod)
        metadata = pod["metadata"]
        now = now_text()
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{name}.", "namespace": namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": name,
                "namespace": namespace,
                "uid": metadata["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message[:1000],
            "source": {"component": "process-node", "host": pod["spec"].get("nodeName", "")},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self.api.call("POST", f"/api/v1/namespaces/{namespace}/events", body)
        except (ApiError, *TRANSPORT_ERRORS) as error:
            log.warning("event not recorded", pod=name, reason=reason, error=str(error))
