"""One run of one scenario: draw the requests once, ask every judge, return what each decided and when.

Called by `__main__`. Results go to one JSON line per run, so that a run that was interrupted goes on where it stopped;
the file's name holds a digest of all code that matters, so results of different code never mix.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import orjson

from policies.setup import JudgeSetup
from tools.bench.judge import peers, quantiles
from tools.bench.judge.code import code_digest
from tools.bench.judge.fleet import Fleet
from tools.bench.judge.ours import Counted, Ours, count, count_by_law, make_setup
from tools.bench.judge.scenarios import BLOCK_S, FAILURE_LIMIT, MARGIN, Scenario
from tools.bench.judge.traffic import Requests, Source

PEER_MINUTES = 36  # Argo and Kayenta decide after 30, Flagger after 30 good checks
CHUNK_BLOCKS = 360
OURS = "weighlock"
LIMIT = 1.0 + MARGIN


@dataclass(frozen=True, slots=True)
class RunResult:
    """decisions[judge] = (result, seconds); strata_passed by our judge at its end; phi: largest over strata of the
    margin's; later_fail_s: a FAIL after PASS, while the step was judged on (None: none, or not judged on)."""

    scenario: str
    run: int
    decisions: dict[str, peers.Decision]
    strata_passed: float
    phi: float
    culprits: tuple[str, ...]
    later_fail_s: float | None


class _Run:
    """One draw: its counts, what the peers say, and our judge, which takes blocks until it has decided."""

    def __init__(self, scenario: Scenario, seed: int, run: int, setups: Path | None) -> None:
        self.scenario, self.number = scenario, run
        self.source = source = Source(scenario, seed, run)
        setup = make_setup(source) if setups is None else stored_setup(setups, source, seed, run)
        self._first, self._end = 0, source.lead_blocks + PEER_MINUTES * quantiles.BLOCKS_PER_MINUTE
        stable, candidate = source.stable(0, self._end), source.candidate(0, self._end)
        self._counted = count(setup, stable, candidate)
        blocks = self._end - source.lead_blocks
        self.decisions = {**_peers(source, stable, candidate), **_fixed(source, self._counted, blocks)}
        self.ours = Ours(setup)
        self.first: peers.Decision | None = None
        self.later_fail_s: float | None = None
        self.is_open = True

    def counts(self, block: int) -> tuple[Counted, int]:
        """Counts that hold a block of the step, and the row in them; later blocks are drawn when they are needed."""
        place = self.source.lead_blocks + block
        if place >= self._end and self.is_open:
            self._first, self._end = self._end, min(self._end + CHUNK_BLOCKS, len(self.source.lost))
            span = (self._first, self._end)
            self._counted = self._later_counts(*span)
        row = place - self._first
        return self._counted, min(row, len(self._counted.candidate) - 1)

    def _later_counts(self, first: int, last: int) -> Counted:
        """Blocks that only our judge looks at."""
        setup = self.ours.judge.setup
        if self.scenario.stall_s:
            return count(setup, self.source.stable(first, last), self.source.candidate(first, last))
        return count_by_law(setup, self.source, first, last)

    def look(self) -> None:
        """Note what our judge says now."""
        decided = self.ours.decided_s
        if decided is None or decided == self.first or not self.is_open:
            return
        if self.first is not None and decided[0] == "FAIL":
            self.later_fail_s, self.is_open = decided[1], False
        elif self.first is None:
            self.first = decided
            self.is_open = decided[0] == "PASS" and self.scenario.after_pass

    def result(self) -> RunResult:
        fired = self.ours.judge.fired
        self.decisions[OURS] = self.first or ("INCONCLUSIVE", self.scenario.judged_s)
        return RunResult(
            scenario=self.scenario.name,
            run=self.number,
            decisions=self.decisions,
            strata_passed=self.ours.strata_passed,
            phi=float(self.ours.judge.tracks[0].phi.max()),
            culprits=tuple(f"{c.tenant}/{c.bucket}/{c.metric}" for c in fired.culprits[:3]) if fired else (),
            later_fail_s=self.later_fail_s,
        )


def stored_setup(folder: Path, source: Source, seed: int, run: int) -> JudgeSetup:
    """The setup of this world and run, made once."""
    path = folder / f"{source.scenario.world}.seed{seed}.{code_digest()}.{run}.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(orjson.dumps(make_setup(source).to_dict()))
        unfinished.rename(path)
    return JudgeSetup.from_dict(orjson.loads(path.read_bytes()))


def run_once(scenario: Scenario, seed: int, run: int) -> RunResult:
    """All judges on one draw."""
    return run_many(scenario, seed, (run,))[0]


def run_many(scenario: Scenario, seed: int, numbers: Sequence[int], setups: Path | None = None) -> list[RunResult]:
    """All judges on several draws; ours side by side. Lost blocks differ between runs, so those are judged alone.

    setups: folder in which what `prepare` makes of stable's history is kept for other scenarios of the same world.
    """
    if scenario.missing and len(numbers) > 1:
        return [result for number in numbers for result in run_many(scenario, seed, (number,), setups)]
    runs = [_Run(scenario, seed, number, setups) for number in numbers]
    fleet = Fleet([run.ours for run in runs]) if len(runs) > 1 else None
    for block in range(round(scenario.judged_s / BLOCK_S)):
        if fleet is not None:
            counts = [run.counts(block) for run in runs]
            fleet.take([c for c, _ in counts], [row for _, row in counts], [run.is_open for run in runs])
        elif runs[0].source.lost[runs[0].source.lead_blocks + block]:
            runs[0].ours.lose()
        else:
            runs[0].ours.take(*runs[0].counts(block))
        for run in runs:
            run.look()
        if not any(run.is_open for run in runs):
            break
    return [run.result() for run in runs]


def _peers(source: Source, stable: Requests, candidate: Requests) -> dict[str, peers.Decision]:
    lead_minutes = source.lead_blocks // quantiles.BLOCKS_PER_MINUTE
    lost = source.lost[: len(stable.attempted)]
    arms = [quantiles.minute_buckets(r, lost) for r in (stable, candidate)]
    found: dict[str, peers.Decision] = {}
    for minutes in (1, 5):
        ratios = _ratios(arms, minutes, lead_minutes)
        for level, values in ratios.items():
            for limit in (0, 3) if level == "global" else (3,):
                found[f"argo {level} {minutes * 60}s L{limit}"] = peers.argo(values, LIMIT, limit)
        if minutes == 1:
            for level, values in ratios.items():
                found[f"flagger {level} 60s T5"] = peers.flagger(values, LIMIT, 5)
    exact = [quantiles.minute_p99(r, lost) for r in (stable, candidate)]
    control, experiment = (by_stratum[lead_minutes:].T for by_stratum, _ in exact)
    whole = [everything[lead_minutes:][None, :] for _, everything in exact]
    found["kayenta global"] = peers.kayenta(whole[0], whole[1])
    found["kayenta stratum"] = peers.kayenta(control, experiment)
    found["kayenta stratum x1.25"] = peers.kayenta(control, experiment, allowed_increase=LIMIT)
    return found


def _ratios(arms: list[np.ndarray], minutes: int, lead_minutes: int) -> dict[str, np.ndarray]:
    """candidate / stable of PromQL's P99 over the window, [minutes, metrics]: of all requests, and one per stratum."""
    with np.errstate(divide="ignore", invalid="ignore"):
        by_stratum = [quantiles.histogram_quantile(0.99, quantiles.windows(a, minutes)) for a in arms]
        whole = [
            quantiles.histogram_quantile(0.99, quantiles.windows(a.sum(axis=1, keepdims=True), minutes)) for a in arms
        ]
        ratios = {"global": whole[1] / whole[0], "stratum": by_stratum[1] / by_stratum[0]}
    return {level: values[lead_minutes:] for level, values in ratios.items()}


def _fixed(source: Source, counted: Counted, blocks: int) -> dict[str, peers.Decision]:
    """Fixed-size tests at 30 minutes, and the same tests looked at every minute."""
    lead, step = source.lead_blocks, quantiles.BLOCKS_PER_MINUTE
    keep = ~source.lost[lead : lead + blocks]
    rows = np.arange(step - 1, peers.MEASUREMENTS * step, step)

    def sums(array: np.ndarray) -> np.ndarray:
        return np.asarray(np.cumsum(np.where(keep[:, None], array[lead : lead + blocks], 0.0), axis=0)[rows])

    ratio, limit, success = ([sums(a) for a in arrays] for arrays in counted.checks[:3])
    absolute = ((limit[0], limit[1], 0.01), (success[0], success[1], FAILURE_LIMIT))
    seconds = np.asarray((rows + 1) * BLOCK_S, dtype=np.float64)
    every = peers.Looks(seconds, (ratio[0], ratio[1], ratio[2], ratio[3]), absolute)
    once = peers.Looks(
        seconds[-1:],
        (ratio[0][-1:], ratio[1][-1:], ratio[2][-1:], ratio[3][-1:]),
        tuple((n[-1:], k[-1:], p0) for n, k, p0 in absolute),
    )
    return {"fixed size, one look": peers.fixed_size(once), "fixed size, every minute": peers.fixed_size(every)}


# --- the store of results ---


def store_path(folder: Path, scenario: Scenario, seed: int, digest: str) -> Path:
    """Where the runs of a scenario are kept."""
    length = "" if scenario.judged_s == 7200.0 else f".{scenario.judged_s:.0f}s"
    return folder / f"{scenario.name}.seed{seed}.{digest}{length}.jsonl"


def load_runs(path: Path) -> list[RunResult]:
    """Runs that are stored already, in order; an unfinished last line (a killed process) is left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().split("\n")[:-1]:
        raw = json.loads(line)
        raw["decisions"] = {name: (result, seconds) for name, (result, seconds) in raw["decisions"].items()}
        raw["culprits"] = tuple(raw["culprits"])
        found.append(RunResult(**raw))
    return found


def append_run(path: Path, result: RunResult) -> None:
    """Store one run."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(result)) + "\n")
