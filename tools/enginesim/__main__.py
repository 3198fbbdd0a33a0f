"""``python -m tools.enginesim serve MODEL --flag ...``: starts one simulated engine and stays until SIGTERM."""

import asyncio
import contextlib
import os
import signal
import socket
import sys

import uvloop

from tools.enginesim.control import Control
from tools.enginesim.httpserver import Connection, listen
from tools.enginesim.service import Service
from tools.enginesim.settings import Settings, StartError, resolve
from tools.priority import set_priority

BANNER = "This is Weighlock's ENGINE SIMULATOR. It runs no model; times come from a queueing and roofline model."

FLUSH_SECONDS = 0.05  # the last answers are still in the transports' buffers


def log(text: str) -> None:
    """One line on stderr, as an engine's log."""
    print(text, file=sys.stderr, flush=True)


async def serve(settings: Settings) -> int:
    """Runs until SIGTERM or SIGINT, then drains; the exit status."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    service = Service(settings, loop)
    connections: set[Connection] = set()
    if settings.control_port:
        control = Control(service.faults, service.engine)
        await listen(control.handle, settings.host, settings.control_port, set())
    if not await _wait(stop, settings.start_seconds):
        server = await listen(service.handle, settings.host, settings.port, connections)
        address = server.sockets[0].getsockname()
        log(f"INFO: Application startup complete. Listening on http://{address[0]}:{address[1]}")
        after = service.faults.set
        if after.after_s > 0:
            loop.call_later(after.after_s + 0.01, service.engine.apply_faults)
        await stop.wait()
        server.close()
    log(f"INFO: stopping, {len(service.in_flight)} requests in flight, grace {settings.drain_seconds:g} s")
    await _drain(service, connections, settings.drain_seconds)
    return 0


async def _wait(stop: asyncio.Event, seconds: float) -> bool:
    """Loading weights, so to say; True when told to stop meanwhile."""
    if seconds <= 0:
        return stop.is_set()
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return False
    return True


async def _drain(service: Service, connections: set[Connection], grace_seconds: float) -> None:
    for connection in list(connections):
        connection.shut_down()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(service.drained(), grace_seconds)
    for connection in list(connections):
        if connection.current is not None:
            connection.abandon()
    await asyncio.sleep(FLUSH_SECONDS)


def main() -> int:
    """Parses, says what it is, serves."""
    try:
        settings = resolve(sys.argv[1:], os.environ)
    except (StartError, ValueError) as error:
        log(str(error))
        return 1
    log(BANNER)
    log(f"INFO: vLLM API server version {settings.version} (simulated)")
    log(f"INFO: non-default args: { {k: '<redacted>' if k == 'api-key' else v for k, v in settings.given.items()} }")
    log(f"INFO: Initializing a V1 LLM engine (v{settings.version}) with config: {settings.resolved()}")
    log(f"INFO: GPU KV cache size: {settings.num_gpu_blocks * settings.block_size:,} tokens")
    if settings.assumed_model:
        log(f"WARNING: enginesim does not know {settings.model_id}; it assumes {settings.model}")
    if nice := os.environ.get("ENGINESIM_NICE"):
        set_priority(int(nice))
    try:
        return uvloop.run(serve(settings))
    except OSError as error:
        log(f"OSError: cannot listen on {settings.host}:{settings.port}: {error}")
        return 1 if not isinstance(error, socket.gaierror) else 2


if __name__ == "__main__":
    sys.exit(main())
