"""What mirroring costs the users in time: how long a gate holds a request and a frame, with and without copies.

    python -m tools.bench.gate_latency [--rounds 12] [--clients 16] [--events 40] [--together]

Three gates at once, each with an engine of its own: one copies every request, two copy none. The difference between
the two that do the same is what the measurement cannot tell apart; a user notices copies where the first one's
difference is larger. Every stream has 50 frames a second at moments of its own, and so has its copy, which another
engine serves. `--together` sends a copy's frames with those of its original, the worst that a copy can do to it.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from shadow.envoy.xds import XdsServer
from shadow.recorder.serve import Options, RecorderServer
from tools.bench.gate import Bench, Place
from tools.bench.gate_load import Client, Engine

MODES = ("one", "two", "copy")
_STEP_S = 0.02


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds in one gate and round: from the request to the head of its answer, and from a frame to its arrival."""

    first: list[float]
    frames: list[float]


class _Timed(Client):
    """A client that says when something came."""

    def __init__(self, name: str) -> None:
        super().__init__(name, 1)
        self.news = asyncio.Event()
        self.at = 0.0

    def data_received(self, data: bytes) -> None:
        self.at = time.monotonic()
        super().data_received(data)
        self.news.set()


async def _stream(engine: Engine, port: int, name: str, together: bool) -> list[float]:
    """Delays of one stream: its head, then every frame."""
    client, loop = _Timed(name), asyncio.get_running_loop()
    await loop.create_connection(lambda: client, "127.0.0.1", port)
    await asyncio.sleep(random.random() * 10 * _STEP_S)
    sent = time.monotonic()
    client.ask()
    found: list[float] = []
    while True:
        await asyncio.wait_for(client.news.wait(), 30.0)
        found.append(client.at - sent)
        if client.done.done():
            return found
        await asyncio.sleep(_STEP_S)
        client.news.clear()
        if not together:
            loop.call_later(random.random() * _STEP_S, engine.advance, client.stream, True)
        sent = time.monotonic()
        engine.advance(client.stream, None if together else False)


async def _sample(place: Place, args: argparse.Namespace, number: int) -> Delays:
    names = [f"{place.port}-{number}-{n}" for n in range(args.clients)]
    streams = await asyncio.gather(*(_stream(place.engine, place.port, name, args.together) for name in names))
    while place.engine.running:  # copies that began after their originals
        for stream in list(place.engine.running):
            place.engine.advance(stream)
        await asyncio.sleep(0.001)
    return Delays([s[0] for s in streams], [delay for s in streams for delay in s[1:]])


async def _measure(args: argparse.Namespace) -> dict[str, list[Delays]]:
    with tempfile.TemporaryDirectory() as name:
        xds = XdsServer("127.0.0.1:0")
        recorder = RecorderServer(Options("127.0.0.1:0", "127.0.0.1:0", Path(name) / "recorder"))
        await xds.start()
        await recorder.start()
        bench = Bench(args, Path(name), xds, recorder)
        found: dict[str, list[Delays]] = {mode: [] for mode in MODES}
        try:
            places = {mode: await bench.start_gate(1.0 if mode == "copy" else 0.0) for mode in MODES}
            for number in range(args.rounds + 1):
                got = await asyncio.gather(*(_sample(places[mode], args, number) for mode in MODES))
                for mode, delays in zip(MODES, got if number else (), strict=bool(number)):  # the first one warms
                    found[mode].append(delays)
        finally:
            for process in bench.processes:
                process.terminate()
                process.wait()
            await recorder.stop()
            await xds.stop()
    return found


def _quantile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def _report(found: dict[str, list[Delays]]) -> None:
    for what in ("first", "frames"):
        for percent in (50, 95):
            by_mode = {m: [_quantile(getattr(d, what), percent) * 1e3 for d in found[m]] for m in MODES}
            name = "request to head" if what == "first" else "frame to user"
            line = f"{name}, P{percent}: {statistics.median(by_mode['one']):.2f} ms"
            for mode, label in (("two", "another gate without copies"), ("copy", "a copy of every request")):
                differences = [b - a for a, b in zip(by_mode["one"], by_mode[mode], strict=True)]
                low, middle, high = statistics.quantiles(differences, n=4, method="inclusive")
                line += f"; {label} {middle:+.2f} ms (middle half of the rounds {low:+.2f} to {high:+.2f})"
            print(line)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12, help="rounds; the median of their differences counts")
    parser.add_argument("--clients", type=int, default=16, help="streams at once in each gate")
    parser.add_argument("--events", type=int, default=40, help="content events per stream")
    parser.set_defaults(own_ids=False)
    parser.add_argument("--together", action="store_true", help="a copy's frames go with those of its original")
    _report(asyncio.run(_measure(parser.parse_args())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
