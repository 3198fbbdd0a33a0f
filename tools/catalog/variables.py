"""The survey of environment variables over several versions of an engine, as entries of the facts' shape.

Called by ``regenerate.py variables``. What a variable acts on is told by its name (``variable_rules.yaml``), because no
source states it; defaults and versions are read from the wheels (:mod:`wheels`).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tools.catalog.wheels import UNREADABLE, variables

HERE = Path(__file__).parent
PREFIXES = {"vllm": ("VLLM_",), "sglang": ("SGLANG_", "SGL_")}
SOURCE = {"vllm": "vllm/envs.py", "sglang": "sglang/srt/environ.py and reads of the environment"}


def survey(engine: str, roots: list[tuple[str, Path]]) -> list[dict[str, Any]]:
    """One entry per variable that acts on serving; ``roots``: (version, package), oldest first."""
    found = {version: {v.name: v.default for v in variables(engine, root, PREFIXES[engine])} for version, root in roots}
    versions = [version for version, _ in roots]
    out = []
    for name in sorted({name for defaults in found.values() for name in defaults}):
        acts_on = meaning(name)
        if acts_on is None:
            continue
        out.append({"engine": engine, "flag": f"env:{name}", "type": "env"} | _history(name, versions, found) | acts_on)
        out[-1]["source"] = SOURCE[engine]
    return out


@cache
def _rules() -> tuple[tuple[Any, ...], ...]:
    loaded = yaml.safe_load((HERE / "variable_rules.yaml").read_text(encoding="utf-8"))
    return tuple(tuple(rule) for rule in loaded)


def meaning(name: str) -> dict[str, Any] | None:
    """Mechanism, ledgers and class of a variable by its name; None for one that is left out."""
    for pattern, mechanism, *rest in _rules():
        if re.search(pattern, name):
            if mechanism == "skip":
                return None
            ledgers, correctness, reorder = rest
            return {"mechanism": mechanism, "ledgers": ledgers, "correctness": correctness, "fp_reorder": reorder}
    return {
        "mechanism": "lifecycle",
        "ledgers": [],
        "correctness": "contract-change",
        "note": "what it acts on is not known from its name",
    }


def _history(name: str, versions: list[str], found: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Default, first and last version, and the defaults by version; an unreadable default is an unknown one."""
    history: list[list[str]] = []
    present = [version for version in versions if name in found[version]]
    for version in versions:
        default = found[version].get(name, "ABSENT")
        default = "(declared elsewhere)" if default == UNREADABLE else default
        if not history or history[-1][1] != default:
            history.append([version, default])
    entry: dict[str, Any] = {"default": history[-1][1], "seen": [present[0], present[-1]]}
    if len(history) > 1:
        entry["default_history"] = history
    if present[-1] != versions[-1]:
        entry["removed_between"] = [present[-1], versions[versions.index(present[-1]) + 1]]
        entry["default"] = next(default for _, default in reversed(history) if default != "ABSENT")
    return entry


def write(entries: list[dict[str, Any]], path: Path) -> None:
    """One line per variable, so that a review reads the difference."""
    head = "# Written by regenerate.py variables from the engines' wheels; meanings come from variable_rules.yaml.\n"
    lines = [
        "- " + yaml.safe_dump(entry, default_flow_style=True, width=10_000, sort_keys=False).strip()
        for entry in entries
    ]
    path.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
