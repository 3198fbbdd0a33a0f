"""`python -m tools.bench.judge.promote`: how long an identical candidate waits for the last of 120 strata, and why.

The null scenario of judge-bench, same seeds in every row; rows differ in how much stable traffic each candidate request
is compared with. Reported: seconds to PASS, and when the last stratum had passed each check.
"""

import argparse
import datetime
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from policies.setup import JudgeSetup
from tools.bench.judge.code import last_commit
from tools.bench.judge.fleet import Fleet
from tools.bench.judge.ours import Counted, Ours, count
from tools.bench.judge.run import stored_setup
from tools.bench.judge.scenarios import BLOCK_S, HORIZON_S, find
from tools.bench.judge.table import Median, median
from tools.bench.judge.traffic import Source

CHUNK_BLOCKS = 360
BATCH = 6


@dataclass(frozen=True, slots=True)
class Variant:
    """stable_factor: stable requests per candidate request (live, mirrored or replayed: the judge does not care);
    correlation: every candidate request is a copy of a stable one, log latencies correlate so within a pair; is_aimed:
    PASS evidence is aimed (False: five equal alternatives, as it was before)."""

    words: str
    stable_factor: float = 1.0
    correlation: float | None = None
    is_aimed: bool = True


VARIANTS = (
    Variant("equal shares, before", is_aimed=False),
    Variant("equal shares"),
    Variant("four stable requests per candidate request, before", 4.0, is_aimed=False),
    Variant("four stable requests per candidate request", 4.0),
    Variant("two", 2.0),
    Variant("ten", 10.0),
    Variant("equal shares, pairs of correlation 0.9, before", correlation=0.9, is_aimed=False),
    Variant("equal shares, pairs of correlation 0.9", correlation=0.9),
    Variant("equal shares, pairs of correlation 0.6", correlation=0.6),
    Variant("equal shares, pairs of correlation 0.7", correlation=0.7),
    Variant("equal shares, pairs of correlation 0.3", correlation=0.3),
)


@dataclass(frozen=True, slots=True)
class Waits:
    """One run, seconds (None: not within the horizon): PASS; last stratum by check; nine in ten strata, all checks."""

    passed_s: float | None
    last_s: dict[str, float | None]
    most_s: float | None


class _Watch:
    """When things were first true in one run."""

    def __init__(self, ours: Ours) -> None:
        self.ours = ours
        judge = ours.judge
        self._checks = [(f"{c.metric} {c.gate}", i) for i, c in enumerate(judge.checks) if judge.decides(c)]
        self._last: dict[str, float | None] = {name: None for name, _ in self._checks}
        self._most: float | None = None

    def look(self, now_s: float) -> None:
        latched = {name: self.ours.judge.tracks[number].latched for name, number in self._checks}
        for name, strata in latched.items():
            if self._last[name] is None and strata.all():
                self._last[name] = now_s
        if self._most is None and np.logical_and.reduce(list(latched.values())).mean() >= 0.9:
            self._most = now_s

    def waits(self) -> Waits:
        decided = self.ours.decided_s
        passed_s = decided[1] if decided is not None and decided[0] == "PASS" else None
        return Waits(passed_s, self._last, self._most)


def measure(variant: Variant, seed: int, runs: Sequence[int], folder: Path) -> list[Waits]:
    """Waits of several runs, judged side by side; setups are kept in `folder`."""
    sources = [Source(find("null")[0], seed, run, variant.stable_factor) for run in runs]
    setups = [stored_setup(folder, source, seed, run) for source, run in zip(sources, runs, strict=True)]
    if not variant.is_aimed:
        setups = [without_aims(setup) for setup in setups]
    ours = [Ours(setup, 100.0 / (1.0 + variant.stable_factor)) for setup in setups]
    watches = [_Watch(o) for o in ours]
    fleet = Fleet(ours) if variant.correlation is None else None  # pairs are judged run by run
    total = round(HORIZON_S / BLOCK_S)
    for first in range(0, total, CHUNK_BLOCKS):
        last = min(first + CHUNK_BLOCKS, total)
        counted = [_counted(variant, s, o, first, last) for s, o in zip(sources, ours, strict=True)]
        for row in range(len(counted[0].candidate)):
            is_open = [o.decided_s is None for o in ours]
            if fleet is not None:
                fleet.take(counted, [row] * len(ours), is_open)
            else:
                for o, c, must in zip(ours, counted, is_open, strict=True):
                    if must:
                        o.take(c, row)
            for watch in watches:
                watch.look((first + row + 1) * BLOCK_S)
            if all(o.decided_s is not None for o in ours):
                return [watch.waits() for watch in watches]
    return [watch.waits() for watch in watches]


def without_aims(setup: JudgeSetup) -> JudgeSetup:
    """The setup as it was before PASS evidence was aimed."""
    strata = (replace(s, checks=tuple(replace(c, aim=None) for c in s.checks)) for s in setup.strata)
    return replace(setup, strata=tuple(strata))


def _counted(variant: Variant, source: Source, ours: Ours, first: int, last: int) -> Counted:
    span = (source.lead_blocks + first, source.lead_blocks + last)
    if variant.correlation is not None:
        return count(ours.judge.setup, *source.paired(*span, variant.correlation))
    return count(ours.judge.setup, source.stable(*span), source.candidate(*span))


def _middle(values: Sequence[float | None]) -> str:
    """Median over runs in minutes; a run that did not get there counts as longer than the horizon."""
    found = [HORIZON_S * 2 if value is None else value for value in values]
    m: Median | None = median(found)
    if m is None or m.seconds > HORIZON_S:
        return "> 120"
    between = "" if m.low is None or m.high is None else f" ({m.low / 60:.0f}-{m.high / 60:.0f})"
    return f"{m.seconds / 60:.1f}{between}"


def row(variant: Variant, waits: Sequence[Waits]) -> str:
    """One line of the table."""
    passed = sum(w.passed_s is not None for w in waits)
    columns = [
        [w.passed_s for w in waits],
        [w.most_s for w in waits],
        *([w.last_s[name] for w in waits] for name in waits[0].last_s),
    ]
    return f"| {variant.words} | {passed} of {len(waits)} | {' | '.join(_middle(c) for c in columns)} |"


def header(command: str, waits: Waits) -> str:
    names = " | ".join(f"last stratum: {name}" for name in waits.last_s)
    lines = [
        "# Time to promote an identical candidate",
        "",
        f"- Command: `{command}` (made {datetime.date.today()}; commit {last_commit()})",
        "- 120 strata, 2 candidate requests/s each; margin 25 %, limit 1.6x stable's P99, success 99.5 % (is 99.9 %).",
        "- Medians in minutes over runs with the same seeds and requests (95 % by order statistics). Before: PASS",
        "  evidence of five equal alternatives; now it is aimed, from stable's history, at the slowest stratum.",
        "",
        f"| stable's requests | promoted in 2 h | PASS | 9 of 10 strata, all checks | {names} |",
        "|---" * (4 + len(waits.last_s)) + "|",
    ]
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.judge.promote", description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--out", type=Path, default=Path(".weighlock/judge-bench/promote.md"))
    args = parser.parse_args(argv)
    command = f"python -m tools.bench.judge.promote --runs {args.runs} --seed {args.seed}"
    args.out.parent.mkdir(parents=True, exist_ok=True)
    text = ""
    for variant in VARIANTS:
        waits = [
            w
            for first in range(0, args.runs, BATCH)
            for w in measure(
                variant, args.seed, range(first, min(first + BATCH, args.runs)), args.out.parent / "setups"
            )
        ]
        text = text or header(command, waits[0])
        text += row(variant, waits) + "\n"
        print(text.splitlines()[-1], flush=True)
        args.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
