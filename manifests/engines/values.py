"""Text of a flag's value -> typed value, as the engine's parser would convert it.

Called by the flag grammar, the config-file reader and the environment reader. Returns the value and, when the engine
would not take it, a sentence; never raises on odd input.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

_INT = re.compile(r"^\s*[+-]?\d(?:_?\d)*\s*$")
_HUMAN = re.compile(r"^(\d+(?:\.\d+)?)([kKmMgGtT])$")
_HUMAN_FLAGS = frozenset(
    {
        "max-model-len",
        "max-num-batched-tokens",
        "kv-cache-memory-bytes",
        "max-num-scheduled-tokens",
        "max-num-queued-tokens",
    }
)
_FACTOR = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def _reject_constant(name: str) -> Any:
    raise ValueError(name)


def parse_json(text: str) -> Any:
    """JSON of bounded size; ``NaN`` and deep nesting are refused. Raises ValueError."""
    if len(text) > 100_000:
        raise ValueError("larger than 100 kB")
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def number(text: str, kind: str) -> Any:
    """An int or float, None when the text is none (or too long to be meant)."""
    stripped = text.strip()
    if len(stripped) > 40:
        return None
    if kind == "int":
        return int(stripped) if _INT.match(stripped) else None
    try:
        value = float(stripped)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def convert(kind: str, text: str, name: str = "", engine: str = "vllm") -> tuple[Any, str | None]:
    """``(value, problem)``: the typed value; ``problem`` says why the engine would refuse the text (the value is
    then the text)."""
    if engine == "vllm" and (text == "None" or (text == "" and kind in ("int", "float"))) and kind != "bool":
        return None, None
    if kind == "bool":
        flag = boolean(text)
        return (text, f"`{text}` is no boolean") if flag is None else (flag, None)
    if kind == "int":
        human = _HUMAN.match(text.strip()) if name in _HUMAN_FLAGS and engine in ("vllm", "dynamo-vllm") else None
        if human and (human[2].islower() or "." not in human[1]):
            return int(float(human[1]) * _FACTOR[human[2]]), None
        value = number(text, "int")
        if value is None and text in ("auto", "all"):
            return text, None
        return (text, f"`{text}` is no whole number") if value is None else (value, None)
    if kind == "float":
        value = number(text, "float")
        return (text, f"`{text}` is no number") if value is None else (value, None)
    if kind == "json":
        return _json(text)
    return text, None


def _json(text: str) -> tuple[Any, str | None]:
    stripped = text.strip()
    if stripped[:1] in ("'", '"') and stripped[-1:] == stripped[:1] and len(stripped) > 1 and stripped[1:2] in "{[":
        return text, "the value starts with a quote character: the quotes are part of the value"
    if re.fullmatch(r"[\w-]+=[\w.-]+(?:,[\w-]+=[\w.-]+)*", stripped):
        pairs = (part.split("=", 1) for part in stripped.split(","))
        return {key: guess(value) for key, value in pairs}, None
    try:
        return parse_json(stripped), None
    except ValueError:
        return text, "not valid JSON"


def boolean(text: str) -> bool | None:
    """``true``/``1``/``yes``/``on`` and their opposites; None for anything else."""
    lowered = text.strip().lower()
    if lowered in ("true", "1", "yes", "on", "t", "y"):
        return True
    if lowered in ("false", "0", "no", "off", "f", "n"):
        return False
    return None


def guess(text: str) -> Any:
    """The value of a text whose type is not known: number, boolean, JSON object or list, else the text."""
    stripped = text.strip()
    if stripped in ("true", "True", "false", "False"):
        return stripped.lower() == "true"
    if re.fullmatch(r"[+-]?\d{1,18}", stripped) and not re.fullmatch(r"[+-]?0\d+", stripped):
        return int(stripped)
    if re.fullmatch(r"[+-]?(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", stripped) and len(stripped) < 40:
        return float(stripped)
    if stripped[:1] in "{[" and stripped[-1:] in "}]" and stripped:
        try:
            return parse_json(stripped)
        except ValueError:
            return text
    return text
