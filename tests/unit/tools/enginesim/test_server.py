"""The simulated engine over real sockets on loopback: shapes of answers, errors, disconnects, metrics, faults."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.tools.enginesim.support import MODEL, settings
from tools.enginesim.control import Control
from tools.enginesim.httpserver import Connection, listen
from tools.enginesim.service import Service

GOLDEN = Path(__file__).parent / "golden"


class Client:
    """A service on a free port of loopback, and raw HTTP towards it."""

    def __init__(self, service: Service, port: int, control_port: int) -> None:
        self.service = service
        self.port = port
        self.control_port = control_port

    async def open(self, path: str, document: object, *, port: int = 0, method: str = "", head: str = "") -> Any:
        """Sends one request; the reader and writer."""
        body = b"" if document is None else json.dumps(document).encode()
        method = method or ("GET" if document is None else "POST")
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self.port)
        lines = f"{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{head}content-length: {len(body)}\r\n\r\n"
        writer.write(lines.encode() + body)
        return reader, writer

    async def ask(self, path: str, document: object = None, **options: Any) -> tuple[int, str, bytes]:
        """Status, header text, body (with the chunked framing left in)."""
        reader, writer = await self.open(path, document, **options)
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), head.decode(), body


Start = Callable[..., Any]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """``await start("--flag", ENV="x")`` gives a client of a fresh engine."""
    servers: list[asyncio.Server] = []

    async def make(*flags: str, **environment: str) -> Client:
        service = Service(settings(*flags, **environment), asyncio.get_running_loop())
        connections: set[Connection] = set()
        for handler in (service.handle, Control(service.faults, service.engine).handle):
            servers.append(await listen(handler, "127.0.0.1", 0, connections))
        return Client(service, *(server.sockets[0].getsockname()[1] for server in servers[-2:]))

    yield make
    for server in servers:
        server.close()


def chat(content: str, **more: object) -> dict[str, object]:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 8, **more}


def events(body: bytes) -> list[Any]:
    """The JSON of the events, framing removed; ``[DONE]`` stays text."""
    found = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
    return [text if text == "[DONE]" else json.loads(text) for text in found]


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Waits on a condition with a deadline."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline, "condition not met in time"
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("kind", ["chat", "text"])
async def test_stream_is_byte_exact(start: Start, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.enginesim.service.time.time", lambda: 1_700_000_000.0)
    client = await start("--stream-interval", "4", "--served-model-name", "m")
    client.service.fingerprint = "vllm-0.32.0-00000000"
    document: dict[str, object] = {"max_tokens": 10, "stream": True, "stream_options": {"include_usage": True}}
    if kind == "chat":
        document["messages"] = [{"role": "user", "content": "How long is a lock?"}]
    else:
        document["prompt"] = "How long is a lock?"
    path = "/v1/chat/completions" if kind == "chat" else "/v1/completions"
    status, head, body = await client.ask(path, document, head="x-request-id: r1\r\n")
    assert status == 200
    assert "content-type: text/event-stream; charset=utf-8" in head
    golden = GOLDEN / f"{kind}-stream.http"
    assert body == golden.read_bytes()


async def test_continuous_usage_counts_up(start: Start) -> None:
    client = await start("--stream-interval", "4")
    options = {"include_usage": True, "continuous_usage_stats": True}
    _, _, body = await client.ask("/v1/chat/completions", chat("hello", stream=True, stream_options=options))
    *chunks, last, done = events(body)
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [0, 1, 5, 8]
    assert (last["choices"], last["usage"]["completion_tokens"], done) == ([], 8, "[DONE]")


async def test_without_include_usage_there_is_no_usage_event(start: Start) -> None:
    client = await start()
    _, _, body = await client.ask("/v1/chat/completions", chat("hello", stream=True))
    assert all("usage" not in event for event in events(body)[:-1])


async def test_streamed_and_whole_answers_say_the_same(start: Start) -> None:
    client = await start("--stream-interval", "3")
    _, _, streamed = await client.ask("/v1/chat/completions", chat("the same question", stream=True))
    _, _, whole = await client.ask("/v1/chat/completions", chat("the same question"))
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events(streamed)[:-1])
    document = json.loads(whole)
    assert document["choices"][0]["message"]["content"] == text
    assert document["choices"][0]["finish_reason"] == "length"
    assert document["usage"] == {"prompt_tokens": 5, "total_tokens": 13, "completion_tokens": 8}


async def test_an_answer_without_limit_ends_by_itself(start: Start) -> None:
    client = await start()
    request = chat("ends by itself")
    del request["max_tokens"]
    _, _, whole = await client.ask("/v1/chat/completions", request)
    document = json.loads(whole)
    assert document["choices"][0]["finish_reason"] == "stop"
    assert document["usage"]["completion_tokens"] >= 1


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"messages": [{"role": "user", "content": "x" * 70000}]}, 400, "maximum context length is 16384 tokens"),
        ({"max_tokens": 20000}, 400, "is too large: 20000"),
        ({"max_tokens": 0}, 400, "max_tokens must be at least 1"),
        ({"model": "other"}, 404, "The model `other` does not exist."),
        ({"messages": []}, 400, "Field required"),
        ({"n": 2}, 400, "n must be 1"),
        ({"tools": [{}]}, 400, "does not support `tools`"),
        ({"stream_options": {"include_usage": True}}, 400, "Stream options"),
    ],
)
async def test_refusals_have_vllms_shape(start: Start, change: dict[str, object], status: int, words: str) -> None:
    client = await start()
    got, _, body = await client.ask("/v1/chat/completions", {**chat("hi"), **change})
    error = json.loads(body)["error"]
    assert got == status == error["code"]
    assert words in error["message"]
    assert set(error) == {"message", "type", "param", "code"}


async def test_small_endpoints(start: Start) -> None:
    client = await start("--api-key", "sesame")
    assert (await client.ask("/health"))[0] == 200
    assert json.loads((await client.ask("/version"))[2]) == {"version": "0.32.0"}
    assert (await client.ask("/v1/models"))[0] == 401
    status, _, body = await client.ask("/v1/models", head="authorization: Bearer sesame\r\n")
    assert (status, json.loads(body)["data"][0]["max_model_len"]) == (200, 16384)
    info = json.loads((await client.ask("/server_info"))[2])
    assert info["simulator"] is True
    assert "sesame" not in json.dumps(info)
    assert (await client.ask("/nowhere"))[0] == 404
    assert (await client.ask("/health", {}, method="PUT"))[0] == 405


async def test_request_id_is_echoed_only_when_asked_for(start: Start) -> None:
    plain, echoing = await start(), await start("--enable-request-id-headers")
    head = {"head": "x-request-id: abc\r\n"}
    _, without, body = await plain.ask("/v1/chat/completions", chat("hi"), **head)
    _, with_it, _ = await echoing.ask("/v1/chat/completions", chat("hi"), **head)
    assert "x-request-id" not in without
    assert json.loads(body)["id"] == "chatcmpl-abc"
    assert "x-request-id: abc" in with_it


async def test_a_disconnect_aborts_the_request(start: Start) -> None:
    client = await start()
    reader, writer = await client.open("/v1/chat/completions", chat("long", stream=True, max_tokens=10000))
    await reader.readuntil(b"data: ")
    batcher = client.service.engine.batcher
    assert len(batcher.running) == 1
    writer.transport.abort()
    await until(lambda: not batcher.running)
    assert client.service.metrics.finished["abort"] == 1
    assert batcher.pool.used == 0
    assert not client.service.in_flight


async def test_metrics_page_parses_and_adds_up(start: Start) -> None:
    client = await start("--speculative-config", '{"method":"ngram","num_speculative_tokens":2}')
    for number in range(3):
        await client.ask("/v1/chat/completions", chat(f"question {number}"))
    _, _, page = await client.ask("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(page.decode())}
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families.values()
        for sample in family.samples
    }

    def total(name: str, **labels: str) -> float:
        return sum(value for key, value in samples.items() if key[0] == name and set(labels.items()) <= set(key[1:]))

    assert total("vllm:request_success_total") == 3
    assert total("vllm:request_success_total", finished_reason="length") == 3
    assert total("vllm:generation_tokens_total") == 24
    assert total("vllm:time_to_first_token_seconds_count") == 3
    assert total("vllm:time_to_first_token_seconds_bucket", le="+Inf") == 3
    assert total("vllm:prompt_tokens_total") == total("vllm:prompt_tokens_by_source_total")
    assert total("vllm:spec_decode_num_draft_tokens_total") == 2 * total("vllm:spec_decode_num_drafts_total")
    assert families["vllm:cache_config_info"].samples[0].labels["enable_prefix_caching"] == "True"
    assert total("process_start_time_seconds") > 0


async def test_every_family_of_a_real_page_with_our_name_has_the_same_type(start: Start, shared_data: Path) -> None:
    client = await start()
    _, _, page = await client.ask("/metrics")
    real = dict(
        line.split() for line in (shared_data / "metrics" / "vllm-v0.26.0-metric-families.txt").read_text().splitlines()
        if line.startswith("vllm:")
    )  # fmt: skip
    ours = dict(line.split()[2:4] for line in page.decode().splitlines() if line.startswith("# TYPE vllm:"))
    assert len(ours) > 20
    assert {name: real.get(name) for name in ours} == ours


async def test_speculation_families_only_when_on(start: Start) -> None:
    client = await start()
    assert b"spec_decode" not in (await client.ask("/metrics"))[2]


async def put_faults(client: Client, **faults: object) -> tuple[int, Any]:
    status, _, body = await client.ask("/faults", faults, method="PUT", port=client.control_port)
    return status, json.loads(body)


async def test_faults_are_set_read_and_refused(start: Start) -> None:
    client = await start()
    assert (await put_faults(client, slow=2))[1]["slow"] == 2.0
    assert (await put_faults(client, nonsense=1))[0] == 400
    assert (await put_faults(client, hang="yes"))[0] == 400
    status, _, body = await client.ask("/faults", method="DELETE", port=client.control_port)
    assert (status, json.loads(body)["slow"]) == (200, 1.0)


async def test_errors_for_one_tenant_only(start: Start) -> None:
    client = await start()
    await put_faults(client, error_rate=1.0, tenant="globex")
    assert (await client.ask("/v1/chat/completions", chat("hi"), head="x-tenant: globex\r\n"))[0] == 500
    assert (await client.ask("/v1/chat/completions", chat("hi"), head="x-tenant: acme\r\n"))[0] == 200
    assert (await client.ask("/v1/chat/completions", chat("hi")))[0] == 200


async def test_empty_streams_are_well_formed(start: Start) -> None:
    client = await start()
    await put_faults(client, empty_rate=1.0)
    status, _, body = await client.ask("/v1/chat/completions", chat("hi", stream=True))
    *chunks, done = events(body)
    assert (status, done) == (200, "[DONE]")
    assert [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks] == ["", ""]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


async def test_wrong_tokens_and_approximate_settings_part_from_the_exact_answer(start: Start) -> None:
    async def answer(client: Client) -> list[str]:
        whole = [await client.ask("/v1/chat/completions", chat(f"say {word}", max_tokens=60)) for word in "abcd"]
        return [json.loads(body)["choices"][0]["message"]["content"] for _, _, body in whole]

    exact, same = await start(), await start("--no-enable-prefix-caching", "--max-num-batched-tokens", "2048")
    fp8 = await start("--kv-cache-dtype", "fp8")
    reference = await answer(exact)
    assert await answer(same) == reference
    assert await answer(fp8) != reference
    await put_faults(exact, wrong_tokens=True)
    assert await answer(exact) != reference


async def test_a_hang_holds_requests_until_it_is_lifted(start: Start) -> None:
    client = await start()
    await put_faults(client, hang=True)
    asking = asyncio.create_task(client.ask("/v1/chat/completions", chat("hi")))
    await until(lambda: len(client.service.engine.batcher.waiting) == 1)
    assert not asking.done()
    await put_faults(client, hang=False)
    assert (await asking)[0] == 200


async def test_a_gap_happens_once(start: Start) -> None:
    client = await start()
    loop = asyncio.get_running_loop()
    await put_faults(client, gap_s=0.4)
    before = loop.time()
    await client.ask("/v1/chat/completions", chat("hi"))
    middle = loop.time()
    await client.ask("/v1/chat/completions", chat("hi"))
    assert middle - before >= 0.35
    assert client.service.faults.set.gap_s == 0.0
    assert client.service.metrics.ttft.sum >= 0.3


async def test_a_fault_from_the_environment_waits_for_its_request_count(start: Start) -> None:
    client = await start(ENGINESIM_FAULTS='{"error_rate": 1.0, "after_requests": 3}')
    statuses = [(await client.ask("/v1/chat/completions", chat("hi")))[0] for _ in range(4)]
    assert statuses == [200, 200, 500, 500]


async def test_slowness_can_spare_a_lightly_loaded_engine(start: Start) -> None:
    client = await start()
    await put_faults(client, slow=50.0, min_running=2)
    loop = asyncio.get_running_loop()
    before = loop.time()
    await client.ask("/v1/chat/completions", chat("alone", max_tokens=20))
    alone = loop.time() - before
    before = loop.time()
    await asyncio.gather(*(client.ask("/v1/chat/completions", chat(f"{n}", max_tokens=20)) for n in range(3)))
    assert loop.time() - before > 5 * alone


async def test_queue_limit_answers_503(start: Start) -> None:
    client = await start("--max-num-queued-reqs", "1", "--max-num-seqs", "1")
    opened = [await client.open("/v1/chat/completions", chat("hi", stream=True, max_tokens=3000))]
    await until(lambda: len(client.service.engine.batcher.running) == 1)
    opened.append(await client.open("/v1/chat/completions", chat("hi", stream=True, max_tokens=3000)))
    await until(lambda: len(client.service.engine.batcher.waiting) == 1)
    assert (await client.ask("/v1/chat/completions", chat("hi")))[0] == 503
    for _, writer in opened:
        writer.transport.abort()
    await until(lambda: not client.service.in_flight)


async def test_connections_are_kept_alive(start: Start) -> None:
    client = await start()
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    for _ in range(3):
        writer.write(b"GET /version HTTP/1.1\r\nhost: t\r\n\r\n")
        assert (await reader.readuntil(b'"}')).startswith(b"HTTP/1.1 200 OK")
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n")
    body = b'{"prompt":"x","max_tokens":1}'
    writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    assert b"200 OK" in await reader.readuntil(b"}}")
    writer.close()
