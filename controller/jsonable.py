"""Any value as plain JSON values, and the digest of such. Used all over the controller."""

import hashlib
import json
import math
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any


def jsonable(value: Any) -> Any:
    """Mappings, sequences and scalars that JSON can hold.

    NaN is unknown, so null; infinity becomes the largest double, which compares alike (an e-value may be infinite).
    """
    if isinstance(value, Enum):
        return jsonable(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else math.copysign(sys.float_info.max, value)
    if isinstance(value, Mapping):
        return {str(key): jsonable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(entry) for entry in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "item"):  # a numpy scalar
        return jsonable(value.item())
    return str(value)


def digest_of(value: Any) -> str:
    """SHA-256 in hex of plain JSON values, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
