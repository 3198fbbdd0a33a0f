"""Accelerators by the names that nodes, resource profiles and people use: memory, bandwidth, arithmetic peaks.

Called by the ledger and by the rules for hardware-dependent defaults. The data sheet's bandwidth and what an
independent benchmark attained are separate; the latter is the fastest kernel of a published run on that card (a bound
must not be too tight), None where none was found, and never derived from the former.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator: bytes and bytes per second; peaks in operations per second, None where the part has no such
    unit."""

    name: str
    vendor: str
    memory_bytes: int
    memory_gib: float
    bandwidth_datasheet: float
    bandwidth_attainable: float | None
    attainable_source: str | None
    bf16_flops: float | None
    fp8_flops: float | None
    source: str


@cache
def _table() -> tuple[tuple[Accelerator, tuple[re.Pattern[str], ...]], ...]:
    data = json.loads(resources.files("manifests.catalog").joinpath("hardware.json").read_text(encoding="utf-8"))
    out = []
    for row in data["accelerators"]:
        part = Accelerator(
            row["name"],
            row["vendor"],
            row["memory_bytes"],
            row["memory_gib"],
            row["bandwidth_datasheet_bytes_per_s"],
            row["bandwidth_attainable_bytes_per_s"],
            row["attainable_source"],
            row["bf16_flops"],
            row["fp8_flops"],
            row["source"],
        )
        out.append((part, tuple(re.compile(pattern) for pattern in row["match"])))
    return tuple(out)


def names() -> tuple[str, ...]:
    """Every name of the catalogue."""
    return tuple(part.name for part, _ in _table())


def find_accelerator(label: str | None) -> Accelerator | None:
    """The accelerator that a name or node label means; None when it is not known (a MIG slice never is its whole
    GPU)."""
    if not label or "mig-" in label.lower():
        return None
    text = label.lower().replace("_", "-").replace(" ", "-")
    exact = next((part for part, _ in _table() if part.name.lower() == text), None)
    if exact is not None:
        return exact
    best: tuple[int, Accelerator] | None = None
    for part, patterns in _table():
        for pattern in patterns:
            match = pattern.search(text)
            if match and (best is None or len(match[0]) > best[0]):
                best = (len(match[0]), part)
    return best[1] if best else None
