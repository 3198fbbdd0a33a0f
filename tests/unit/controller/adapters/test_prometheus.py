"""The Prometheus adapter over a small HTTP server: bucket edges as bounds, a reason for everything odd."""

import json
import math
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from controller.adapters.prometheus import WINDOW_SECONDS, CrossCheck, PrometheusReader, ProviderWatch, look
from controller.live import ttft_histogram
from policies.provider import ClassicHistogram, NativeHistogram
from policies.verdict import Hold, HoldReason
from tests.unit.controller.shell.fakes import FakeClock

NOW = 1_800_000_000.0
TTFT = "vllm:time_to_first_token_seconds"


class Server:
    """Answers instant queries with what the test gives for the beginning and the end of the range."""

    def __init__(self) -> None:
        self.before: list[dict[str, Any]] = []
        self.after: list[dict[str, Any]] = []
        self.raw: bytes | None = None
        self.code = 200
        self.queries: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = parse_qs(urlparse(self.path).query)
                outer.queries.append(asked["query"][0])
                body = outer.raw if outer.raw is not None else outer.body(float(asked["time"][0]))
                self.send_response(outer.code)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return None

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()

    def body(self, at_s: float) -> bytes:
        result = self.after if at_s > NOW - 1 else self.before
        return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()

    def buckets(self, when: str, pod: str, counts: dict[str, int], **labels: str) -> None:
        """Cumulative counts by edge of one pod."""
        rows = [{"metric": {"le": le, "pod": pod, **labels}, "value": [0, str(count)]} for le, count in counts.items()]
        getattr(self, when).extend(rows)

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def read(server: Server) -> ClassicHistogram | Hold:
    return PrometheusReader(server.url, 2).histogram(TTFT, 'pod=~"a.*"', NOW - WINDOW_SECONDS, NOW)


def test_growth_by_edges_over_pods_and_resets_without_doubles(server: Server) -> None:
    server.buckets("before", "a0", {"0.5": 10, "1": 20, "+Inf": 20}, job="one")
    server.buckets("after", "a0", {"0.5": 100, "1": 120, "+Inf": 120}, job="one")
    server.buckets("after", "a0", {"0.5": 100, "1": 120, "+Inf": 120}, job="two")  # scraped twice
    server.buckets("before", "a1", {"0.5": 900, "1": 900, "+Inf": 900}, job="one")
    server.buckets("after", "a1", {"0.5": 4, "1": 5, "+Inf": 6}, job="one")  # restarted in between
    server.buckets("after", "a2", {"0.5": 7, "1": 7, "+Inf": 7}, job="one")  # nobody knows how long it counted
    found = read(server)
    assert isinstance(found, ClassicHistogram)
    assert found.edges == (0.5, 1.0, math.inf) and found.cumulative == (94.0, 105.0, 106.0)
    assert found.quantile_bounds(0.95) == (0.5, 1.0)
    assert found.above(0.5) == (12.0, 12.0)
    assert server.queries[0] == f'{TTFT}_bucket{{pod=~"a.*"}}'


def test_empty_is_not_zero(server: Server) -> None:
    found = read(server)
    assert isinstance(found, Hold) and found.reason is HoldReason.NO_FRESH_DATA
    reader = PrometheusReader(server.url, 2)
    unknown = reader.increase("errors_total", "", NOW - 60, NOW)
    assert isinstance(unknown, Hold) and unknown.reason is HoldReason.NO_FRESH_DATA
    assert reader.increase("errors_total", "", NOW - 60, NOW, ledger_requests=50) == 0.0


def test_a_counter_grows_by_differences(server: Server) -> None:
    server.before = [{"metric": {"pod": "a"}, "value": [0, "5"]}, {"metric": {"pod": "b"}, "value": [0, "90"]}]
    server.after = [{"metric": {"pod": "a"}, "value": [0, "9"]}, {"metric": {"pod": "b"}, "value": [0, "3"]}]
    assert PrometheusReader(server.url, 2).increase("errors_total", "", NOW - 60, NOW) == 7.0


@pytest.mark.parametrize(
    ("code", "raw"),
    [
        (200, b"<html>log in</html>"),
        (200, b"[]"),
        (200, b'{"status": "success"}'),
        (200, b'{"status": "success", "data": {"resultType": "matrix", "result": []}}'),
        (200, b'{"status": "success", "warnings": ["half"], "data": {"resultType": "vector", "result": []}}'),
        (200, b'{"status": "success", "data": {"resultType": "vector", "result": [{"value": 3}]}}'),
        (400, b'{"status": "error", "error": "bad query"}'),
        (503, b"busy"),
    ],
)
def test_an_odd_answer_is_a_reason(server: Server, code: int, raw: bytes) -> None:
    server.code, server.raw = code, raw
    found = read(server)
    assert isinstance(found, Hold) and found.reason is HoldReason.PROVIDER_UNAVAILABLE and found.message


def test_nobody_there_is_a_reason() -> None:
    gone = Server()
    gone.close()
    found = read(gone)
    assert isinstance(found, Hold) and found.reason is HoldReason.PROVIDER_UNAVAILABLE


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({"0.5": 3, "1": 5}, HoldReason.PROVIDER_UNAVAILABLE),
        ({"0.5": 9, "1": 5, "+Inf": 9}, HoldReason.PROVIDER_UNAVAILABLE),
        ({"x": 3, "+Inf": 5}, HoldReason.PROVIDER_UNAVAILABLE),
        ({"0.5": 0, "+Inf": 0}, HoldReason.NO_FRESH_DATA),
    ],
)
def test_what_is_no_histogram_is_no_histogram(server: Server, counts: dict[str, int], reason: HoldReason) -> None:
    server.buckets("before", "a", dict.fromkeys(counts, 0))
    server.buckets("after", "a", counts)
    found = read(server)
    assert isinstance(found, Hold) and found.reason is reason


def test_pods_with_other_edges_are_not_added(server: Server) -> None:
    for when, count in (("before", 0), ("after", 9)):
        server.buckets(when, "a0", {"0.5": count, "+Inf": count})
        server.buckets(when, "a1", {"0.7": count, "+Inf": count})
    found = read(server)
    assert isinstance(found, Hold) and found.reason is HoldReason.TOO_COARSE


def test_the_view_says_edges_or_why_not(server: Server) -> None:
    check = CrossCheck(TTFT, "")
    server.buckets("before", "a", {"0.5": 0, "1": 0, "+Inf": 0})
    server.buckets("after", "a", {"0.5": 50, "1": 100, "+Inf": 100})
    reader = PrometheusReader(server.url, 2)
    view = look(reader, check, lambda: NOW)
    assert (view.healthy, view.low_s, view.high_s, view.requests) == (True, 0.5, 1.0, 100.0)
    server.code, server.raw = 503, b"busy"
    view = look(reader, check, lambda: NOW)
    assert view.healthy is False and view.low_s is None and view.message


def test_the_watch_reads_by_itself(server: Server) -> None:
    watch = ProviderWatch(PrometheusReader(server.url, 2), FakeClock(NOW), every_s=0.05)
    try:
        assert watch.view("ns/chat").healthy is None
        watch.watch("ns/chat", TTFT, "")
        deadline, pause = time.monotonic() + 10.0, threading.Event()
        while watch.view("ns/chat").healthy is not True:
            assert time.monotonic() < deadline
            pause.wait(0.02)
        assert watch.view("ns/chat").low_s is None  # it answers and has nothing
    finally:
        watch.stop()


def test_the_engines_own_names() -> None:
    assert ttft_histogram("vllm") == TTFT
    assert ttft_histogram("unknown") == ""


# --- native histograms ---


def entry(pod: str, *buckets: tuple[float, float, float], **labels: str) -> dict[str, object]:
    """One series of an instant vector of native histograms, as the API writes it."""
    raw = [[0, str(low), str(high), str(count)] for low, high, count in buckets]
    names: dict[str, str] = {"pod": pod, **labels}
    count = sum(b[2] for b in buckets)
    return {"metric": names, "histogram": [0, {"count": str(count), "sum": "1", "buckets": raw}]}


def native(server: Server) -> NativeHistogram | Hold:
    return PrometheusReader(server.url, 2).native(TTFT, 'pod=~"a.*"', NOW - WINDOW_SECONDS, NOW)


def test_native_histograms_by_their_edges(server: Server) -> None:
    server.before = [entry("a0", (0.25, 0.5, 10), (0.5, 1, 1)), entry("a1", (0.25, 0.5, 50))]
    server.after = [
        entry("a0", (0.25, 0.5, 100), (0.5, 1, 5)),
        entry("a0", (0.25, 0.5, 100), (0.5, 1, 5), job="again"),  # scraped twice
        entry("a1", (0.25, 0.5, 3), (1, 2, 2)),  # restarted in between
        entry("a2", (0.25, 0.5, 9)),  # nobody knows how long it counted
    ]
    found = native(server)
    assert isinstance(found, NativeHistogram) and found.total == 99
    assert found.quantile_bounds(0.5) == (0.25, 0.5) and found.quantile_bounds(0.99) == (1.0, 2.0)
    assert found.above(0.5) == (6, 6) and found.above(0.3) == (6, 99), "nothing is interpolated inside a bucket"


def test_native_histograms_of_two_resolutions_are_added_by_bounds(server: Server) -> None:
    server.before = [entry("a0"), entry("a1")]
    server.after = [entry("a0", (0.5, 0.7, 50), (0.7, 1, 50)), entry("a1", (0.5, 1, 100))]
    found = native(server)
    assert isinstance(found, NativeHistogram)
    assert found.quantile_bounds(0.2) == (0.5, 0.7), "fifty are surely there"
    assert found.quantile_bounds(0.5) == (0.5, 1.0) and found.above(0.7) == (50, 150)


def test_a_native_histogram_that_grew_coarser_is_followed_and_one_that_grew_finer_is_refused(server: Server) -> None:
    fine, coarse = [(0.5, 0.7, 5.0), (0.7, 1.0, 5.0)], [(0.5, 1.0, 40.0)]
    server.before, server.after = [entry("a0", *fine)], [entry("a0", *coarse)]
    found = native(server)
    assert isinstance(found, NativeHistogram) and found.buckets == ((0.5, 1.0, 30.0),)
    server.before, server.after = [entry("a0", *coarse)], [entry("a0", (0.5, 0.7, 30.0), (0.7, 1.0, 30.0))]
    refused = native(server)
    assert isinstance(refused, Hold) and refused.reason is HoldReason.TOO_COARSE


def test_no_native_histogram_is_not_an_empty_one(server: Server) -> None:
    assert isinstance(native(server), Hold)
    server.before = server.after = [{"metric": {}, "value": [0, "5"]}]
    wrong = native(server)
    assert isinstance(wrong, Hold) and wrong.reason is HoldReason.PROVIDER_UNAVAILABLE


@pytest.mark.parametrize(
    ("bounds", "words"),
    [((0.1, 0.25), "within 1.25x"), ((2.0, 4.0), "beyond 1.25x"), ((0.25, 0.5), "too coarse for a margin")],
)
def test_the_candidate_beside_stable_in_words(bounds: tuple[float, float], words: str) -> None:
    class Two(PrometheusReader):
        """Stable's values in (0.25, 0.5] s, the candidate's in `bounds`."""

        def either(self, metric: str, selector: str, since_s: float, until_s: float) -> NativeHistogram:
            low, high = (0.25, 0.5) if selector == "stable" else bounds
            return NativeHistogram(((low, high, 1000.0),))

    view = look(Two("http://127.0.0.1:1"), CrossCheck(TTFT, "stable", "candidate"), lambda: NOW)
    assert words in view.message and (view.low_s, view.high_s) == (0.25, 0.5)
