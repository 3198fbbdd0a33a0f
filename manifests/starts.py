"""Which engine an argv starts: launchers, modules and files of Python, behind wrappers such as ``env`` or ``mpirun``.

Called by :mod:`manifests.launch`, which finds the argv. Knows the ways in which engines are started, neither shells nor
flags.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest

from manifests.engines.profiles import Launcher, commands, modules

_WRAPPERS = frozenset(
    {
        "env",
        "nohup",
        "time",
        "timeout",
        "sudo",
        "numactl",
        "stdbuf",
        "tini",
        "dumb-init",
        "nice",
        "ionice",
        "taskset",
        "mpirun",
        "mpiexec",
        "trtllm-llmapi-launch",
        "uv",
        "uvx",
        "catchsegv",
        "opentelemetry-instrument",
        "nsys",
        "setsid",
        "chrt",
        "gosu",
        "su-exec",
        "ray",
        "srun",
        "tini-static",
        "nvidia_entrypoint.sh",
        "entrypoint.sh",
        "ddtrace-run",
        "exec",
        "command",
        "torchrun",
        "accelerate",
        "docker-entrypoint.sh",
    }
)
_PYTHON = re.compile(r"^(?:python|pypy)\d*(?:\.\d+)?$")


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument: text, whether the process gets exactly that, line in the file, where it was written."""

    text: str
    known: bool = True
    line: int | None = None
    origin: str = "args"


@dataclass(frozen=True, slots=True)
class Launch:
    """An engine start: ``engine`` as ``engine.name``, ``catalog`` whose flags count, ``args`` after the launcher,
    ``kind`` (server, router, frontend, render, ray)."""

    engine: str
    catalog: str
    args: tuple[Arg, ...]
    kind: str = "server"
    style: str = "argparse"


def behind_wrappers(parts: list[Arg]) -> int:
    """Index of the command behind ``env A=b``, ``tini --``, ``timeout 5``, ...; 0 when there is no wrapper."""
    index = 0
    for _ in range(4):
        if index >= len(parts) or parts[index].text.rsplit("/", 1)[-1] not in _WRAPPERS:
            break
        index += 1
        while index < len(parts) and (
            parts[index].text.startswith("-")
            or "=" in parts[index].text
            or re.fullmatch(r"[\d.]+[smh]?", parts[index].text)
        ):
            index += 1
    return index


def find_launch(parts: list[Arg]) -> Launch | None:
    """The engine that an argv starts, looking behind wrappers; None for anything that is no engine."""
    if not parts:
        return None
    direct = _launch_at(parts, 0)
    if direct is not None or parts[0].text.rsplit("/", 1)[-1] not in _WRAPPERS:
        return direct
    for index in range(1, min(len(parts), 64)):
        found = _launch_at(parts, index)
        if found is not None and found.kind != "ray":
            return found
    return direct


def _launch_at(parts: list[Arg], index: int) -> Launch | None:
    name = parts[index].text.rsplit("/", 1)[-1].strip()
    rest = tuple(parts[index + 1 :])
    if _PYTHON.match(name):
        return _python(rest)
    if name.endswith(".py") and "/" in parts[index].text:
        return _python(tuple(parts[index:]))
    if name == "ray" and rest and rest[0].text == "start":
        return Launch("unknown", "", rest[1:], "ray", "generic")
    return _fitting(commands().get(name, ()), rest, 1)


def _fitting(launchers: tuple[Launcher, ...], rest: tuple[Arg, ...], done: int) -> Launch | None:
    """The first launcher whose words from ``done`` on stand at the start of ``rest``."""
    for launcher in launchers:
        words = launcher.words[done:]
        given = [argument.text for argument in rest[: len(words)]]
        if all(word in ("*", text) for word, text in zip_longest(words, given, fillvalue="*")):
            return Launch(launcher.engine, launcher.catalog, rest[len(words) :], launcher.kind, launcher.style)
    return None


def _python(rest: tuple[Arg, ...]) -> Launch | None:
    index = 0
    while index < len(rest) and rest[index].text.startswith("-") and rest[index].text != "-m":
        index += 2 if rest[index].text in ("-X", "-W") else 1
    if index >= len(rest):
        return None
    if rest[index].text == "-m" and index + 1 < len(rest):
        return _fitting(modules().get(rest[index + 1].text, ()), rest[index + 2 :], 0)
    return _python_file(rest[index].text, rest[index + 1 :])


def _python_file(path: str, after: tuple[Arg, ...]) -> Launch | None:
    if path.endswith("launch_triton_server.py"):
        return Launch("triton-trtllm", "", after, style="generic")
    if path.endswith("server.py") and any("triton" in argument.text for argument in after):
        role = after[0].text if after and not after[0].text.startswith("-") else ""
        return Launch(
            "triton-trtllm", "", after[1:] if role else after, "ray" if role == "worker" else "server", "generic"
        )
    module = path.removesuffix(".py").replace("/", ".")
    for name, launchers in modules().items():
        if "." in name and (module == name or module.endswith(f".{name}")):
            return _fitting(launchers, after, 0)
    return None
