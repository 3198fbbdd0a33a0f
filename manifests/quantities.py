"""Kubernetes quantities as numbers: ``1000m`` = ``1``, ``1024Mi`` = ``1Gi``, ``1Gi`` != ``1G``.

Used by the importers, the diff and the digest. Source: the Kubernetes resource.Quantity grammar.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

_SUFFIX: dict[str, Decimal] = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}
_GRAMMAR = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,3})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?)$")


def parse_quantity(value: object) -> Decimal | None:
    """The exact number of a quantity (string, int or float); None when it is no quantity."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        value = repr(value)
    if not isinstance(value, str) or len(value) > 64:
        return None
    match = _GRAMMAR.match(value.strip())
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    try:
        return Decimal(number + exponent) if exponent else Decimal(number) * _SUFFIX[suffix or ""]
    except InvalidOperation:
        return None


def canonical_quantity(value: object) -> str | None:
    """One spelling per amount (plain decimal without trailing zeros); None when it is no quantity."""
    number = parse_quantity(value)
    if number is None:
        return None
    text = format(number.normalize(), "f")
    return text if text != "-0" else "0"


def count(value: object) -> int | None:
    """A whole number of devices, None when the value is none."""
    number = parse_quantity(value)
    if number is None or number != number.to_integral_value():
        return None
    return int(number)
