"""What the client makes of an answer: outcomes, first content, gaps, pieces that do not respect event borders."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tools.load.client import Exchange, Pool, has_content

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"word"},"finish_reason":null}]}\n\n'
LAST = b'data: {"choices":[{"index":0,"delta":{"content":"end"},"finish_reason":"stop","stop_reason":null}]}\n\n'
NOTHING = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2}}\n\n'
ERROR = b'data: {"error":{"message":"EngineCore encountered an issue","code":500}}\n\n'
DONE = b"data: [DONE]\n\n"


def finished(*pieces: bytes, status: int = 200) -> Exchange:
    """An exchange that has read these pieces, 0.1 s apart."""
    exchange = Exchange(b"", lambda _: None)
    exchange.status = status
    now = 0.0
    for piece in pieces:
        now += 0.1
        exchange.read(piece, now)
    exchange.end(now)
    return exchange


def test_a_stream_is_metered_from_its_first_content() -> None:
    exchange = finished(ROLE, WORD, WORD, b": comment\n\n", LAST, USAGE + DONE)
    assert exchange.outcome == "ok"
    assert exchange.first == pytest.approx(0.2)
    assert exchange.gaps == 2
    assert exchange.max_gap == pytest.approx(0.2)
    assert exchange.max_gap_at == pytest.approx(0.5)
    assert (exchange.prompt_tokens, exchange.output_tokens) == (7, 2)
    assert exchange.e2e == pytest.approx(0.6)


def test_pieces_may_cut_events_anywhere() -> None:
    whole = ROLE + WORD + LAST + USAGE + DONE
    one_by_one = finished(*(whole[at : at + 1] for at in range(len(whole))))
    assert (one_by_one.outcome, one_by_one.events, one_by_one.output_tokens) == ("ok", 5, 2)


@pytest.mark.parametrize(
    ("pieces", "status", "outcome"),
    [
        ((ROLE, WORD), 200, "truncated"),
        ((ROLE, WORD, ERROR, DONE), 200, "server_error"),
        ((ROLE, NOTHING, DONE), 200, "empty"),
        ((ROLE, WORD, LAST), 200, "ok"),
        ((b"{}",), 500, "server_error"),
        ((b"{}",), 503, "server_error"),
        ((b"{}",), 429, "rejected"),
        ((b"{}",), 400, "client_error"),
    ],
)
def test_outcomes(pieces: tuple[bytes, ...], status: int, outcome: str) -> None:
    assert finished(*pieces, status=status).outcome == outcome


def test_what_counts_as_content() -> None:
    assert has_content(b'data: {"delta":{"reasoning_content":"hm"}}')
    assert has_content(b'data: {"delta":{"tool_calls":[{"index":0}]}}')
    assert has_content(b'data: {"choices":[{"text":" x"}]}')
    assert not has_content(ROLE)
    assert not has_content(b'data: {"delta":{"content":null}}')


Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


@pytest.fixture
async def scripted() -> AsyncIterator[Callable[[Script], Any]]:
    """``await scripted(handler)``: a pool towards a server that does what ``handler`` does on each connection."""
    servers: list[asyncio.Server] = []
    pools: list[Pool] = []

    async def make(handler: Script) -> Pool:
        server = await asyncio.start_server(handler, "127.0.0.1", 0)
        servers.append(server)
        pools.append(Pool(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asyncio.get_running_loop()))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()
    for server in servers:
        server.close()


async def exchange_over(pool: Pool) -> Exchange:
    """Sends one request and waits for its end."""
    over = asyncio.Event()
    exchange = Exchange(b"GET / HTTP/1.1\r\nhost: t\r\n\r\n", lambda _: over.set())
    pool.send(exchange)
    await asyncio.wait_for(over.wait(), 5)
    return exchange


def chunked(*events: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-weighlock-variant: candidate\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)


async def test_a_connection_cut_in_mid_stream_is_truncated(scripted: Callable[[Script], Any]) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(chunked(ROLE, WORD))
        await writer.drain()
        writer.close()

    exchange = await exchange_over(await scripted(cut))
    assert (exchange.outcome, exchange.status, exchange.variant) == ("truncated", 200, "candidate")


async def test_connections_are_reused_and_a_stale_one_is_replaced(scripted: Callable[[Script], Any]) -> None:
    accepted = []

    async def twice_then_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(chunked(ROLE, LAST, DONE) + b"0\r\n\r\n")
            await writer.drain()
        await reader.readuntil(b"\r\n\r\n")
        writer.close()  # the third request on this connection dies without an answer

    pool = await scripted(twice_then_close)
    outcomes = [(await exchange_over(pool)).outcome for _ in range(3)]
    assert outcomes == ["ok", "ok", "ok"]
    assert len(accepted) == 2


async def test_nobody_there_is_a_server_error() -> None:
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    exchange = await exchange_over(Pool(f"http://127.0.0.1:{port}", asyncio.get_running_loop()))
    assert (exchange.outcome, exchange.status) == ("server_error", None)


async def test_a_request_that_is_given_up_closes_its_connection(scripted: Callable[[Script], Any]) -> None:
    came, left = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        came.set()
        with contextlib.suppress(ConnectionResetError):  # how an abort shows depends on the kernel
            await reader.read()
        left.set()

    pool = await scripted(silent)
    exchange = Exchange(b"GET / HTTP/1.1\r\nhost: t\r\n\r\n", lambda over: pool.active.pop(over, None))
    pool.send(exchange)
    await asyncio.wait_for(came.wait(), 5)
    pool.cancel(exchange, "timeout")
    await asyncio.wait_for(left.wait(), 5)
    assert exchange.outcome == "timeout"
