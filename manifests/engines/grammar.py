"""Arguments -> settings, by the grammar of the engine and its version.

Called by :mod:`manifests.resolve` with the arguments after the launcher. Follows what the engines' own parsers do:
argparse (vLLM with its underscores, dotted keys and ``-O``; SGLang; Dynamo), click (TensorRT-LLM), clap (TGI),
llama.cpp's own. One parser for everybody: the diff, GPU sizing, the ledger and rollback all read its result.
"""

from __future__ import annotations

import re

from manifests.catalog import Switch
from manifests.engines.recognise import FLAG_LIKE, Found, Parsed, catalogs_of, find_switch, short
from manifests.engines.taking import Taker
from manifests.model import REDACTED
from manifests.secrets import is_secret_flag, redact_text
from manifests.starts import Arg, Launch
from manifests.versions import version_key

__all__ = ["Found", "Parsed", "catalogs_of", "find_switch", "parse"]


def parse(launch: Launch, version: str | None, own_version: str | None = None) -> Parsed:
    """The settings that a launch's arguments mean to an engine of ``version``; ``own_version``: the version of a
    program around the engine (Dynamo), whose own flags come and go with it."""
    return _Parser(launch, version, own_version).run()


class _Parser(Taker):
    """Reads a command line from left to right."""

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

    def _positional(self, argument: Arg) -> None:
        text = argument.text
        if "{{" in text or not argument.known:
            self._unknown_argument(argument)
            return
        if FLAG_LIKE.match(text):
            self._swallowed(argument)
            return
        name = self.positional
        if name and not self.out.positionals and name not in self.out.settings and argument.text:
            self._set(name, text, argument, text, argument.known)
        elif self.launch.catalog:
            self.out.findings.append(
                (
                    "stray-argument",
                    f"`{short(text)}` belongs to no flag and is no model name here: the engine ignores it or refuses "
                    "to start; remove it",
                )
            )
        self.out.positionals.append(argument)

    def _unknown_argument(self, argument: Arg) -> None:
        """A word that only the running container knows: it may be a flag, several, or none."""
        text = short(argument.text)
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
                    f"`{short(shown)}` is taken for a plain word, not for a flag; write it before any `--`",
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
                f"`{short(shown)}` is one argument with a blank inside: the engine takes it for a model name, not "
                "for a flag, "
                f"and runs without it; write `{flag}` and its value as two list items or join them with `=`",
            )
        )

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
