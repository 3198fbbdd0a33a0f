"""Every stored verdict beside the one that follows from stored counts alone: `weighlock history NAME --rejudge`.

Called by the evidence API. The judge is a pure function of its setup and of blocks in order, so a verdict that was
given when it had seen block `last_seq` must come out again, number by number. This file knows how to line them up and
compare, not how to judge.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from controller.jsonable import jsonable
from controller.store.reader import StoreReader
from policies.blocks import Block
from policies.verdict import Hold, HoldReason, Verdict

_RELATIVE_TOLERANCE = 1e-9  # sums of floats may be associated differently on another machine
_SHOWN_DIFFERENCES = 8
_FROM_OUTSIDE = frozenset({HoldReason.HARDWARE_DIFFERS.value, HoldReason.PROVIDER_UNAVAILABLE.value})


class Judging(Protocol):
    """A judge that is being rebuilt."""

    def add(self, block: Block) -> None:
        """Take the next block."""

    def verdict(self, now_s: float, guards: Sequence[Hold] = ()) -> Verdict:
        """What it says at this moment, with the holds that the controller found."""


def rejudge(
    reader: StoreReader,
    rollout: str,
    attempt: int,
    make_judge: Callable[[Mapping[str, Any]], Judging],
    since_s: float = 0.0,
) -> dict[str, Any]:
    """All verdicts of an attempt compared: `{"rollout", "attempt", "same", "verdicts": [...], "problem"}`.

    `make_judge` builds a fresh judge from the stored setup; `since_s`: when the rollout object was made.
    Raises SQLAlchemyError while the database is away.
    """
    setup = reader.setup(rollout, attempt, since_s)
    stored = reader.verdicts(rollout, attempt, since_s)
    first = next(stored, None)
    if setup is None or first is None:
        problem = "no verdict of this attempt is stored" if setup else "the judge's setup of this attempt is not stored"
        return {"rollout": rollout, "attempt": attempt, "same": None, "verdicts": [], "problem": problem}
    blocks = reader.blocks(rollout, attempt, since_s)
    compared = list(compare_verdicts(make_judge(setup), blocks, itertools.chain([first], stored)))
    same = all(entry["same"] for entry in compared)
    return {"rollout": rollout, "attempt": attempt, "same": same, "verdicts": compared, "problem": None}


def compare_verdicts(
    judge: Judging, blocks: Iterable[Block], stored: Iterable[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """One comparison per stored verdict, oldest first.

    Args:
        judge: a fresh judge, made from the stored setup.
        blocks: all stored blocks of the attempt in order.
        stored: rows as `StoreReader.verdicts` gives them, in its order.
    """
    remaining = iter(blocks)
    seen, waiting = -1, next(remaining, None)
    for row in stored:
        while waiting is not None and waiting.seq <= row["last_seq"]:
            judge.add(waiting)
            seen, waiting = waiting.seq, next(remaining, None)
        yield _compare(judge, row, seen)


def _compare(judge: Judging, row: Mapping[str, Any], seen: int) -> dict[str, Any]:
    found = {
        "at_s": row["at_s"],
        "step": row["step"],
        "last_seq": row["last_seq"],
        "evidence": row.get("evidence", ""),
        "stored": row["result"],
        "late": row.get("late", False),
    }
    if seen < row["last_seq"]:
        missing = f"blocks {seen + 1} to {row['last_seq']} are not stored"
        return {**found, "rejudged": None, "same": False, "differences": [missing]}
    again = jsonable(judge.verdict(row["at_s"], _guards(row["verdict"])).to_dict())
    differences = list(_differences(jsonable(row["verdict"]), again, ""))
    return {
        **found,
        "rejudged": again["result"],
        "same": not differences,
        "differences": differences[:_SHOWN_DIFFERENCES],
    }


def _guards(verdict: Mapping[str, Any]) -> list[Hold]:
    """Holds that came from outside of the counts: they are part of the input, not of what is proven again."""
    found = [hold for hold in verdict.get("holds") or () if hold["reason"] in _FROM_OUTSIDE]
    return [Hold(**{**hold, "reason": HoldReason(hold["reason"])}) for hold in found]


def _differences(old: Any, new: Any, path: str) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differences(one, other, f"{path}[{index}]")
    elif not _equal(old, new):
        yield f"{path}: stored {_short(old)}, rejudged {_short(new)}"


def _equal(old: Any, new: Any) -> bool:
    if isinstance(old, float) or isinstance(new, float):
        numbers = isinstance(old, int | float) and isinstance(new, int | float)
        return numbers and math.isclose(old, new, rel_tol=_RELATIVE_TOLERANCE, abs_tol=1e-12)
    return bool(old == new)


def _short(value: Any) -> str:
    text = f"{len(value)} entries" if isinstance(value, list) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."
