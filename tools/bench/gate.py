"""What the gate costs: streams per second of Envoy CPU, plain, with the meter, and with a copy of every request.

    python -m tools.bench.gate [--rounds 12] [--streams 96] [--clients 16] [--events 100] [--apart]
                               [--own-ids]

Every round sends the same streams through each mode's Envoy, all modes at once, and the median of the rounds' ratios
counts: whatever else the machine does disturbs all alike. (One after the other, `--apart`, is right on a machine that
does nothing else; on a busy one the ratios of its rounds lie between 0.6 and 0.85.) What is compared is the CPU time of
the Envoy process (user and system, from /proc). Exit code 1 when a target is missed: the meter leaves at least 0.80 of
plain Envoy's streams; a copy costs at most 1.5 plain streams.
"""

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shadow.envoy.bootstrap import Upstream, bootstrap_yaml
from shadow.envoy.process import envoy_binary, envoy_command
from shadow.envoy.xds import XdsServer
from shadow.plan import Endpoint, GateConfig, Stage, TrafficPlan
from shadow.recorder.serve import Options, RecorderServer
from tools.bench.gate_load import Engine, make_frames, run_clients

METER_TARGET = 0.80
COPY_TARGET = 1.5
MODES = ("plain", "meter", "copy")
_LOG_S = 0.35  # an access-log entry leaves the gate within this time
_ROLLOUT = "bench/gate"
_EXTENSIONS = "type.googleapis.com/envoy.extensions.filters"


@dataclass(frozen=True, slots=True)
class Sample:
    """One mode in one round.

    cpu_s: Envoy's CPU seconds per stream; rate: streams per second of wall time; reads: client reads per stream.
    """

    cpu_s: float
    rate: float
    reads: float


def _cpu_seconds(pid: int) -> float:
    """CPU of all threads of a process, in the kernel's own nanoseconds."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((t / "schedstat").read_text(encoding="ascii").split()[0]) for t in threads) / 1e9


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


@dataclass(frozen=True, slots=True)
class Place:
    """One mode's Envoy: its port, its process, and the engine behind it."""

    port: int
    pid: int
    engine: Engine


@dataclass
class Bench:
    """One Envoy and one engine per mode."""

    args: argparse.Namespace
    folder: Path
    xds: XdsServer
    recorder: RecorderServer
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    async def start_engine(self) -> Engine:
        engine = Engine(make_frames(self.args.events), own_ids=self.args.own_ids)
        await engine.start()
        return engine

    def spawn(self, command: list[str]) -> int:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        return process.pid

    async def start_plain(self) -> Place:
        """A bare Envoy."""
        port, engine = _free_port(), await self.start_engine()
        path = self.folder / "plain.json"
        path.write_text(json.dumps(_plain_config(port, engine.port)), encoding="utf-8")
        command = [envoy_binary(), "-c", str(path), "--concurrency", "1", "-l", "off", "--disable-hot-restart"]
        pid = self.spawn(command)
        await _wait_for(port)
        return Place(port, pid, engine)

    async def start_gate(self, copies: float) -> Place:
        """A gate that copies this share of its requests."""
        port, engine = _free_port(), await self.start_engine()
        rollout = f"{_ROLLOUT}-{port}"
        ends = tuple(Endpoint("127.0.0.1", engine.port, f"{rev}-0", rev, 0.0) for rev in ("old", "new"))
        plan = TrafficPlan(rollout, 1, 0, Stage.SHADOW, 0, copies, 0.0, "old", "new", ends)
        await self.xds.publish(GateConfig(plan, port))
        path = self.folder / "gate.yaml"
        upstreams = Upstream("127.0.0.1", self.xds.port), Upstream("127.0.0.1", self.recorder.als_port)
        path.write_text(bootstrap_yaml(*upstreams), encoding="utf-8")
        pid = self.spawn(envoy_command(path, node=rollout, rollout=rollout, pod_ip="127.0.0.1", log_level="off"))
        await _wait_for(port)
        return Place(port, pid, engine)

    async def sample(self, place: Place) -> Sample:
        """Send the streams of one round through one Envoy."""
        each: int = max(1, self.args.streams // self.args.clients)
        streams: int = each * int(self.args.clients)
        cpu, start = _cpu_seconds(place.pid), time.monotonic()
        reads = await run_clients(place.engine, place.port, self.args.clients, each)
        wall = time.monotonic() - start
        await asyncio.sleep(_LOG_S)
        return Sample((_cpu_seconds(place.pid) - cpu) / streams, streams / wall, reads / streams)

    async def round(self, places: dict[str, Place], number: int) -> dict[str, Sample]:
        """One sample of every mode; the order changes from round to round."""
        order = MODES if number % 2 == 0 else tuple(reversed(MODES))
        if self.args.apart:
            return {mode: await self.sample(places[mode]) for mode in order}
        found = await asyncio.gather(*(self.sample(places[mode]) for mode in order))
        return dict(zip(order, found, strict=True))

    async def rounds(self) -> dict[str, list[Sample]]:
        """Samples of every mode, round by round."""
        plain, meter, copy = await self.start_plain(), await self.start_gate(0.0), await self.start_gate(1.0)
        places = {"plain": plain, "meter": meter, "copy": copy}
        await self.round(places, 0)  # warm
        samples = [await self.round(places, number) for number in range(self.args.rounds)]
        return {mode: [found[mode] for found in samples] for mode in MODES}


async def _measure(args: argparse.Namespace) -> tuple[dict[str, list[Sample]], float]:
    """(samples by mode, recorder's CPU seconds per access-log entry)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        xds = XdsServer("127.0.0.1:0")
        recorder = RecorderServer(Options("127.0.0.1:0", "127.0.0.1:0", folder / "recorder"))
        await xds.start()
        await recorder.start()
        bench = Bench(args, folder, xds, recorder)
        try:
            found = await bench.rounds()
        finally:
            for process in bench.processes:
                process.terminate()
                process.wait()
            await recorder.stop()
            await xds.stop()
    return found, recorder.logs.seconds / max(1, recorder.logs.entries)


def _describe(values: list[float]) -> str:
    """Median and middle half."""
    if len(values) < 2:
        return f"{values[0]:.2f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.2f} (middle half of the rounds {low:.2f} to {high:.2f})"


def _report(found: dict[str, list[Sample]], entry_s: float) -> bool:
    """Print everything; returns whether both targets are met."""
    for mode in MODES:
        cpu = statistics.median(s.cpu_s for s in found[mode])
        rate, reads = (statistics.median(getattr(s, name) for s in found[mode]) for name in ("rate", "reads"))
        least = min(s.cpu_s for s in found[mode])
        print(
            f"{mode:<6} {cpu * 1e6:6.0f} us CPU per stream (least {least * 1e6:.0f}), {1 / cpu:5.0f} streams per CPU "
            f"second, {rate:5.0f} streams/s of wall time, {reads:.0f} reads per stream"
        )
    rounds = list(zip(*(found[mode] for mode in MODES), strict=True))
    ratios = [plain.cpu_s / meter.cpu_s for plain, meter, _ in rounds]
    copies = [(copy.cpu_s - meter.cpu_s) / plain.cpu_s for plain, meter, copy in rounds]
    print(f"meter against plain, by CPU: {_describe(ratios)}; target {METER_TARGET:.2f} or more")
    print(f"a copy costs, in plain streams: {_describe(copies)}; target {COPY_TARGET:.2f} or less")
    print(f"recorder: {entry_s * 1e6:.0f} us CPU per access-log entry")
    ratio, copy_cost = statistics.median(ratios), statistics.median(copies)
    return bool(ratio >= METER_TARGET and copy_cost <= COPY_TARGET)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12, help="rounds; the median of their ratios counts")
    parser.add_argument("--streams", type=int, default=96, help="streams per mode and round")
    parser.add_argument("--clients", type=int, default=16, help="connections at once")
    parser.add_argument("--events", type=int, default=100, help="content events per stream")
    parser.add_argument("--apart", action="store_true", help="one mode after the other, for an idle machine")
    parser.add_argument("--own-ids", action="store_true", help="every stream's frames carry an id of their own")
    return 0 if _report(*asyncio.run(_measure(parser.parse_args()))) else 1


if __name__ == "__main__":
    sys.exit(main())
