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
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from difflib import get_close_matches
from typing import IO, Any, cast

import numpy as np
import orjson
import zstandard
from numpy.typing import NDArray

from policies.arrow_lines import SOURCE_FIELDS, Piece, read_piece
from policies.records import FIELD_NAMES, REQUIRED_FIELDS, VARIANTS, Kind, Outcome
from policies.sequential import Array

OUTCOMES = tuple(o.value for o in Outcome)
_OUTCOME_CODE = {name: code for code, name in enumerate(OUTCOMES)}
_KINDS = frozenset(k.value for k in Kind)
_FIELDS = frozenset(FIELD_NAMES)
_CODES = ("source", "outcome", "stream", "half", "ident", "pair")
_STREAM = {None: -1, True: 1, False: 0}
_TEXT = frozenset({str, type(None)})
_PLAIN_NUMBERS = frozenset({int, float, type(None)})  # neither a bool nor text is a number
_BATCH = 20_000
_PIECE_BYTES = 1 << 24
_FLOATS = ("ttft_s", "e2e_s", "max_gap_s", "max_gap_at_s", "pod_age_s", "prompt_tokens", "output_tokens", "gaps_n")
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
    own id where it is no copy). assumed: variant of records that name none.
    """

    def __init__(self, assumed: str | None = None) -> None:
        self.assumed = assumed
        self.sources: list[Source] = []
        self._source_code: dict[tuple[Any, ...], int] = {}
        self._parts: dict[str, list[NDArray[Any]]] = {name: [] for name in (*_CODES, "t_start_s", *_FLOATS)}
        self.treated: dict[str, int] = {}
        self.lines = 0

    def treat(self, name: str, count: int = 1) -> None:
        """Count a mended value or a dropped record."""
        if count:
            self.treated[name] = self.treated.get(name, 0) + count

    def add_all(self, rows: Iterable[tuple[int, dict[str, Any]]], variant: str | None = None) -> None:
        """Append decoded lines (number, object); `variant` overrides what the records say.

        RecordFileError names the line.
        """
        batch: list[tuple[int, dict[str, Any]]] = []
        for row in rows:
            batch.append(row)
            if len(batch) == _BATCH:
                self._add_batch(batch, variant)
                batch = []
        if batch:
            self._add_batch(batch, variant)

    def _add_batch(self, batch: list[tuple[int, dict[str, Any]]], variant: str | None) -> None:
        if not set().union(*(raw for _, raw in batch)) <= _FIELDS:
            raise next(_unknown_field(number, raw) for number, raw in batch if not raw.keys() <= _FIELDS)
        if variant is not None:
            for _, raw in batch:
                raw["variant"] = variant
        elif self.assumed is not None:
            for _, raw in batch:
                raw.setdefault("variant", self.assumed)
        if not all(map(_is_plain, (raw for _, raw in batch))):
            batch = [(number, raw) for number, raw in batch if _is_plain(raw) or self._mend(number, raw)]
        rows = [raw for _, raw in batch]
        self.lines += len(rows)
        add = self._parts
        start = self._floats([raw["t_start_s"] for raw in rows])
        add["t_start_s"].append(start)
        for name in _FLOATS:
            add[name].append(self._floats([raw.get(name) for raw in rows]))
        ids = [raw["id"] if raw["id"].__class__ is str else str(raw["id"]) for raw in rows]
        add["source"].append(np.array([self._source(raw) for raw in rows], dtype=np.int32))
        add["outcome"].append(np.array([_OUTCOME_CODE[raw["outcome"]] for raw in rows], dtype=np.int8))
        add["stream"].append(np.array([_STREAM[raw.get("stream")] for raw in rows], dtype=np.int8))
        self._add_ids(ids, [raw["variant"] for raw in rows], [raw.get("pair") for raw in rows])

    def add_piece(self, piece: Piece) -> None:
        """Append columns that need no mending beyond their measurements."""
        self.lines += piece.rows
        add = self._parts
        add["t_start_s"].append(piece.floats["t_start_s"])
        for name in _FLOATS:
            add[name].append(self._measured(piece.floats[name], piece.nulls[name]))
        numbers = [self._source(dict(zip(SOURCE_FIELDS, values, strict=True))) for values in piece.sources]
        add["source"].append(np.array(numbers, dtype=np.int32)[piece.source])
        outcomes = np.array([_OUTCOME_CODE[name] for name in piece.outcomes], dtype=np.int8)
        add["outcome"].append(outcomes[piece.outcome])
        add["stream"].append(piece.stream)
        self._add_ids(piece.ids, piece.variants, piece.pairs)

    def _add_ids(self, ids: list[str], variants: list[str], pairs: list[Any]) -> None:
        add = self._parts
        add["ident"].append(np.array(list(map(hash, zip(ids, variants, strict=True))), dtype=np.int64))
        add["pair"].append(np.array([hash(p or i) for p, i in zip(pairs, ids, strict=True)], dtype=np.int64))
        add["half"].append(np.array([zlib.crc32(i.encode()) & 1 for i in ids], dtype=np.int8))

    def _floats(self, values: list[Any]) -> Array:
        """float64 of measurements; None, and what is no finite number >= 0, is NaN (the latter is counted)."""
        missing = values.count(None)
        if not set(map(type, values)) <= _PLAIN_NUMBERS:
            values = [_number(v) for v in values]
        try:
            column = np.array(values, dtype=np.float64)
        except OverflowError:
            column = np.array([_number(v) for v in values], dtype=np.float64)
        return self._measured(column, missing)

    def _measured(self, column: Array, missing: int) -> Array:
        """The column without what no clock and no counter gives; `missing` of it are null."""
        good = (column >= 0) & (column < 1e12)
        self.treat("badNumber", len(column) - missing - int(good.sum()))
        return np.where(good, column, np.nan)

    def _source(self, raw: Mapping[str, Any]) -> int:
        get = raw.get
        key = (raw["variant"], get("revision"), get("kind"), raw["tenant"], get("bucket"), get("pod"))
        code = self._source_code.get(key)
        if code is None:
            kind = key[2] or "live"
            if kind not in _KINDS:
                self.treat("unknownKind")
                kind = "live"
            code = self._source_code[key] = len(self.sources)
            self.sources.append((key[0], str(key[1] or ""), kind, str(key[3]), key[4] or "", str(key[5] or "")))
        return code

    def _mend(self, number: int, raw: dict[str, Any]) -> bool:
        """Put an unusual record right, False where it can have no place in time.

        RecordFileError for what is no record.
        """
        for name in REQUIRED_FIELDS:
            if raw.get(name) is None:
                raise RecordFileError(f"line {number}", f"{name} is missing", f"write {', '.join(REQUIRED_FIELDS)}")
        if not isinstance(raw["variant"], str) or raw["variant"] not in VARIANTS:
            raise RecordFileError(f"line {number}", f"variant is {raw['variant']!r}", "write stable or candidate")
        for name in ("revision", "kind", "bucket", "pod", "pair", "tenant"):
            if raw.get(name) is not None and not isinstance(raw[name], str):
                raw[name] = str(raw[name])
        if not isinstance(raw.get("stream"), bool | None):
            raw["stream"] = None
        if str(raw["outcome"]) not in _OUTCOME_CODE:
            self.treat("unknownOutcome")
            raw["outcome"] = Outcome.SERVER_ERROR.value
        start = raw["t_start_s"]
        if isinstance(start, bool) or not isinstance(start, int | float) or not 0 <= start < 1e12:
            self.treat("badTime")
            return False
        return True

    # --- columns ---

    def floats(self, name: str) -> Array:
        """Column `name` as float64[n]."""
        parts = self._parts[name]
        if len(parts) > 1:
            parts[:] = [np.concatenate(parts)]
        return parts[0] if parts else np.zeros(0)

    def leave_out(self, mask: NDArray[np.bool_]) -> None:
        """Remove the masked records."""
        self._parts = {name: [self.floats(name)[~mask]] for name in self._parts}

    def shift(self, mask: NDArray[np.bool_], seconds: float) -> None:
        """Move the starts of the masked records."""
        self._parts["t_start_s"] = [self.floats("t_start_s") + np.where(mask, seconds, 0.0)]

    def codes(self, name: str) -> NDArray[np.int64]:
        """`source`, `outcome`, `stream`, `half`, `ident` or `pair` as integers."""
        return self.floats(name).astype(np.int64)


def _number(value: Any) -> float:
    """NaN for what is no number, or one beyond every float."""
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    try:
        return float(value) if is_number else math.nan
    except OverflowError:
        return math.nan


def _is_plain(raw: Mapping[str, Any]) -> bool:
    """Whether nothing of a record needs mending beyond its measurements."""
    try:
        return (
            raw["outcome"] in _OUTCOME_CODE
            and raw["variant"] in VARIANTS
            and raw["id"] is not None
            and raw["tenant"].__class__ is str
            and raw["t_start_s"].__class__ in _PLAIN_NUMBERS
            and 0.0 <= raw["t_start_s"] < 1e12
            and raw.get("stream") in _STREAM
            and raw.get("pod").__class__ in _TEXT
            and raw.get("pair").__class__ in _TEXT
            and raw.get("kind").__class__ in _TEXT
            and raw.get("bucket").__class__ in _TEXT
            and raw.get("revision").__class__ in _TEXT
        )
    except (KeyError, TypeError):
        return False


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
        return io.BufferedReader(_Zstd(buffered), 1 << 20)
    return buffered


class _Zstd(io.RawIOBase):
    """The plain bytes of zstd frames; EOFError where the last one is cut off (the package's reader just ends)."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed, self._plain = packed, memoryview(b"")
        self._frame, self._begun, self._rest = zstandard.ZstdDecompressor().decompressobj(), False, b""

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        while not self._plain:
            content = self._rest or self._packed.read(1 << 17)
            if not content:
                if self._begun:
                    raise EOFError("the last zstd frame has no end")
                return 0
            self._plain, self._begun, self._rest = memoryview(self._frame.decompress(content)), True, b""
            if self._frame.eof:
                self._rest, self._begun = self._frame.unused_data, False
                self._frame = zstandard.ZstdDecompressor().decompressobj()
        count = min(len(into), len(self._plain))
        into[:count] = self._plain[:count]
        self._plain = self._plain[count:]
        return count


def read_records(raw: IO[bytes], into: Columns, variant: str | None = None) -> None:
    """Append one file to `into`; RecordFileError for what is no file of request records."""
    try:
        text = open_text(raw)
        is_parquet = isinstance(text, io.BufferedReader) and text.peek(4)[:4] == b"PAR1"
        if is_parquet:
            into.add_all(_parquet_rows(text.read()), variant)
        else:
            _read_lines(text, into, variant)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise RecordFileError(
            "the file", f"cannot be decompressed ({error})", "write it again, it may be cut off"
        ) from error


def _read_lines(text: IO[bytes], into: Columns, variant: str | None) -> None:
    """Pieces of whole lines, column by column where they are plain, else line by line; the next piece is decompressed
    meanwhile.
    """
    number = 1
    with ThreadPoolExecutor(1) as ahead:
        waiting = ahead.submit(_next_piece, text)
        while content := waiting.result():
            waiting = ahead.submit(_next_piece, text)
            piece = read_piece(content, _FLOATS, variant)
            if piece is not None:
                into.add_piece(piece)
            else:
                into.add_all(_json_rows(io.BytesIO(content), number), variant)
            number += content.count(b"\n")


def _next_piece(text: IO[bytes]) -> bytes:
    """Some megabytes up to the end of a line; empty at the end of the file."""
    content = text.read(_PIECE_BYTES)
    return content + text.readline() if content and not content.endswith(b"\n") else content


def _json_rows(text: Iterable[bytes], first: int = 1) -> Iterator[tuple[int, dict[str, Any]]]:
    loads = orjson.loads
    for number, line in enumerate(text, start=first):
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
    """Python's JSON, which also reads NaN and Infinity; half a surrogate pair is no text."""
    try:
        raw = json.loads(line)
        json.dumps(raw, ensure_ascii=False).encode()
        return raw
    except (ValueError, RecursionError) as error:
        raise RecordFileError(f"line {number}", f"is no JSON ({error})", "write one request record per line") from error


def _parquet_rows(content: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise RecordFileError("the file", "is Parquet and pyarrow is not installed", "pip install pyarrow") from error
    from pyarrow import ArrowException

    number = 0
    try:
        for batch in parquet.ParquetFile(io.BytesIO(content)).iter_batches(batch_size=50_000):
            for raw in batch.to_pylist():
                number += 1
                yield number, raw
    except ArrowException as error:
        problem = f"is broken Parquet ({str(error).splitlines()[0].rstrip('.')})"
        raise RecordFileError("the file", problem, "write it again, it may be cut off") from error
