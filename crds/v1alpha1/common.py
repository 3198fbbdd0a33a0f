"""Scalars shared by every Weighlock object: durations, ratios, percentiles, quantities of bytes.

The API holds no floats: durations (`90s`), ratios (`25%`, `1pp`), percentiles (`99.9`) and probabilities (`0.01`)
are strings. The parse functions here are the only readers of those strings; they raise `ValueError` with a sentence
that says what to write.
"""

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, WithJsonSchema
from pydantic.alias_generators import to_camel

GROUP = "weighlock.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(ms|s|m|h)$")
_RATIO = re.compile(r"^(\d+(?:\.\d+)?)(%|pp)$")
_NUMBER = re.compile(r"^\d+(?:\.\d+)?$")
_BYTES = re.compile(r"^(\d+)(Ki|Mi|Gi|k|M|G)?$")
_BYTE_UNITS = {None: 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9}


def parse_duration_seconds(text: str) -> float:
    """Seconds of a duration such as `50ms`, `90s`, `10m`, `2h`; ValueError otherwise."""
    match = _DURATION.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write a number with ms, s, m or h, for example 90s")
    return float(match[1]) * _UNIT_SECONDS[match[2]]


def parse_ratio(text: str) -> float:
    """Fraction of a ratio such as `25%` or `1pp` (0.25, 0.01); ValueError otherwise."""
    match = _RATIO.match(text)
    if match is None:
        raise ValueError(f'{text!r} is not a ratio; write it with a unit, for example "25%" or "1pp"')
    return float(match[1]) / 100.0


def parse_number(text: str) -> float:
    """Value of a decimal written as a string (`99.9`, `0.01`); ValueError otherwise."""
    if _NUMBER.match(text) is None:
        raise ValueError(f'{text!r} is not a decimal number; write it as a string, for example "99" or "0.01"')
    return float(text)


def parse_bytes(text: str) -> int:
    """Bytes of a quantity such as `50Mi`; ValueError otherwise."""
    match = _BYTES.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not an amount of bytes; write for example 50Mi")
    return int(match[1]) * _BYTE_UNITS[match[2]]


def _checked(parse: Callable[[str], float]) -> AfterValidator:
    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


def _check_probability(text: str) -> str:
    if not 0.0 < parse_number(text) < 1.0:
        raise ValueError(f"{text!r} must lie between 0 and 1")
    return text


def _check_percentile(text: str) -> str:
    if not 0.0 < parse_number(text) < 100.0:
        raise ValueError(f"{text!r} must lie between 0 and 100")
    return text


def _check_limit(text: str) -> str:
    if not (_DURATION.match(text) or _RATIO.match(text)):
        raise ValueError(f"{text!r} has no unit; write a duration (2s) for latencies or a ratio (99.5%) for fractions")
    return text


def _schema(*patterns: re.Pattern[str]) -> WithJsonSchema:
    alternatives = "|".join(f"({pattern.pattern.strip('^$')})" for pattern in patterns)
    return WithJsonSchema({"type": "string", "maxLength": 32, "pattern": f"^({alternatives})$"})


Duration = Annotated[str, _checked(parse_duration_seconds), _schema(_DURATION)]
Ratio = Annotated[str, _checked(parse_ratio), _schema(_RATIO)]
Decimal = Annotated[str, _checked(parse_number), _schema(_NUMBER)]
Probability = Annotated[str, AfterValidator(_check_probability), _schema(_NUMBER)]
Percentile = Annotated[str, AfterValidator(_check_percentile), _schema(_NUMBER)]
Bytes = Annotated[str, _checked(parse_bytes), _schema(_BYTES)]
Limit = Annotated[str, AfterValidator(_check_limit), _schema(_DURATION, _RATIO)]


class ApiModel(BaseModel):
    """Base of every API type: camelCase on the wire, unknown fields refused, values immutable."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)
