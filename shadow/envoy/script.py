"""The Lua sources as one script: what Envoy runs, and the same stream reader inside Python.

Called by listeners.py (Envoy's inline script) and by shadow/stream.py. The sources are read once; each file is a chunk
that gets its dependencies as arguments and returns a table.
"""

from collections.abc import Iterable
from functools import cache
from importlib import resources

_NEEDS = {
    "json": "",
    "objects": "json",
    "frames": "json, objects",
    "stream": "json, objects, frames",
    "sha256": "",
    "request": "json, sha256",
    "gate": "json, frames, stream, request",
}
_READER = ("json", "objects", "frames", "stream")


def lua_source(name: str) -> str:
    """Text of one Lua file of this package."""
    return resources.files("shadow.envoy").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


def _joined(names: Iterable[str]) -> str:
    parts = [f"local {name} = (function(...)\n{lua_source(name)}\nend)({_NEEDS[name]})" for name in names]
    return "\n".join(parts) + "\n"


@cache
def gate_script() -> str:
    """The whole filter: the files in their order, each in a function of its own."""
    return _joined(_NEEDS)


@cache
def reader_script() -> str:
    """The stream reader alone: a chunk that returns its table."""
    return _joined(_READER) + "return stream\n"
