"""The bytes of one input of a command: a file, or `-` for standard input, never more than its kind may have.

Called by the commands that read an input whole (manifests, traces, recorded responses, metrics pages). Request records
are read as a stream instead (records.py).
"""

import sys
from pathlib import Path
from typing import BinaryIO

from controller.cli.errors import BadInput

_PIECE_BYTES = 2**20


def read_at_most(name: str, most_bytes: int) -> bytes:
    """The content; one byte more than `most_bytes` where there is more, which the caller refuses in its own words.

    Raises:
        BadInput: no such file, a directory, no right to read it.
    """
    if name == "-":
        return _read(sys.stdin.buffer, most_bytes + 1)
    try:
        with Path(name).open("rb") as file:
            return _read(file, most_bytes + 1)
    except IsADirectoryError as error:
        raise BadInput(name, "", "is a directory", "give the files in it") from error
    except OSError as error:
        raise BadInput(name, "", f"cannot be read ({error.strerror})", "check the name and the rights") from error


def read_whole(name: str, most_bytes: int, remedy: str) -> bytes:
    """The content; BadInput with this remedy where it is larger than `most_bytes`."""
    data = read_at_most(name, most_bytes)
    if len(data) > most_bytes:
        raise BadInput(name, "", f"is larger than {_size(most_bytes)}", remedy)
    return data


def _read(file: BinaryIO, count: int) -> bytes:
    pieces = []
    while count > 0 and (piece := file.read(min(count, _PIECE_BYTES))):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _size(count: int) -> str:
    gib, mib = count // 2**30, count // 2**20
    return f"{gib} GiB" if gib else f"{mib} MiB" if mib else f"{count} bytes"
