"""What the gate costs: streams per second of Envoy CPU, plain, with the meter, and with a copy of every request.

    python -m tools.bench.gate [--streams 1500] [--events 100] [--rounds 3]

All in one run and in turn, so that a busy machine disturbs each alike; CPU time of the Envoy process, not wall time, is
what is compared. Exit code 1 when a target is missed: meter >= 0.80 of plain; a copy costs at most 1.5 plain streams.
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shadow.envoy.bootstrap import Upstream, bootstrap_yaml
from shadow.envoy.process import envoy_binary, envoy_command
from shadow.envoy.xds import XdsServer
from shadow.plan import Endpoint, GateConfig, Stage, TrafficPlan
from shadow.recorder.serve import Options, RecorderServer

METER_TARGET = 0.80
COPY_TARGET = 1.5
_TICKS: int = os.sysconf("SC_CLK_TCK")
_ROLLOUT = "bench/gate"
_EXTENSIONS = "type.googleapis.com/envoy.extensions.filters"


def _frames(events: int) -> list[bytes]:
    """Frames of one chat stream, each as one HTTP chunk."""
    head = {"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    lines = [
        json.dumps({**head, "choices": [{"index": 0, "delta": {"content": f" word{i}"}, "finish_reason": None}]})
        for i in range(events)
    ]
    lines.append(json.dumps({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
    lines += [json.dumps({**head, "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": events}}), "[DONE]"]
    framed = [f"data: {line}\n\n".encode() for line in lines]
    return [b"%x\r\n%b\r\n" % (len(f), f) for f in framed]


@dataclass
class Engine:
    """Streams the same answer to everyone, one write per frame."""

    frames: list[bytes]
    port: int = 0
    served: int = 0
    _server: asyncio.Server | None = field(default=None, repr=False)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = head.lower().partition(b"content-length:")[2].partition(b"\r")[0]
                await reader.readexactly(int(size))
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for frame in self.frames:
                    writer.write(frame)
                    await asyncio.sleep(0.001)  # tokens come one by one: a proxy sees every frame alone
                writer.write(b"0\r\n\r\n")
                await writer.drain()
                self.served += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def _client(host: str, port: int, requests: int) -> None:
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "x" * 1000}]}).encode()
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(host, port)
    for _ in range(requests):
        writer.write(head % len(body) + body)
        answer = await reader.readuntil(b"\r\n0\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the gate answered {answer[:200]!r}")
    writer.close()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _plain_config(port: int, engine: int) -> dict[str, Any]:
    """Envoy as a bare reverse proxy: no filter, no access log."""
    manager = {
        "@type": f"{_EXTENSIONS}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "plain",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "engine", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_EXTENSIONS}.http.router.v3.Router"},
            }
        ],
    }

    def address(number: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    listener = {"name": "plain", "address": address(port), "filter_chains": [{"filters": filters}]}
    hosts = [{"lb_endpoints": [{"endpoint": {"address": address(engine)}}]}]
    assignment = {"cluster_name": "engine", "endpoints": hosts}
    cluster = {"name": "engine", "type": "STATIC", "load_assignment": assignment}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _wait_for(port: int) -> None:
    for _ in range(500):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
            continue
        writer.close()
        return
    raise RuntimeError("Envoy did not come up")


@dataclass
class Bench:
    """One Envoy per mode on the same engine."""

    args: argparse.Namespace
    folder: Path
    engine: Engine
    xds: XdsServer
    recorder: RecorderServer
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def spawn(self, command: list[str]) -> int:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        return process.pid

    async def start_plain(self) -> tuple[int, int]:
        """(port, pid) of a bare Envoy."""
        port = _free_port()
        path = self.folder / "plain.json"
        path.write_text(json.dumps(_plain_config(port, self.engine.port)), encoding="utf-8")
        command = [envoy_binary(), "-c", str(path), "--concurrency", "1", "-l", "off", "--disable-hot-restart"]
        pid = self.spawn(command)
        await _wait_for(port)
        return port, pid

    async def start_gate(self, copies: float) -> tuple[int, int]:
        """(port, pid) of a gate that copies this share of its requests."""
        port, rollout = _free_port(), f"{_ROLLOUT}-{copies:g}"
        ends = tuple(Endpoint("127.0.0.1", self.engine.port, f"{rev}-0", rev, 0.0) for rev in ("old", "new"))
        plan = TrafficPlan(rollout, 1, 0, Stage.SHADOW, 0, copies, 0.0, "old", "new", ends)
        await self.xds.publish(GateConfig(plan, port))
        path = self.folder / "gate.yaml"
        upstreams = Upstream("127.0.0.1", self.xds.port), Upstream("127.0.0.1", self.recorder.als_port)
        path.write_text(bootstrap_yaml(*upstreams), encoding="utf-8")
        pid = self.spawn(envoy_command(path, node=rollout, rollout=rollout, pod_ip="127.0.0.1", log_level="off"))
        await _wait_for(port)
        return port, pid

    async def cost(self, port: int, pid: int) -> float:
        """Envoy CPU seconds per stream."""
        each: int = max(1, self.args.streams // self.args.clients)
        before = _cpu_seconds(pid)
        await asyncio.gather(*(_client("127.0.0.1", port, each) for _ in range(self.args.clients)))
        await asyncio.sleep(0.3)  # copies end a little later
        return (_cpu_seconds(pid) - before) / (each * int(self.args.clients))


async def _measure(args: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine, xds = Engine(_frames(args.events)), XdsServer("127.0.0.1:0")
        recorder = RecorderServer(Options("127.0.0.1:0", "127.0.0.1:0", folder / "recorder"))
        await engine.start()
        await xds.start()
        await recorder.start()
        bench = Bench(args, folder, engine, xds, recorder)
        costs: dict[str, list[float]] = {"plain": [], "meter": [], "copy": []}
        try:
            places = {
                "plain": await bench.start_plain(),
                "meter": await bench.start_gate(0.0),
                "copy": await bench.start_gate(1.0),
            }
            for port, pid in places.values():
                await bench.cost(port, pid)  # warm
            for _ in range(args.rounds):
                for mode, (port, pid) in places.items():
                    costs[mode].append(await bench.cost(port, pid))
        finally:
            for process in bench.processes:
                process.terminate()
                process.wait()
            await recorder.stop()
            await xds.stop()
    logs = recorder.logs
    return {
        **{mode: statistics.median(values) for mode, values in costs.items()},
        "entry": logs.seconds / max(1, logs.entries),
    }


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=640, help="streams per mode and round")
    parser.add_argument("--events", type=int, default=100, help="content events per stream")
    parser.add_argument("--clients", type=int, default=32, help="connections at once")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the median counts")
    found = asyncio.run(_measure(parser.parse_args()))
    ratio = found["plain"] / found["meter"]
    copy = (found["copy"] - found["meter"]) / found["plain"]
    for mode in ("plain", "meter", "copy"):
        print(f"{mode:<6} {found[mode] * 1e6:8.0f} us CPU per stream  {1 / found[mode]:8.0f} streams per CPU second")
    print(f"meter against plain: {ratio:.2f} (target {METER_TARGET:.2f} or more)")
    print(f"a copy costs {copy:.2f} plain streams (target {COPY_TARGET:.2f} or less)")
    print(f"recorder: {found['entry'] * 1e6:.0f} us CPU per access-log entry")
    return 0 if ratio >= METER_TARGET and copy <= COPY_TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
