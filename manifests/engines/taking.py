"""Values taken: what the words behind a flag mean, typed as the engine's parser would type them.

Called by :mod:`manifests.engines.grammar`. Knows kinds of values and what is wrong with them, not how a flag is found.
"""

from __future__ import annotations

import re
from typing import Any

from manifests.engines import values
from manifests.engines.recognise import Found, Recogniser, short
from manifests.model import REDACTED, Setting
from manifests.secrets import is_secret_flag, redact_text
from manifests.starts import Arg
from manifests.versions import version_key

_STORE_BOOLEAN = frozenset({"enable-chunked-prefill", "multi-step-stream-outputs", "enable-prefix-caching"})


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


class Taker(Recogniser):
    """Stores the values of flags in the result."""

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
            self.out.findings.append(("bad-value", f"`{short(text)}`: {problem}"))
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
            self.out.unresolved.append((name, f"`{short(text)}` is known only at run time"))
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
            self.out.findings.append((code, f"`{short(written)}`: {problem}"))
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
                    f"the value of `--{name}` contains another flag: `{short(text)}`; split it",
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
                    f"`{short(written)}`: the flag takes separate whole numbers, not one text of them: the engine "
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
                self.out.findings.append(("bad-value", f"`{short(written)}`: {problem}"))
            out.append(item.text if not item.known else value)
        plain = found.name == "served-model-name" and len(out) == 1
        if not all(item.known for item in items):
            self.out.unresolved.append((found.name, f"`{short(written)}` is known only at run time"))
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
            self.out.unresolved.append((found.name, f"`{short(text)}` is known only at run time"))
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
                        f"`--{name}` is given twice ({short(old.written)}, then {short(text)}): the last one "
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
