"""Caches of the API server's objects, on the official informer, with its weaknesses covered.

What the wrapper adds: a pause between attempts (the informer reconnects in a tight loop when the server refuses), read
timeouts (a half-open connection would hang for ever), resource versions from plain dicts (so a reconnect does not
replay everything), and word of the first complete list. 410 relists and reports deletions of the gap, which the
informer does itself. Called by kube.py.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import structlog
from kubernetes.informer import ADDED, DELETED, MODIFIED, SharedInformer

from controller.adapters.rest import CONNECT_SECONDS, Rest, path_of
from controller.ports import Ref, Retryable, Terminal

log = structlog.get_logger("weighlock.informer")

logging.getLogger("kubernetes.informer").setLevel(logging.CRITICAL)  # its failures are told by the lister, in one line

RESYNC_SECONDS = 300
_LEAST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 15.0


def _key(obj: Mapping[str, Any]) -> str:
    meta = obj["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


class Lister:
    """What the informer calls to list and to watch one kind in one namespace ("" for all)."""

    def __init__(self, rest: Rest, ref: Ref, labels: str, stop: threading.Event) -> None:
        self._rest, self._path, self._labels, self._stop = rest, path_of(ref), labels, stop
        self._plural = ref.plural
        self._failures = 0
        self._last_s = 0.0
        self.is_synced = threading.Event()
        self.is_refused = threading.Event()
        self.answered_s = 0.0

    def call(self, watch: bool = False, resource_version: str = "", timeout_seconds: int = 0, **_: Any) -> Any:
        """List or watch. The watch reads the next line, and without it forgets resource versions.

        :rtype: object
        """
        self._pause()
        query = {"labelSelector": self._labels} if self._labels else {}
        if not watch:
            return self._list(query)
        try:
            return self._watch(query, resource_version, timeout_seconds)
        except Exception:  # only counted here, for the pause before the next try; the informer handles it
            self._failures += 1
            raise

    def _list(self, query: dict[str, Any]) -> Any:
        """Until the server answers: the informer itself would wait five seconds after each failure."""
        answer = None
        while answer is None:
            try:
                answer = self._rest.call("GET", self._path, query=query)
                problem = f"the API server does not know {self._plural}; apply the CRDs"
            except Retryable as error:
                problem = str(error)
            except Terminal as error:
                problem = str(error)
                self.is_refused.set()
            if answer is None:
                self._failures += 1
                log.warning("list failed", kind=self._plural, why=problem, failures=self._failures)
                self._pause()
            if self._stop.is_set():
                raise Retryable("stopped")
        self._good()
        version = (answer.get("metadata") or {}).get("resourceVersion")
        return SimpleNamespace(items=answer.get("items") or [], metadata=SimpleNamespace(resource_version=version))

    def _watch(self, query: dict[str, Any], version: str, timeout_seconds: int) -> Any:
        self.is_synced.set()  # the informer watches only after its first list is in the cache
        query |= {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": timeout_seconds or RESYNC_SECONDS,
        }
        response = self._rest.raw("GET", self._path, query=query, timeout=(CONNECT_SECONDS, RESYNC_SECONDS + 30.0))
        if response.status == 200:
            self._good()
        else:
            self._failures += 1
        return response

    def _good(self) -> None:
        self._failures = 0
        self.is_refused.clear()
        self.answered_s = time.monotonic()

    def _pause(self) -> None:
        pause_s = _LEAST_PAUSE_SECONDS if not self._failures else min(_LONGEST_PAUSE_SECONDS, 0.5 * 2**self._failures)
        due_s = self._last_s + pause_s - time.monotonic()
        if due_s > 0:
            self._stop.wait(due_s)
        self._last_s = time.monotonic()


class Kind:
    """One watched kind over all watched namespaces.

    on_change: called with `(plural, object)` on every addition, change and deletion, on the informer's thread.
    """

    def __init__(
        self,
        rest: Rest,
        api_version: str,
        plural: str,
        namespaces: tuple[str, ...],
        labels: str,
        on_change: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.plural = plural
        self._stop = threading.Event()
        self._listers = {
            ns: Lister(rest, Ref(api_version, plural, ns), labels, self._stop) for ns in namespaces or ("",)
        }
        self._informers = [
            SharedInformer(lister.call, resync_period=RESYNC_SECONDS, key_func=_key)
            for lister in self._listers.values()
        ]
        for informer in self._informers:
            for event in (ADDED, MODIFIED, DELETED):
                informer.add_event_handler(event, lambda obj: on_change(plural, obj))

    def start(self) -> None:
        """Begin to list and watch."""
        for informer in self._informers:
            informer.start()

    def stop(self) -> None:
        """End it; threads are daemons and end with their present call."""
        self._stop.set()
        for informer in self._informers:
            informer._stop_event.set()  # stop() would join a thread that waits in a read

    def is_synced(self, namespace: str) -> bool:
        """Whether the first list of a watched namespace is in the cache ("" where all are watched at once)."""
        return self._listers[namespace].is_synced.is_set()

    def is_refused(self, namespace: str) -> bool:
        """Whether the server answered at last that we may not list there."""
        return self._listers[namespace].is_refused.is_set()

    def list(self) -> list[dict[str, Any]]:
        """All cached objects."""
        return [obj for informer in self._informers for obj in informer.cache.list()]

    def get(self, namespace: str, name: str) -> dict[str, Any] | None:
        """One cached object."""
        for informer in self._informers:
            found: dict[str, Any] | None = informer.cache.get_by_key(f"{namespace}/{name}")
            if found is not None:
                return found
        return None
