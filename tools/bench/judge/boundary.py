"""`python -m tools.bench.judge.boundary`: error rates exactly at the bound, looked at after every block.

For each setting of `dependence`, R streams of one stratum: an hour of stable's history in two halves gives the
dependence (pooled over groups of 20 strata, as the judge pools it over a level), then both arms run for an hour at the
bound, through the judge's own `Track`. Reported: how often FAIL evidence ever reached 1/alpha for one cell (20) and for
the family of 480 cells (48,000), and how often PASS evidence reached 20. All are errors, at most 5 %, 0.002 % and 5 %.
"""

import argparse
import datetime
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from policies.contract import Contract
from policies.dependence import excess_variance
from policies.growth import DEFAULT_AIM
from policies.projection import Counts, Strata
from policies.sequential import FAIL_FACTORS, PASS_FACTORS
from policies.track import Track
from tools.bench.judge.code import last_commit
from tools.bench.judge.dependence import BLOCK_S, P0, RATE_RPS, SETTINGS, Setting
from tools.bench.judge.fleet import WideStrata, WideTrack
from tools.bench.judge.ours import make_contract
from tools.bench.judge.scenarios import Array
from tools.bench.judge.table import Share, share

GROUP = 20
CELL, FAMILY = 20.0, 48_000.0
KINDS = ("limit alone", "limit and worse than stable", "margin")


@dataclass(frozen=True, slots=True)
class Rates:
    """Errors of one kind of evidence: at one cell's level, at the family's, and of PASS (None: the same as above)."""

    kind: str
    fail_cell: Share
    fail_family: Share
    passed: Share | None
    phi: float


@dataclass(slots=True)
class _Ever:
    """Largest evidence so far, per stratum."""

    fail: Array
    passed: Array

    def see(self, fail: Array, log_pass: Array) -> None:
        self.fail = np.maximum(self.fail, fail)
        self.passed = np.maximum(self.passed, log_pass)


def make_track(contract: Contract, strata: Strata, history: tuple[Array, Array], relative: bool) -> Track:
    """The judge's track of a P99 check whose dependence comes from two halves: n, k float64[2, B, S]."""
    n, k = history
    own = excess_variance(strata, n, k, BLOCK_S, relative)
    ratio = excess_variance(strata, n, k, BLOCK_S, True)
    cap = float(np.log(1 / contract.alpha_rollback)) * contract.block_s / contract.stall_tolerance_s
    track = Track(
        strata,
        np.full(strata.size, 1.0 if relative else P0),
        relative,
        cap,
        contract.plan_blocks,
        contract.phi_floor,
        own,
        ratio,
        FAIL_FACTORS,
        PASS_FACTORS,
        aim=np.full(strata.size, DEFAULT_AIM),
    )
    track.seed_rates(np.full(strata.size, 2 * RATE_RPS * BLOCK_S))
    return track


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour at the bound in R streams: (requests, exceedances), float64[R, B] each, of all four parts."""

    halves: tuple[tuple[Array, Array], tuple[Array, Array]]
    stable: tuple[Array, Array]
    candidate: tuple[Array, Array]


def draw_hour(setting: Setting, seed: int, streams: int, blocks: int) -> Hour:
    """Four independent draws of the setting."""
    rng = np.random.default_rng((seed, SETTINGS.index(setting)))
    draws = [setting.draw(rng, streams, blocks) for _ in range(4)]
    return Hour((draws[0], draws[1]), draws[2], draws[3])


def judge_hour(hour: Hour, relative: bool) -> tuple[WideTrack, dict[str, _Ever]]:
    """The track after the hour, and the largest evidence by kind; strata pool their dependence in groups."""
    streams, blocks = hour.stable[0].shape
    contract, alone = make_contract(), Strata((f"tenant-{i}", "all") for i in range(GROUP))
    tracks = []
    for first in range(0, streams, GROUP):
        n, k = (np.stack([half[i][first : first + GROUP].T for half in hour.halves]) for i in (0, 1))
        tracks.append(make_track(contract, alone, (n, k), relative))
    wide = WideTrack.of(WideStrata(len(tracks), alone), tracks)
    kinds = KINDS[2:] if relative else KINDS[:2]
    ever = {kind: _Ever(np.zeros(streams), np.full(streams, -np.inf)) for kind in kinds}
    groups = np.arange(streams)
    for block in range(blocks):
        (n_b, k_b), (n_c, k_c) = ([a[:, block] for a in arm] for arm in (hour.stable, hour.candidate))
        wide.step(Counts(n_c, k_c, n_b, k_b), groups)
        log_pass = wide.log_pass_evidence()
        for kind, seen in ever.items():
            evidence = wide.fail.evidence() if kind == KINDS[0] else wide.fail_evidence()
            seen.see(evidence[:streams], log_pass)
    return wide, ever


def error_rates(setting: Setting, runs: int, seed: int, hours: float = 1.0) -> list[Rates]:
    """Errors over `runs` strata (rounded up to whole groups)."""
    streams = -(-runs // GROUP) * GROUP
    hour = draw_hour(setting, seed, streams, round(hours * 3600 / BLOCK_S))
    found = []
    for relative in (False, True):
        track, by_kind = judge_hour(hour, relative)
        for kind, ever in by_kind.items():
            shares = [share(int((ever.fail >= level).sum()), streams) for level in (CELL, FAMILY)]
            of_pass = None if kind == KINDS[1] else share(int((ever.passed >= np.log(CELL)).sum()), streams)
            found.append(Rates(kind, shares[0], shares[1], of_pass, float(np.median(track.phi))))
    return found


def row(setting: Setting, rates: Rates) -> str:
    """One line of the table; an error above 5 % by more than chance is bold."""

    def cell(s: Share | None, nominal: float) -> str:
        if s is None:
            return "as above"
        text = f"{100 * s.k / s.n:.1f} ({100 * s.low:.1f}-{100 * s.high:.1f})"
        return f"**{text}**" if s.low > nominal else text

    numbers = [cell(rates.fail_cell, 0.05), cell(rates.fail_family, 1 / FAMILY), cell(rates.passed, 0.05)]
    return f"| {setting.name}: {setting.words} | {rates.kind} | {rates.phi:.1f} | {' | '.join(numbers)} |"


HEADER = """# Error rates at the exact bound

- Command: `{command}` (made {date}; seed {seed}; commit {code}); R = {runs} strata per setting; one hour at
  2 requests/s and arm, looked at every 5 s.
- Both arms alike and exactly at the bound, so every firing is an error. Nominal: one cell 5 %, family 1 % over 480
  cells (0.002 % per cell), PASS 5 %. Brackets: 95 % (strata of a group share the dependence estimate). Bold: above
  nominal by more than chance.
- "limit alone" is the evidence against the limit; a rollback also needs "worse than stable" (second line).

| setting | check | phi used (median) | FAIL, one cell % | FAIL, family % | PASS % |
|---|---|---|---|---|---|
"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.judge.boundary", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="strata per setting")
    parser.add_argument("--settings", default="", help="comma-separated names instead of all")
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--out", type=Path, default=Path(".weighlock/judge-bench/boundary.md"))
    args = parser.parse_args(argv)
    chosen = [s for s in SETTINGS if not args.settings or s.name in args.settings.split(",")]
    if not chosen:
        print(f"error: no setting {args.settings!r}; there are {', '.join(s.name for s in SETTINGS)}", file=sys.stderr)
        return 2
    command = f"python -m tools.bench.judge.boundary --runs {args.runs} --seed {args.seed}"
    text = HEADER.format(
        command=command, seed=args.seed, runs=args.runs, code=last_commit(), date=datetime.date.today()
    )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for setting in chosen:
        for rates in error_rates(setting, args.runs, args.seed):
            line = row(setting, rates)
            print(line, flush=True)
            text += line + "\n"
        args.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
