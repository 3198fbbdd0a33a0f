"""How fast manifests are read and compared: every file, every pair, start-up of the command, hostile YAML, memory.

Prints one line per measure with its limit; exits 1 when a limit is missed. Run on a quiet machine:
``python tools/bench/manifests.py``.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("WEIGHLOCK_SHARED", ROOT.parent / "shared")) / "data" / "k8s"


def best(command: list[str], runs: int = 5) -> float:
    """Shortest processor time of a command, seconds (what waiting for other jobs does not change)."""
    times = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def pairs() -> float:
    """Longest import and diff of any pair, seconds of processor time, after start-up."""
    sys.path.insert(0, str(ROOT))
    from manifests.diff import PairingError, diff
    from manifests.importing import import_files

    files = [(path.name, path.read_bytes()) for path in sorted(SHARED.glob("*.yaml"))]
    slowest = 0.0
    for warm in (True, False):
        for old in files:
            for new in files:
                start = time.process_time()
                left, right = import_files([old]), import_files([new])
                with contextlib.suppress(PairingError):
                    diff(left, right)
                if not warm:
                    slowest = max(slowest, time.process_time() - start)
    return slowest


def hostile() -> float:
    """Longest refusal of a hostile text of 4 to 5 MB, seconds of processor time."""
    from manifests.yamlsafe import YamlRefused, load_all

    texts = [
        "- a\n" * 1_000_000,
        "[" * 4_000_000,
        "k: '" + "x" * 3_900_000 + "'",
        "x" * 5_000_000,
        "a: &a [" + "*a," * 1_000_000,
    ]
    slowest = 0.0
    for text in texts:
        start = time.process_time()
        try:
            load_all(text)
        except YamlRefused:
            slowest = max(slowest, time.process_time() - start)
    return slowest


def main() -> int:
    python = [sys.executable, "-m", "controller.cli.main"]
    names = [str(path) for path in sorted(SHARED.glob("*.yaml"))]
    measures = [
        ("import and diff of the slowest pair", pairs(), 0.050, "s"),
        ("whole folder in one call, with start-up", best([*python, "import", *names, "-o", "json"], 3), 3.0, "s"),
        ("start-up of weighlock diff, with one pair", best([*python, "diff", names[0], names[1]]), 0.7, "s"),
        ("hostile YAML", hostile(), 1.0, "s"),
        ("resident memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 150.0, "MB"),
    ]
    missed = 0
    for name, value, limit, unit in measures:
        missed += value >= limit
        print(f"{name:<44} {value:>9.3f} {unit:<2} (limit {limit:g}) {'' if value < limit else 'MISSED'}")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
