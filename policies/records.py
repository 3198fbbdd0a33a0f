"""Request records: one immutable value per attempted request, with the fields of the outside contract.

Made by the recorder (from access logs), by replay and by `record_files` (from files); read by the block builder.
Pure: no clock, no file. Unknown is None, never zero.
"""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import orjson


class Outcome(StrEnum):
    """How a request ended."""

    OK = "ok"
    CLIENT_ERROR = "client_error"  # the request was refused as wrong (4xx)
    SERVER_ERROR = "server_error"  # 5xx, connection lost, or an error frame in the stream
    REJECTED = "rejected"  # turned away for load (429, 503 with overload)
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"  # the client went away
    TRUNCATED = "truncated"  # the stream ended with neither finish reason nor terminator
    EMPTY = "empty"  # ended well without any content
    OPEN = "open"  # unfinished when written


class Kind(StrEnum):
    """Where a request came from."""

    LIVE = "live"
    MIRROR = "mirror"  # copy to the shadow, or to the old stable during bake
    TOPUP = "topup"  # copy that brings a candidate replica to the load it will carry
    REPLAY = "replay"
    PROBE = "probe"  # our own one-token request; never judged


STABLE = "stable"
CANDIDATE = "candidate"
VARIANTS = frozenset({STABLE, CANDIDATE})


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One attempted request; times in seconds, `t_start_s` in Unix time, the others from the start of the request."""

    id: str
    t_start_s: float
    variant: str  # stable | candidate
    tenant: str
    outcome: str  # see Outcome
    pair: str | None = None  # id of the live request that this one copies
    retry_of: str | None = None
    rollout: str | None = None
    attempt: int | None = None
    step: int | None = None
    revision: str | None = None  # digest10 of what served it
    kind: str = "live"  # see Kind
    bucket: str | None = None  # as fixed at arrival
    model: str | None = None
    pod: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    tokens_source: str | None = None  # usage | engine | estimate | none
    stream: bool | None = None
    status: int | None = None
    ttft_s: float | None = None  # to the first non-empty content, reasoning or tool-call delta
    e2e_s: float | None = None  # age when it ended (or, for open ones, when it was written)
    max_gap_s: float | None = None
    max_gap_at_s: float | None = None  # end of the longest gap, from the start of the request
    gaps_n: int | None = None
    events: int | None = None
    chunks: int | None = None
    pod_age_s: float | None = None

    @property
    def tpot_s(self) -> float | None:
        """(e2e - ttft) / (output tokens - 1) for at least two output tokens, else None."""
        if self.ttft_s is None or self.e2e_s is None or self.output_tokens is None or self.output_tokens < 2:
            return None
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)

    def to_json_line(self) -> bytes:
        """The record as one JSON line (with newline); unknown fields are left out."""
        values = {name: value for name in FIELD_NAMES if (value := getattr(self, name)) is not None}
        return orjson.dumps(values, option=orjson.OPT_APPEND_NEWLINE)


FIELD_NAMES: tuple[str, ...] = tuple(f.name for f in fields(RequestRecord))
REQUIRED_FIELDS = ("id", "t_start_s", "variant", "tenant", "outcome")
_OUTCOMES = frozenset(o.value for o in Outcome)
_KINDS = frozenset(k.value for k in Kind)
_TIMES = ("ttft_s", "e2e_s", "max_gap_s", "max_gap_at_s", "pod_age_s")
_COUNTS = ("prompt_tokens", "output_tokens", "gaps_n", "events", "chunks", "attempt", "step", "status")


class RecordError(ValueError):
    """A line that is no request record; `field` names the culprit ("" for the whole line)."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field = field
        self.problem = problem


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RecordError(name, f"{value!r} is not a number")
    if value != value or value in (float("inf"), float("-inf")):
        raise RecordError(name, f"{value!r} is not a finite number")
    if value < 0:
        raise RecordError(name, f"{value!r} is negative")
    return float(value)


def record_from_mapping(raw: dict[str, Any]) -> RequestRecord:
    """A validated record from one decoded line; RecordError names the field that is wrong.

    Nothing is mended here: the file reader decides what a wrong value costs (see `record_files`).
    """
    values: dict[str, Any] = {k: v for k, v in raw.items() if v is not None}
    for name in REQUIRED_FIELDS:
        if name not in values:
            raise RecordError(name, "is missing")
    unknown = values.keys() - set(FIELD_NAMES)
    if unknown:
        raise RecordError(sorted(unknown)[0], "is not a field of a request record")
    if values["outcome"] not in _OUTCOMES:
        raise RecordError("outcome", f"{values['outcome']!r} is none of {', '.join(sorted(_OUTCOMES))}")
    if values["variant"] not in VARIANTS:
        raise RecordError("variant", f"{values['variant']!r} is neither stable nor candidate")
    if values.get("kind", "live") not in _KINDS:
        raise RecordError("kind", f"{values['kind']!r} is none of {', '.join(sorted(_KINDS))}")
    values["id"] = str(values["id"])
    values["tenant"] = str(values["tenant"])
    values["t_start_s"] = _number("t_start_s", values["t_start_s"])
    for name in _TIMES:
        if name in values:
            values[name] = _number(name, values[name])
    for name in _COUNTS:
        if name in values:
            values[name] = int(_number(name, values[name]))
    if values.get("ttft_s", 0.0) > values.get("e2e_s", float("inf")):
        raise RecordError("ttft_s", "is longer than e2e_s")
    return RequestRecord(**values)
