"""A lean asynchronous client for the API server: JSON calls, and reflectors that list once and then watch.

Called by the node's parts; it knows resources only as paths and dictionaries. The official client would cost more
memory and processor time than all nodes together.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import aiohttp
import structlog

from tools.devcluster.node.kinds import Object

log = structlog.get_logger()
LINE_BYTES = 4 * 1024 * 1024  # an object may be 1.5 MB, a watch sends one a line
STRATEGIC = "application/strategic-merge-patch+json"
TRANSPORT_ERRORS = (aiohttp.ClientError, OSError, asyncio.TimeoutError)


class ApiError(Exception):
    """The API server answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """Calls with one token. Use as an asynchronous context manager."""

    def __init__(self, server: str, token: str, authority: Path) -> None:
        self.server = server
        self._headers = {"Authorization": f"Bearer {token}"}
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Api:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        self._session = aiohttp.ClientSession(headers=self._headers, connector=connector, read_bufsize=LINE_BYTES)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the client is used outside its context")
        return self._session

    async def call(
        self, method: str, path: str, body: Object | None = None, content_type: str = "application/json"
    ) -> Object:
        """One request; returns the decoded answer.

        Raises:
            ApiError: the server refused.
            aiohttp.ClientError, OSError, asyncio.TimeoutError: the server could not be reached.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type}
        timeout = aiohttp.ClientTimeout(total=30)
        async with self.session.request(
            method, self.server + path, data=data, headers=headers, timeout=timeout
        ) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise ApiError(answer.status, message_of(text))
            return cast(Object, json.loads(text))

    async def reflect(
        self,
        path: str,
        replaced: Callable[[list[Object]], None],
        changed: Callable[[str, Object], None],
        selector: str = "",
    ) -> None:
        """Follow a collection for ever: `replaced` after each list, `changed` for each watch event.

        Lists again after an expired resource version or a lost connection that cannot be resumed.
        """
        version = ""
        failures = 0
        while True:
            try:
                if not version:
                    version = await self._list(path, selector, replaced)
                version = await self._watch(path, selector, version, changed)
                failures = 0
            except ApiError as error:
                version = ""
                failures += error.status != 410
                if error.status != 410:
                    log.warning("watch refused", path=path, error=str(error))
            except TRANSPORT_ERRORS as error:
                failures += 1
                log.warning("watch interrupted", path=path, error=repr(error))
            await asyncio.sleep(min(0.2 * 2**failures, 5) if failures else 0)

    async def _list(self, path: str, selector: str, replaced: Callable[[list[Object]], None]) -> str:
        query = f"?fieldSelector={selector}" if selector else ""
        answer = await self.call("GET", path + query)
        replaced(answer.get("items") or [])
        return str(answer["metadata"]["resourceVersion"])

    async def _watch(self, path: str, selector: str, version: str, changed: Callable[[str, Object], None]) -> str:
        """Deliver events until the server ends the watch; returns the resource version to go on from."""
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        if selector:
            query["fieldSelector"] = selector
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        async with self.session.get(self.server + path, params=query, timeout=timeout) as answer:
            if answer.status >= 400:
                raise ApiError(answer.status, message_of(await answer.text()))
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(event["object"].get("code", 500), event["object"].get("message", ""))
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    changed(event["type"], event["object"])
        return version


def message_of(text: str) -> str:
    """The message of a Status object, or the text itself."""
    try:
        document: Any = json.loads(text)
    except json.JSONDecodeError:
        return text[:500]
    return str(document.get("message", text)) if isinstance(document, dict) else text[:500]
