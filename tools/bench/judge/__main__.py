"""`python -m tools.bench.judge`: run the scenarios (what is stored already is not run again), write table and plot.

--quick: six scenarios, three runs each, one hour judged, for CI (below a minute on two cores). --full: every scenario,
150 runs of nulls and 60 of the others. Results go to --out as one JSON line per run; the table (judge-bench.md, .json)
and the plot (.svg) are made from what is there, so an interrupted run loses at most one batch.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools.bench.judge import table
from tools.bench.judge.code import code_digest, last_commit
from tools.bench.judge.run import OURS, RunResult, append_run, load_runs, run_many, store_path
from tools.bench.judge.scenarios import QUICK, SCENARIOS, Scenario, find, shortened

NULL_RUNS, OTHER_RUNS, QUICK_RUNS = 150, 60, 3
QUICK_JUDGED_S = 3600.0
BATCH = 10


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.judge", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="six scenarios, three runs each (the default)")
    size.add_argument("--full", action="store_true", help="every scenario, 150 runs of nulls, 60 of the others")
    parser.add_argument("--scenarios", default="", help="comma-separated names instead of all")
    parser.add_argument("--runs", type=int, help="runs per scenario instead of the mode's")
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--out", type=Path, default=Path(".weighlock/judge-bench"), help="folder of results")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--no-run", action="store_true", help="only make table and plot of what is stored")
    parser.add_argument("--digest", nargs="?", const="", metavar="COMMIT", help="print the code's digest and commit")
    parser.add_argument("--of", help="with --no-run: stored results of this digest instead of the present one's")
    parser.add_argument("--commit", default="", help="with --of: the commit that they were made with")
    parser.add_argument("--note", default="", help="Markdown to print below the table's head")
    parser.add_argument("--docs", type=Path, help="also write the pages into this folder (docs/)")
    return parser.parse_args(argv)


def chosen(args: argparse.Namespace) -> list[tuple[Scenario, int]]:
    """Scenarios and how many runs of each."""
    if args.full:
        scenarios = find(args.scenarios) if args.scenarios else SCENARIOS
        return [(s, args.runs or (NULL_RUNS if s.is_null else OTHER_RUNS)) for s in scenarios]
    scenarios = find(args.scenarios or ",".join(QUICK))
    return [(shortened(s, QUICK_JUDGED_S), args.runs or QUICK_RUNS) for s in scenarios]


def missing_runs(scenario: Scenario, wanted: int, path: Path) -> list[int]:
    """Numbers of the runs that are not stored yet."""
    have = {result.run for result in load_runs(path)}
    return [run for run in range(wanted) if run not in have]


@dataclass(frozen=True, slots=True)
class Batch:
    """Runs of one scenario that are judged side by side."""

    scenario: Scenario
    seed: int
    runs: tuple[int, ...]
    path: Path


def make_batches(args: argparse.Namespace, plan: list[tuple[Scenario, int]], paths: dict[str, Path]) -> list[Batch]:
    """What is not stored yet, in the order of the plan."""
    found = []
    for scenario, wanted in plan:
        runs = missing_runs(scenario, wanted, paths[scenario.name])
        for first in range(0, len(runs), BATCH):
            found.append(Batch(scenario, args.seed, tuple(runs[first : first + BATCH]), paths[scenario.name]))
    return found


def run_batch(batch: Batch) -> list[RunResult]:
    """In a worker process."""
    return run_many(batch.scenario, batch.seed, batch.runs, batch.path.parent / "setups")


def run_batches(batches: list[Batch], jobs: int) -> Iterator[tuple[Batch, list[RunResult]]]:
    """Results as they come, in order, from `jobs` processes."""
    if jobs <= 1:
        yield from ((batch, run_batch(batch)) for batch in batches)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from zip(batches, pool.map(run_batch, batches), strict=True)


def run_and_store(batches: list[Batch], jobs: int) -> None:
    """Run all batches; one line of progress each."""
    begun, done, total = time.monotonic(), 0, sum(len(batch.runs) for batch in batches)
    for batch, results in run_batches(batches, jobs):
        for result in results:
            append_run(batch.path, result)
        done += len(results)
        took = time.monotonic() - begun
        words = f"[{done}/{total} runs, {took:.0f} s, {took / done * (total - done):.0f} s left] {batch.scenario.name}"
        tally = Counter(result.decisions[OURS][0] for result in results)
        print(f"{words}: {dict(tally)}", file=sys.stderr, flush=True)


def main(argv: list[str]) -> int:
    args = parse_arguments(argv)
    try:
        if args.digest is not None:
            print(f"{code_digest(args.digest)} (last commit {last_commit(args.digest)})")
            return 0
        plan = chosen(args)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    digest = args.of or code_digest()
    paths = {s.name: store_path(args.out, s, args.seed, digest) for s, _ in plan}
    if not args.no_run:
        run_and_store(make_batches(args, plan, paths), args.jobs)
    mode = "--full" if args.full else "--quick"
    only = f" --scenarios {args.scenarios}" if args.scenarios else ""
    command = f"python -m tools.bench.judge {mode}{only} --seed {args.seed}"
    head = table.Head(command, args.seed, code_digest(args.commit), last_commit(args.commit), args.note)
    results = {s.name: load_runs(paths[s.name])[:wanted] for s, wanted in plan}
    table.write(args.out, head, [s for s, _ in plan], results)
    if args.docs is not None:
        table.publish(args.out, args.docs)
    print(f"wrote {args.out / 'judge-bench.md'}, .json and .svg", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
