"""YAML as Kubernetes reads it, with line numbers and without the ways in which YAML can hurt.

Called by the importing entry points and by the readers of config files inside ConfigMaps. Built directly on
libyaml's events, so that depth, number of nodes and the *expanded* size of aliases are bounded while reading, before
anything is built. Scalars keep their line: strings are :class:`Text`. A document is refused in one sentence
(:class:`YamlRefused`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 80
MAX_NODES = 150_000
MAX_SCALAR = 1024 * 1024

_INT = re.compile(r"^[-+]?(?:0|[1-9][0-9_]*|0o?[0-7_]+|0x[0-9a-fA-F_]+|0b[01_]+)$")
_FLOAT = re.compile(
    r"^[-+]?(?:(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+)$"
)
_TRUE = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
_FALSE = frozenset({"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TAB_AFTER = re.compile(r" *\t")
_CONFLICT = re.compile(r"(?m)^(?:<<<<<<<|>>>>>>>) \S")
_HELM = re.compile(
    r"(?m)\{\{-?\s*(?:if|range|with|include|define|template|end|else|toYaml|\.Values|\.Release|\.Chart|/\*|\$)"
)


class YamlRefused(Exception):
    """A text that is not read: where (``line:column`` or ""), what is wrong, what to do."""

    def __init__(self, where: str, problem: str, remedy: str) -> None:
        super().__init__(f"{where}: {problem}; {remedy}" if where else f"{problem}; {remedy}")
        self.where, self.problem, self.remedy = where, problem, remedy


class Text(str):
    """A string that knows its 1-based line (of its first character; None for one that a reader composed) and whether
    it is a literal block; ``origin``: which reader composed it. Slots, because a large file holds many of them."""

    __slots__ = ("line", "literal", "origin")
    line: int | None
    literal: bool
    origin: str


class Number(float):
    """A number whose spelling matters (``0.90`` in a place that wants text)."""

    __slots__ = ("raw",)
    raw: str


@dataclass(slots=True)
class Loaded:
    """One document: the value, the line it starts on, and keys that were written twice."""

    value: Any
    line: int
    duplicates: list[tuple[str, int]] = field(default_factory=list)


def text_of(value: Any) -> str:
    """What Kubernetes would have to be given for a field that takes a string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Number):
        return value.raw
    return "" if value is None else str(value)


def line_of(value: Any, default: int | None = None) -> int | None:
    """The line of a scalar, ``default`` where it has none."""
    return value.line if isinstance(value, Text) else default


def decode(data: bytes) -> str:
    """The text of a file: UTF-8 (or UTF-16 with a mark), bounded, without characters that YAML does not allow."""
    if len(data) > MAX_BYTES:
        raise YamlRefused(
            "", f"larger than {MAX_BYTES // (1024 * 1024)} MiB", "split the file, or give only the objects that serve"
        )
    try:
        encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise YamlRefused(f"{line}:1", "not UTF-8 text", "save the file as UTF-8") from error


def load_all(text: str) -> list[Loaded]:
    """Every non-empty document of a YAML text.

    Raises:
        YamlRefused: invalid YAML, a Helm template, too deep, too many nodes, or aliases that expand too far.
    """
    if len(text) > MAX_BYTES:
        raise YamlRefused(
            "", f"larger than {MAX_BYTES // (1024 * 1024)} MiB", "split the file, or give only the objects that serve"
        )
    try:
        return list(_Builder(str(text)).documents())
    except yaml.YAMLError as error:
        raise _explain(text, error) from error
    except YamlRefused as refused:
        raise (_helm(text) or refused) from refused
    except RecursionError as error:
        raise YamlRefused("", "nested too deep", f"use at most {MAX_DEPTH} levels") from error


def _helm(text: str) -> YamlRefused | None:
    helm = _HELM.search(text)
    if helm is None:
        return None
    line = text.count("\n", 0, helm.start()) + 1
    column = helm.start() - (text.rfind("\n", 0, helm.start()) + 1) + 1
    return YamlRefused(
        f"{line}:{column}",
        "a Helm template, not YAML",
        "render it first: helm template RELEASE CHART | weighlock import -",
    )


def _explain(text: str, error: yaml.YAMLError) -> YamlRefused:
    helm = _helm(text)
    if helm is not None:
        return helm
    mark = getattr(error, "problem_mark", None)
    where = f"{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
    if isinstance(error, yaml.reader.ReaderError):
        position = error.position if isinstance(error.position, int) else 0
        line = text.count("\n", 0, position) + 1
        return YamlRefused(
            f"{line}:1",
            "a control character, which YAML does not allow",
            "remove it or write it as an escape in double quotes",
        )
    conflict = _CONFLICT.search(text)
    if conflict is not None:
        line = text.count("\n", 0, conflict.start()) + 1
        return YamlRefused(f"{line}:1", "a merge conflict is left in the file", "resolve it, and remove its markers")
    lines = text.splitlines()
    line_text = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    if mark is not None and "\t" in line_text[: mark.column + 1]:
        return YamlRefused(
            f"{mark.line + 1}:{line_text.index(chr(9)) + 1}",
            "a tab character in the indentation",
            "indent with spaces only",
        )
    problem = " ".join(str(getattr(error, "problem", None) or error).split())[:160]
    return YamlRefused(where, f"invalid YAML: {problem}", "correct the indentation or quoting at this place")


class _Builder:
    """Builds values from libyaml's events; counts as it goes."""

    def __init__(self, text: str) -> None:
        self._text = text if "\t" in text else ""
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=yaml.CSafeLoader))
        self._nodes = 0

    def documents(self) -> Iterator[Loaded]:
        for event in self._events:
            if not isinstance(event, yaml.DocumentStartEvent):
                continue
            self._anchors: dict[str, tuple[Any, int]] = {}
            self._open: set[str] = set()
            self._duplicates: list[tuple[str, int]] = []
            first = next(self._events)
            value, _ = self._value(first, 0)
            if value is not None:
                yield Loaded(value, first.start_mark.line + 1, self._duplicates)

    def _count(self, weight: int, mark: Any) -> None:
        self._nodes += weight
        if self._nodes > MAX_NODES:
            raise YamlRefused(
                f"{mark.line + 1}:{mark.column + 1}",
                f"more than {MAX_NODES} values once aliases are expanded",
                "split the file",
            )

    def _value(self, event: Any, depth: int) -> tuple[Any, int]:
        mark = event.start_mark
        if depth > MAX_DEPTH:
            raise YamlRefused(
                f"{mark.line + 1}:{mark.column + 1}", "nested too deep", f"use at most {MAX_DEPTH} levels"
            )
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        self._count(1, mark)
        anchor = event.anchor
        if anchor:
            self._open.add(anchor)
        if isinstance(event, yaml.ScalarEvent):
            value, weight = self._scalar(event), 1
        elif isinstance(event, yaml.SequenceStartEvent):
            value, weight = self._sequence(depth)
        else:
            value, weight = self._mapping(depth)
        if anchor:
            self._open.discard(anchor)
            self._anchors[anchor] = (value, weight)
        return value, weight

    def _alias(self, event: Any) -> tuple[Any, int]:
        mark = event.start_mark
        where = f"{mark.line + 1}:{mark.column + 1}"
        if event.anchor in self._open:
            raise YamlRefused(where, f"the alias *{event.anchor} contains itself", "write the value out")
        if event.anchor not in self._anchors:
            raise YamlRefused(where, f"the alias *{event.anchor} has no anchor", f"define &{event.anchor} before it")
        value, weight = self._anchors[event.anchor]
        self._count(weight, mark)
        return value, weight

    def _sequence(self, depth: int) -> tuple[list[Any], int]:
        out: list[Any] = []
        weight = 1
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            value, size = self._value(event, depth + 1)
            out.append(value)
            weight += size
        return out, weight

    def _mapping(self, depth: int) -> tuple[dict[str, Any], int]:
        out: dict[str, Any] = {}
        merged: list[Any] = []
        weight = 1
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            mark = event.start_mark
            if not isinstance(event, yaml.ScalarEvent) and not isinstance(event, yaml.AliasEvent):
                raise YamlRefused(
                    f"{mark.line + 1}:{mark.column + 1}", "a mapping key is itself a list or mapping", "use a plain key"
                )
            if isinstance(event, yaml.AliasEvent):
                key_value, _ = self._alias(event)
                if isinstance(key_value, dict | list):
                    raise YamlRefused(
                        f"{mark.line + 1}:{mark.column + 1}",
                        "a mapping key is itself a list or mapping",
                        "use a plain key",
                    )
                key = text_of(key_value)
            else:
                self._count(1, mark)
                key = event.value
                if event.anchor:
                    self._anchors[event.anchor] = (self._scalar(event), 1)
            value, size = self._value(next(self._events), depth + 1)
            weight += size + 1
            if key == "<<" and isinstance(value, dict | list):
                merged.append(value)
                continue
            if key in out:
                self._duplicates.append((key, mark.line + 1))
            out[key] = value
        for source in merged:
            for part in source if isinstance(source, list) else [source]:
                if isinstance(part, dict):
                    out = {**part, **out}
        return out, weight

    def _scalar(self, event: Any) -> Any:
        raw: str = event.value
        if self._text and not event.style and _TAB_AFTER.match(self._text, event.end_mark.index):
            mark = event.end_mark
            raise YamlRefused(
                f"{mark.line + 1}:{mark.column + 1}",
                "a tab character after a value, which not every YAML reader takes",
                "use spaces only",
            )
        if len(raw) > MAX_SCALAR:
            mark = event.start_mark
            raise YamlRefused(
                f"{mark.line + 1}:{mark.column + 1}", "a value of more than 1 MiB", "mount it from a volume instead"
            )
        plain = not event.style and (event.tag is None or event.tag == "!")
        tag = event.tag
        if plain and event.implicit[0]:
            typed = resolve_plain(raw)
            if not isinstance(typed, str):
                return typed
        elif tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:bool"):
            return resolve_plain(raw)
        text = Text(raw)
        text.literal = event.style in ("|", ">")
        text.line = event.start_mark.line + (2 if text.literal else 1)
        return text


def resolve_plain(raw: str) -> Any:
    """The value of a plain scalar by YAML 1.1 as Kubernetes reads it; dates and sexagesimal numbers stay text."""
    if raw in _NULL:
        return None
    if raw in _TRUE:
        return True
    if raw in _FALSE:
        return False
    if len(raw) > 400:
        return raw
    if _INT.match(raw):
        return _integer(raw)
    if _FLOAT.match(raw):
        number = Number(raw.replace("_", ""))
        number.raw = raw
        return number
    return raw


def _integer(raw: str) -> Any:
    digits = raw.replace("_", "")
    body = digits.lstrip("+-").lower()
    try:
        if body.startswith(("0x", "0b", "0o")):
            return int(digits, 0)
        if len(body) > 1 and body.startswith("0"):
            return int(digits, 8)
        return int(digits)
    except ValueError:
        return raw
