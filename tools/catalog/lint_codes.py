"""Writes ``docs/lint-codes.md`` from the table of codes; ``--check`` fails when the page is not what it would write."""

from __future__ import annotations

import sys
from pathlib import Path

from manifests.codes import CODES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "lint-codes.md"
HEAD = """# What the findings mean

One row per code of `weighlock lint`, `import` and `diff`. A code is stable. The level in the table is the usual one;
it is higher or lower where more is known. An `error`
makes `weighlock lint` exit 1 and stops an attempt before any traffic.

| code | level | what it means | what to do |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = [
        f"| `{code}` | {level} | {meaning} | {remedy} |" for code, (level, meaning, remedy) in sorted(CODES.items())
    ]
    return HEAD + "\n".join(rows) + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        return 0 if current == page() else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
