"""How a command prints its one answer: text for people, or exactly one JSON or YAML document on stdout.

Called by every command's `run`. Progress and warnings go to stderr, through `note`.
"""

import argparse
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable
from typing import Any

from controller.jsonable import jsonable

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def emit(args: argparse.Namespace, document: Any, text: Callable[[], str]) -> None:
    """Print `document` as `-o json` or `-o yaml` ask, else what `text()` returns (called only then)."""
    document = jsonable(document)
    if args.output == "json":
        print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
        return
    if args.output == "yaml":
        import yaml

        print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")
        return
    rendered = text()
    if rendered:
        print(fit(rendered.rstrip("\n"), _columns()))


def fit(text: str, columns: int | None) -> str:
    """Lines longer than the terminal go on below their own beginning, at blanks; None leaves them as they are."""
    if columns is None:
        return text
    out: list[str] = []
    for line in text.split("\n"):
        if len(_COLOUR.sub("", line)) <= columns:
            out.append(line)
            continue
        indent = " " * min(len(line) - len(line.lstrip()) + 4, columns // 2)
        out += textwrap.wrap(
            line, columns, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False,
            drop_whitespace=True, replace_whitespace=False,
        )  # fmt: skip
    return "\n".join(out)


def _columns() -> int | None:
    """Width of the terminal; None where the reader is a program, which wants whole lines."""
    return max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def note(message: str) -> None:
    """One line of progress or warning, on stderr."""
    print(f"weighlock: {message}", file=sys.stderr)


def printable(line: str) -> str:
    """A line without what would steer the terminal, or begin another line: tenants choose their own names."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
