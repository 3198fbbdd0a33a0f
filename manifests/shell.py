"""What a shell text would run, as far as that can be decided by reading; nothing is ever executed.

Called by :mod:`manifests.launch` for ``sh -c`` strings and for scripts out of ConfigMaps. Parses with the bash
grammar of tree-sitter and evaluates assignments, arrays, quoting, parameter and arithmetic expansion, heredocs into
files, functions, tests on known values, ``exec``, ``eval``, ``set --``, ``source``. What depends on run time stays
an expression (``known=False``). Knows nothing of engines or Kubernetes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tree_sitter import Node

from manifests.shell_flow import Exit, Flow
from manifests.shell_words import MAX_DEPTH, Token, Value, parser, printed

__all__ = ["Command", "Script", "Token", "read_script"]
MAX_STEPS = 4000
MAX_FILE = 256 * 1024
_LOST_CONTINUATION = re.compile(r"\\[ \t]+(?=\r?\n)")
_NAME = re.compile(r"^[A-Za-z_]\w*$")


@dataclass(frozen=True, slots=True)
class Command:
    """One command that the script would run: words, variables it sets for itself, whether it certainly runs, in the
    background or not."""

    words: tuple[Token, ...]
    env: Mapping[str, Token] = field(default_factory=dict)
    certain: bool = True
    background: bool = False
    line: int = 1


@dataclass(slots=True)
class Script:
    """The reading of a script: commands in order, files it writes, what could not be followed, whether it waits for
    what it started."""

    commands: list[Command] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    problems: list[tuple[str, int, str]] = field(default_factory=list)
    waits: bool = False


def read_script(
    text: str,
    env: Mapping[str, Token],
    args: tuple[Token, ...] = (),
    files: Callable[[str], str | None] = lambda _: None,
    open_env: bool = False,
) -> Script:
    """Evaluates a script.

    Args:
        text: the script; at most 256 KiB are read.
        env: variables of the process (a value that is not known carries its expression).
        args: ``$0`` and the positional parameters.
        files: text of a file that the script may read, None where it is not in the input.
        open_env: more variables may exist than ``env`` lists (``envFrom``), so an unset variable is not known to be
        unset.
    """
    shell = _Shell(dict(env), list(args), files, open_env)
    shell.run_text(text[:MAX_FILE], 1)
    return shell.out


class _Shell(Flow):
    def __init__(
        self, env: dict[str, Token], args: list[Token], files: Callable[[str], str | None], open_env: bool
    ) -> None:
        self.vars: dict[str, Value] = dict(env)
        self.exported = set(env)
        self.original = dict(env)
        self.zero = args[0] if args else Token("sh")
        self.args = args[1:]
        self.read_file, self.open_env = files, open_env
        self.functions: dict[str, tuple[Node, bytes, int]] = {}
        self.out = Script()
        self.written = self.out.files
        self.steps = self.depth = self.unsure = self.nesting = 0
        self.data = b""
        self.base = 1

    # --- text and nodes

    def run_text(self, text: str, line: int) -> None:
        """Parses and runs a text; ends quietly where the script ends."""
        if self.depth >= MAX_DEPTH:
            self.out.problems.append(("shell-too-deep", line, "scripts call each other too deeply"))
            return
        text = text.replace("\r\n", "\n")
        for match in _LOST_CONTINUATION.finditer(text):
            self.out.problems.append(
                ("lost-continuation", line + text.count("\n", 0, match.start()), "a backslash followed by a blank")
            )
        saved = self.data, self.base
        self.data, self.base = text.encode("utf-8", "replace"), line
        tree = parser().parse(self.data)
        if tree.root_node.has_error:
            where = _first_error(tree.root_node)
            self.out.problems.append(("shell-syntax", line + where, "the shell text does not parse here"))
        self.depth += 1
        try:
            self._block(tree.root_node)
        except Exit:
            if self.depth > 1:
                raise
        except RecursionError:
            self.out.problems.append(("shell-too-deep", line, "the script is nested too deeply to follow"))
        finally:
            self.depth -= 1
            self.data, self.base = saved

    # --- statements

    def _block(self, node: Node) -> None:
        children = node.children
        for index, child in enumerate(children):
            if child.is_named and child.type not in ("comment", "heredoc_body"):
                following = children[index + 1] if index + 1 < len(children) else None
                self._statement(child, background=following is not None and following.type == "&")

    def _statement(self, node: Node, background: bool = False) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            if self.steps == MAX_STEPS + 1:
                self.out.problems.append(("shell-too-long", self.line(node), "the script is too long to follow"))
            return
        handler: Callable[..., None] | None = getattr(self, f"_on_{node.type}", None)
        if node.type in ("command", "redirected_statement", "pipeline"):
            assert handler is not None
            handler(node, background)
        elif handler is not None:
            handler(node)
        elif node.type in ("program", "compound_statement", "do_group", "ERROR"):
            self._block(node)

    def _on_function_definition(self, node: Node) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.functions[self.text(name)] = (body, self.data, self.base)

    def _on_subshell(self, node: Node) -> None:
        before, exported = dict(self.vars), set(self.exported)
        with contextlib.suppress(Exit):
            self._block(node)
        self.vars, self.exported = before, exported

    def _on_negated_command(self, node: Node) -> None:
        for child in node.named_children:
            self._statement(child)

    def _on_pipeline(self, node: Node, background: bool = False) -> None:
        for child in node.named_children:
            with contextlib.suppress(Exit):
                self._statement(child, background)

    def _on_redirected_statement(self, node: Node, background: bool = False) -> None:
        body = node.child_by_field_name("body")
        self._capture(node, body)
        if body is not None:
            if body.type in ("command", "pipeline"):
                self._statement(body, background)
            else:
                self._statement(body)

    def _capture(self, node: Node, body: Node | None) -> None:
        """``cat <<EOF > file`` and ``echo text > file``: the file's text is known from here on."""
        target: str | None = None
        append = False
        content: str | None = None
        for child in node.named_children:
            heredoc = child.type == "heredoc_redirect"
            redirects = [c for c in child.named_children if c.type == "file_redirect"] if heredoc else [child]
            for redirect in redirects:
                if redirect.type == "file_redirect" and self.text(redirect).lstrip("1&").startswith((">", ">|")):
                    destination = redirect.child_by_field_name("destination")
                    token = self.one(destination) if destination is not None else Token("", False)
                    target, append = (token.text if token.known else None), self.text(redirect).startswith(">>")
            if heredoc:
                content = self._heredoc(child)
                tees = [c for c in child.named_children if c.type == "pipeline"]
                for tee in tees:
                    self._statement(tee)
        if target is None and body is not None and body.type == "command" and content is not None:
            words = [token for child in body.named_children for token in self.words(child)]
            if words and words[0].text == "tee" and len(words) > 1 and words[-1].known:
                target = words[-1].text
        if target is None:
            return
        if content is None and body is not None and body.type == "command":
            content = printed([token for child in body.named_children for token in self.words(child)])
        if content is not None and not self.unsure and target != "/dev/null":
            self.out.files[target] = (self.out.files.get(target, "") if append else "") + content
        elif target in self.out.files:
            del self.out.files[target]

    def _heredoc(self, node: Node) -> str | None:
        start = next((c for c in node.named_children if c.type == "heredoc_start"), None)
        body = next((c for c in node.named_children if c.type == "heredoc_body"), None)
        if start is None or body is None:
            return None
        operator = self.text(node)[:3]
        raw = self.text(body)
        if not re.match(r"['\"\\]", self.text(start)):
            pieces = self._pieces(body, body.start_byte, body.end_byte, keep_quotes=True)
            if not all(piece.known for piece in pieces):
                return None
            raw = re.sub(r"\\([$`\\])", r"\1", "".join(piece.text for piece in pieces)).replace("\\\n", "")
        if operator == "<<-":
            raw = re.sub(r"(?m)^\t+", "", raw)
        return raw

    # --- assignments and commands

    def _on_variable_assignment(self, node: Node) -> None:
        name_node, value_node = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name_node is None:
            return
        append = "+=" in self.text(node)[: len(self.text(name_node)) + 2]
        if name_node.type == "subscript":
            self.vars[self.text(name_node).split("[", 1)[0]] = Token(f"${{{self.text(name_node)}}}", False)
            return
        name = self.text(name_node)
        value: Value
        if value_node is None:
            value = Token("", True, self.line(node))
        elif value_node.type == "array":
            value = [token for child in value_node.named_children for token in self.words(child)]
        else:
            value = self.one(value_node)
        if append:
            old = self.vars.get(name)
            if isinstance(value, list):
                value = (old if isinstance(old, list) else [old] if old is not None else []) + value
            elif isinstance(old, Token):
                value = Token(old.text + value.text, old.known and value.known, value.line)
        self.vars[name] = value

    def _on_variable_assignments(self, node: Node) -> None:
        for child in node.named_children:
            self._statement(child)

    def _on_declaration_command(self, node: Node) -> None:
        word = self.text(node.children[0])
        exports = word == "export" or (word in ("declare", "typeset") and " -x" in self.text(node))
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._statement(child)
                name = child.child_by_field_name("name")
                if exports and name is not None:
                    self.exported.add(self.text(name))
            elif child.type == "variable_name" and exports:
                self.exported.add(self.text(child))

    def _on_test_command(self, node: Node) -> None:
        return

    def _on_unset_command(self, node: Node) -> None:
        for child in node.named_children:
            if child.type == "variable_name":
                self.vars.pop(self.text(child), None)
                self.exported.discard(self.text(child))

    def _on_command(self, node: Node, background: bool = False) -> None:
        prefix: dict[str, Token] = {}
        words: list[Token] = []
        herestring: Token | None = None
        for child in node.named_children:
            if child.type == "variable_assignment":
                name, value = child.child_by_field_name("name"), child.child_by_field_name("value")
                if name is not None:
                    prefix[self.text(name)] = self.one(value) if value is not None else Token("")
            elif child.type == "herestring_redirect":
                herestring = self.one(child.named_children[-1]) if child.named_children else None
            elif child.type in ("file_redirect", "heredoc_redirect", "comment"):
                continue
            else:
                words += self.words(child)
        if words:
            self._invoke(words, prefix, background, herestring, self.line(node))

    def _invoke(
        self, words: list[Token], prefix: dict[str, Token], background: bool, herestring: Token | None, line: int
    ) -> None:
        name = words[0].text
        if name in self.functions and words[0].known:
            self._call(name, words)
        elif name == "eval" and len(words) > 1:
            self._eval(words, line)
        elif name in (".", "source") and len(words) > 1:
            content = self.file(words[1])
            if content is not None:
                self.run_text(content, 1)
        elif name == "exec" and len(words) > 1:
            rest = words[1:]
            while len(rest) > 2 and rest[0].text in ("-a", "-c", "-l"):
                rest = rest[2:] if rest[0].text == "-a" else rest[1:]
            self._emit(rest, prefix, background, line)
            if not self.unsure and not background:
                raise Exit
        elif name == "exit":
            if not self.unsure:
                raise Exit
        elif name in (
            "set",
            "shift",
            "read",
            "local",
            "true",
            "false",
            ":",
            "wait",
            "trap",
            "ulimit",
            "umask",
            "cd",
            "shopt",
            "return",
        ):
            self._builtin(name, words, herestring)
        else:
            self._emit(words, prefix, background, line)

    def _builtin(self, name: str, words: list[Token], herestring: Token | None) -> None:
        if name == "wait":
            self.out.waits = True
        elif name == "set":
            texts = [word.text for word in words]
            if "--" in texts:
                self.args = words[texts.index("--") + 1 :]
        elif name == "shift":
            amount = int(words[1].text) if len(words) > 1 and words[1].text.isdigit() else 1
            self.args = self.args[amount:]
        elif name == "read" and herestring is not None:
            names = [word.text for word in words[1:] if not word.text.startswith("-")]
            if names and any(word.text in ("-a", "-ra") for word in words):
                parts = [Token(part, True, herestring.line) for part in herestring.text.split()]
                self.vars[names[-1]] = parts if herestring.known else Token(herestring.text, False)
            elif names:
                self.vars[names[0]] = herestring
        elif name == "read":
            for word in words[1:]:
                if _NAME.match(word.text):
                    self.vars[word.text] = Token(f"${{{word.text}}}", False)

    def _call(self, name: str, words: list[Token]) -> None:
        if self.depth >= MAX_DEPTH:
            return
        body, data, base = self.functions[name]
        saved = self.args, self.data, self.base
        self.args, self.data, self.base = words[1:], data, base
        self.depth += 1
        try:
            self._block(body)
        finally:
            self.depth -= 1
            self.args, self.data, self.base = saved

    def _eval(self, words: list[Token], line: int) -> None:
        text = " ".join(word.text for word in words[1:])
        self.run_text(text, line)

    def _emit(self, words: list[Token], prefix: dict[str, Token], background: bool, line: int) -> None:
        changed: dict[str, Token] = {}
        for name in self.exported:
            value = self.vars.get(name)
            if isinstance(value, Token) and self.original.get(name) != value:
                changed[name] = value
        self.out.commands.append(Command(tuple(words), {**changed, **prefix}, self.unsure == 0, background, line))


def _first_error(node: Node) -> int:
    queue = [node]
    while queue:
        current = queue.pop(0)
        if current.type == "ERROR" or current.is_missing:
            return int(current.start_point[0])
        queue += [child for child in current.children if child.has_error or child.type == "ERROR" or child.is_missing]
    return 0
