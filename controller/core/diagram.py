"""Prints docs/state-machine.md from the TRANSITIONS table, the phases and the guards.

Run as `python -m controller.core.diagram` (or with `--check`, which only compares).
"""

import inspect
import sys
from pathlib import Path

from controller.core.guards import GUARDS
from controller.core.machine import PHASES, TRANSITIONS, PhaseFunction
from crds.v1alpha1.conditions import TERMINAL, Phase

TARGET = Path(__file__).resolve().parents[2] / "docs" / "state-machine.md"


def render() -> str:
    """The page."""
    lines = [
        "# The state machine",
        "",
        "Printed from `controller/core` (`machine.py`, `guards.py`, `phases/`) by `make generate`: change the code.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> Idle",
    ]
    for phase in Phase:
        lines += [f"    {phase} --> {after}" for after in Phase if after in TRANSITIONS[phase]]
    lines += ["```", "", "At rest: " + ", ".join(p for p in Phase if p in TERMINAL) + ".", ""]
    lines += ["## Phases", "", "| phase | what happens | may go to | written in |", "|---|---|---|---|"]
    for phase in Phase:
        after = ", ".join(p for p in Phase if p in TRANSITIONS[phase])
        lines.append(f"| {phase} | {_first_paragraph(PHASES[phase])} | {after} | {_place(PHASES[phase])} |")
    lines += ["", "## Guards, in order", ""]
    lines += [
        "They run before the phase's own function; the first that answers wins (`controller/core/guards.py`).",
        "",
    ]
    lines += [f"{n}. `{guard.__name__}`: {_first_paragraph(guard)}" for n, guard in enumerate(GUARDS, start=1)]
    return "\n".join(lines) + "\n"


def _first_paragraph(function: object) -> str:
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


def _place(function: PhaseFunction) -> str:
    """File and name, as a reader finds it."""
    return f"`{function.__module__.replace('.', '/')}.py`, `{function.__name__}`"


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
