"""Whole runs as processes: load generator against simulated engines, as the demo uses them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.load.report import read_strata, table

CHECKOUT = Path(__file__).resolve().parents[4]
FIELDS = {
    *("id", "pair", "retry_of", "t_start_s", "rollout", "attempt", "step", "variant", "revision", "kind", "tenant"),
    *("bucket", "model", "pod", "prompt_tokens", "output_tokens", "tokens_source", "stream", "status", "outcome"),
    *("ttft_s", "e2e_s", "max_gap_s", "max_gap_at_s", "gaps_n", "events", "chunks", "pod_age_s"),
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def engine(*flags: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A simulator process that accepts connections, and its URL."""
    port = free_port()
    command = [sys.executable, "-m", "tools.enginesim", "serve", "Qwen/Qwen3-0.6B", "--port", str(port), *flags]
    given = os.environ | {"ENGINESIM_CONTROL_PORT": "0"} | environment
    with subprocess.Popen(command, cwd=CHECKOUT, env=given, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "startup complete" in line:
                break
        try:
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.stderr.read()


def load(*flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tools.load", "--rate", "40", *flags]
    return subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)


def summary_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    document = json.loads(output)
    assert isinstance(document, dict)
    return document


def test_a_run_keeps_its_rate_and_its_records(tmp_path: Path) -> None:
    records, stats = tmp_path / "records.jsonl", tmp_path / "stats.jsonl"
    with engine("--stream-interval", "16") as (_, first), engine("--stream-interval", "16") as (_, second):
        targets = f"{first},{second}"
        flags = ("--duration", "3", "--out", str(records), "--stats-file", str(stats), "--max-output", "64")
        summary = summary_of(load("--targets", targets, *flags))
    assert summary["sent"] == summary["completed"]
    assert 80 < summary["sent"] < 170
    assert summary["failed"] == 0
    assert summary["lag_p99_s"] < 0.25
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    assert len(lines) == summary["sent"]
    assert set(lines[0]) == FIELDS
    assert all(line["outcome"] == "ok" and 0 < line["ttft_s"] <= line["e2e_s"] for line in lines)
    assert all(line["tokens_source"] == "usage" for line in lines)
    live = [json.loads(line) for line in stats.read_text().splitlines()]
    assert len(live) >= 2
    assert set(live[-1]["tenants"]) == {"acme", "globex", "initech"}
    assert len(table(["all"], read_strata(records, 0.0), None)) == 3


def test_targets_change_in_mid_run_and_sigterm_ends_in_order(tmp_path: Path) -> None:
    targets, records = tmp_path / "targets", tmp_path / "records.jsonl"
    with engine() as (_, first), engine() as (_, second):
        targets.write_text(first + "\n")
        process = load("--targets-file", str(targets), "--out", str(records), "--max-output", "16")
        wait_until(lambda: records.exists() and records.read_text().count("\n") > 20)
        targets.write_text(second + "\n")
        assert served(second) == 0
        wait_until(lambda: served(second) > 20)
        process.send_signal(signal.SIGTERM)
        summary = summary_of(process)
    assert summary["completed"] == summary["sent"]
    assert len(records.read_text().splitlines()) == summary["sent"]


def test_a_killed_engine_shows_up_as_failures_and_the_load_goes_on(tmp_path: Path) -> None:
    with engine(ENGINESIM_FAULTS='{"crash":true,"after_requests":20}') as (process, url):
        summary = summary_of(load("--targets", url, "--duration", "2", "--max-output", "16", "--timeout", "5"))
        assert process.wait(5) == 1
    assert summary["failed"] > 20
    assert summary["sent"] == summary["completed"] + summary["failed"]


def served(url: str) -> float:
    """Requests that an engine has finished."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n")
        page = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    lines = [line for line in page.splitlines() if line.startswith("vllm:request_success_total")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def wait_until(condition: Any, seconds: float = 20.0) -> None:
    """Polls with a deadline; the pause is the poll of a selector, not a sleep that the result depends on."""
    deadline = time.monotonic() + seconds
    with socket.socketpair()[0] as quiet:
        quiet.settimeout(0.05)
        while not condition():
            assert time.monotonic() < deadline, "condition not met in time"
            try:
                quiet.recv(1)
            except TimeoutError:
                continue
