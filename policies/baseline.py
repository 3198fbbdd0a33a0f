"""Which blocks are history of the stable revision: those in which it alone served live requests.

Idle blocks are; so are the shadow blocks of an attempt (copies touch nobody) and, for the revision that became stable,
the blocks of its bake. Called by the controller when an attempt begins. Pure.
"""

from collections.abc import Iterable
from dataclasses import replace

from policies.blocks import Block
from policies.records import CANDIDATE, STABLE

LIVE = "live"
_ALONE = {"idle": STABLE, "install": CANDIDATE, "shadow": STABLE, "bake": CANDIDATE}
"""Stage -> the variant that serves every live request in it."""


def as_history(block: Block, revision: str) -> Block | None:
    """The block as history of `revision` (its live cells, as stable); None where others served too, or nobody."""
    variant = _ALONE.get(block.stage)
    if variant is None or variant in block.missing:
        return None
    live = [cell for cell in block.cells if cell.kind == LIVE]
    if not live or any((cell.variant, cell.revision) != (variant, revision) for cell in live):
        return None
    cells = tuple(replace(cell, variant=STABLE) for cell in live)
    return replace(block, cells=cells, pairs=(), missing=())


def newest_alone(blocks: Iterable[Block], revision: str, length_s: float) -> list[Block]:
    """The newest blocks in which `revision` served alone, as they are and in their order, that together span at least
    `length_s` seconds. Of what is left out none is ever needed, so a long past can be read in pieces.
    """
    found: list[Block] = []
    span_s = 0.0
    for block in reversed(list(blocks)):
        if as_history(block, revision) is None:
            continue
        found.append(block)
        span_s += block.end_s - block.start_s
        if span_s >= length_s:
            break
    return found[::-1]


def newest_history(blocks: Iterable[Block], revision: str, length_s: float) -> list[Block]:
    """`newest_alone` as history of the revision."""
    alone = newest_alone(blocks, revision, length_s)
    return [history for block in alone if (history := as_history(block, revision)) is not None]
