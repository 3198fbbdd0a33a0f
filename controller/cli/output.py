"""How a command prints its one answer: text for people, or exactly one JSON or YAML document on stdout.

Called by every command's `run`. Progress and warnings go to stderr, through `note`.
"""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from controller.jsonable import jsonable


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
        print(rendered.rstrip("\n"))


def note(message: str) -> None:
    """One line of progress or warning, on stderr."""
    print(f"weighlock: {message}", file=sys.stderr)
