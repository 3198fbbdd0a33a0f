"""Mutual TLS between gate, xDS server and recorder: a gate without a certificate hears nothing."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import httpx
import orjson
import pytest
from envoy.data.accesslog.v3 import accesslog_pb2
from envoy.service.accesslog.v3 import als_pb2, als_pb2_grpc
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

from shadow.envoy.bootstrap import TlsFiles, make_secrets
from shadow.envoy.xds import XdsServer
from shadow.plan import Stage
from shadow.recorder.serve import Options, RecorderServer
from tests.e2e.gate.authority import SERVER, Authority, put, renewable
from tests.e2e.gate.engine import FakeEngine
from tests.e2e.gate.harness import ROLLOUT, Gate, chat, make_plan, until

pytestmark = pytest.mark.e2e
CLUSTERS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"


@contextlib.asynccontextmanager
async def servers(server: TlsFiles, folder: Path) -> AsyncIterator[tuple[XdsServer, RecorderServer, FakeEngine]]:
    """What gates talk to: an xDS server and a recorder with this certificate, and an engine."""
    async with contextlib.AsyncExitStack() as stack:
        xds = XdsServer("127.0.0.1:0", server)
        await xds.start()
        stack.push_async_callback(xds.stop)
        recorder = RecorderServer(Options("127.0.0.1:0", "127.0.0.1:0", folder / "recorder", server))
        await recorder.start()
        stack.push_async_callback(recorder.stop)
        engine = await FakeEngine("stable").start()
        stack.push_async_callback(engine.stop)
        yield xds, recorder, engine


@contextlib.contextmanager
def running(*gates: Gate) -> Iterator[None]:
    """Gates that are started in this order, and killed at the end."""
    try:
        for gate in gates:
            gate.start()
        yield
    finally:
        for gate in gates:
            gate.kill()


async def test_gate_with_a_certificate_is_served_and_one_without_is_not(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    async with servers(ours.pair(SERVER), tmp_path) as (xds, recorder, engine):
        good, plain, foreign = (Gate(xds, recorder.als_port) for _ in range(3))
        good.tls = ours.pair("gate-good")
        stranger = theirs.pair("gate-foreign")
        foreign.tls = TlsFiles(stranger.certificate, stranger.key, str(ours.ca), SERVER)
        with running(plain, foreign, good):
            await good.publish(make_plan(0, [engine], stage=Stage.IDLE))
            async with httpx.AsyncClient(base_url=good.url, timeout=10) as client:
                answer = await client.post("/v1/chat/completions", json=chat(), headers={"x-tenant": "acme"})
            assert answer.status_code == 200
            await until(lambda: recorder.logs.entries == 1, "the access log came over TLS")
            assert xds.connected(ROLLOUT) == (good.node,)


def credentials_of(tls: TlsFiles) -> grpc.ChannelCredentials:
    key, certificate, root = (Path(path).read_bytes() for path in (tls.key, tls.certificate, tls.authority))
    return grpc.ssl_channel_credentials(root, key, certificate)


def make_entry(rollout: str) -> accesslog_pb2.HTTPAccessLogEntry:
    """A request as a gate of this rollout reports it."""
    plan = {
        "rollout": rollout,
        "attempt": 1,
        "step": 1,
        "stage": "canary",
        "weight": 5,
        "arm": "stable",
        "kind": "live",
        "stable": "a" * 10,
        "candidate": "b" * 10,
    }
    entry = accesslog_pb2.HTTPAccessLogEntry()
    common = entry.common_properties
    common.custom_tags["plan"] = orjson.dumps(plan).decode()
    common.metadata.filter_metadata["weighlock"].update({"arrival": '{"id": "1", "tenant": "acme"}'})
    entry.response.response_code.value = 200
    return entry


async def test_a_gate_of_another_rollout_hears_nothing_and_its_reports_do_not_count(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with servers(authority.pair(SERVER), tmp_path) as (xds, recorder, engine):
        ours, posing = (Gate(xds, recorder.als_port) for _ in range(2))
        ours.tls, posing.tls = authority.pair("gate-ours"), authority.pair("gate-posing", "ns/another")
        with running(posing, ours):
            await ours.publish(make_plan(0, [engine], stage=Stage.IDLE))
            assert xds.connected(ROLLOUT) == (ours.node,)
            credentials = credentials_of(posing.tls)
            names = (("grpc.ssl_target_name_override", SERVER),)

            async def ask(claimed: str) -> grpc.StatusCode | None:
                """How the xDS server ends the stream of a gate that claims a rollout; None: it does not."""
                request = discovery_pb2.DiscoveryRequest(type_url=CLUSTERS)
                request.node.id, request.node.cluster = "posing", claimed
                async with grpc.aio.secure_channel(f"127.0.0.1:{xds.port}", credentials, options=names) as channel:
                    call = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources()
                    await call.write(request)
                    with contextlib.suppress(TimeoutError):
                        return await asyncio.wait_for(call.code(), 1.0)
                    return None

            async def report(claimed: str, about: str) -> grpc.StatusCode:
                message = als_pb2.StreamAccessLogsMessage()
                message.identifier.node.id, message.identifier.node.cluster = "posing", claimed
                message.http_logs.log_entry.append(make_entry(rollout=about))
                async with grpc.aio.secure_channel(
                    f"127.0.0.1:{recorder.als_port}", credentials, options=names
                ) as channel:
                    call = als_pb2_grpc.AccessLogServiceStub(channel).StreamAccessLogs(iter([message]))
                    code: grpc.StatusCode = await call.code()
                    return code

            assert await ask(ROLLOUT) is grpc.StatusCode.PERMISSION_DENIED
            assert await ask("ns/another") is None
            assert await report(ROLLOUT, ROLLOUT) is grpc.StatusCode.PERMISSION_DENIED
            assert await report("ns/another", ROLLOUT) is grpc.StatusCode.OK
            assert (recorder.logs.foreign, recorder.logs.entries) == (1, 1)
            assert list(recorder.recorder.rollout(ROLLOUT).blocks_after(-1, 10)) == []


async def test_renewed_certificates_are_taken_without_a_restart_of_the_gate(tmp_path: Path) -> None:
    for name in ("old", "new", "gate", "server"):
        (tmp_path / name).mkdir()
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    gate_files, server_files = (renewable(tmp_path / name) for name in ("gate", "server"))
    for name, text in make_secrets(gate_files).items():
        (tmp_path / "gate" / name).write_text(text)
    put(old.pair("gate"), gate_files)
    put(old.pair(SERVER), server_files)
    xds = XdsServer("127.0.0.1:0", server_files)
    await xds.start()
    gate, late = Gate(xds, 1), Gate(xds, 1)
    gate.tls, late.tls = dataclasses.replace(gate_files, secrets=str(tmp_path / "gate")), old.pair("late")
    try:
        gate.start()
        await until(lambda: xds.connected(ROLLOUT) == (gate.node,), "the old authority's gate is served")
        put(new.pair(SERVER), server_files)
        put(new.pair("gate"), gate_files)
        await xds.stop()
        xds = gate.xds = XdsServer(f"127.0.0.1:{xds.port}", server_files)
        await xds.start()
        late.start()
        await until(lambda: xds.connected(ROLLOUT) == (gate.node,), "the gate shows the new certificate")
        assert gate.process is not None and gate.process.poll() is None
        put(old.pair(SERVER), server_files)
        await until(lambda: late.node in xds.connected(ROLLOUT), "a running server reads its files again")
    finally:
        gate.kill()
        late.kill()
        await xds.stop()
