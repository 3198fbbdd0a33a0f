"""The Prometheus adapter against a real server that scrapes a growing histogram."""

import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.adapters.prometheus import PrometheusReader
from policies.provider import ClassicHistogram, NativeHistogram
from policies.verdict import Hold, HoldReason

pytestmark = pytest.mark.e2e
PROMETHEUS = shutil.which("prometheus") or "/usr/bin/prometheus"
METRIC = "vllm:time_to_first_token_seconds"


NATIVE = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"


def varint(value: int) -> bytes:
    """A number in protobuf's variable length."""
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def field(number: int, value: int | bytes | float) -> bytes:
    """One protobuf field: a varint, a double, or bytes with their length."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def native_page(n: int) -> bytes:
    """The histogram of `Engine` with exponential buckets of schema 0, in the exposition's protobuf form: 9 n values in
    (0.25, 0.5] s and n in (0.5, 1] s, which are the buckets -1 and 0.
    """
    span = field(1, 1) + field(2, 2)  # offset -1 in zigzag, two buckets
    deltas = [field(13, 2 * 9 * n), field(13, 2 * 8 * n - 1 if n else 0)]  # +9 n, then -8 n, both in zigzag
    histogram = b"".join(
        (field(1, 10 * n), field(2, 4.0 * n), field(5, 0), field(6, 1e-9), field(7, 0), field(12, span), *deltas)
    )
    family = field(1, METRIC.encode()) + field(3, 4) + field(4, field(7, histogram))
    return varint(len(family)) + family


class Engine:
    """A metrics page whose histogram grows with `n`: nine of ten values at most 0.5 s, the rest at most 1 s."""

    def __init__(self) -> None:
        self.n = 0
        self.is_native = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                counts = {"0.5": 9 * outer.n, "1.0": 10 * outer.n, "+Inf": 10 * outer.n}
                lines = [f"# TYPE {METRIC} histogram"]
                lines += [f'{METRIC}_bucket{{le="{le}"}} {count}' for le, count in counts.items()]
                lines += [f"{METRIC}_sum {4 * outer.n}", f"{METRIC}_count {10 * outer.n}", ""]
                body, kind = "\n".join(lines).encode(), "text/plain; version=0.0.4"
                if outer.is_native:
                    body, kind = native_page(outer.n), NATIVE
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return None

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def scraped(tmp_path: Path) -> Iterator[tuple[Engine, str]]:
    """An engine's page and the URL of a server that scrapes it every second."""
    if not Path(PROMETHEUS).exists():
        pytest.skip("there is no prometheus binary")
    engine, port = Engine(), free_port()
    target = f"127.0.0.1:{engine.http.server_port}"
    config = f"""
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: engines
    static_configs: [{{targets: ["{target}"], labels: {{pod: chat-0, namespace: ns}}}}]
"""
    (tmp_path / "prometheus.yml").write_text(config)
    with (tmp_path / "log").open("wb") as log:
        command = [PROMETHEUS, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
        command += [f"--web.listen-address=127.0.0.1:{port}", "--enable-feature=native-histograms"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield engine, f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)
        engine.http.shutdown()


def wait_for_count(url: str, count: int, query: str = f"{METRIC}_count") -> None:
    """Until the server has scraped this count."""
    deadline, pause = time.monotonic() + 60.0, threading.Event()
    while time.monotonic() < deadline:
        try:
            answer = httpx.get(f"{url}/api/v1/query", params={"query": query}, trust_env=False).json()
            if any(float(row["value"][1]) == count for row in answer["data"]["result"]):
                return
        except (httpx.HTTPError, ValueError, KeyError):
            pass  # it is still starting
        pause.wait(0.2)
    raise AssertionError(f"{METRIC}_count never was {count}")


def test_growth_between_two_times_and_reasons(scraped: tuple[Engine, str]) -> None:
    engine, url = scraped
    reader = PrometheusReader(url)
    engine.n = 5
    wait_for_count(url, 50)
    since_s = time.time()
    engine.n = 25
    wait_for_count(url, 250)
    until_s = time.time()
    found = reader.histogram(METRIC, 'namespace="ns",pod=~"chat-.+"', since_s, until_s)
    assert isinstance(found, ClassicHistogram), found
    assert found.cumulative == (180.0, 200.0, 200.0)
    assert found.quantile_bounds(0.5) == (0.0, 0.5) and found.quantile_bounds(0.99) == (0.5, 1.0)
    assert reader.increase(f"{METRIC}_count", 'pod="chat-0"', since_s, until_s) == 200.0
    other = reader.histogram(METRIC, 'pod="nobody"', since_s, until_s)
    assert isinstance(other, Hold) and other.reason is HoldReason.NO_FRESH_DATA
    wrong = reader.histogram(METRIC, "pod=", since_s, until_s)
    assert isinstance(wrong, Hold) and wrong.reason is HoldReason.PROVIDER_UNAVAILABLE


def test_a_native_histogram_is_read_by_its_edges(scraped: tuple[Engine, str]) -> None:
    engine, url = scraped
    engine.is_native = True
    reader, query = PrometheusReader(url), f"histogram_count({METRIC})"
    engine.n = 5
    wait_for_count(url, 50, query)
    since_s = time.time()
    engine.n = 25
    wait_for_count(url, 250, query)
    until_s = time.time()
    found = reader.either(METRIC, 'namespace="ns",pod=~"chat-.+"', since_s, until_s)
    assert isinstance(found, NativeHistogram), found
    assert found.buckets == ((0.25, 0.5, 180.0), (0.5, 1.0, 20.0))
    assert found.quantile_bounds(0.5) == (0.25, 0.5) and found.quantile_bounds(0.99) == (0.5, 1.0)
    assert found.above(0.5) == (20.0, 20.0) and found.above(0.75) == (0.0, 20.0)
    other = reader.native(METRIC, 'pod="nobody"', since_s, until_s)
    assert isinstance(other, Hold) and other.reason is HoldReason.NO_FRESH_DATA
