"""Arguments -> settings, by the grammar of the engine and its version.

Called by :mod:`manifests.resolve` with the arguments after the launcher. Follows what the engines' own parsers do:
argparse (vLLM with its underscores, dotted keys and ``-O``; SGLang; Dynamo), click (TensorRT-LLM), clap (TGI),
llama.cpp's own. One parser for everybody: the diff, GPU sizing, the ledger and rollback all read its result.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from manifests import catalog
from manifests.catalog import Catalog, Switch, canonical
from manifests.engines import values
from manifests.engines.profiles import profile_of
from manifests.launch import Arg, Launch
from manifests.model import REDACTED, Setting
from manifests.secrets import is_secret_flag, redact_text
from manifests.versions import version_key

_NEGATIVE = re.compile(r"^-\d+$|^-\d*\.\d+$")
_FLAG_LIKE = re.compile(r"^--?[A-Za-z]")
_STORE_BOOLEAN = frozenset({"enable-chunked-prefill", "multi-step-stream-outputs", "enable-prefix-caching"})


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


def parse(launch: Launch, version: str | None, own_version: str | None = None) -> Parsed:
    """The settings that a launch's arguments mean to an engine of ``version``; ``own_version``: the version of a
    program around the engine (Dynamo), whose own flags come and go with it."""
    return _Parser(launch, version, own_version).run()


class _Parser:
    def __init__(self, launch: Launch, version: str | None, own_version: str | None) -> None:
        self.launch, self.version, self.own_version = launch, version, own_version
        self.family = launch.catalog.removeprefix("dynamo-") if launch.catalog else launch.engine
        self.underscores = profile_of(self.family).underscores
        profile = profile_of(launch.catalog or launch.engine)
        self.positional = profile.positional_model if profile.style == launch.style or not launch.catalog else None
        self.catalogs = catalogs_of(launch.catalog) if launch.catalog else []
        if launch.catalog == "dynamo-trtllm":
            self.catalogs = self.catalogs[:1]
        self.spellings: dict[str, str] = {}
        for part in reversed(self.catalogs):
            for spelling, name in part.spellings.items():
                if spelling.startswith("-") and self._in_version(part, name):
                    self.spellings[self._norm(spelling)] = name
        self.out = Parsed()
        self.args = _joined(launch.args)
        self.at = 0

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

    def run(self) -> Parsed:
        while self.at < len(self.args):
            argument = self.args[self.at]
            self.at += 1
            if argument.text == "--" and self.launch.style == "argparse":
                while self.at < len(self.args):
                    self._positional(self.args[self.at])
                    self.at += 1
            elif self._is_flag(argument):
                self._flag(argument)
            else:
                self._positional(argument)
        return self.out

    # --- what a token is

    def _is_flag(self, argument: Arg) -> bool:
        text = argument.text
        if not text.startswith("-") or len(text) < 2 or _NEGATIVE.match(text) or not _FLAG_LIKE.match(text):
            return False
        if " " not in text and "\n" not in text:
            return True
        key = text.split("=", 1)[0]
        return "=" in text and " " not in key and "\n" not in key

    def _positional(self, argument: Arg) -> None:
        text = argument.text
        if "{{" in text or not argument.known:
            self._unknown_argument(argument)
            return
        if _FLAG_LIKE.match(text):
            self._swallowed(argument)
            return
        name = self.positional
        if name and not self.out.positionals and name not in self.out.settings and argument.text:
            self._set(name, text, argument, text, argument.known)
        elif self.launch.catalog:
            self.out.findings.append(
                (
                    "stray-argument",
                    f"`{_short(text)}` belongs to no flag and is no model name here: the engine ignores it or refuses "
                    "to start; remove it",
                )
            )
        self.out.positionals.append(argument)

    def _unknown_argument(self, argument: Arg) -> None:
        """A word that only the running container knows: it may be a flag, several, or none."""
        text = _short(argument.text)
        name = self.positional
        if name and not self.out.positionals and name not in self.out.settings and "{{" not in argument.text:
            self.out.positionals.append(argument)
            self._set(name, argument.text, argument, argument.text, False)
            return
        if "{{" in argument.text:
            note = f"`{text}` is a placeholder that a controller fills in: what it adds is not known"
            self.out.findings.append(("helm-placeholder", note))
        self.out.unresolved.append(("arguments", f"`{text}` is known only at run time"))

    def _swallowed(self, argument: Arg) -> None:
        text = argument.text
        flag, _, rest = text.strip().partition(" ")
        self.out.positionals.append(argument)
        shown = redact_text(text if not is_secret_flag(flag.lstrip("-")) else f"{flag} {REDACTED}")
        if not rest and text == text.strip():
            self.out.findings.append(
                (
                    "stray-argument",
                    f"`{_short(shown)}` is taken for a plain word, not for a flag; write it before any `--`",
                )
            )
            return
        if not rest:
            self.out.findings.append(
                (
                    "suspicious-whitespace",
                    f"`{shown}` carries a blank inside the argument, so the engine does not see the flag; remove the "
                    "blank or the quotes",
                )
            )
            return
        self.out.findings.append(
            (
                "flag-and-value-in-one-token",
                f"`{_short(shown)}` is one argument with a blank inside: the engine takes it for a model name, not "
                "for a flag, "
                f"and runs without it; write `{flag}` and its value as two list items or join them with `=`",
            )
        )

    # --- recognising a flag

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

    def _flag(self, argument: Arg) -> None:
        key, equals, explicit = argument.text.partition("=")
        if self.family == "vllm" and (special := self._optimization(argument)) is not None:
            self._store(*special, argument)
            return
        append = key.endswith("+") and "." in key
        found = self.find(key.removesuffix("+"))
        self._report(found, key)
        if found.how == "dotted":
            self._dotted(found, argument, explicit if equals else None, append)
            return
        kind = found.switch.kind if found.switch else self._guess_kind(bool(equals))
        if kind == "bool":
            self._boolean(found, argument, explicit if equals else None)
        elif kind.startswith("list") or kind == "unknown-list":
            self._list(found, kind, argument, explicit if equals else None)
        else:
            self._single(found, kind, argument, explicit if equals else None)

    def _guess_kind(self, has_value: bool) -> str:
        following = 0
        while self.at + following < len(self.args) and not self._is_flag(self.args[self.at + following]):
            following += 1
        if has_value:
            return "unknown"
        return "bool" if following == 0 else "unknown" if following == 1 else "unknown-list"

    def _report(self, found: Found, key: str) -> None:
        shown = key if len(key) < 60 else key[:57] + "..."
        add = self.out.findings.append
        if found.how == "abbreviation" and found.switch is not None:
            add(
                (
                    "abbreviated-flag",
                    f"`{shown}` is an abbreviation of `{found.switch.flag}`; a later version with a similar flag will "
                    "refuse it: write it out",
                )
            )
        elif found.how == "ambiguous":
            add(
                (
                    "ambiguous-flag",
                    f"`{shown}` may be {' or '.join(found.near)}: the engine refuses to start; write the flag out",
                )
            )
        elif found.how == "not-in-version" and found.switch is not None:
            self._report_version(found.switch, shown)
        elif found.how == "unknown" and self.catalogs:
            level = "unknown-short-flag" if re.match(r"^-[^-]", key) else "unknown-flag"
            hint = f"; the nearest known one is `{found.near[0]}`" if found.near else ""
            add(
                (
                    level,
                    f"`{shown}` is not a flag of {self.launch.engine} that this catalogue knows{hint}; check its "
                    "spelling and the engine's version",
                )
            )
        if found.switch is not None and found.switch.removed_between and found.how != "not-in-version":
            self._report_removal(found.switch, shown)

    def _version_of(self, switch: Switch) -> str | None:
        """The version that a flag belongs to: the program's around the engine, or the engine's."""
        own = self.launch.catalog.startswith("dynamo") and switch.name in self.catalogs[0].switches
        return self.own_version if own else self.version

    def _report_removal(self, switch: Switch, shown: str) -> None:
        version = self._version_of(switch)
        last, first = switch.removed_between or ("", "")
        if version is None:
            self.out.findings.append(
                (
                    "removed-later",
                    f"`{shown}` was removed between {last} and {first}: an engine from {first} on refuses to start "
                    "with it",
                )
            )
        elif (version_key(version) or ()) >= (version_key(first) or ()):
            self._report_version(switch, shown)

    def _report_version(self, switch: Switch, shown: str) -> None:
        if switch.removed_between:
            last, first = switch.removed_between
            text = (
                f"`{shown}` was removed between {last} and {first} and {self.launch.engine} {self._version_of(switch)} "
                "refuses to start with it; delete it"
            )
            self.out.findings.append(("removed-flag", text))
        else:
            first = switch.seen[0] if switch.seen else "?"
            text = f"`{shown}` appears first in {first}; {self.launch.engine} {self.version} refuses to start with it"
            self.out.findings.append(("flag-too-new", text))

    # --- taking values

    def _optimization(self, argument: Arg) -> tuple[str, Any] | None:
        """vLLM's ``-O3``, ``-O 3``, ``-O=3``, ``-O.mode=3`` and ``-O{json}``."""
        text = argument.text
        if not text.startswith("-O"):
            return None
        rest = text[2:].lstrip("=")
        if rest == "" and self.at < len(self.args):
            rest = self.args[self.at].text
            self.at += 1
        level = any(
            "optimization-level" in part.switches
            and part.has_at(part.switches["optimization-level"], self.version) is not False
            for part in self.catalogs
        )
        if re.fullmatch(r"\d", rest):
            return ("optimization-level", int(rest)) if level else ("compilation-config", {"level": int(rest)})
        if rest.startswith("."):
            path, _, value = rest[1:].partition("=")
            return "compilation-config", _nest(path, values.guess(value))
        value, problem = values.convert("json", rest)
        if problem:
            self.out.findings.append(("bad-value", f"`{_short(text)}`: {problem}"))
        return "compilation-config", value

    def _take(self, found: Found, argument: Arg, explicit: str | None) -> tuple[str, Arg] | None:
        """One value: after ``=``, or the next token when it is no flag; None (and a finding) when there is none."""
        if explicit is not None:
            return explicit, argument
        if self.at < len(self.args) and not self._is_flag(self.args[self.at]):
            value = self.args[self.at]
            self.at += 1
            return value.text, value
        if found.switch is not None and found.switch.optional is not None:
            self._store(found.name, found.switch.optional, argument)
            return None
        self.out.findings.append(
            ("missing-value", f"`{argument.text}` has no value: the engine refuses to start; give one")
        )
        return None

    def _single(self, found: Found, kind: str, argument: Arg, explicit: str | None) -> None:
        taken = self._take(found, argument, explicit)
        if taken is None:
            return
        text, source = taken
        written = argument.text if explicit is not None else f"{argument.text} {text}"
        known = argument.known and source.known
        self._set(found.name, text, argument, written, known, kind)

    def _set(self, name: str, text: str, argument: Arg, written: str, known: bool, kind: str = "str") -> None:
        known = known and "{{" not in text
        self._check_text(name, text)
        if is_secret_flag(name):
            self.out.secrets[name] = text
            self._store(name, REDACTED, argument, f"--{name} {REDACTED}")
            self.out.findings.append(
                (
                    "secret-in-argv",
                    f"`--{name}` carries its secret on the command line, where every process list shows it; read it "
                    "from a Secret",
                )
            )
            return
        if not known:
            self.out.unresolved.append((name, f"`{_short(text)}` is known only at run time"))
            self._store(name, None if kind in ("int", "float", "bool") else text, argument, written, text)
            return
        value, problem = (
            (values.guess(text), None) if kind == "unknown" else values.convert(kind, text, name, self.family)
        )
        if kind == "str" and isinstance(value, str) and value.lstrip().startswith("{") and "template" not in name:
            loaded, wrong = values.convert("json", value)
            value = value if wrong else loaded
        if problem:
            code = (
                "quoted-value"
                if "quote" in problem
                else "comma-list"
                if kind == "list:int" and "," in text
                else "bad-value"
            )
            self.out.findings.append((code, f"`{_short(written)}`: {problem}"))
        if isinstance(value, dict):
            value = self._merge(name, value)
        self._store(name, value, argument, written)

    def _check_text(self, name: str, text: str) -> None:
        if text != text.strip() and not text.strip().startswith(("{", "[")):
            self.out.findings.append(
                (
                    "suspicious-whitespace",
                    f"the value of `--{name}` begins or ends with a blank, which is part of the value; remove it",
                )
            )
        elif re.search(r"\s--[a-z]", text):
            self.out.findings.append(
                (
                    "flag-and-value-in-one-token",
                    f"the value of `--{name}` contains another flag: `{_short(text)}`; split it",
                )
            )

    def _merge(self, name: str, value: dict[str, Any]) -> dict[str, Any]:
        old = self.out.settings.get(name)
        if old is not None and isinstance(old.value, dict) and old.written.startswith(f"--{name}."):
            return _deep(value, old.value)
        return value

    def _boolean(self, found: Found, argument: Arg, explicit: str | None) -> None:
        value = not found.negated
        if explicit is None:
            following = self.args[self.at] if self.at < len(self.args) else None
            if (
                following is not None
                and values.boolean(following.text) is not None
                and following.text.strip().lower() in ("true", "false")
            ):
                self.at += 1
                if self._takes_boolean(found):
                    value = bool(values.boolean(following.text)) != found.negated
                elif found.switch is not None:
                    self.out.findings.append(
                        (
                            "bool-with-value",
                            f"`{argument.text} {following.text}`: the flag takes no value, and the engine takes "
                            f"`{following.text}` for a model name or refuses it; use `--no-` to switch it off",
                        )
                    )
                else:
                    value = bool(values.boolean(following.text))
            self._store(
                found.name,
                value,
                argument,
                argument.text
                if following is None or following is not self.args[self.at - 1]
                else f"{argument.text} {following.text}",
            )
            return
        given = values.boolean(explicit)
        if found.switch is not None and not self._takes_boolean(found):
            self.out.findings.append(
                (
                    "bool-with-value",
                    f"`{argument.text}`: the flag takes no value in this engine, which refuses to start (versions "
                    "before 0.9 took it); use the flag or its `--no-` form alone",
                )
            )
        if given is None:
            self.out.findings.append(("bad-value", f"`{argument.text}`: `{explicit}` is no boolean"))
            self._store(found.name, values.guess(explicit), argument, argument.text)
            return
        self._store(found.name, given != found.negated, argument, argument.text)

    def _takes_boolean(self, found: Found) -> bool:
        if self.launch.style != "argparse":
            return True
        key = version_key(self.version)
        return self.family == "vllm" and found.name in _STORE_BOOLEAN and key is not None and key < ((0, 9), 0, 0)

    def _list(self, found: Found, kind: str, argument: Arg, explicit: str | None) -> None:
        if explicit is not None:
            items = [Arg(explicit, argument.known, argument.line, argument.origin)]
        else:
            items = []
            while self.at < len(self.args) and not self._is_flag(self.args[self.at]):
                items.append(self.args[self.at])
                self.at += 1
        if not items:
            self.out.findings.append(
                ("missing-value", f"`{argument.text}` has no value: the engine refuses to start; give at least one")
            )
            return
        written = argument.text if explicit is not None else " ".join([argument.text, *(item.text for item in items)])
        inner = kind.partition(":")[2] or "unknown"
        if inner == "str" and len(items) == 1 and not is_secret_flag(found.name):
            text = items[0].text.strip()
            if text.startswith(("[", "{")):
                value, problem = values.convert("json", text)
                if problem is None:
                    self._store(found.name, value if isinstance(value, list) else [value], argument, written)
                    return
        if is_secret_flag(found.name):
            self._set(found.name, items[0].text, argument, written, items[0].known)
            return
        if inner == "int" and len(items) == 1 and re.search(r"[,\s]", items[0].text.strip()):
            self.out.findings.append(
                (
                    "comma-list",
                    f"`{_short(written)}`: the flag takes separate whole numbers, not one text of them: the engine "
                    "refuses to start; write one argument each",
                )
            )
            self._store(found.name, items[0].text, argument, written)
            return
        self._store_list(found, inner, items, argument, written)

    def _store_list(self, found: Found, inner: str, items: list[Arg], argument: Arg, written: str) -> None:
        out: list[Any] = []
        for item in items:
            value, problem = (
                (values.guess(item.text), None)
                if inner == "unknown"
                else values.convert(inner, item.text, found.name, self.family)
            )
            if problem and item.known:
                self.out.findings.append(("bad-value", f"`{_short(written)}`: {problem}"))
            out.append(item.text if not item.known else value)
        plain = found.name == "served-model-name" and len(out) == 1
        if not all(item.known for item in items):
            self.out.unresolved.append((found.name, f"`{_short(written)}` is known only at run time"))
            self._store(found.name, out[0] if plain else out, argument, written, written)
            return
        self._store(found.name, out[0] if plain else out, argument, written)

    def _dotted(self, found: Found, argument: Arg, explicit: str | None, append: bool) -> None:
        name, _, path = found.name.partition(".")
        taken = self._take(found, argument, explicit)
        if taken is None:
            return
        text, source = taken
        written = argument.text if explicit is not None else f"{argument.text} {text}"
        try:
            leaf = values.parse_json(text)
        except ValueError:
            leaf = text
        old = self.out.settings.get(name)
        base = old.value if old is not None and isinstance(old.value, dict) else {}
        if append:
            previous = _lookup(base, path)
            leaf = [
                *(previous if isinstance(previous, list) else []),
                *(str(leaf).split(",") if isinstance(leaf, str) else [leaf]),
            ]
        merged = _deep(base, _nest(path, leaf))
        if not source.known:
            self.out.unresolved.append((found.name, f"`{_short(text)}` is known only at run time"))
        self.out.settings[name] = Setting(
            merged,
            argument.origin,
            redact_text(written) if old is None else f"{old.written} {redact_text(written)}",
            argument.line,
            None if source.known else written,
        )

    def _store(
        self, name: str, value: Any, argument: Arg, written: str | None = None, expression: str | None = None
    ) -> None:
        old = self.out.settings.get(name)
        text = redact_text(written if written is not None else argument.text)
        if (
            old is not None
            and not (isinstance(old.value, dict) and isinstance(value, dict))
            and self.launch.style != "generic"
        ):
            if old.origin not in ("config-file", "configmap") and old.value != value:
                self.out.findings.append(
                    (
                        "duplicate-flag",
                        f"`--{name}` is given twice ({_short(old.written)}, then {_short(text)}): the last one "
                        "counts; remove the other",
                    )
                )
            elif old.origin not in ("config-file", "configmap"):
                self.out.findings.append(
                    ("duplicate-flag", f"`--{name}` is given twice with the same value; remove one")
                )
        if isinstance(value, str):
            value = redact_text(value)
        self.out.settings[name] = Setting(value, argument.origin, text, argument.line, expression)


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


def _short(text: str) -> str:
    flat = " ".join(redact_text(text).split())
    return flat if len(flat) <= 100 else flat[:97] + "..."


def _nest(path: str, value: Any) -> dict[str, Any]:
    head, dot, tail = path.partition(".")
    return {head: _nest(tail, value) if dot else value}


def _lookup(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _deep(base: dict[str, Any], update: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in update.items():
        old = out.get(key)
        out[key] = _deep(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out
