"""Prints docs/state-machine.md from the TRANSITIONS table and the vocabulary of phases, guards and reasons.

Run as `python -m controller.core.diagram` (or with `--check`, which only compares).
"""

import inspect
import sys
from pathlib import Path

from controller.core.machine import GUARDS, PHASES, TRANSITIONS
from crds.v1alpha1.conditions import TERMINAL, Phase

TARGET = Path(__file__).resolve().parents[2] / "docs" / "state-machine.md"


def render() -> str:
    """The page."""
    lines = [
        "# The state machine",
        "",
        "Printed from `controller/core/machine.py` by `make generate`; change the code, not this page.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> Idle",
    ]
    for phase in Phase:
        lines += [f"    {phase} --> {after}" for after in Phase if after in TRANSITIONS[phase]]
    lines += ["```", "", "At rest: " + ", ".join(p for p in Phase if p in TERMINAL) + ".", ""]
    lines += ["## Phases", "", "| phase | what happens | may go to |", "|---|---|---|"]
    for phase in Phase:
        after = ", ".join(p for p in Phase if p in TRANSITIONS[phase])
        lines.append(f"| {phase} | {_first_line(PHASES[phase])} | {after} |")
    lines += ["", "## Guards, in order", ""]
    lines += ["They run before the phase's own function; the first that answers wins.", ""]
    lines += [f"{n}. `{guard.__name__}`: {_first_line(guard)}" for n, guard in enumerate(GUARDS, start=1)]
    return "\n".join(lines) + "\n"


def _first_line(function: object) -> str:
    return (inspect.getdoc(function) or "").splitlines()[0]


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is current (exit 1: stale)."""
    text = render()
    if "--check" in arguments:
        is_current = TARGET.is_file() and TARGET.read_text() == text
        if not is_current:
            print("docs/state-machine.md is stale: run `make generate`", file=sys.stderr)
        return 0 if is_current else 1
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
