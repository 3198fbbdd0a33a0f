"""Small pieces of shell semantics on known text: parameter operators, arithmetic, printf, escapes.

Called by :mod:`manifests.shell_words` and :mod:`manifests.shell`. Pure functions; None means that reading does not
decide.
"""

from __future__ import annotations

import ast
import fnmatch
import re
import shlex


def evaluate(body: str) -> int | None:
    """C arithmetic on plain numbers: + - * / % and comparisons, left to right by precedence."""
    try:
        tree = ast.parse(body.strip().replace("&&", " and ").replace("||", " or ").replace("/", "//"), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None

    def walk(node: ast.AST) -> int:
        if isinstance(node, ast.Expression):
            return walk(node.body)
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -walk(node.operand)
        if isinstance(node, ast.BinOp):
            left, right = walk(node.left), walk(node.right)
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Sub):
                return left - right
            if isinstance(node.op, ast.Mult):
                return left * right
            if right and isinstance(node.op, ast.FloorDiv):
                return int(left / right)
            if right and isinstance(node.op, ast.Mod):
                return left - right * int(left / right)
        raise ValueError

    try:
        return walk(tree)
    except (ValueError, OverflowError, RecursionError):
        return None


def glob_regex(pattern: str) -> str:
    return fnmatch.translate(pattern).removesuffix(r"\Z").removesuffix(r"\z")


def transform(text: str, operation: str) -> str | None:
    """``#`` ``##`` ``%`` ``%%`` ``/a/b`` ``//a/b`` ``:off:len`` ``^^`` ``,,`` on a known text; None for anything
    else."""
    for operator in ("##", "#", "%%", "%"):
        if operation.startswith(operator):
            pattern = glob_regex(operation[len(operator) :])
            ends = range(len(text) + 1)
            if operator.startswith("#"):
                cuts = [end for end in ends if re.fullmatch(pattern, text[:end])]
                return text if not cuts else text[(max if operator == "##" else min)(cuts) :]
            cuts = [start for start in ends if re.fullmatch(pattern, text[start:])]
            return text if not cuts else text[: (min if operator == "%%" else max)(cuts)]
    if operation in ("^^", ",,"):
        return text.upper() if operation == "^^" else text.lower()
    if operation.startswith("/") and len(text) < 4096:
        everywhere = operation.startswith("//")
        pattern, _, replacement = operation.lstrip("/").partition("/")
        return re.sub(glob_regex(pattern), lambda _: replacement, text, count=0 if everywhere else 1)
    span = re.fullmatch(r":\s*(\d+)(?::(\d+))?", operation)
    if span is not None:
        start = int(span[1])
        return text[start:] if span[2] is None else text[start : start + int(span[2])]
    return None


def printf(form: str, values: list[str]) -> str | None:
    if re.search(r"%[^sdq%]", form):
        return None
    parts = re.split(r"(%[sdq%])", ansi(form))
    out = ""
    remaining = list(values)
    for _ in range(64):
        for part in parts:
            if part == "%%":
                out += "%"
            elif part in ("%s", "%d", "%q"):
                value = remaining.pop(0) if remaining else ""
                out += shlex.quote(value) if part == "%q" else value
            else:
                out += part
        if not remaining or not re.search(r"%[sdq]", form):
            return out
    return None


def ansi(text: str) -> str:
    table = {
        "n": "\n",
        "t": "\t",
        "r": "\r",
        "\\": "\\",
        "'": "'",
        '"': '"',
        "a": "\a",
        "b": "\b",
        "e": "\x1b",
        "0": "\0",
    }
    return re.sub(r"\\(.)", lambda match: table.get(match[1], match[0]), text, flags=re.DOTALL)
