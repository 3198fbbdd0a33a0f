"""A replay's records and report, against a server inside the test."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx

from policies.records import RequestRecord
from shadow.replay.schedule import Planned, PromptWriter
from shadow.replay.sender import Report, Sender, Target, find_model
from shadow.replay.traces import Row

CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}]}\n\n'
LAST = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":2}}\n\n'


async def stream(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def answer(request: httpx.Request) -> httpx.Response:
    """What the server does is asked for by the tenant's name."""
    tenant = request.headers["x-tenant"]
    if tenant == "gone":
        raise httpx.ConnectError("refused", request=request)
    if tenant == "full":
        return httpx.Response(429, json={"error": {"message": "queue"}})
    if tenant == "cut":
        return httpx.Response(200, content=stream(CHUNK, CHUNK))
    return httpx.Response(200, content=stream(CHUNK, CHUNK, LAST, USAGE, b"data: [DONE]\n\n"))


def replay(*tenants: str, timeout_s: float = 10.0) -> tuple[list[RequestRecord], Report]:
    records: list[RequestRecord] = []

    async def run() -> Report:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            target = Target("http://engine", model="m", timeout_s=timeout_s)
            sender = Sender(client, target, PromptWriter(1), records.append, lambda *_: None)
            return await sender.run([Planned(0.0, Row(0, 40, 2, name), n) for n, name in enumerate(tenants)])

    return records, asyncio.run(run())


def test_a_record_holds_what_the_meter_read() -> None:
    records, report = replay("acme")
    record = records[0]
    assert (record.kind, record.variant, record.tenant, record.outcome) == ("replay", "stable", "acme", "ok")
    assert (record.prompt_tokens, record.output_tokens, record.tokens_source) == (12, 2, "usage")
    assert record.gaps_n == 1
    assert record.ttft_s is not None
    assert record.e2e_s is not None
    assert 0 <= record.ttft_s <= record.e2e_s
    assert report.to_json()["outcomes"] == {"ok": 1}


def test_every_way_to_fail_has_its_outcome() -> None:
    records, report = replay("gone", "full", "cut", "acme")
    assert {r.tenant: r.outcome for r in records} == {
        "gone": "server_error",
        "full": "rejected",
        "cut": "truncated",
        "acme": "ok",
    }
    assert {r.tenant: r.status for r in records} == {"gone": None, "full": 429, "cut": 200, "acme": 200}
    assert report.to_json()["sent"] == report.to_json()["completed"] == 4


def test_a_late_schedule_makes_the_run_invalid() -> None:
    report = Report(sent=2, lags_s=[0.001, 0.2], elapsed_s=1.0)
    assert report.to_json()["lag_valid"] is False
    assert Report(sent=2, lags_s=[0.001, 0.002], elapsed_s=1.0).to_json()["lag_valid"] is True


def test_the_body_asks_for_the_lengths_of_the_trace_and_the_model_that_is_there() -> None:
    seen: list[dict[str, object]] = []

    def keep(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "served"}]})
        seen.append(json.loads(request.content))
        return httpx.Response(200, content=stream(CHUNK, LAST, b"data: [DONE]\n\n"))

    async def run() -> str | None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(keep)) as client:
            model = await find_model(client, Target("http://engine"))
            sender = Sender(client, Target("http://engine", model), PromptWriter(1), lambda _: None, lambda *_: None)
            await sender.run([Planned(0.0, Row(0, 100, 33), 0)])
            return model

    assert asyncio.run(run()) == "served"
    assert (seen[0]["model"], seen[0]["max_tokens"], seen[0]["stream"]) == ("served", 33, True)
