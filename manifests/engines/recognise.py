"""Flags recognised: which setting a spelling means to an engine of a version.

Called by :mod:`manifests.engines.taking` and :mod:`manifests.engines.grammar`. Knows spellings, negations,
abbreviations and versions, not what becomes of a value.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_

from manifests import catalog
from manifests.catalog import Catalog, Switch, canonical
from manifests.engines.profiles import profile_of
from manifests.model import Setting
from manifests.secrets import redact_text
from manifests.starts import Arg, Launch

_NEGATIVE = re.compile(r"^-\d+$|^-\d*\.\d+$")


FLAG_LIKE = re.compile(r"^--?[A-Za-z]")


@dataclass(slots=True)
class Parsed:
    """Result of one command line: settings, findings ``(code, message)``, unresolved ``(what, why)``, plain secrets
    by name."""

    settings: dict[str, Setting] = field(default_factory=dict)
    findings: list[tuple[str, str]] = field(default_factory=list)
    unresolved: list[tuple[str, str]] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    positionals: list[Arg] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Found:
    """A flag as recognised: its setting's name, switch, whether it was negated, how it was recognised."""

    name: str
    switch: Switch | None
    negated: bool = False
    how: str = "exact"
    near: tuple[str, ...] = ()


def catalogs_of(name: str) -> list[Catalog]:
    """The catalogues whose flags a launcher takes: Dynamo's workers pass the engine's own through."""
    own = catalog.load(name)
    backend = catalog.load(name.removeprefix("dynamo-")) if name.startswith("dynamo-") else None
    return [part for part in (own, backend) if part is not None]


def find_switch(catalogs: Sequence[Catalog], name: str) -> tuple[Switch, Catalog] | None:
    """The switch of a setting's name in any of the catalogues."""
    for part in catalogs:
        switch = part.find(name)
        if switch is not None:
            return switch, part
    return None


def _joined(args: Sequence[Arg]) -> list[Arg]:
    """Words of one ``{{ template placeholder }}`` that a shell split, put together again and marked as unknown."""
    out: list[Arg] = []
    for argument in args:
        if out and out[-1].text.count("{{") > out[-1].text.count("}}"):
            out[-1] = Arg(f"{out[-1].text} {argument.text}", False, out[-1].line, out[-1].origin)
        elif "{{" in argument.text:
            out.append(Arg(argument.text, False, argument.line, argument.origin))
        else:
            out.append(argument)
    return out


def short(text: str) -> str:
    flat = " ".join(redact_text(text).split())
    return flat if len(flat) <= 100 else flat[:97] + "..."


# (catalogue, version, style) -> the catalogues' parts, spellings
_SPELLINGS: dict[tuple[str, str | None, str], tuple[tuple[Catalog, ...], Mapping[str, str]]] = {}


class Recogniser:
    """The catalogue of a launch as spellings, and the arguments that are still to be read."""

    def __init__(self, launch: Launch, version: str | None, own_version: str | None) -> None:
        self.launch, self.version, self.own_version = launch, version, own_version
        self.family = launch.catalog.removeprefix("dynamo-") if launch.catalog else launch.engine
        self.underscores = profile_of(self.family).underscores
        profile = profile_of(launch.catalog or launch.engine)
        self.positional = profile.positional_model if profile.style == launch.style or not launch.catalog else None
        self.catalogs = catalogs_of(launch.catalog) if launch.catalog else []
        if launch.catalog == "dynamo-trtllm":
            self.catalogs = self.catalogs[:1]
        self.spellings = self._spellings()
        self.out = Parsed()
        self.args = _joined(launch.args)
        self.at = 0

    def _spellings(self) -> Mapping[str, str]:
        """Spelling -> switch of this version; the same for every launch with the same catalogues, and dear to build."""
        key = (self.launch.catalog, self.version, self.launch.style)
        held = _SPELLINGS.get(key)
        if held is not None and len(held[0]) == len(self.catalogs) and all(map(is_, held[0], self.catalogs)):
            return held[1]
        found = {
            self._norm(spelling): name
            for part in reversed(self.catalogs)
            for spelling, name in part.spellings.items()
            if spelling.startswith("-") and self._in_version(part, name)
        }
        if len(_SPELLINGS) > 256:
            _SPELLINGS.clear()
        _SPELLINGS[key] = (tuple(self.catalogs), found)
        return found

    def _in_version(self, part: Catalog, name: str) -> bool:
        switch = part.switches[name]
        return self.launch.catalog.startswith("dynamo") or part.has_at(switch, self.version) is not False

    def _norm(self, spelling: str) -> str:
        if self.launch.style in ("click", "llamacpp") or self.underscores:
            head, dot, tail = spelling.partition(".")
            return (
                (head.replace("_", "-") if spelling.startswith("--") or self.launch.style == "llamacpp" else head)
                + dot
                + tail
            )
        return spelling

    def _is_flag(self, argument: Arg) -> bool:
        text = argument.text
        if not text.startswith("-") or len(text) < 2 or _NEGATIVE.match(text) or not FLAG_LIKE.match(text):
            return False
        if " " not in text and "\n" not in text:
            return True
        key = text.split("=", 1)[0]
        return "=" in text and " " not in key and "\n" not in key

    def find(self, key: str) -> Found:
        """The setting that a flag's spelling means in this version."""
        norm = self._norm(key)
        if "." in norm and norm.startswith("-"):
            head, _, tail = norm.partition(".")
            parent = self.find(head)
            if parent.switch is not None and parent.how in ("exact", "alias"):
                return Found(f"{parent.name}.{tail}", parent.switch, False, "dotted")
        if norm in self.spellings:
            name = self.spellings[norm]
            found = find_switch(self.catalogs, name)
            switch = found[0] if found else None
            negated = bool(
                switch
                and (norm.startswith(("--no-", "-no")) or switch.negation == key)
                and norm != self._norm(switch.flag)
            )
            return Found(name, switch, negated, "exact" if switch and norm == self._norm(switch.flag) else "alias")
        if norm.startswith("--no-") and "--" + norm[5:] in self.spellings:
            name = self.spellings["--" + norm[5:]]
            found = find_switch(self.catalogs, name)
            if found is not None and found[0].kind == "bool":
                return Found(name, found[0], True)
        if self.launch.style == "argparse" and norm.startswith("--"):
            return self._abbreviated(norm)
        return self._unknown(norm)

    def _abbreviated(self, norm: str) -> Found:
        matches = sorted(
            {spelling for spelling in self.spellings if spelling.startswith(norm) and spelling.startswith("--")}
        )
        names = {self.spellings[spelling] for spelling in matches}
        negatives = [
            spelling for spelling in self.spellings if norm.startswith("--no-") and spelling.startswith("--" + norm[5:])
        ]
        for spelling in negatives if not matches else []:
            names.add(self.spellings[spelling])
        if len(names) == 1:
            name = names.pop()
            found = find_switch(self.catalogs, name)
            return Found(name, found[0] if found else None, norm.startswith("--no-") and not matches, "abbreviation")
        if len(names) > 1:
            return Found(canonical(norm), None, False, "ambiguous", tuple(matches[:4]))
        return self._unknown(norm)

    def _unknown(self, norm: str) -> Found:
        name = canonical(norm)
        for part in self.catalogs:
            switch = part.switches.get(name) or next(
                (s for s in part.switches.values() if norm in (self._norm(a) for a in s.aliases)), None
            )
            if switch is None and name.startswith("no-"):
                switch = part.switches.get(name[3:])
                if switch is not None:
                    return Found(switch.name, switch, True, "not-in-version")
            if switch is not None:
                return Found(switch.name, switch, False, "not-in-version")
        near = (
            difflib.get_close_matches(norm, [s for s in self.spellings if s.startswith("--")], 1, 0.75)
            if self.spellings
            else []
        )
        return Found(name, None, False, "unknown", tuple(near))

    def _version_of(self, switch: Switch) -> str | None:
        """The version that a flag belongs to: the program's around the engine, or the engine's."""
        own = self.launch.catalog.startswith("dynamo") and switch.name in self.catalogs[0].switches
        return self.own_version if own else self.version
