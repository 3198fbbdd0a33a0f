"""How long `weighlock judge` takes for an hour of 120 strata: CPU and wall seconds, memory, the ratio to NumPy.

Run `python -m tools.bench.judge.speed [--lines N]`. The ratio divides the command's CPU seconds by those of one NumPy
pass over the same columns (one comparison and one histogram by block and stratum, per check and arm): on a busy
machine both grow alike.
"""

import argparse
import gzip
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import orjson

POLICY = """
tenants: {from: {header: x-tenant}, required: [t0, t1], other: each}
lengthBuckets: {edges: [512, 2048]}
slo: {ttft: 2s, tpot: 80ms}
gates:
- {metric: ttft, percentile: "99", margin: "25%", limit: 5s}
- {metric: tpot, percentile: "95", margin: "25%"}
- {metric: success, limit: "99%"}
- {metric: goodFraction, margin: 2pp}
evidence: {minStep: 5m, history: 10m}
"""
TENANTS, BUCKETS, PASSES = 40, (300, 1200, 4000), 12


def write_records(path: Path, lines: int, seed: int = 1) -> None:
    """An hour of both arms in order of time, gzip level 1; every third request of a stratum has the same bucket."""
    rng = np.random.default_rng(seed)
    start = 1.7e9 + np.sort(rng.uniform(0, 3600, lines))
    tenant, bucket = rng.integers(0, TENANTS, lines), rng.integers(0, len(BUCKETS), lines)
    candidate = rng.random(lines) < 0.5
    ttft = 0.2 * np.exp(0.5 * rng.standard_normal(lines)) * (1 + bucket)
    tokens = rng.integers(20, 400, lines)
    e2e = ttft + tokens * 0.02 * np.exp(0.1 * rng.standard_normal(lines))
    bad = rng.random(lines) < 0.001
    with gzip.open(path, "wb", compresslevel=1) as out:
        for i in range(lines):
            arm = "candidate" if candidate[i] else "stable"
            record = {
                "id": f"{i:x}-{arm}",
                "t_start_s": round(float(start[i]), 6),
                "variant": arm,
                "revision": f"{arm[:1]}0123456789",
                "kind": "live",
                "tenant": f"t{tenant[i]}",
                "bucket": None,
                "model": "org/model-8b",
                "pod": f"{arm}-{i % 6}",
                "prompt_tokens": BUCKETS[bucket[i]],
                "output_tokens": int(tokens[i]),
                "tokens_source": "usage",
                "stream": True,
                "status": 200,
                "outcome": "server_error" if bad[i] else "ok",
                "ttft_s": round(float(ttft[i]), 6),
                "e2e_s": round(float(e2e[i]), 6),
                "max_gap_s": 0.05,
                "max_gap_at_s": round(float(ttft[i]) + 0.3, 6),
                "gaps_n": int(tokens[i]) - 1,
                "events": int(tokens[i]) + 2,
                "pod_age_s": 9000.0,
            }
            out.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))


def numpy_pass_seconds(lines: int) -> float:
    """CPU seconds of a bare pass over columns of this length."""
    rng = np.random.default_rng(2)
    values, block = rng.random(lines), rng.integers(0, 720, lines)
    stratum = rng.integers(0, TENANTS * len(BUCKETS), lines)
    begin = time.process_time()
    for _ in range(PASSES):
        over = values > 0.99
        np.bincount(block[over] * 120 + stratum[over], minlength=720 * 120)
        np.bincount(block * 120 + stratum, minlength=720 * 120)
    return time.process_time() - begin


def measure(records: Path, policy: Path) -> tuple[int, float, float, float]:
    """(exit code, CPU seconds, wall seconds, largest resident MB) of the command in processes of its own."""
    command = [sys.executable, "-m", "controller.cli.main", "judge", "--policy", str(policy)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    done = subprocess.run([*command, "--records", str(records), "-o", "json"], stdout=subprocess.DEVNULL, check=False)
    wall_s = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.returncode, cpu_s, wall_s, after.ru_maxrss / 1024


def main() -> int:
    """Write, measure, print."""
    parser = argparse.ArgumentParser(description="speed of weighlock judge")
    parser.add_argument("--lines", type=int, default=860_000)
    lines = parser.parse_args().lines
    with tempfile.TemporaryDirectory() as folder:
        records, policy = Path(folder) / "records.jsonl.gz", Path(folder) / "policy.yaml"
        policy.write_text(POLICY)
        write_records(records, lines)
        code, cpu_s, wall_s, memory_mb = measure(records, policy)
    bare_s = numpy_pass_seconds(lines)
    print(f"{lines} lines: exit {code}, {cpu_s:.1f} s CPU, {wall_s:.1f} s wall, {memory_mb:.0f} MB")
    print(f"{cpu_s / bare_s:.0f} x a NumPy pass over the same columns ({bare_s:.2f} s)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
