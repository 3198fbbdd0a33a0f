"""Watching an API server that misbehaves: 410 in mid-stream, 401, 429, truncated JSON, deletions in the gap."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from kubernetes.client import ApiClient, Configuration

from controller.adapters.informers import Kind
from controller.adapters.kube import KubeCluster
from controller.adapters.rest import Rest, refusal
from controller.ports import Retryable, Terminal


def pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(version)}}


class ApiServer:
    """Answers lists from `objects` and watches from `script` (one list of lines, or a status, per watch)."""

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.script: list[list[str] | int] = []
        self.list_statuses: list[int] = []
        self.watched_from: list[str] = []
        self.refuses: Callable[[str], bool] = lambda path: False
        self.lists = 0
        self.changed = threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlparse(self.path).query)
                outer.answer(self, query)

            def log_message(self, *_: Any) -> None:
                return None

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler, query: dict[str, list[str]]) -> None:
        if "watch" not in query:
            with self.changed:
                self.lists += 1
                status = self.list_statuses.pop(0) if self.list_statuses else 200
                status = 403 if self.refuses(urlparse(request.path).path) else status
                self.changed.notify_all()
            body = (
                {"metadata": {"resourceVersion": "100"}, "items": self.objects} if status == 200 else {"code": status}
            )
            self._send(request, status, json.dumps(body))
            return
        with self.changed:
            self.watched_from.append(query["resourceVersion"][0])
            step = self.script.pop(0) if self.script else None
            self.changed.notify_all()
        if isinstance(step, int):
            self._send(request, step, json.dumps({"code": step, "message": "no"}))
        elif step is None:
            request.send_response(200)
            request.end_headers()
            with self.changed:
                self.changed.wait_for(lambda: bool(self.script), timeout=10)
        else:
            self._send(request, 200, "\n".join(step) + "\n")

    def _send(self, request: BaseHTTPRequestHandler, status: int, text: str) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text.encode())


@pytest.fixture
def api() -> Iterator[ApiServer]:
    server = ApiServer()
    yield server
    server.server.shutdown()


class Watcher:
    """One kind over the server, with the changes that it told."""

    def __init__(self, api: ApiServer) -> None:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{api.server.server_port}"
        configuration.retries = False
        self.changes: list[str] = []
        self.news = threading.Condition()
        self.kind = Kind(Rest(ApiClient(configuration)), "v1", "pods", ("ns",), "", self._on_change)
        self.kind.start()

    def _on_change(self, plural: str, obj: dict[str, Any]) -> None:
        with self.news:
            self.changes.append(obj["metadata"]["name"])
            self.news.notify_all()

    def wait(self, *names: str) -> None:
        def is_so() -> bool:
            return {o["metadata"]["name"] for o in self.kind.list()} == set(names)

        with self.news:
            assert self.news.wait_for(is_so, timeout=15), [o["metadata"]["name"] for o in self.kind.list()]


def event(kind: str, obj: dict[str, Any]) -> str:
    return json.dumps({"type": kind, "object": obj})


GONE = event("ERROR", {"code": 410, "reason": "Expired", "message": "too old resource version"})


def test_410_in_mid_stream_relists_and_reports_deletions_of_the_gap(api: ApiServer) -> None:
    api.objects = [pod("a", 1), pod("b", 2)]
    api.script = [[event("ADDED", pod("c", 101)), GONE]]
    watcher = Watcher(api)
    watcher.wait("a", "b", "c") if not api.lists else None
    api.objects = [pod("b", 2)]
    watcher.wait("b")
    assert "a" in watcher.changes and "None" not in api.watched_from
    watcher.kind.stop()


def test_a_token_that_was_rotated_and_a_busy_server_are_waited_for(api: ApiServer) -> None:
    api.list_statuses = [401, 429, 500]
    api.objects = [pod("a", 1)]
    watcher = Watcher(api)
    watcher.wait("a")
    assert api.lists == 4
    watcher.kind.stop()


def test_a_refused_watch_does_not_spin_and_does_not_forget(api: ApiServer) -> None:
    api.objects = [pod("a", 1)]
    api.script = [401, 503, [event("ADDED", pod("b", 102))]]
    watcher = Watcher(api)
    watcher.wait("a", "b")
    assert api.watched_from[:3] == ["100", "100", "100"] and api.lists == 1
    watcher.kind.stop()


def test_truncated_json_is_watched_again_from_where_it_was(api: ApiServer) -> None:
    whole = event("ADDED", pod("c", 103))
    api.objects = [pod("a", 1)]
    api.script = [[event("ADDED", pod("b", 102)), whole[: len(whole) // 2]], [whole]]
    watcher = Watcher(api)
    watcher.wait("a", "b", "c")
    assert api.watched_from[:2] == ["100", "102"]
    watcher.kind.stop()


def test_bookmarks_move_the_place_to_resume_from(api: ApiServer) -> None:
    bookmark = event("BOOKMARK", {"metadata": {"resourceVersion": "500"}})
    api.objects = [pod("a", 1)]
    api.script = [[bookmark], [event("ADDED", pod("b", 501))]]
    watcher = Watcher(api)
    watcher.wait("a", "b")
    assert api.watched_from[:2] == ["100", "500"]
    watcher.kind.stop()


def test_it_is_synced_only_after_the_first_list_is_in_the_cache(api: ApiServer) -> None:
    api.objects = [pod("a", 1)]
    api.list_statuses = [500]
    watcher = Watcher(api)
    assert not watcher.kind.is_synced("ns")
    watcher.wait("a")
    with api.changed:
        assert api.changed.wait_for(lambda: bool(api.watched_from), timeout=10)
    assert watcher.kind.is_synced("ns")
    watcher.kind.stop()


def namespaces_of(api: ApiServer, refused: Callable[[str], bool]) -> KubeCluster:
    """A cluster adapter over two namespaces, of which the server refuses what `refused` says by path."""
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{api.server.server_port}"
    configuration.retries = False
    api.refuses = refused
    cluster = KubeCluster(configuration, ("ns", "taken-away"), lambda plural, obj: None)
    cluster.start()
    return cluster


def wait_for(api: ApiServer, holds: Callable[[], bool]) -> bool:
    with api.changed:
        while not holds() and api.changed.wait(timeout=5):
            pass
        return holds()


def test_a_namespace_that_was_taken_away_keeps_nobody_waiting(api: ApiServer) -> None:
    cluster = namespaces_of(api, lambda path: "/taken-away/" in path)
    assert wait_for(api, cluster.is_synced)
    cluster.stop()


def test_of_a_namespace_that_was_taken_away_a_rollout_may_still_be_known(api: ApiServer) -> None:
    api.objects = [pod("a", 1)]
    cluster = namespaces_of(api, lambda path: "/taken-away/" in path and not path.endswith("/inferencerollouts"))
    rollouts = cluster._kinds["inferencerollouts"]
    assert wait_for(api, lambda: cluster.is_synced() and len(rollouts.list()) == 2)
    assert cluster.get_cached("inferencerollouts", "ns", "a") is not None
    cluster.stop()


def test_a_rollout_is_unknown_until_its_whole_namespace_is_listed(api: ApiServer) -> None:
    api.objects = [pod("a", 1)]
    is_open = threading.Event()
    cluster = namespaces_of(
        api, lambda path: "/taken-away/" in path or (path.endswith("/pods") and not is_open.is_set())
    )
    rollouts = cluster._kinds["inferencerollouts"]
    assert wait_for(api, lambda: bool(rollouts.list()) and len(api.watched_from) >= 5)
    assert not cluster.is_synced()
    assert cluster.get_cached("inferencerollouts", "ns", "a") is None and not cluster.cached("inferencerollouts", "")
    is_open.set()
    assert wait_for(api, lambda: cluster.get_cached("inferencerollouts", "ns", "a") is not None)
    assert len(cluster.cached("inferencerollouts", "")) == 1
    cluster.stop()


def test_refusals_are_sorted_by_who_can_mend_them() -> None:
    body = json.dumps({"message": "field is immutable"}).encode()
    assert isinstance(refusal("PATCH", "/x", 422, body, None), Terminal)
    conflict = refusal("PUT", "/x", 409, body, None)
    assert isinstance(conflict, Retryable) and "409" in str(conflict)
    busy = refusal("GET", "/x", 429, b"<html>", "7")
    assert isinstance(busy, Retryable) and busy.delay_s == 7.0
    unknown = b'{"message": "failed to create typed patch object (a/b): .spec.imagee: field not declared in schema"}'
    assert isinstance(refusal("PATCH", "/x", 500, unknown, None), Terminal)  # will be refused for ever
    assert isinstance(refusal("PATCH", "/x", 500, b"{}", None), Retryable)
