"""A gate for each test: real Envoy and xDS server, a real recorder, small engines."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from grpc.aio import _server

from shadow.envoy.xds import XdsServer
from shadow.recorder.serve import Options, RecorderServer
from tests.e2e.gate.engine import FakeEngine
from tests.e2e.gate.harness import ROLLOUT, Gate

# The library's finaliser schedules a shutdown on the server's event loop; here every test has a loop of its own, closed
# long before the collector comes by, and the error would surface wherever that happens to be.
if hasattr(_server.Server, "__del__"):  # pytest may read this file twice
    del _server.Server.__del__


@dataclass
class World:
    """Everything around one gate."""

    xds: XdsServer
    recorder: RecorderServer
    gate: Gate
    stable: FakeEngine
    candidate: FakeEngine
    client: httpx.AsyncClient
    api: httpx.AsyncClient
    data: Path

    async def records(self) -> list[dict]:
        """Request records of finished and unfinished requests."""
        text = (await self.api.get("/records")).text
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    xds = XdsServer("127.0.0.1:0")
    await xds.start()
    recorder = RecorderServer(Options("127.0.0.1:0", "127.0.0.1:0", tmp_path / "recorder"))
    await recorder.start()
    stable, candidate = await FakeEngine("stable").start(), await FakeEngine("candidate").start()
    gate = Gate(xds, recorder.als_port)
    gate.start()
    limits = httpx.Limits(max_connections=200)
    base = f"http://127.0.0.1:{recorder.port}/v1/rollouts/{ROLLOUT}"
    async with (
        httpx.AsyncClient(base_url=gate.url, timeout=30, limits=limits) as client,
        httpx.AsyncClient(base_url=base, timeout=30) as api,
    ):
        world = World(xds, recorder, gate, stable, candidate, client, api, tmp_path)
        yield world
    gate.kill()
    await stable.stop()
    await candidate.stop()
    await recorder.stop()
    await world.xds.stop()  # a test may have put another one there
