"""Who may ask the recorder: the operator, by mutual TLS; probes and Prometheus see nothing of any request."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from controller.adapters.recorder_client import RecorderClient
from controller.ports import Retryable
from shadow.envoy.bootstrap import TlsFiles
from shadow.recorder.serve import Options, RecorderServer
from tests.e2e.gate.authority import SERVER, Authority, put, renewable
from tests.e2e.gate.harness import ROLLOUT
from tools.recorder_access import TO_RECORDER

pytestmark = pytest.mark.e2e
BLOCKS = f"/v1/rollouts/{ROLLOUT}/blocks"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def recorder(tmp_path: Path, authority: Authority) -> AsyncIterator[RecorderServer]:
    files = renewable(tmp_path)
    put(authority.pair(SERVER), files)
    server = RecorderServer(Options("127.0.0.1:0", "127.0.0.1:0", tmp_path / "spool", files))
    await server.start()
    yield server
    await server.stop()


async def ask(recorder: RecorderServer, tls: TlsFiles) -> list[object]:
    """Blocks, as the operator asks for them."""
    client = RecorderClient(f"https://127.0.0.1:{recorder.api_port}", tls=tls)
    found, _ = await asyncio.to_thread(client.blocks, ROLLOUT, after=-1)
    return list(found)


async def test_the_operator_is_answered_and_nobody_else(
    recorder: RecorderServer, authority: Authority, tmp_path: Path
) -> None:
    assert await ask(recorder, authority.pair(SERVER)) == []
    (tmp_path / "theirs").mkdir()
    foreign = Authority(tmp_path / "theirs").pair(SERVER)
    posing = TlsFiles(foreign.certificate, foreign.key, str(authority.ca), SERVER)
    for stranger in (authority.pair("gate"), posing):  # a gate of ours, and one whom somebody else signed for
        with pytest.raises(Retryable, match="does not answer"):
            await ask(recorder, stranger)
    async with httpx.AsyncClient(verify=False) as client:
        with pytest.raises(httpx.HTTPError):
            await client.get(f"https://127.0.0.1:{recorder.api_port}{BLOCKS}", extensions=TO_RECORDER)


async def test_what_needs_no_certificate_tells_nothing_of_requests(recorder: RecorderServer) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{recorder.port}") as client:
        assert (await client.get("/healthz")).status_code == 200
        assert "weighlock_recorder" in (await client.get("/metrics")).text
        for method, path in (("GET", BLOCKS), ("PUT", f"/v1/rollouts/{ROLLOUT}/setup")):
            assert (await client.request(method, path)).status_code == 404


async def test_an_authority_that_was_replaced_is_followed_by_both_sides(
    recorder: RecorderServer, authority: Authority, tmp_path: Path
) -> None:
    for name in ("new", "operator"):
        (tmp_path / name).mkdir()
    ours = renewable(tmp_path / "operator")
    put(authority.pair(SERVER), ours)
    client = RecorderClient(f"https://127.0.0.1:{recorder.api_port}", tls=ours)
    assert await asyncio.to_thread(client.open_requests, ROLLOUT) is not None
    new = Authority(tmp_path / "new")
    put(new.pair(SERVER), renewable(tmp_path))
    with pytest.raises(Retryable):
        await ask(recorder, authority.pair(SERVER))
    put(new.pair(SERVER), ours)
    assert await asyncio.to_thread(client.open_requests, ROLLOUT) is not None


async def test_an_operator_without_a_certificate_yet_waits(recorder: RecorderServer, tmp_path: Path) -> None:
    with pytest.raises(Retryable, match="does not answer"):
        await ask(recorder, renewable(tmp_path / "nowhere"))
