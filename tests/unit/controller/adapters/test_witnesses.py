"""Metrics pages of candidate pods: active, inactive, unknown; the worst pod is shown."""

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from controller.adapters.witnesses import WitnessScraper
from controller.evidence.views import WitnessView
from manifests.importing import import_objects
from manifests.model import Manifest

ON = 'vllm:cache_config_info{enable_prefix_caching="True"} 1\nvllm:num_requests_running{model_name="m"} 0\n'
OFF = ON.replace("True", "False")


def manifest() -> Manifest:
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.11.0",
        "args": ["--model=org/m", "--enable-prefix-caching"],
    }
    spec = {"template": {"spec": {"containers": [container]}}}
    obj = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat"}, "spec": spec}
    return import_objects([obj]).manifests[0]


@pytest.fixture
def pages() -> Iterator[tuple[dict[str, str], str]]:
    """Pages by path, served over HTTP, and the server's URL."""
    texts: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = texts.get(self.path)
            self.send_response(200 if text is not None else 404)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, *_: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield texts, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


def wait(look: Callable[[], WitnessView], state: str) -> WitnessView:
    deadline, pause = time.monotonic() + 10.0, threading.Event()
    while look().state != state:
        assert time.monotonic() < deadline, look()
        pause.wait(0.02)
    return look()


def test_seen_on_every_pod_and_the_worst_one_is_told(pages: tuple[dict[str, str], str]) -> None:
    texts, url = pages
    texts |= {"/a": ON, "/b": ON}
    scraper = WitnessScraper(every_s=0.05)
    try:
        scraper.watch("ns/chat", manifest(), {"a": f"{url}/a", "b": f"{url}/b"})
        cache = lambda: next(v for v in scraper.views("ns/chat") if v.mechanism == "prefix_cache")  # noqa: E731
        wait(cache, "active")
        texts["/b"] = OFF
        assert wait(cache, "inactive").source == "b"
        del texts["/a"], texts["/b"]
        assert "cannot be read" in wait(cache, "unknown").witness
        scraper.watch("ns/chat", None, {})
        assert scraper.views("ns/chat") == ()
    finally:
        scraper.stop()
