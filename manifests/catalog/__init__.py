"""The product's own catalogue of switches: what each flag is, its mechanism, ledgers, class and defaults by version.

One JSON file per engine, loaded on first use and kept. Written by ``tools/catalog/regenerate.py`` (README there: how
to add an engine or a version). Knows nothing of manifests; values are parsed by :func:`parse_default` only here.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from manifests.engines.profiles import catalog_files, folder
from manifests.versions import bracket, version_key

ABSENT = "ABSENT"
_UNKNOWN_DEFAULTS = frozenset({"(declared elsewhere)", ""})
_CODE = re.compile(r"\w\(|\]\[|^not |\bif\b.*\belse\b|model_kwargs|AsyncEngineArgs\.|BuildConfig\.|self\.")


@dataclass(frozen=True, slots=True)
class Switch:
    """One switch of one engine.

    ``kind``: bool, int, float, str, json, list:int, list:float, list:str. ``history``: (first version read, default
    as written) with declaration-only changes already folded away. ``seen``: first and last version read that has it.
    ``surveyed``: a variable that is known from the engine's source alone, by name and default: what it acts on is told
    by its name, its defaults are not spelled out as flips; ``variable_only``: it is shown as a variable, not as a
    setting. ``optional``: what the flag means without a value (None: it needs one).
    """

    name: str
    flag: str
    kind: str
    aliases: tuple[str, ...]
    negation: str | None
    default: str
    mechanism: str
    ledgers: tuple[str, ...]
    correctness: str
    fp_reorder: bool
    removed_between: tuple[str, str] | None
    seen: tuple[str, str] | None
    history: tuple[tuple[str, str], ...]
    witness: str | None
    note: str | None
    choices: str | None
    surveyed: bool = False
    variable_only: bool = False
    optional: Any = None

    @property
    def is_env(self) -> bool:
        """Whether it is an environment variable rather than a flag."""
        return self.flag.startswith("env:")


@dataclass(frozen=True, slots=True)
class Default:
    """A default at a version: ``status`` known, unknown (not in the survey), absent (no such switch), bracketed
    (flipped between), arriving (the switch appeared between: absent, or ``value``)."""

    status: str
    value: Any = None
    between: tuple[Any, Any] | None = None


@dataclass(frozen=True)
class Catalog:
    """All switches of one engine, by canonical name and by spelling."""

    engine: str
    sampled: tuple[str, ...]
    switches: Mapping[str, Switch]
    spellings: Mapping[str, str]

    def find(self, name: str) -> Switch | None:
        """The switch of a canonical name, or of the nearest parent of a dotted one (``speculative-config.x``)."""
        switch = self.switches.get(name)
        if switch is None and not name.startswith(("env:", "llm_args.")) and "." in name:
            return self.find(name.rsplit(".", 1)[0])
        if switch is None and name.startswith("llm_args.") and name.count(".") > 1:
            return self.find(name.rsplit(".", 1)[0])
        if switch is None and name.startswith("env:"):
            return self._family(name)
        return switch

    @cached_property
    def _families(self) -> tuple[tuple[tuple[str, ...], Switch], ...]:
        """Variables with a common head (``NCCL_*|UCX_*``)."""
        return tuple(
            (tuple(part.removeprefix("env:").rstrip("*") for part in key.split("|")), switch)
            for key, switch in self.switches.items()
            if key.startswith("env:") and "*" in key
        )

    def _family(self, name: str) -> Switch | None:
        variable = name.removeprefix("env:")
        return next((switch for heads, switch in self._families if variable.startswith(heads)), None)

    def has_at(self, switch: Switch, version: str | None) -> bool | None:
        """Whether a version has the switch; None when that cannot be told."""
        key = version_key(version)
        if key is None or switch.seen is None:
            return None
        first, last = version_key(switch.seen[0]), version_key(switch.seen[1])
        if last is not None and key > last:
            position = self.sampled.index(switch.seen[1]) if switch.seen[1] in self.sampled else len(self.sampled)
            following = version_key(self.sampled[position + 1]) if position + 1 < len(self.sampled) else None
            return False if following is not None and key >= following else None
        if first is not None and key < first:
            index = self.sampled.index(switch.seen[0]) if switch.seen[0] in self.sampled else 0
            before = version_key(self.sampled[index - 1]) if index else None
            return False if before is not None and key <= before and not switch_is_launcher(switch) else None
        return True

    def default_at(self, switch: Switch, version: str | None) -> Default:
        """The default of a switch at a version (``0.10.1`` is bracketed by the versions around it)."""
        history = switch.history or ((self.sampled[0], switch.default),) if self.sampled else ()
        if not history:
            return _as_default(switch, switch.default)
        if version is None or version_key(version) is None:
            values = {value for _, value in history}
            return _as_default(switch, history[-1][1]) if len(values) == 1 and len(history) == 1 else Default("unknown")
        below, above = bracket(version, self.sampled)
        if below is None or above is None:
            return Default("unknown")
        low, high = _value_at(history, below), _value_at(history, above)
        first, second = _as_default(switch, low), _as_default(switch, high)
        if first == second or below == above:
            return first
        if first.status == "absent" and second.status == "known":
            return Default("arriving", second.value)
        stated = [found.value if found.status == "known" else text for found, text in ((first, low), (second, high))]
        if all(text != ABSENT and text not in _UNKNOWN_DEFAULTS for text in (low, high)):
            return Default("bracketed", None, (stated[0], stated[1]))
        return Default("unknown")


def switch_is_launcher(switch: Switch) -> bool:
    """vLLM's server flags were declared in another file before 0.10.2: known in older versions although "seen" only
    from there."""
    return bool(switch.seen and switch.seen[0] == "0.10.2")


def _value_at(history: tuple[tuple[str, str], ...], version: str) -> str:
    key = version_key(version)
    value = ABSENT
    for first, default in history:
        first_key = version_key(first)
        if key is not None and first_key is not None and first_key <= key:
            value = default
    return value


def _as_default(switch: Switch, written: str) -> Default:
    if written == ABSENT:
        return Default("absent")
    if written in _UNKNOWN_DEFAULTS and not (switch.kind == "str" and written == "" and not switch.history):
        return Default("unknown")
    if written == "" or _CODE.search(written):
        return Default("unknown")
    return Default("known", parse_default(written))


def parse_default(written: str) -> Any:
    """The value that a default's source text means: numbers, booleans, None, quoted text, empty factories, enum
    members."""
    if written in ("None", "null", "unset", "argparse.SUPPRESS") or written.startswith(("DEFAULT_", "None (")):
        return None
    if written in ("True", "true", "enabled"):
        return True
    if written in ("False", "false", "disabled"):
        return False
    if written.startswith("factory:"):
        return _factory(
            written.removeprefix("factory:").rstrip(")")
            if written.endswith("list)")
            else written.removeprefix("factory:")
        )
    try:
        number = float(written)
    except ValueError:
        return _plain_text(written)
    return int(number) if number.is_integer() and "." not in written and "e" not in written.lower() else number


def _factory(source: str) -> Any:
    """The value of a default factory: an empty container, a literal after ``lambda:``, an empty configuration
    object."""
    if source in ("list", "set"):
        return []
    if source.startswith("lambda:"):
        try:
            return ast.literal_eval(source.removeprefix("lambda:").strip())
        except (ValueError, SyntaxError):
            return source
    return {} if source == "dict" or source[:1].isupper() else source


def _plain_text(written: str) -> Any:
    if len(written) > 1 and written[0] == written[-1] and written[0] in "'\"":
        return written[1:-1]
    if written == "[]":
        return []
    head, dot, member = written.removesuffix(".value").partition(".")
    if dot and member.isidentifier() and member.isupper() and head[:1].isupper() and not head.isupper():
        return member.lower()
    return written


def canonical(flag: str) -> str:
    """The name of a setting: the flag without dashes, ``_`` written ``-``; keys of JSON values keep their own
    spelling."""
    if flag.startswith(("env:", "llm_args.", "request.")):
        return flag
    head, dot, tail = flag.lstrip("-").partition(".")
    return head.replace("_", "-") + dot + tail


@cache
def _raw(file: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(folder().joinpath(f"{file}.json").read_text(encoding="utf-8"))
    return data


@cache
def load(engine: str) -> Catalog | None:
    """The catalogue of an engine (``vllm``, ``dynamo-vllm``, ...); None where the survey has none (Triton, unknown)."""
    found = catalog_files().get(engine)
    if found is None:
        return None
    file, parts = found
    data = _raw(file)
    switches: dict[str, Switch] = {}
    spellings: dict[str, str] = {}
    for entry in data["switches"]:
        if parts and entry.get("e") not in parts:
            continue
        switch = _switch(entry)
        switches[switch.name] = switch
        for spelling in (switch.flag, *switch.aliases, *([switch.negation] if switch.negation else [])):
            spellings.setdefault(spelling, switch.name)
    return Catalog(engine, tuple(data["sampled"]), switches, spellings)


def _switch(entry: dict[str, Any]) -> Switch:
    history = tuple((str(version), str(value)) for version, value in entry.get("h", ()))
    return Switch(
        name=canonical(entry["f"]),
        flag=entry["f"],
        kind=entry["t"],
        aliases=tuple(entry.get("a", ())),
        negation=entry.get("n"),
        default=entry["d"],
        mechanism=entry["m"],
        ledgers=tuple(entry["l"]),
        correctness=entry["c"],
        fp_reorder=bool(entry.get("r")),
        removed_between=tuple(entry["x"]) if entry.get("x") else None,
        seen=tuple(entry["s"]) if entry.get("s") and entry["s"][0] else None,
        history=_fold(history, frozenset(str(version) for version in entry.get("o", ()))),
        witness=entry.get("w"),
        note=entry.get("b"),
        choices=entry.get("k"),
        surveyed=bool(entry.get("v")),
        variable_only=entry.get("v") is True,
        optional=entry.get("q"),
    )


def _fold(history: tuple[tuple[str, str], ...], declaration_only: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """The history without changes of wording: the value before a declaration-only change was the one after it."""
    out: list[tuple[str, str]] = []
    for version, value in history:
        if version in declaration_only and out and out[-1][1] != ABSENT:
            before = out[-1][1]
            while out and out[-1][1] == before:
                version = out.pop()[0]
        if out and out[-1][1] == value:
            continue
        out.append((version, value))
    return tuple(out)
