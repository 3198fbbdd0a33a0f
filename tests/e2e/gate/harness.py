"""A gate under test: real Envoy, real xDS server, fake engines; everything on loopback."""

import asyncio
import itertools
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from shadow.envoy.bootstrap import TlsFiles, Upstream, bootstrap_yaml
from shadow.envoy.process import envoy_command
from shadow.envoy.xds import XdsServer
from shadow.plan import Endpoint, GateConfig, Stage, TrafficPlan

ROLLOUT = "demo/chat"
STABLE, CANDIDATE = "aaaaaaaaaa", "bbbbbbbbbb"
_serial = itertools.count(1)


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as s:
        s.bind((host, 0))
        return int(s.getsockname()[1])


async def until(check: Callable[[], bool | Awaitable[bool]], what: str, timeout_s: float = 10.0) -> None:
    """Wait for a condition with a deadline."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = check()
        if not isinstance(found, bool):
            found = await found
        if found:
            return
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(0.01)


def endpoint(engine, revision: str, ready: bool = True, started_at_s: float = 1000.0) -> Endpoint:
    return Endpoint(engine.host, engine.port, f"{engine.name}-pod", revision, started_at_s, ready)


def make_plan(weight: int = 0, stable=(), candidate=(), stage: Stage | None = None, **changes) -> TrafficPlan:
    ends = tuple(endpoint(e, STABLE) for e in stable) + tuple(endpoint(e, CANDIDATE) for e in candidate)
    values = {
        "rollout": ROLLOUT, "attempt": 1, "step": 1, "stage": stage or (Stage.CANARY if weight else Stage.SHADOW),
        "weight": weight, "copies_to_candidate": 0.0, "copies_to_stable": 0.0, "stable": STABLE,
        "candidate": CANDIDATE if candidate or weight else None, "endpoints": ends,
    }  # fmt: skip
    return TrafficPlan(**{**values, **changes})


class Gate:
    """One Envoy with its xDS server."""

    def __init__(self, xds: XdsServer, recorder_port: int) -> None:
        self.xds = xds
        self.dir = Path(tempfile.mkdtemp(prefix="wl-gate-"))
        self.pod_ip = f"127.77.{os.getpid() % 250 + 1}.{next(_serial)}"
        self.port = free_port(self.pod_ip)
        self.node = f"gate-{self.pod_ip}"
        self.recorder_port = recorder_port
        self.process: subprocess.Popen | None = None
        self.tls: TlsFiles | None = None
        self.url = f"http://{self.pod_ip}:{self.port}"

    def start(self) -> None:
        config = self.dir / "bootstrap.yaml"
        xds, recorder = (Upstream("127.0.0.1", p, self.tls) for p in (self.xds.port, self.recorder_port))
        config.write_text(bootstrap_yaml(xds, recorder))
        command = envoy_command(
            config, node=self.node, rollout=ROLLOUT, pod_ip=self.pod_ip, admin_socket=self.dir / "admin.sock"
        )
        self.log = (self.dir / "envoy.log").open("ab")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    async def publish(self, plan: TrafficPlan, wait: bool = True, **config) -> str:
        version = await self.xds.publish(GateConfig(plan, self.port, **config))
        if wait:
            await until(lambda: self.xds.acks(ROLLOUT).get(self.node) == version, self.explain())
        return version

    def explain(self) -> str:
        return f"acknowledged; refusals {self.xds.refusals(ROLLOUT)}; {self.dir}/envoy.log"

    async def admin(self, path: str) -> str:
        transport = httpx.AsyncHTTPTransport(uds=str(self.dir / "admin.sock"))
        async with httpx.AsyncClient(transport=transport) as client:
            return (await client.get(f"http://admin{path}")).text

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def chat(prompt: str = "hello", stream: bool = True, **more) -> dict:
    return {"model": "m", "messages": [{"role": "user", "content": prompt}], "stream": stream, **more}


def dump(value) -> str:
    return json.dumps(value, indent=1)
