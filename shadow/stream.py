"""Reads recorded response streams with the gate's own meter.

Called by `weighlock read-stream` and by tests. The Lua of shadow/envoy/lua runs here in an embedded LuaJIT, the engine
that Envoy embeds too, so that a file is read exactly as the gate reads the wire.
"""

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from lupa import luajit21

from shadow.envoy.script import reader_script


@dataclass(frozen=True, slots=True)
class Reading:
    """What the meter says of one response body; field names and meanings are those of `weighlock read-stream`."""

    outcome: str
    events: int
    content_events: int
    first_content_event: int | None
    prompt_tokens: int | None
    output_tokens: int | None
    tokens_source: str
    finish_reason: str | None
    done: bool | None
    error: str | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Meter:
    """One reading in progress. Times are seconds of the caller's clock; `hide_usage` as in the gate."""

    def __init__(self, start_s: float = 0.0, hide_usage: bool = False) -> None:
        self._lua = _runtime()
        self._module = self._lua.globals().weighlock_stream
        self._state = self._module.new(start_s, hide_usage)
        self._is_framed = False

    def feed(self, data: bytes, now_s: float = 0.0) -> bytes:
        """Read the next bytes of an event stream; returns the bytes that go to the client."""
        self._is_framed = True
        if self._module.quick(self._state, data, now_s):
            return data
        replaced = self._module.feed(self._state, data, now_s)
        return data if replaced is None else bytes(replaced)

    def chunk(self, text: bytes, event: bytes | None = None, now_s: float = 0.0) -> None:
        """Read one chunk object without framing."""
        self._module.object(self._state, text, None if event in (None, b"message", b"llm_metrics") else event, now_s)

    def comment(self, text: bytes) -> None:
        """Read one comment line."""
        self._module.comment(self._state, text)

    def finish(self, now_s: float = 0.0) -> bytes:
        """The stream ended; returns bytes that were still held back."""
        return bytes(self._module.finish(self._state, now_s))

    def times(self) -> dict[str, float | None]:
        """First content, longest gap and its end, on the caller's clock."""
        state = self._state
        return {"first_at": state.first_at, "gap": state.gap, "gap_at": state.gap_at, "last_at": state.last_at}

    def reading(self) -> Reading:
        state = self._state
        done = bool(state.done)
        return Reading(
            outcome=_text(self._module.outcome(state)) or "truncated",
            events=int(state.events),
            content_events=int(state.content),
            first_content_event=_integer(state.first_event),
            prompt_tokens=_integer(state.prompt),
            output_tokens=_integer(state.output),
            tokens_source=_text(state.source) or "none",
            finish_reason=_text(state.finish),
            done=done if done or self._is_framed else None,
            error=(_text(state.message) or _text(state.err)) if state.err else None,
        )


@cache
def _runtime() -> Any:
    """A LuaJIT with the stream reader loaded as `weighlock_stream`; strings are bytes."""
    lua = luajit21.LuaRuntime(encoding=None, unpack_returned_tuples=True)
    lua.globals()[b"weighlock_stream"] = lua.execute(reader_script().encode())
    return lua


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else None


def _integer(value: Any) -> int | None:
    return None if value is None else int(value)
