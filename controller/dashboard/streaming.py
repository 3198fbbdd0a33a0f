"""Server-sent events: the fragments that changed since the last message. Used by `app.py`."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

from controller.adapters.person_api import NotSignedIn, Refused

_POLL_SECONDS = 2.0
_KEEP_ALIVE_SECONDS = 14.0
_LONGEST_SECONDS = 600.0  # the browser comes again by itself


async def stream(
    fragments: Callable[[], Awaitable[dict[str, str]]],
    is_gone: Callable[[], Awaitable[bool]],
    poll_seconds: float = _POLL_SECONDS,
) -> AsyncIterator[str]:
    """Messages `fragments` ({id: html} of what changed), `problem` (a sentence) and `signed-out`.

    The first message holds every fragment: the page may be older than the stream.
    """
    seen: dict[str, str] = {}
    quiet = age = 0.0
    while age < _LONGEST_SECONDS and not await is_gone():
        message, seen = await _next(fragments, seen)
        if message:
            quiet = 0.0
            yield message
        elif quiet >= _KEEP_ALIVE_SECONDS:
            quiet = 0.0
            yield ": nothing new\n\n"
        if message.startswith("event: signed-out"):
            return
        await asyncio.sleep(poll_seconds)
        quiet, age = quiet + poll_seconds, age + poll_seconds


async def _next(fragments: Callable[[], Awaitable[dict[str, str]]], seen: dict[str, str]) -> tuple[str, dict[str, str]]:
    try:
        current = await fragments()
    except NotSignedIn:
        return "event: signed-out\ndata: {}\n\n", seen
    except Refused as error:
        return f"event: problem\ndata: {json.dumps(error.message)}\n\n", {}
    digests = {name: hashlib.sha256(html.encode()).hexdigest() for name, html in current.items()}
    changed = {name: html for name, html in current.items() if seen.get(name) != digests[name]}
    return (f"event: fragments\ndata: {json.dumps(changed)}\n\n" if changed else ""), digests
