"""The Lua sources as one script: what Envoy runs, and the same stream reader inside Python.

Called by listeners.py (Envoy's inline script) and by shadow/stream.py. The sources are read once; each file is a chunk
that gets its dependencies as arguments and returns a table.
"""

from functools import cache
from importlib import resources

_ORDER = ("json", "stream", "sha256", "request", "gate")
_NEEDS = {"json": "", "stream": "json", "sha256": "", "request": "json, sha256", "gate": "json, stream, request"}


def lua_source(name: str) -> str:
    """Text of one Lua file of this package."""
    return resources.files("shadow.envoy").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


@cache
def gate_script() -> str:
    """The whole filter: the files in their order, each in a function of its own."""
    parts = [f"local {name} = (function(...)\n{lua_source(name)}\nend)({_NEEDS[name]})" for name in _ORDER]
    return "\n".join(parts) + "\n"
