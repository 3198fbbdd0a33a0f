"""CPU that one simulated stream costs, in the engine and in the load generator: ``python -m tools.bench.enginesim``.

Prints one JSON document. Times depend on the machine, so each figure also comes as a ratio to a plain Python loop
timed in the same run; ``--max-ratio`` makes the exit status 1 when the engine costs more than that.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

CHECKOUT = Path(__file__).resolve().parents[2]
BASELINE_ROUNDS = 10_000
ENGINE_FLAGS = (
    *("serve", "Qwen/Qwen3-30B-A3B", "--tensor-parallel-size", "4", "--max-model-len", "32K"),
    *("--stream-interval", "16", "--max-num-seqs", "512", "--max-num-batched-tokens", "2048"),
)


def baseline_seconds() -> float:
    """CPU of 10,000 rounds of a small loop with a dict and formatting, the best of five."""

    def once() -> float:
        start = time.process_time()
        table: dict[int, str] = {}
        for number in range(BASELINE_ROUNDS):
            table[number & 255] = f"{number}:{len(table)}"
        return time.process_time() - start

    return min(once() for _ in range(5))


def engine_cpu_seconds(url: str) -> float:
    """What the engine's own page says it has used."""
    with urlopen(f"{url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("process_cpu_seconds_total "))


def start_engine() -> tuple[subprocess.Popen[str], str]:
    """A simulator on a free port of loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"ENGINESIM_CONTROL_PORT": "0", "ENGINESIM_FRONTEND_MS": "200"}
    command = [sys.executable, "-m", "tools.enginesim", *ENGINE_FLAGS, "--port", str(port)]
    process = subprocess.Popen(command, cwd=CHECKOUT, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "startup complete" in line:
            return process, f"http://127.0.0.1:{port}"
    raise RuntimeError("the engine simulator did not start")


def measure(rate: float, seconds: float) -> dict[str, float]:
    """One run."""
    process, url = start_engine()
    try:
        before = engine_cpu_seconds(url)
        command = [
            sys.executable,
            "-m",
            "tools.load",
            "--targets",
            url,
            "--rate",
            str(rate),
            "--duration",
            str(seconds),
        ]
        output = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
        engine = engine_cpu_seconds(url) - before
    finally:
        process.terminate()
        process.communicate()
    summary = json.loads(output)
    base = baseline_seconds()
    streams = summary["completed"]
    return {
        "streams": streams,
        "failed": summary["failed"],
        "rate": summary["rate"],
        "engine_core_share": round(engine / summary["elapsed_s"], 4),
        "engine_ms_per_stream": round(engine / streams * 1e3, 4),
        "load_ms_per_stream": round(summary["cpu_seconds"] / streams * 1e3, 4),
        "baseline_ms": round(base * 1e3, 4),
        "engine_ratio": round(engine / streams / base, 3),
        "load_ratio": round(summary["cpu_seconds"] / streams / base, 3),
    }


def main() -> int:
    """Measures and judges."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.enginesim")
    parser.add_argument("--rate", type=float, default=75.0)
    parser.add_argument("--duration", type=float, default=15.0)
    parser.add_argument("--max-ratio", type=float, default=None, help="fail when the engine's ratio is above")
    options = parser.parse_args()
    result = measure(options.rate, options.duration)
    print(json.dumps(result))
    return int(options.max_ratio is not None and result["engine_ratio"] > options.max_ratio)


if __name__ == "__main__":
    sys.exit(main())
