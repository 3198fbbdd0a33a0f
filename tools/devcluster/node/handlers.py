"""Actions of probes and lifecycle hooks: httpGet, tcpSocket, exec and sleep. Called by probes and containers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from tools.devcluster.node.launch import Command, find_program
from tools.devcluster.node.runtime import Process, StartError


class HandlerFailed(Exception):
    """The action did not succeed; the message says what happened."""


@dataclass(frozen=True)
class Target:
    """What an action acts on: a container, its address and how commands run in it."""

    container: Mapping[str, Any]
    address: str
    command: Command
    shims: Any
    rewrite: Callable[[str], str]


def make_session() -> aiohttp.ClientSession:
    """A session for probes: no connection is kept, certificates are not checked (as a kubelet's are not)."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, limit=0, ssl=unchecked))


async def act(
    handler: Mapping[str, Any], target: Target, session: aiohttp.ClientSession, timeout_seconds: float
) -> None:
    """Do what the handler says within the time.

    Raises:
        HandlerFailed: it failed or took too long.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            if "httpGet" in handler:
                await http_get(handler["httpGet"], target, session)
            elif "tcpSocket" in handler:
                await tcp_connect(handler["tcpSocket"], target)
            elif "exec" in handler:
                await execute(handler["exec"]["command"], target)
            elif "sleep" in handler:
                await asyncio.sleep(handler["sleep"]["seconds"])
            else:
                raise HandlerFailed(f"the process node has no {'/'.join(handler)} handler")
    except TimeoutError as error:
        raise HandlerFailed(f"timed out after {timeout_seconds:g} s") from error


async def http_get(action: Mapping[str, Any], target: Target, session: aiohttp.ClientSession) -> None:
    scheme = (action.get("scheme") or "HTTP").lower()
    host = action.get("host") or target.address
    url = URL(f"{scheme}://{host}:{port_number(action['port'], target)}{action.get('path') or '/'}", encoded=True)
    headers = {"User-Agent": "kube-probe/devcluster", "Accept": "*/*"}
    headers |= {header["name"]: header["value"] for header in action.get("httpHeaders") or []}
    try:
        async with session.get(url, headers=headers) as answer:
            if not 200 <= answer.status < 400:
                raise HandlerFailed(f"HTTP probe failed with statuscode: {answer.status}")
    except (aiohttp.ClientError, OSError) as error:
        raise HandlerFailed(f'Get "{url}": {error}') from error


async def tcp_connect(action: Mapping[str, Any], target: Target) -> None:
    host = action.get("host") or target.address
    try:
        _, writer = await asyncio.open_connection(host, port_number(action["port"], target))
    except OSError as error:
        raise HandlerFailed(f"dial tcp {host}: {error}") from error
    writer.close()


async def execute(command: list[str], target: Target) -> None:
    try:
        argv = find_program([target.rewrite(part) for part in command], target.command.env["PATH"], target.shims)
        process = Process(argv, target.command.env, target.command.cwd, log=None)
    except StartError as error:
        raise HandlerFailed(str(error)) from error
    try:
        code = await process.wait()
    except asyncio.CancelledError:
        process.signal(9)
        raise
    if code != 0:
        raise HandlerFailed(f"command {' '.join(command)!r} exited with {code}")


def port_number(port: int | str, target: Target) -> int:
    """A port by number or by the name that the container gives it.

    Raises:
        HandlerFailed: the container names no such port.
    """
    if isinstance(port, int) or port.isdigit():
        return int(port)
    for known in target.container.get("ports") or []:
        if known.get("name") == port:
            return int(known["containerPort"])
    raise HandlerFailed(f"the container has no port named {port}")
