"""The simulator as a process: says what it is, refuses as vLLM does, drains on SIGTERM."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[4]
READY = "startup complete"


def start(*argv: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tools.enginesim", *argv]
    given = os.environ | {"ENGINESIM_CONTROL_PORT": "0"} | environment
    return subprocess.Popen(command, cwd=CHECKOUT, env=given, stderr=subprocess.PIPE, text=True)


def read_to_ready(process: subprocess.Popen[str]) -> tuple[str, int]:
    """The log up to readiness, and the port."""
    assert process.stderr is not None
    log = ""
    for line in process.stderr:
        log += line
        if READY in line:
            return log, int(line.rstrip().rsplit(":", 1)[1])
    raise AssertionError(log)


def test_it_says_that_it_is_a_simulator() -> None:
    process = start("serve", "unknown/model-3b", "--port", "0", ENGINESIM_VERSION="0.31.0")
    log, _ = read_to_ready(process)
    process.kill()
    process.communicate()
    assert "ENGINE SIMULATOR" in log.splitlines()[0]
    assert "Initializing a V1 LLM engine (v0.31.0)" in log
    assert "enginesim does not know unknown/model-3b" in log


@pytest.mark.parametrize(
    ("argv", "status", "words"),
    [
        (("serve", "m", "--foo"), 2, "vllm serve: error: unrecognized arguments: --foo"),
        (("serve", "meta-llama/Llama-3.1-70B"), 1, "No available memory for the cache blocks"),
    ],
)
def test_refusals_end_the_process(argv: tuple[str, ...], status: int, words: str) -> None:
    process = start(*argv)
    _, log = process.communicate(timeout=20)
    assert process.returncode == status
    assert words in log


def test_sigterm_lets_running_streams_finish() -> None:
    process = start("serve", "Qwen/Qwen3-0.6B", "--port", "0", ENGINESIM_DRAIN_S="20")
    _, port = read_to_ready(process)
    body = json.dumps({"prompt": "x" * 400, "max_tokens": 300, "stream": True}).encode()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        received = connection.recv(65536)
        process.send_signal(signal.SIGTERM)
        while piece := connection.recv(65536):
            received += piece
    assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_slow_start_keeps_the_port_closed() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = start("serve", "Qwen/Qwen3-0.6B", "--port", str(port), ENGINESIM_START_S="1.5")
    assert process.stderr is not None
    assert "ENGINE SIMULATOR" in process.stderr.readline()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    read_to_ready(process)
    socket.create_connection(("127.0.0.1", port)).close()
    process.terminate()
    process.communicate(timeout=10)
    assert process.returncode == 0
