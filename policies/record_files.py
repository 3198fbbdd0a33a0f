"""Reads files of request records (JSON Lines, gzip, zstd, Parquet) into columns, fast, and counts what had to be
mended.

Called by `weighlock judge` and `plan`. Takes bytes or binary streams, opens nothing itself. Treatment of wrong input,
each counted by name in `Columns.treated` (and shown in `warnings`): a NaN, infinite or negative measurement is
unknown; a first token after the end makes both unknown; an unknown outcome counts as server_error; an unknown kind as
live; a start that is no time drops the record; a second record of the same id and variant is dropped. A line that is
no record at all is an error with its line number.
"""

import gzip
import io
import json
import math
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import IO, Any, cast

import numpy as np
import orjson
import zstandard
from numpy.typing import NDArray

from policies.records import FIELD_NAMES, REQUIRED_FIELDS, VARIANTS, Kind, Outcome
from policies.sequential import Array

OUTCOMES = tuple(o.value for o in Outcome)
_OUTCOME_CODE = {name: code for code, name in enumerate(OUTCOMES)}
_KINDS = frozenset(k.value for k in Kind)
_FIELDS = frozenset(FIELD_NAMES)
_NAN = math.nan
_FLOATS = ("ttft_s", "e2e_s", "max_gap_s", "max_gap_at_s", "pod_age_s", "prompt_tokens", "output_tokens", "gaps_n")
_KEY = ("variant", "revision", "kind", "tenant", "bucket", "pod")
Source = tuple[str, str, str, str, str, str]


class RecordFileError(ValueError):
    """A file that cannot be read; `where` is the line, `problem` and `remedy` are for the user."""

    def __init__(self, where: str, problem: str, remedy: str) -> None:
        super().__init__(f"{where}: {problem}; {remedy}")
        self.where = where
        self.problem = problem
        self.remedy = remedy


class Columns:
    """Request records as columns. sources[source[i]] = (variant, revision, kind, tenant, bucket, pod) of record i.

    Times in seconds from the start of the request, NaN = unknown; outcome: index into OUTCOMES; stream: 1, 0, -1 =
    unknown; half: 0 or 1 by hash of the id; ident: hash of (id, variant); pair: hash of the pair's live id (of the
    own id where it is no copy).
    """

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self._source_code: dict[Source, int] = {}
        self._codes: dict[str, array[Any]] = {"source": array("i"), "outcome": array("b"), "stream": array("b")}
        self._hashes: dict[str, array[Any]] = {"ident": array("q"), "pair": array("q")}
        self._floats: dict[str, array[Any]] = {name: array("d") for name in ("t_start_s", *_FLOATS)}
        self._half = array("b")
        self.treated: dict[str, int] = {}
        self.lines = 0

    def treat(self, name: str) -> None:
        self.treated[name] = self.treated.get(name, 0) + 1

    def add_all(self, rows: Iterable[tuple[int, dict[str, Any]]], variant: str | None = None) -> None:
        """Append decoded lines (number, object); `variant` overrides what the records say.

        RecordFileError names the line.
        """
        codes, source_code, outcome_code = self._codes, self._source_code, _OUTCOME_CODE
        add_start, add_half = self._floats["t_start_s"].append, self._half.append
        add_source, add_outcome, add_stream = (codes[n].append for n in ("source", "outcome", "stream"))
        add_ident, add_pair = self._hashes["ident"].append, self._hashes["pair"].append
        adders = [(name, self._floats[name].append) for name in _FLOATS]
        for number, raw in rows:
            if not raw.keys() <= _FIELDS:
                raise _unknown_field(number, raw)
            get = raw.get
            if variant is not None:
                raw["variant"] = variant
            outcome = outcome_code.get(get("outcome"))  # type: ignore[arg-type]
            start = get("t_start_s")
            name, arm, tenant = get("id"), get("variant"), get("tenant")
            if outcome is None or name is None or tenant is None or arm not in VARIANTS or type(start) is not float:
                found = self._mend(number, raw)
                if found is None:
                    continue
                outcome, start = found
                arm = raw["variant"]
            elif not 0.0 <= start < 1e12:
                self.treat("badTime")
                continue
            key = (
                arm,
                get("revision") or "",
                get("kind") or "live",
                str(tenant),
                get("bucket") or "",
                get("pod") or "",
            )
            code = source_code.get(key)
            if code is None:
                code = self._new_source(key)
            add_source(code)
            add_outcome(outcome)
            stream = get("stream")
            add_stream(-1 if stream is None else 1 if stream else 0)
            add_start(start)
            for field, add in adders:
                value = get(field)
                if value is None:
                    add(_NAN)
                elif value.__class__ in (float, int) and 0 <= value < 1e12:
                    add(value)
                else:
                    self.treat("badNumber")
                    add(_NAN)
            text = name if name.__class__ is str else str(name)
            add_ident(hash((text, arm)))
            add_pair(hash(get("pair") or text))
            add_half(zlib.crc32(text.encode()) & 1)
            self.lines += 1

    def _new_source(self, key: Source) -> int:
        if key[2] not in _KINDS:
            self.treat("unknownKind")
            plain: Source = (key[0], key[1], "live", *key[3:])
            code = self._source_code.get(plain)
            code = self._new_source(plain) if code is None else code
        else:
            code = len(self.sources)
            self.sources.append(key)
        self._source_code[key] = code
        return code

    def _mend(self, number: int, raw: dict[str, Any]) -> tuple[int, float] | None:
        """(outcome, start) of an unusual record, None where it can have no place in time."""
        for name in REQUIRED_FIELDS:
            if raw.get(name) is None:
                raise RecordFileError(f"line {number}", f"{name} is missing", f"write {', '.join(REQUIRED_FIELDS)}")
        if raw["variant"] not in VARIANTS:
            raise RecordFileError(f"line {number}", f"variant is {raw['variant']!r}", "write stable or candidate")
        outcome = _OUTCOME_CODE.get(raw["outcome"])
        if outcome is None:
            self.treat("unknownOutcome")
            outcome = _OUTCOME_CODE["server_error"]
        start = raw["t_start_s"]
        if isinstance(start, bool) or not isinstance(start, int | float) or not 0 <= start < 1e12:
            self.treat("badTime")
            return None
        return outcome, float(start)

    # --- columns ---

    def floats(self, name: str) -> Array:
        """Column `name` as float64[n]."""
        return np.frombuffer(self._floats[name], dtype=np.float64) if self._floats[name] else np.zeros(0)

    def shift(self, mask: NDArray[np.bool_], seconds: float) -> None:
        """Move the starts of the masked records."""
        moved = self.floats("t_start_s") + np.where(mask, seconds, 0.0)
        self._floats["t_start_s"] = array("d", moved.tobytes())

    def codes(self, name: str) -> NDArray[np.int64]:
        """`source`, `outcome`, `stream`, `half`, `ident` or `pair` as integers."""
        found = {**self._codes, **self._hashes, "half": self._half}[name]
        return np.array(found, dtype=np.int64)


def _unknown_field(number: int, raw: Mapping[str, Any]) -> RecordFileError:
    name = sorted(raw.keys() - _FIELDS)[0]
    near = get_close_matches(name, FIELD_NAMES, 1, 0.4)
    return RecordFileError(
        f"line {number}", f"unknown field {name!r}", f"did you mean {near[0]!r}?" if near else "remove it"
    )


def open_text(raw: IO[bytes]) -> IO[bytes]:
    """The plain bytes of a stream that may be gzip or zstd, told by its first bytes."""
    buffered = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, raw))
    head = buffered.peek(4)[:4]
    if head[:2] == b"\x1f\x8b":
        return io.BufferedReader(gzip.GzipFile(fileobj=buffered), 1 << 20)
    if head == b"\x28\xb5\x2f\xfd":
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(buffered, read_across_frames=True))
    return buffered


def read_records(raw: IO[bytes], into: Columns, variant: str | None = None) -> None:
    """Append one file to `into`; RecordFileError for what is no file of request records."""
    text = open_text(raw)
    head = text.peek(4)[:4] if isinstance(text, io.BufferedReader) else b""
    if head == b"PAR1":
        into.add_all(_parquet_rows(text.read()), variant)
        return
    try:
        into.add_all(_json_rows(text), variant)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise RecordFileError(
            "the file", f"cannot be decompressed ({error})", "write it again, it may be cut off"
        ) from error


def _json_rows(text: Iterable[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    loads = orjson.loads
    for number, line in enumerate(text, start=1):
        try:
            raw = loads(line)
        except orjson.JSONDecodeError:
            if not line.strip():
                continue
            raw = _lenient(line, number)
        if raw.__class__ is not dict:
            raise RecordFileError(f"line {number}", "is no JSON object", "write one request record per line")
        yield number, raw


def _lenient(line: bytes, number: int) -> Any:
    """Python's JSON, which also reads NaN and Infinity."""
    try:
        return json.loads(line)
    except (ValueError, UnicodeDecodeError) as error:
        raise RecordFileError(f"line {number}", f"is no JSON ({error})", "write one request record per line") from error


def _parquet_rows(content: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise RecordFileError("the file", "is Parquet and pyarrow is not installed", "pip install pyarrow") from error
    number = 0
    for batch in parquet.ParquetFile(io.BytesIO(content)).iter_batches(batch_size=50_000):
        for raw in batch.to_pylist():
            number += 1
            yield number, raw
