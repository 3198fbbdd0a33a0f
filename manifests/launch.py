"""The command line that the engine really gets: image entrypoint, command, args, ``$(VAR)``, shells, scripts, wrappers.

Called by :mod:`manifests.resolve` for each container. Evaluates only what reading decides (see :mod:`manifests.shell`);
which engine an argv starts is told by :mod:`manifests.starts`. Knows no flags.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from manifests.images import ImageFacts
from manifests.secrets import redact_text
from manifests.shell import Command, Script, Token, read_script
from manifests.starts import Arg, Launch, behind_wrappers, find_launch
from manifests.yamlsafe import line_of

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_K8S = re.compile(r"\$(?:\$|\(([^()\s]*)\))")


@dataclass(slots=True)
class CommandLine:
    """The reading of a container: the engine's argv, its launch (None: no engine was found), environment, files,
    findings."""

    argv: tuple[Arg, ...] = ()
    launch: Launch | None = None
    env: dict[str, Token] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    findings: list[tuple[str, str]] = field(default_factory=list)
    unresolved: list[tuple[str, str]] = field(default_factory=list)
    certain: bool = True
    from_script: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """What a container can see: environment, files mounted from ConfigMaps of the input, whether more variables may
    exist."""

    env: Mapping[str, Token]
    files: Mapping[str, str]
    open_env: bool = False


def kubernetes_expand(text: str, env: Mapping[str, Token]) -> tuple[str, bool]:
    """``$(VAR)`` by the variables of the container; ``$$`` is ``$``; an unknown variable stays as it is written."""
    known = True

    def replace(match: re.Match[str]) -> str:
        nonlocal known
        if match[1] is None:
            return "$"
        value = env.get(match[1])
        if value is None:
            return match[0]
        known = known and value.known
        return value.text if value.known else match[0]

    return _K8S.sub(replace, text), known


def read_command_line(command: list[object], args: list[object], image: ImageFacts, context: Context) -> CommandLine:
    """The command line of a container (``command`` and ``args`` as in the pod, image entrypoint where there is no
    command)."""
    base = [Arg(part, True, None, "image") for part in image.entrypoint] if not command else []
    parts = base + _arguments(command, "command", context) + _arguments(args, "args", context)
    out = CommandLine(env=dict(context.env))
    if not parts:
        return out
    _follow(parts, context, out, 0)
    if not out.argv:
        out.argv = tuple(parts)
    return out


def _arguments(values: list[object], origin: str, context: Context) -> list[Arg]:
    out = []
    for value in values:
        text, known = kubernetes_expand(str(value), context.env)
        out.append(Arg(text, known, line_of(value), str(getattr(value, "origin", origin))))
    return out


def _follow(parts: list[Arg], context: Context, out: CommandLine, depth: int) -> None:
    """Follows a command through shells and wrappers until an engine is found; keeps the last one that certainly
    runs."""
    launch = find_launch(parts)
    if launch is not None:
        _keep(parts, launch, out, True)
        return
    script = _script_of(parts, context, out)
    if script is None or depth > 6:
        return
    text, arguments, line, origin = script
    _unused(text, arguments, out)
    env = {**context.env, **out.env}
    tokens = tuple(Token(a.text, a.known, a.line or 1) for a in arguments)
    lookup = {**context.files, **out.files}
    result = read_script(text, env, tokens, lookup.get, context.open_env)
    out.files.update(result.files)
    out.from_script = True
    _report(result.problems, result.commands, line, out)
    blocking: str | None = None
    _background_only(result, line, out)
    for command in result.commands:
        if blocking is not None and command.certain and not command.background:
            _never_runs(command, blocking, line, out)
            continue
        words = [Arg(w.text, w.known, (line + w.line - 1) if line else None, origin) for w in command.words]
        words = [_with_argument_line(word, arguments) for word in words]
        inner = find_launch(words)
        if inner is not None:
            _keep(words, inner, out, command.certain)
            out.env.update(command.env)
            if command.certain and not command.background and _blocks(inner):
                blocking = _shown(words)
        else:
            before = out.env
            out.env = {**out.env, **command.env}
            found = out.launch
            _follow(words, Context({**context.env, **command.env}, lookup, context.open_env), out, depth + 1)
            if out.launch is found:
                out.env = before


def _background_only(script: Script, line: int | None, out: CommandLine) -> None:
    """A server with ``&`` as the last thing of a script: the shell ends, and the container with it."""
    last = script.commands[-1] if script.commands else None
    if last is None or not last.background or not last.certain or script.waits:
        return
    words = [Arg(word.text) for word in last.words]
    if find_launch(words) is not None:
        where = (line or 1) + last.line - 1
        text = (
            f"line {where}: `{_shown(words)}` is started with `&` and nothing waits for it: the script ends, and the "
            "container with it; end the script with `wait`, or leave out the `&`"
        )
        out.findings.append(("background-engine", text))


def _blocks(launch: Launch) -> bool:
    """Whether a command stays in the foreground as long as it serves."""
    return launch.kind != "ray" or any(argument.text == "--block" for argument in launch.args)


def _shown(words: list[Arg]) -> str:
    text = " ".join(redact_text(word.text) for word in words[:3])
    return text if len(words) < 4 else f"{text} ..."


def _never_runs(command: Command, blocking: str, line: int | None, out: CommandLine) -> None:
    """A command behind a server in the foreground: the shell reaches it when the server has ended."""
    words = [Arg(word.text) for word in command.words]
    if find_launch(words) is None:
        return
    where = (line or 1) + command.line - 1
    text = (
        f"line {where}: `{_shown(words)}` never runs while `{blocking}` serves, which stays in the foreground; start "
        "the first one with `&`, or in a container of its own"
    )
    out.findings.append(("never-runs", text))


_READS_NAME = re.compile(r"\$\{?0\b")
_READS_ALL = re.compile(r"\$\{?[@*#1-9]|\bshift\b|\bgetopts\b|\bsource\b|^\s*\.\s", re.MULTILINE)


def _unused(text: str, arguments: list[Arg], out: CommandLine) -> None:
    """Flags behind a ``sh -c`` text: the first one becomes ``$0``, and without ``"$@"`` in the text none arrives."""
    uses_rest, uses_name = bool(_READS_ALL.search(text)), bool(_READS_NAME.search(text))
    for index, argument in enumerate(arguments):
        used = uses_name if index == 0 else uses_rest
        if used or not re.match(r"^--?[A-Za-z]", argument.text):
            continue
        why = (
            'it becomes `$0`, which `"$@"` leaves out; put a word such as `sh` before it'
            if uses_rest
            else 'the text does not use its arguments; move it into the text or end the text with `"$@"`'
        )
        text_of_it = f"`{argument.text}` stands behind a shell text and never reaches the engine: {why}"
        out.findings.append(("unused-argument", text_of_it))


def _with_argument_line(word: Arg, arguments: list[Arg]) -> Arg:
    """A word that came through ``"$@"`` keeps the line of the argument it was."""
    for argument in arguments:
        if argument.text == word.text and argument.line is not None:
            return argument
    return word


def _keep(parts: list[Arg], launch: Launch, out: CommandLine, certain: bool) -> None:
    rank = {"server": 2, "frontend": 2, "router": 2, "render": 1, "ray": 0}
    if out.launch is not None:
        if rank[launch.kind] < rank[out.launch.kind]:
            return
        if rank[launch.kind] == rank[out.launch.kind] == 2 and certain and out.certain:
            text = f"the script starts `{_shown(list(out.argv))}` and `{_shown(parts)}`; the last one is shown"
            out.findings.append(("several-engines", text))
        if not certain and out.certain:
            return
    if not certain:
        out.unresolved.append(
            ("command", "the engine is started inside a condition that only the running container can decide")
        )
    out.launch, out.argv, out.certain = launch, tuple(parts), certain


def _report(problems: list[tuple[str, int, str]], commands: list[Command], line: int | None, out: CommandLine) -> None:
    orphan = next((c for c in commands if c.words and re.match(r"^--?[A-Za-z]", c.words[0].text)), None)
    for code, at, text in problems:
        if code != "lost-continuation":
            out.findings.append((code, f"line {at + (line or 1) - 1}: {text}"))
    lost = [at for code, at, _ in problems if code == "lost-continuation"]
    if orphan is not None:
        where = (line or 1) + orphan.line - 1
        words = " ".join(word.text for word in orphan.words)
        reason = (
            "a blank follows the backslash above"
            if lost
            else "the line above does not end in a backslash, or a comment ends the command"
        )
        out.findings.append(
            (
                "lost-continuation",
                f"line {where}: `{words}` is run as a command of its own and never reaches the engine ({reason})",
            )
        )


def _script_of(parts: list[Arg], context: Context, out: CommandLine) -> tuple[str, list[Arg], int | None, str] | None:
    """The script that a command runs (text, ``$0 $1..``, first line, origin); None when it runs none that can be
    read."""
    files = {**context.files, **out.files}
    if parts and parts[0].text in files:
        return files[parts[0].text], parts, None, "configmap"
    parts = parts[behind_wrappers(parts) :]
    if not parts:
        return None
    name = parts[0].text.rsplit("/", 1)[-1].strip()
    if name not in _SHELLS:
        return (files[parts[0].text], parts, None, "configmap") if parts[0].text in files else None
    at = 1
    inline = False
    while at < len(parts) and re.match(r"^[-+][A-Za-z-]", parts[at].text):
        letters = parts[at].text
        if letters == "--":
            at += 1
            break
        inline = inline or (not letters.startswith("--") and "c" in letters[1:])
        at += 2 if letters.endswith("o") and not letters.startswith("--") else 1
    if at >= len(parts):
        return None
    if inline:
        return parts[at].text, parts[at + 1 :] or [Arg(name)], parts[at].line, parts[at].origin
    path = parts[at].text
    return (files[path], parts[at:], None, "configmap") if path in files else None
