"""What an Argo metric demands: `result[0] >= 0.95` as a threshold and a direction.

Used by the reader of AnalysisTemplates. Guards against absent data (`isNaN(result)`, `len(result) == 0`) are dropped:
here absent data is never good, whatever the condition said of it.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from manifests.convert.measures import MAX, MIN

_VALUE = r"(?:asFloat\(\s*)?(?:default\(\s*)?(?:result(?:\[0\])?|#)(?:\s*,[^()]*\))?\s*\)?"
_NUMBER = r"([-+]?\d*\.?\d+(?:[eE][-+]?\d+)?)"
_LEFT = re.compile(rf"{_VALUE}\s*(>=|<=|>|<)\s*{_NUMBER}")
_RIGHT = re.compile(rf"(?<![\w.]){_NUMBER}\s*(>=|<=|>|<)\s*{_VALUE}")
_ABSENT = re.compile(r"len\(\s*result\s*\)\s*(?:==|!=|>|>=|<|<=)\s*\d+")
_FLIPPED = {MIN: MAX, MAX: MIN}


def threshold_of(condition: str, failure: bool = False) -> tuple[str, Decimal] | None:
    """(MIN or MAX, threshold) of a condition with one comparison; None where it has none or several.

    Args:
        condition: the expression of `successCondition`, or of `failureCondition` when `failure`.
    """
    text = _ABSENT.sub("", condition)
    found = [(op, number) for op, number in _LEFT.findall(text)]
    found += [(_mirrored(op), number) for number, op in _RIGHT.findall(text)]
    if len(set(found)) != 1:
        return None
    operator, number = found[0]
    direction = MIN if operator.startswith(">") else MAX
    try:
        return (_FLIPPED[direction] if failure else direction), Decimal(number)
    except InvalidOperation:
        return None


def _mirrored(operator: str) -> str:
    return operator.replace(">", "?").replace("<", ">").replace("?", "<")
