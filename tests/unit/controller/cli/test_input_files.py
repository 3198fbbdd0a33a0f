"""One way to read an input: files, standard input, and what is none; nothing larger than its kind may be."""

import gzip
import io
import sys
from pathlib import Path

import pytest

from controller.cli import main as cli
from controller.cli import read_stream, replay
from controller.cli.errors import BadInput
from controller.cli.input_files import read_at_most, read_whole

EVENT = b'data: {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


def test_a_file_and_standard_input_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytes(range(256)) * 5000  # more than one piece
    (tmp_path / "a").write_bytes(content)
    assert read_whole(str(tmp_path / "a"), len(content), "") == content
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert read_whole("-", len(content), "") == content


def test_one_byte_too_many_is_refused_and_never_more_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    assert len(read_at_most(str(tmp_path / "a"), 10)) == 11
    with pytest.raises(BadInput, match="larger than 10 bytes"):
        read_whole(str(tmp_path / "a"), 10, "cut it")


@pytest.mark.parametrize(
    "command", [("read-stream",), ("replay", "--dry-run"), ("import",), ("metrics",), ("convert",)]
)
def test_what_is_no_file_is_one_line_for_every_command(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (str(tmp_path), str(tmp_path / "nowhere")):
        assert cli.main([*command, name]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"weighlock: {name}: ") and error.count("\n") == 1


@pytest.mark.parametrize(("module", "command"), [(read_stream, ("read-stream",)), (replay, ("replay", "--dry-run"))])
def test_the_limit_of_a_command_holds_for_standard_input_too(
    module: object, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 10)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x" * 11)))
    assert cli.main([*command, "-"]) == 2
    assert "is larger than 10 bytes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "limit", "words"),
    [
        (gzip.compress(EVENT), 2**20, ""),
        (gzip.compress(EVENT)[:-9], 2**20, "damaged gzip"),
        (b"\x1f\x8b" + b"\xff" * 40, 2**20, "damaged gzip"),
        (gzip.compress(b"x" * 10_000), 1000, "unpacks to more"),
    ],
)
def test_a_packed_response_is_unpacked_within_the_limit(
    content: bytes,
    limit: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(read_stream, "MAX_BYTES", limit)
    (tmp_path / "body.gz").write_bytes(content)
    assert cli.main(["read-stream", str(tmp_path / "body.gz")]) == (2 if words else 0)
    assert words in capsys.readouterr().err
