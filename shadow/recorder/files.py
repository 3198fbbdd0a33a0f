"""Request records on disk: JSON lines in one file an hour, dropped by age and size.

They are for people and for `judge`; the evidence of the attempt is in the blocks.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import orjson

from policies.records import RequestRecord

_HOUR_S = 3600


class RecordFiles:
    """Records of one rollout, filed by the hour in which they ended."""

    def __init__(self, folder: Path, *, max_age_s: float = 86400.0, max_bytes: int = 2**30) -> None:
        self._folder = folder
        self._max_age_s, self._max_bytes = max_age_s, max_bytes
        self._file: BinaryIO | None = None
        self._hour = -1
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def add(self, record: RequestRecord, now_s: float) -> None:
        """Write a record; it is on disk after the next `flush`."""
        hour = int(now_s // _HOUR_S)
        if hour != self._hour or self._file is None:
            self.close()
            self._file, self._hour = self._path(hour).open("ab"), hour
        self._file.write(record.to_json_line())

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def between(self, since_s: float, until_s: float) -> Iterator[bytes]:
        """Lines (with newline) of records that started in [since, until)."""
        self.flush()
        for path in sorted(self._folder.glob("*.jsonl")):
            if (int(path.stem) + 1) * _HOUR_S <= since_s:
                continue
            with path.open("rb") as file:
                for line in file:
                    with contextlib.suppress(orjson.JSONDecodeError):  # the last line of a killed process
                        if since_s <= orjson.loads(line)["t_start_s"] < until_s:
                            yield line

    def prune(self, now_s: float) -> None:
        """Drop files that are too old or too much; the newest stays."""
        paths = sorted(self._folder.glob("*.jsonl"))
        total = sum(p.stat().st_size for p in paths)
        for path in paths[:-1]:
            is_old = (int(path.stem) + 1) * _HOUR_S < now_s - self._max_age_s
            if not is_old and total <= self._max_bytes:
                return
            total -= path.stat().st_size
            path.unlink(missing_ok=True)

    def _path(self, hour: int) -> Path:
        return self._folder / f"{hour:09d}.jsonl"
