"""How a command prints its one answer: text for people, or exactly one JSON or YAML document on stdout.

Called by every command's `run`. Progress and warnings go to stderr, through `note`.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from typing import Any


def emit(args: argparse.Namespace, document: Any, text: Callable[[], str]) -> None:
    """Print `document` as `-o json` or `-o yaml` ask, else what `text()` returns (called only then)."""
    document = _finite(document)
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


def _finite(value: Any) -> Any:
    """JSON knows neither NaN (unknown: null) nor infinity (the largest double, which compares alike)."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else math.copysign(sys.float_info.max, value)
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value
