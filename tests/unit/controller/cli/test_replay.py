"""`weighlock replay --dry-run`, and what is refused before anything is sent."""

import json
from pathlib import Path

import pytest

from controller.cli.main import main

TRACE = "timestamp_ms,prompt_length,output_length\n500,9,3\n0,7,2\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "trace.csv"
    file.write_text(TRACE)
    return file


def test_a_dry_run_says_what_is_in_the_trace(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(trace), "--dry-run", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "requests": 2,
        "prompt_tokens": 16,
        "output_tokens": 5,
        "span_s": 0.5,
        "format": "aibrix-lengths",
        "head": [
            {"t_s": 0.0, "prompt_tokens": 7, "output_tokens": 2},
            {"t_s": 0.5, "prompt_tokens": 9, "output_tokens": 3},
        ],
    }


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--target", "ftp://x"],
        ["--target", "http://127.0.0.1:1", "--rate", "-1"],
        ["--target", "http://127.0.0.1:1", "--duration", "soon"],
        ["--target", "http://127.0.0.1:1", "--model", "m", "--header", "odd"],
        ["--dry-run", "--format", "azzure"],
    ],
)
def test_bad_options_are_one_line_and_send_nothing(
    trace: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(trace), *options]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_what_is_no_trace_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    file.write_text('{"metadata": {}, "benchmarks": []}')
    assert main(["replay", str(file), "--dry-run"]) == 2
    assert "no trace of requests" in capsys.readouterr().err


def test_own_records_without_answer_lengths_say_what_they_lack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text('{"id": "1", "t_start_s": 1.0, "variant": "stable", "tenant": "a", "prompt_tokens": 3}\n')
    assert main(["replay", str(file), "--dry-run"]) == 2
    assert "as a weighlock trace it lacks output_tokens" in capsys.readouterr().err


def test_a_tenant_field_that_no_request_has_is_told(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(trace), "--dry-run", "--tenant-from", "nope"]) == 0
    assert "no request names a tenant by 'nope'; all are of 'replay'" in capsys.readouterr().err
