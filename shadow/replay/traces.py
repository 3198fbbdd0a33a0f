"""Traces of requests, of many makers, as rows of one shape.

A format is told by the names of its columns or keys, never by the file's name. Times are kept in whole nanoseconds,
so that a difference of two of them loses nothing. What holds no single requests (a report, summaries of runs, rates per
window) is refused in one sentence.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

SECOND, MILLISECOND, NANOSECOND = 1_000_000_000, 1_000_000, 1
_MAX_TOKENS = 100_000_000
_REMEDY = (
    "give a trace with a line per request: Azure, Mooncake, BurstGPT, Splitwise, AIBrix, AIPerf, Dynamo or our records"
)


class TraceRefused(Exception):
    """What is no trace: where, what is wrong, what to do."""

    def __init__(self, where: str, problem: str, remedy: str = _REMEDY) -> None:
        super().__init__(f"{where}: {problem}; {remedy}")
        self.where, self.problem, self.remedy = where, problem, remedy


@dataclass(frozen=True, slots=True)
class Row:
    """One request of a trace. `at_ns`: since the first one, None in a file without times. `blocks`: ids of the
    512-token blocks of its prompt, where the trace says which prompts share a prefix."""

    at_ns: int | None
    prompt_tokens: int
    output_tokens: int
    tenant: str | None = None
    blocks: tuple[int, ...] = ()

    @property
    def t_s(self) -> float | None:
        """Seconds since the first request."""
        return None if self.at_ns is None else self.at_ns / SECOND


@dataclass(frozen=True, slots=True)
class Trace:
    """Rows in time order (ties in file order), the format they were read in, and rows left out for want of lengths."""

    format: str
    rows: tuple[Row, ...]
    left_out: int = 0

    @property
    def span_s(self) -> float | None:
        """Seconds from the first request to the last; None without times."""
        return self.rows[-1].t_s


@dataclass(frozen=True, slots=True)
class Format:
    """Where a format keeps what is needed; dotted names reach into objects."""

    name: str
    time: str | None
    unit_ns: int
    prompt: str
    output: str
    needs: tuple[str, ...] = ()  # further names that tell it from a similar format
    blocks: str | None = None
    keeps: Callable[[dict[str, Any]], bool] = lambda _: True

    def fits(self, names: Callable[[str], bool]) -> bool:
        """Whether an entry with these names is of this format."""
        return not self.lacks(names)

    def lacks(self, names: Callable[[str], bool]) -> list[str]:
        """What an entry with these names has too little to be of this format."""
        wanted = (self.prompt, self.output, *self.needs, *((self.time,) if self.time else ()))
        return [name for name in wanted if not names(name)]


def _ended(entry: dict[str, Any]) -> bool:
    return bool(_at(entry, "event.event_type") == "request_end")


# Most telling first; `time` of Azure is a date, of all others a number.
FORMATS = (
    Format("azure", "TIMESTAMP", SECOND, "ContextTokens", "GeneratedTokens"),
    Format("vidur", "arrived_at", SECOND, "num_prefill_tokens", "num_decode_tokens"),
    Format("burstgpt", "Timestamp", SECOND, "Request tokens", "Response tokens"),
    Format("splitwise", "arrival_timestamp", SECOND, "prompt_size", "token_size"),
    Format("aibrix-lengths", "timestamp_ms", MILLISECOND, "prompt_length", "output_length"),
    Format("bailian", "timestamp", SECOND, "input_length", "output_length", ("chat_id",), "hash_ids"),
    Format("mooncake", "timestamp", MILLISECOND, "input_length", "output_length", blocks="hash_ids"),
    Format("aibrix", "timestamp", MILLISECOND, "prompt_length", "output_length"),
    Format(
        "dynamo",
        "event.request.request_received_ms",
        MILLISECOND,
        "event.request.input_tokens",
        "event.request.output_tokens",
        keeps=_ended,
    ),
    Format(
        "aiperf",
        "metadata.request_start_ns",
        NANOSECOND,
        "metrics.input_sequence_length.value",
        "metrics.output_sequence_length.value",
    ),
    Format("weighlock", "t_start_s", SECOND, "prompt_tokens", "output_tokens", ("variant",)),
    Format("spans", "start_time_s", SECOND, "input_tokens", "output_tokens"),
    Format("llmperf", None, SECOND, "number_input_tokens", "number_output_tokens"),
)


def read_trace(data: bytes, format_name: str = "auto", tenant_from: str | None = None) -> Trace:
    """The requests of a trace.

    Args:
        data: the file, gzip or not: CSV with a header, JSON lines, or a JSON array.
        format_name: name of one of `FORMATS`, or `auto`.
        tenant_from: column or (dotted) key that names the tenant of a request.

    Raises:
        TraceRefused: it is none of the formats, holds no request, or a value in it is no number.
    """
    entries = _entries(_text(data))
    form = _format_of(entries, format_name)
    rows: list[tuple[int | None, Row]] = []
    left_out = 0
    for number, entry in entries:
        if not form.keeps(entry):
            continue
        row = _row(form, number, entry, tenant_from)
        if row is None:
            left_out += 1
        else:
            rows.append((_time(form, number, entry), row))
    if not rows:
        raise TraceRefused("", f"a {form.name} trace without a request")
    return Trace(form.name, _in_order(rows), left_out)


def _in_order(rows: list[tuple[int | None, Row]]) -> tuple[Row, ...]:
    if any(at is None for at, _ in rows):
        return tuple(row for _, row in rows)
    timed = sorted(((at or 0, row) for at, row in rows), key=lambda pair: pair[0])
    first = timed[0][0]
    return tuple(Row(at - first, r.prompt_tokens, r.output_tokens, r.tenant, r.blocks) for at, r in timed)


def _row(form: Format, number: int, entry: dict[str, Any], tenant_from: str | None) -> Row | None:
    """One row without its time; None where a length is unknown, which is not the same as zero."""
    lengths = [_at(entry, form.prompt), _at(entry, form.output)]
    if any(value is None or value == "" for value in lengths):
        return None
    prompt, output = (
        _tokens(number, name, value) for name, value in zip((form.prompt, form.output), lengths, strict=True)
    )
    tenant = _at(entry, tenant_from) if tenant_from else None
    blocks = _at(entry, form.blocks) if form.blocks else None
    ids = tuple(b for b in blocks if isinstance(b, int)) if isinstance(blocks, list) else ()
    return Row(None, prompt, output, None if tenant is None else str(tenant), ids)


def _tokens(number: int, name: str, value: Any) -> int:
    exact = _decimal(value)
    if exact is None or not 0 <= exact <= _MAX_TOKENS or exact != exact.to_integral_value():
        raise TraceRefused(f"line {number}", f"{name} is {str(value)[:40]!r}, no number of tokens", "correct the line")
    return int(exact)


def _time(form: Format, number: int, entry: dict[str, Any]) -> int | None:
    if form.time is None:
        return None
    value = _at(entry, form.time)
    exact = _decimal(value)
    if exact is not None:
        return int((exact * form.unit_ns).to_integral_value())
    if isinstance(value, str) and form.name == "azure":
        return _date_ns(number, value)
    raise TraceRefused(f"line {number}", f"{form.time} is {str(value)[:40]!r}, no time", "correct the line")


def _date_ns(number: int, text: str) -> int:
    """Nanoseconds of `2023-11-16 18:15:46.6805900`, with or without a zone."""
    head, _, tail = text.strip().partition(".")
    digits = tail[: len(tail) - len(tail.lstrip("0123456789"))]
    try:
        moment = datetime.fromisoformat(head + tail[len(digits) :])
    except ValueError as error:
        raise TraceRefused(f"line {number}", f"{text[:40]!r} is no date", "correct the line") from error
    whole = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(whole.timestamp()) * SECOND + int(digits[:9].ljust(9, "0"))


def _decimal(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str) or len(str(value)) > 40:
        return None
    try:
        exact = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    return exact if exact.is_finite() and abs(exact) < Decimal(10) ** 20 else None


def _format_of(entries: list[tuple[int, dict[str, Any]]], wanted: str) -> Format:
    if wanted != "auto":
        form = next((form for form in FORMATS if form.name == wanted), None)
        if form is None:
            known = ", ".join(form.name for form in FORMATS)
            raise TraceRefused("", f"unknown format {wanted!r}", f"one of auto, {known}")
        return form
    for _, entry in entries[:200]:
        form = next((f for f in FORMATS if f.fits(lambda name, e=entry: _has(e, name))), None)  # type: ignore[misc]
        if form is not None:
            return form
    first = entries[0][1] if entries else {}
    names = ", ".join(list(first)[:6]) or "nothing"
    raise TraceRefused("", f"no trace of requests (it holds {names}{_nearly(first)})")


def _nearly(entry: dict[str, Any]) -> str:
    """The one name that an entry lacks to be of a format with times; empty where it lacks more."""
    for form in FORMATS:
        lacks = form.lacks(lambda name: _has(entry, name))
        if form.time and len(lacks) == 1:
            return f"; as a {form.name} trace it lacks {lacks[0]}"
    return ""


def _at(entry: dict[str, Any], name: str) -> Any:
    if name in entry:
        return entry[name]
    value: Any = entry
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return value


def _has(entry: dict[str, Any], name: str) -> bool:
    return name in entry or ("." in name and _at(entry, name) is not None)


def _text(data: bytes) -> str:
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise TraceRefused("", "a damaged gzip file", "fetch it again") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TraceRefused(f"line {line}", "not UTF-8 text") from error


def _entries(text: str) -> list[tuple[int, dict[str, Any]]]:
    """(line number, entry) of a CSV with a header, of JSON lines or of a JSON array."""
    head = text.lstrip()[:1]
    if not head:
        raise TraceRefused("", "an empty file")
    if head not in "[{":
        return list(_csv_entries(text))
    return list(_unfolded(_json_entries(text, head)))


def _csv_entries(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""))
        for entry in reader:
            yield reader.line_num, {key.strip(): value for key, value in entry.items() if key is not None}
    except csv.Error as error:
        raise TraceRefused("", f"no CSV ({error})") from error


def _json_entries(text: str, head: str) -> Iterator[tuple[int, Any]]:
    if head == "[":
        whole = _parsed(text, "")
        yield from enumerate(whole if isinstance(whole, list) else [whole], start=1)
        return
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    try:
        json.loads(lines[0][1])
    except ValueError:
        yield 1, _parsed(text, "")  # one object over several lines
        return
    for number, line in lines:
        yield number, _parsed(line, f"line {number}")


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text, parse_constant=lambda _: math.nan)
    except (ValueError, RecursionError) as error:
        raise TraceRefused(where, "no JSON") from error


def _unfolded(entries: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Entries that are objects; one with a list of requests for one instant (AIBrix) is several."""
    for number, entry in entries:
        if not isinstance(entry, dict):
            raise TraceRefused(f"line {number}", "no object")
        requests = entry.get("requests")
        if "timestamp" in entry and isinstance(requests, list):
            for request in requests:
                if isinstance(request, dict):
                    yield number, {"timestamp": entry["timestamp"], **request}
        else:
            yield number, entry
