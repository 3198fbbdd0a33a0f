"""Words of a shell command: quoting, splitting, arrays, parameter and arithmetic expansion, command substitution.

The base of :class:`manifests.shell._Shell`, which holds variables and runs statements. Evaluates only what reading
decides.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from tree_sitter import Language, Node, Parser

from manifests.shell_text import ansi, evaluate, printf, transform

MAX_DEPTH = 24
_PARAMETER = re.compile(
    r"^\$\{(?P<bang>!?)(?P<hash>#?)(?P<name>[A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?P<index>\[[^\]]*\])?(?P<op>.*)\}$",
    re.DOTALL,
)
_SAFE_ARITHMETIC = re.compile(r"^[\d\s+\-*/%()<>=!&|]+$")


@dataclass(frozen=True, slots=True)
class Token:
    """One word of a command line: its text, whether the text is what the process gets, and its line (1-based, in the
    script)."""

    text: str
    known: bool = True
    line: int = 1


Value = Token | list[Token]


@cache
def parser() -> Parser:
    import tree_sitter_bash

    return Parser(Language(tree_sitter_bash.language()))


def printed(words: list[Token]) -> str | None:
    """What ``echo`` or ``printf`` of known words would print; None for any other command."""
    if not words or not all(word.known for word in words):
        return None
    name, rest = words[0].text, [word.text for word in words[1:]]
    if name == "echo":
        newline = True
        while rest and re.fullmatch(r"-[neE]+", rest[0]):
            newline = newline and "n" not in rest[0]
            rest = rest[1:]
        return " ".join(rest) + ("\n" if newline else "")
    if name == "printf" and rest:
        return printf(rest[0], rest[1:])
    return None


class Words:
    """Expansion of words against the variables and arguments of one shell."""

    vars: dict[str, Value]
    args: list[Token]
    zero: Token
    data: bytes
    base: int
    open_env: bool
    nesting: int
    read_file: Callable[[str], str | None]
    written: dict[str, str]

    def text(self, node: Node) -> str:
        """Source of a node."""
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def line(self, node: Node) -> int:
        """Line of a node's first character."""
        return self.base + int(node.start_point[0])

    def sibling(self) -> Words:
        """A shell with the same variables and arguments, to expand a text of its own."""
        other = Words()
        other.vars, other.args, other.zero, other.base = self.vars, self.args, self.zero, self.base
        other.open_env, other.read_file, other.written = self.open_env, self.read_file, self.written
        other.nesting, other.data = self.nesting + 1, b""
        return other

    def file(self, name: Token) -> str | None:
        """Text of a file that the script itself wrote or that the input holds."""
        return (self.written.get(name.text) or self.read_file(name.text)) if name.known else None

    # --- words

    def one(self, node: Node) -> Token:
        """A node as one word (the right side of an assignment: no splitting)."""
        pieces = self._node_pieces(node, quoted=True)
        return Token("".join(piece.text for piece in pieces), all(piece.known for piece in pieces), self.line(node))

    def words(self, node: Node) -> list[Token]:
        """A node as the words that a command gets: splitting of unquoted values, one word per array element."""
        if node.type == "command_name" and node.named_children:
            return self.words(node.named_children[0])
        line = self.line(node)
        multiple = self._multiple(node)
        if multiple is not None:
            return multiple
        if node.type in ("simple_expansion", "expansion", "command_substitution"):
            token = self.one(node)
            return (
                [Token(part, True, line) for part in token.text.split()]
                if token.known
                else [Token(token.text, False, line)]
            )
        if node.type == "concatenation":
            return self._concatenation(node, line)
        return [self.one(node)]

    def _concatenation(self, node: Node, line: int) -> list[Token]:
        out = [Token("", True, line)]
        for child in node.children:
            splits = child.type in ("simple_expansion", "expansion", "command_substitution")
            parts = self.words(child) if splits else [self.one(child)]
            if splits and not parts:
                continue
            out[-1] = Token(out[-1].text + parts[0].text, out[-1].known and parts[0].known, line)
            out += parts[1:]
        return out

    def _multiple(self, node: Node) -> list[Token] | None:
        """``"$@"``, ``$*``, ``"${a[@]}"``: several words or none; None for anything else."""
        inner = node
        if node.type == "string":
            named = list(node.named_children)
            if len(named) != 1 or named[0].end_byte - named[0].start_byte != node.end_byte - node.start_byte - 2:
                return None
            inner = named[0]
        if inner.type not in ("simple_expansion", "expansion"):
            return None
        source = self.text(inner)
        if source in ("$@", "${@}") or (source in ("$*", "${*}") and inner is node):
            line = self.line(node)
            split = inner is node
            return [
                Token(p, t.known, line) for t in self.args for p in (t.text.split() if split and t.known else [t.text])
            ]
        match = re.fullmatch(r"\$\{([A-Za-z_]\w*)\[([@*])\](?::?[-+](.*))?\}", source, re.DOTALL)
        if match is None:
            return None
        value = self.vars.get(match[1])
        if isinstance(value, list):
            if match[2] == "*" and inner is not node:
                return [Token(" ".join(token.text for token in value), all(token.known for token in value))]
            return list(value)
        if value is None:
            return [] if not self.open_env else [Token(source, False)]
        return [value]

    def _node_pieces(self, node: Node, quoted: bool) -> list[Token]:
        kind, source = node.type, self.text(node)
        if kind in ("word", "number", "extglob_pattern", "regex", "variable_name", "special_variable_name"):
            if node.named_child_count and kind == "number":
                return self._pieces(node, node.start_byte, node.end_byte)
            return [Token(re.sub(r"\\(.)", r"\1", source.replace("\\\n", ""), flags=re.DOTALL))]
        if kind == "raw_string":
            return [Token(source[1:-1])]
        if kind == "ansi_c_string":
            return [Token(ansi(source[2:-1]))]
        if kind in ("string", "translated_string"):
            start = node.start_byte + (2 if kind == "translated_string" else 1)
            return [
                Token(re.sub(r'\\([$`"\\])', r"\1", piece.text.replace("\\\n", "")), True)
                if piece.known and piece.line == -1
                else piece
                for piece in self._pieces(node, start, max(start, node.end_byte - 1))
            ]
        if kind == "concatenation":
            return [piece for child in node.children for piece in self._node_pieces(child, quoted)]
        if kind == "command_name" and node.named_children:
            return self._node_pieces(node.named_children[0], quoted)
        if kind == "simple_expansion":
            return [self._variable(source[1:], source)]
        if kind == "expansion":
            return [self._parameter(source)]
        if kind == "arithmetic_expansion":
            return [self._arithmetic(source)]
        if kind == "command_substitution":
            return [self._substitution(node, source)]
        if kind == "process_substitution":
            return [Token(source, False)]
        if not node.named_child_count:
            return [Token(source)]
        return self._pieces(node, node.start_byte, node.end_byte)

    def _pieces(self, node: Node, start: int, end: int, keep_quotes: bool = False) -> list[Token]:
        """Text between ``start`` and ``end`` with its expansions replaced; literal pieces carry line -1."""
        out: list[Token] = []
        at = start
        for child in node.named_children:
            if (
                child.type in ("string_content", "heredoc_content", "raw_string", "word", "comment")
                or child.start_byte < at
                or child.end_byte > end
            ):
                continue
            if child.start_byte > at:
                out.append(Token(self.data[at : child.start_byte].decode("utf-8", "replace"), True, -1))
            if keep_quotes and child.type in ("string", "raw_string"):
                out.append(Token(self.text(child), True, -1))
            else:
                out += [Token(piece.text, piece.known, 0) for piece in self._node_pieces(child, True)]
            at = child.end_byte
        if at < end:
            out.append(Token(self.data[at:end].decode("utf-8", "replace"), True, -1))
        return out

    def _variable(self, name: str, source: str) -> Token:
        if name.isdigit():
            index = int(name)
            return self.zero if index == 0 else self.args[index - 1] if index <= len(self.args) else Token("")
        if name in ("@", "*"):
            return Token(" ".join(token.text for token in self.args), all(token.known for token in self.args))
        if name == "#":
            return Token(str(len(self.args)))
        value = self.vars.get(name)
        if isinstance(value, list):
            return value[0] if value else Token("")
        if value is None:
            return Token(source, False)
        return value

    def _parameter(self, source: str) -> Token:
        match = _PARAMETER.match(source)
        if match is None or match["bang"]:
            return Token(source, False)
        name, operation = match["name"], match["op"]
        value = self.vars.get(name)
        if match["index"]:
            index = match["index"][1:-1]
            items = value if isinstance(value, list) else [value] if value is not None else []
            if match["hash"]:
                return Token(str(len(items)))
            if index.isdigit() and int(index) < len(items):
                value = items[int(index)]
            elif index in ("@", "*"):
                value = Token(" ".join(item.text for item in items), all(item.known for item in items))
            else:
                return Token(source, False)
        elif isinstance(value, list):
            value = value[0] if value else Token("")
        if value is None and (name.isdigit() or name in "@*#"):
            value = self._variable(name, source)
        if match["hash"]:
            return Token(str(len(value.text))) if value is not None and value.known else Token(source, False)
        return self._operate(value, operation, source, name)

    def _operate(self, value: Token | None, operation: str, source: str, name: str) -> Token:
        if not operation:
            return value if value is not None else Token(source, False)
        head = re.match(r"^(:?[-=+?])(.*)$", operation, re.DOTALL)
        if head is not None:
            operator, word = head[1], head[2]
            if value is None and self.open_env and "+" not in operator:
                return Token(source, False)
            if value is not None and not value.known:
                return value if "+" not in operator else Token(source, False)
            is_set = value is not None and (not operator.startswith(":") or value.text != "")
            if operator.endswith("+"):
                return self._word_text(word) if is_set else Token("")
            if is_set and value is not None:
                return value
            if operator.endswith("?"):
                return Token(source, False)
            default = self._word_text(word)
            if operator.endswith("="):
                self.vars[name] = default
            return default
        if value is None or not value.known:
            return value if value is not None else Token(source, False)
        changed = transform(value.text, operation)
        return Token(source, False) if changed is None else Token(changed)

    def _word_text(self, word: str) -> Token:
        if "$" not in word and "`" not in word:
            try:
                return Token("".join(shlex.split(word)) if re.search(r"['\"\\]", word) else word)
            except ValueError:
                return Token(word)
        inner = self.sibling()
        bare = word[1:-1] if len(word) > 1 and word[0] == word[-1] == '"' else word
        inner.data = f'x="{bare}"'.encode()
        node = parser().parse(inner.data).root_node
        target = node.named_children[0].child_by_field_name("value") if node.named_children else None
        return inner.one(target) if target is not None and not node.has_error else Token(word, False)

    def _arithmetic(self, source: str) -> Token:
        body = source[3:-2] if source.startswith("$((") else source[2:-1]

        def number(match: re.Match[str]) -> str:
            value = self.vars.get(match[1] or match[2])
            if isinstance(value, Token) and value.known and re.fullmatch(r"-?\d{1,18}", value.text):
                return value.text
            return match[0]

        body = re.sub(r"\$\{?([A-Za-z_]\w*)(?::?-\d+)?\}?|\b([A-Za-z_]\w*)\b", number, body)
        if not _SAFE_ARITHMETIC.match(body) or "**" in body or len(body) > 200:
            return Token(source, False)
        result = evaluate(body)
        return Token(source, False) if result is None else Token(str(result))

    def _substitution(self, node: Node, source: str) -> Token:
        commands = [child for child in node.named_children if child.type == "command"]
        if self.nesting < MAX_DEPTH and len(commands) == 1 and node.named_child_count == 1:
            self.nesting += 1
            words = [token for child in commands[0].named_children for token in self.words(child)]
            self.nesting -= 1
            output = printed(words)
            if output is None and len(words) == 2 and words[0].text == "cat":
                output = self.file(words[1])
            if output is not None:
                return Token(output.rstrip("\n"))
        return Token(" ".join(source.split()), False)
