"""How fast manifests are read and compared: every file, every pair, start-up of the command, hostile YAML, memory.

Prints one line per measure with its limit as soon as it is known; exits 1 when a limit is missed. Limits hold for
processor time, which other jobs of the machine hardly change; wall time stands beside it and says what a person waits
here and now. ``python -m tools.bench.manifests``.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("WEIGHLOCK_SHARED", ROOT.parent / "shared")) / "data" / "k8s"
HOSTILE = {
    "many values": '"- a\\n" * 1_000_000',
    "flow depth": '"[" * 4_000_000',
    "one long value": '"k: \'" + "x" * 3_900_000 + "\'"',
    "five megabytes": '"x" * 5_000_000',
    "aliases": '"a: &a [" + "*a," * 1_000_000',
    "anchors": '"&a " * 1_300_000',
    "keys": '"".join(f"k{i}: v\\n" for i in range(350_000))',
}
REFUSE = """
import json, resource, sys, time
from manifests.yamlsafe import YamlRefused, load_all
text = {text}
start, wall = time.process_time(), time.perf_counter()
try:
    load_all(text)
    raise SystemExit("it was read")
except YamlRefused:
    pass
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([time.process_time() - start, time.perf_counter() - wall, peak / 1024]))
"""


@dataclass(frozen=True)
class Cost:
    """Processor seconds, wall seconds and peak resident MB of a piece of work (0: not measured)."""

    processor: float
    wall: float
    peak: float = 0.0


@dataclass(frozen=True)
class Measure:
    """One line of the report."""

    name: str
    value: float
    limit: float
    unit: str
    wall: float | None = None

    def __str__(self) -> str:
        beside = "" if self.wall is None else f"wall {self.wall:.3f} s"
        verdict = "" if self.value < self.limit else "MISSED"
        return f"{self.name:<44} {self.value:>9.3f} {self.unit:<2} (limit {self.limit:g})  {beside:<14} {verdict}"


def run(command: list[str], runs: int) -> Cost:
    """The cheapest of several runs of a command in a process of its own; the peak is the largest."""
    best = Cost(float("inf"), float("inf"))
    peak = 0.0
    for _ in range(runs):
        wall = time.perf_counter()
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, _, usage = os.wait4(child.pid, 0)
        peak = max(peak, usage.ru_maxrss / 1024)
        cost = Cost(usage.ru_utime + usage.ru_stime, time.perf_counter() - wall)
        best = min(best, cost, key=_processor)
    return Cost(best.processor, best.wall, peak)


def slowest_pair() -> Cost:
    """Import and diff of any pair after start-up: every pair once, the dearest ones twice more, the better one
    counts."""
    from manifests.diff import PairingError, diff
    from manifests.importing import import_files

    def cost(old: tuple[str, bytes], new: tuple[str, bytes]) -> Cost:
        start, wall = time.process_time(), time.perf_counter()
        left, right = import_files([old]), import_files([new])
        with contextlib.suppress(PairingError):
            diff(left, right)
        return Cost(time.process_time() - start, time.perf_counter() - wall)

    files = [(path.name, path.read_bytes()) for path in sorted(SHARED.glob("*.yaml"))]
    for file in files:
        cost(file, file)  # catalogues and parsers are loaded once, at start-up
    costs = []
    for number, old in enumerate(files, 1):
        progress(f"pairs: {number} of {len(files)} files")
        costs += [(cost(old, new), old, new) for new in files]
    costs.sort(key=lambda entry: -entry[0].processor)
    again = [min((first, cost(old, new), cost(old, new)), key=_processor) for first, old, new in costs[:20]]
    return max([*again, costs[20][0]], key=_processor)


def _processor(cost: Cost) -> float:
    return cost.processor


def hostile() -> Cost:
    """The dearest refusal of a hostile text of 4 to 5 MB, each in a process of its own."""
    worst = Cost(0.0, 0.0)
    for name, text in HOSTILE.items():
        progress(f"hostile YAML: {name}")
        code = REFUSE.replace("{text}", text)
        found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        processor, wall, peak = json.loads(found.stdout)
        worst = Cost(max(worst.processor, processor), max(worst.wall, wall), max(worst.peak, peak))
    return worst


def progress(text: str) -> None:
    """Says on a terminal's error stream what is being measured."""
    if sys.stderr.isatty():
        print(f"\r{text:<70}", end="", file=sys.stderr, flush=True)


def measures() -> Iterator[Measure]:
    """Every measure, the quick ones first."""
    command = [sys.executable, "-m", "controller.cli.main"]
    names = [str(path) for path in sorted(SHARED.glob("*.yaml"))]
    progress("start-up")
    start = run([*command, "diff", names[0], names[1]], 5)
    yield Measure("start-up of weighlock diff, with one pair", start.processor, 0.7, "s", start.wall)
    progress("the whole folder")
    folder = run([*command, "import", *names, "-o", "json"], 3)
    yield Measure("whole folder in one call, with start-up", folder.processor, 3.0, "s", folder.wall)
    yield Measure("resident memory of that call", folder.peak, 150.0, "MB")
    refused = hostile()
    yield Measure("hostile YAML", refused.processor, 1.0, "s", refused.wall)
    yield Measure("resident memory while refusing", refused.peak, 150.0, "MB")
    pair = slowest_pair()
    yield Measure("import and diff of the slowest pair", pair.processor, 0.050, "s", pair.wall)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Measure("resident memory after every pair", own, 150.0, "MB")


def main() -> int:
    missed = 0
    for measure in measures():
        progress("")
        print(f"\r{measure}" if sys.stderr.isatty() else measure, flush=True)
        missed += measure.value >= measure.limit
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
