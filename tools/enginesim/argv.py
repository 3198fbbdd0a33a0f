"""vLLM's command line as a grammar: which flags exist in a version, how they are spelt, what is refused.

Used by ``settings.py``. Knows names and types only (``flags.json``); what a flag means for timing is decided elsewhere.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import yaml

FLAGS_FILE = Path(__file__).with_name("flags.json")
OLD_ENTRYPOINT = "vllm.entrypoints.openai.api_server"
HUMAN_INTEGERS = {"--max-model-len", "--max-num-batched-tokens", "--max-num-scheduled-tokens"}
DECIMAL_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9}
BINARY_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
LEVEL_FLAG = re.compile(r"^-O(\d+)$")


def version_tuple(version: str) -> tuple[int, ...]:
    """``"0.32.0+cpu"`` -> ``(0, 32, 0)``; anything behind the numbers is ignored."""
    numbers = re.match(r"v?(\d+(?:\.\d+)*)", version)
    if numbers is None:
        raise ValueError(f"not a version: {version!r}")
    return tuple(int(part) for part in numbers.group(1).split("."))


def known_flags(version: str) -> dict[str, dict[str, Any]]:
    """The flags that this version of vLLM accepts; between two versions that were read, both sides' flags count."""
    flags: dict[str, dict[str, Any]] = json.loads(FLAGS_FILE.read_text())["flags"]
    wanted = version_tuple(version)
    return {
        name: entry
        for name, entry in flags.items()
        if ("after" not in entry or wanted > version_tuple(entry["after"]))
        and ("gone" not in entry or wanted < version_tuple(entry["gone"]))
    }


def human_integer(text: str) -> int:
    """``4096``, ``4k`` (4000), ``4K`` (4096), ``1.5m``; ``-1`` and ``auto`` mean "as the model says" and give -1."""
    if text == "auto":
        return -1
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG])", text)
    if match is None:
        return int(text)
    number, unit = match.groups()
    if unit in DECIMAL_UNITS:
        return int(float(number) * DECIMAL_UNITS[unit])
    return int(number) * BINARY_UNITS[unit]


def make_parser(version: str, old_entrypoint: bool) -> argparse.ArgumentParser:
    """A parser that speaks and refuses as vLLM's does (program name, wording, exit status 2)."""
    program = "api_server.py" if old_entrypoint else "vllm serve"
    usage = f"{program} [options]" if old_entrypoint else "vllm serve [model_tag] [options]"
    parser = argparse.ArgumentParser(prog=program, usage=usage, argument_default=argparse.SUPPRESS)
    if not old_entrypoint:
        parser.add_argument("model_tag", nargs="?", default=None)
    for name, entry in known_flags(version).items():
        names = [name, *entry.get("aliases", [])]
        kind = entry["type"]
        if kind == "bool":
            negatable = entry.get("negatable", False)
            parser.add_argument(*names, action=argparse.BooleanOptionalAction if negatable else "store_true")
        elif kind == "list":
            parser.add_argument(*names, nargs="+")
        else:
            convert = human_integer if name in HUMAN_INTEGERS else {"int": int, "float": float}.get(kind, str)
            parser.add_argument(*names, type=convert)
    return parser


def normalise(argv: list[str]) -> list[str]:
    """Spelling only: ``_`` becomes ``-`` in flag names, ``-O3`` its long form, dotted flags one JSON flag."""
    plain: list[str] = []
    dotted: dict[str, dict[str, Any]] = {}
    words = iter(argv)
    for word in words:
        if level := LEVEL_FLAG.match(word):
            plain += ["--optimization-level", level.group(1)]
            continue
        if not word.startswith("-"):
            plain.append(word)
            continue
        name, equals, value = word.partition("=")
        head, dot, path = name.partition(".")
        if dot and not head.lstrip("-").replace(".", "").isdigit():
            _insert(dotted.setdefault(_dashes(head), {}), path.split("."), value if equals else next(words, ""))
            continue
        plain.append(_dashes(name) + equals + value if name.startswith("--") else word)
    for name, nested in dotted.items():
        plain = _merge_json(plain, name, nested)
    return plain


def _dashes(name: str) -> str:
    return "--" + name[2:].replace("_", "-") if name.startswith("--") else name


def _insert(nested: dict[str, Any], path: list[str], text: str) -> None:
    for key in path[:-1]:
        nested = nested.setdefault(key, {})
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if path[-1].endswith("+"):
        nested.setdefault(path[-1][:-1], []).append(value)
    else:
        nested[path[-1]] = value


def _merge_json(argv: list[str], name: str, nested: dict[str, Any]) -> list[str]:
    """One JSON flag out of an explicit one (if there) and the dotted keys, which win."""
    base: dict[str, Any] = {}
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == name:
            base |= json.loads(next(words, "{}"))
        elif word.startswith(name + "="):
            base |= json.loads(word.partition("=")[2])
        else:
            rest.append(word)
    return [*rest, name, json.dumps(base | nested)]


def _with_config_file(argv: list[str]) -> list[str]:
    """``--config FILE``: its keys become flags in front of the command line's own, which therefore win."""
    for index, word in enumerate(argv):
        if word == "--config" or word.startswith("--config="):
            path, width = (argv[index + 1], 2) if word == "--config" else (word.partition("=")[2], 1)
            from_file: list[str] = []
            for key, value in yaml.safe_load(Path(path).read_text()).items():
                flag = "--" + str(key).replace("_", "-")
                if isinstance(value, bool):
                    from_file += [flag] if value else ["--no-" + flag[2:]]
                elif isinstance(value, list):
                    from_file += [flag, *map(str, value)]
                else:
                    from_file += [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
            return [*from_file, *argv[:index], *argv[index + width :]]
    return argv


def parse_argv(argv: list[str], version: str) -> dict[str, Any]:
    """Given flags without dashes, and ``model``.

    Takes what stands behind the program name in a manifest: ``serve MODEL ...`` (a leading ``vllm`` is dropped),
    ``MODEL ...`` (an image whose entrypoint is ``vllm serve``), or ``--model MODEL ...`` (the older API server, with or
    without its module name). Exits with status 2 and vLLM's wording on an unknown flag, as the engine would.
    """
    words = argv[1:] if argv[:1] == ["vllm"] else argv
    old_entrypoint = words[:1] == [OLD_ENTRYPOINT] or not words or words[0].startswith("-")
    if words[:1] in (["serve"], [OLD_ENTRYPOINT]):
        words = words[1:]
    given = vars(make_parser(version, old_entrypoint).parse_args(_with_config_file(normalise(words))))
    tag = given.pop("model_tag", None)
    values = {name.replace("_", "-"): value for name, value in given.items()}
    if tag is not None:
        values["model"] = tag
    values.setdefault("model", "Qwen/Qwen3-0.6B")
    return values
