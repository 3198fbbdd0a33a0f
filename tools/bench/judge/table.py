"""From runs to the table: shares of wrong decisions with Clopper-Pearson intervals, median times, the goals.

Called by `__main__`. Writes judge-bench.md, .json and, through `plot`, .svg. A decision is wrong as `Truth` says.
"""

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from policies.intervals import clopper_pearson, order_statistic_ranks
from tools.bench.judge.peers import Decision
from tools.bench.judge.run import OURS, RunResult
from tools.bench.judge.scenarios import Scenario, Truth

ALPHA = 0.05
PEERS = {
    "argo global 60s L3": "Argo, all traffic, 60 s, L3",
    "argo global 300s L3": "Argo, all traffic, 300 s, L3",
    "argo stratum 300s L3": "Argo, per stratum, 300 s, L3",
    "flagger global 60s T5": "Flagger, all traffic, T5",
    "flagger stratum 60s T5": "Flagger, per stratum, T5",
    "kayenta global": "Kayenta, all traffic",
    "kayenta stratum": "Kayenta, per stratum",
    "kayenta stratum x1.25": "Kayenta, per stratum, allowedIncrease 1.25",
    "fixed size, one look": "fixed n, one look",
    "fixed size, every minute": "fixed n, each minute",
}
"""Columns of the printed table; the JSON holds every judge."""
CANNOT_ROLL_BACK = frozenset({Truth.PROMOTE, Truth.HOLD, Truth.NEUTRAL, Truth.BOUNDARY})
CANNOT_PROMOTE = frozenset({Truth.ROLLBACK, Truth.HOLD, Truth.BOUNDARY})


@dataclass(frozen=True, slots=True)
class Head:
    """What the table was made with, and what its reader should know."""

    command: str
    seed: int
    code: str
    commit: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """k of n, with an exact 95 % interval."""

    k: int
    n: int
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.k / self.n:.0f} ({100 * self.low:.1f}-{100 * self.high:.1f})"


@dataclass(frozen=True, slots=True)
class Median:
    """Median of n times in seconds, with a 95 % interval from order statistics (None: too few)."""

    seconds: float
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        between = f" ({self.low:.0f}-{self.high:.0f})" if self.low is not None and self.high is not None else ""
        return f"{self.seconds:.0f}{between}"


@dataclass(frozen=True, slots=True)
class Figures:
    """One judge in one scenario; None where the question does not arise."""

    false_rollback: Share | None
    false_promotion: Share | None
    rollback: Share
    promotion: Share
    inconclusive: Share
    detect: Median | None
    promote: Median | None

    @property
    def wrong(self) -> Share | None:
        """Wrong decisions of either kind."""
        kinds = [s for s in (self.false_rollback, self.false_promotion) if s is not None]
        return share(sum(s.k for s in kinds), kinds[0].n) if kinds else None


def share(k: int, n: int) -> Share:
    low, high = clopper_pearson(k, n, ALPHA / 2)
    return Share(k, n, low, high)


def median(values: Sequence[float]) -> Median | None:
    if not values:
        return None
    ordered = sorted(values)
    ranks = order_statistic_ranks(len(ordered), 0.5, ALPHA / 2)
    low, high = (None if rank is None else ordered[rank - 1] for rank in ranks)
    return Median(float(np.median(ordered)), low, high, len(ordered))


def figures(scenario: Scenario, decisions: Sequence[Decision]) -> Figures:
    """Figures of one judge. A FAIL before a late breach begins is a false rollback."""
    n, truth, onset_s = len(decisions), scenario.truth, max(0.0, scenario.onset_s)
    failed = [seconds for result, seconds in decisions if result == "FAIL"]
    passed = [seconds for result, seconds in decisions if result == "PASS"]
    early = [seconds for seconds in failed if seconds <= onset_s]
    false_rollback = share(len(failed), n) if truth in CANNOT_ROLL_BACK else None
    if truth is Truth.ROLLBACK and onset_s:
        false_rollback = share(len(early), n)
    is_breach = truth is Truth.ROLLBACK
    return Figures(
        false_rollback=false_rollback,
        false_promotion=share(len(passed), n) if truth in CANNOT_PROMOTE else None,
        rollback=share(len(failed), n),
        promotion=share(len(passed), n),
        inconclusive=share(n - len(failed) - len(passed), n),
        detect=median([s - onset_s for s in failed if s > onset_s]) if is_breach else None,
        promote=median(passed) if truth not in CANNOT_PROMOTE else None,
    )


def all_figures(scenario: Scenario, runs: Sequence[RunResult]) -> dict[str, Figures]:
    """By judge, ours first."""
    judges = sorted(runs[0].decisions, key=lambda name: (name != OURS, name))
    return {judge: figures(scenario, [run.decisions[judge] for run in runs]) for judge in judges}


# --- goals ---


@dataclass(frozen=True, slots=True)
class Goal:
    """What our judge must reach in one scenario; `is_met` None = not enough runs to say."""

    words: str
    measured: str
    is_met: bool | None


def goals(found: Mapping[str, dict[str, Figures]]) -> list[Goal]:
    made = [_rollback_goal(found, name) for name in ("null", "bursty_null_independent", "bursty_null_shared")]
    made += [_promotion_goals(found)]
    made += [_least_favourable_goal(found)]
    limits = (("all_x2", 35), ("one_tenant_x2", 70), ("one_stratum_x5", 50), ("one_stratum_x2", 300))
    made += [_detection_goal(found, name, limit_s) for name, limit_s in limits]
    return [goal for goal in made if goal is not None]


def _rollback_goal(found: Mapping[str, dict[str, Figures]], name: str) -> Goal | None:
    if name not in found or (rolled := found[name][OURS].false_rollback) is None:
        return None
    bound = clopper_pearson(rolled.k, rolled.n, ALPHA / 2)[1]
    enough = bound < 0.025
    is_met = False if rolled.k else (True if enough else None)
    measured = f"{rolled.k} of {rolled.n}, upper bound {100 * bound:.1f} %"
    return Goal(f"{name}: no false rollback, upper bound below 2.5 %", measured, is_met)


def _promotion_goals(found: Mapping[str, dict[str, Figures]]) -> Goal | None:
    kinds = {n: f[OURS].false_promotion for n, f in found.items() if n not in ("least_favourable", "x1.25_boundary")}
    known = {name: s for name, s in kinds.items() if s is not None}
    if not known:
        return None
    k, n = sum(s.k for s in known.values()), sum(s.n for s in known.values())
    bad = ", ".join(name for name, s in known.items() if s.k)
    measured = f"{k} of {n} in {len(known)} scenarios" + (f" ({bad})" if bad else "")
    return Goal("no false promotion outside the boundary", measured, k == 0)


def _least_favourable_goal(found: Mapping[str, dict[str, Figures]]) -> Goal | None:
    if "least_favourable" not in found or (s := found["least_favourable"][OURS].false_promotion) is None:
        return None
    return Goal("least favourable: false promotion at most 5 %", f"{s.k} of {s.n}: {s} %", s.k <= 0.05 * s.n)


def _detection_goal(found: Mapping[str, dict[str, Figures]], name: str, limit_s: float) -> Goal | None:
    if name not in found:
        return None
    f = found[name][OURS]
    missed = f.rollback.n - f.rollback.k
    measured = f"median {f.detect} s, {f.rollback.k} of {f.rollback.n} found" if f.detect else "none found"
    return Goal(
        f"{name}: found within {limit_s:.0f} s (median)", measured,
        f.detect is not None and f.detect.seconds <= limit_s and missed == 0,
    )  # fmt: skip


# --- writing ---


def write(
    folder: Path, head: Head, scenarios: Sequence[Scenario], results: Mapping[str, Sequence[RunResult]]
) -> dict[str, dict[str, Figures]]:
    """judge-bench.md, .json, .svg of the scenarios that have runs; returns the figures."""
    present = [s for s in scenarios if results[s.name]]
    found = {s.name: all_figures(s, results[s.name]) for s in present}
    (folder / "judge-bench.json").write_text(json.dumps(_document(head, present, found, results), indent=1) + "\n")
    (folder / "judge-bench.md").write_text(markdown(head, scenarios, found, results))
    if present:
        from tools.bench.judge.plot import draw  # matplotlib takes a second to import

        draw(folder / "judge-bench.svg", head, present, found)
    return found


def _document(
    head: Head,
    scenarios: Iterable[Scenario],
    found: Mapping[str, dict[str, Figures]],
    results: Mapping[str, Sequence[RunResult]],
) -> dict[str, Any]:
    rows = [
        {
            "scenario": s.name,
            "truth": s.truth.value,
            "words": s.words,
            "runs": len(results[s.name]),
            "strata_passed": float(np.mean([run.strata_passed for run in results[s.name]])),
            "judges": {judge: asdict(f) for judge, f in found[s.name].items()},
        }
        for s in scenarios
    ]
    return {
        **asdict(head),
        "date": str(datetime.date.today()),
        "goals": [asdict(g) for g in goals(found)],
        "rows": rows,
    }


def publish(folder: Path, docs: Path) -> None:
    """Copy table, figures and plot into `docs`; what `boundary`, `promote` and `fastest` wrote follows."""
    text = (folder / "judge-bench.md").read_text()
    for name in ("boundary.md", "promote.md", "fastest.md"):
        if (folder / name).exists():
            text += "\n#" + (folder / name).read_text()
    picture = "![wrong decisions and times to detection](judge-bench.svg)\n"
    (docs / "judge-bench.md").write_text(text.replace("\n## Goals", f"\n{picture}\n## Goals", 1))
    for name in ("judge-bench.json", "judge-bench.svg"):
        (docs / name).write_bytes((folder / name).read_bytes())


HEADER = """# judge-bench

Our judge beside the rules of Argo Rollouts, Flagger and Kayenta and tests of fixed size, on the same requests.

- Command: `{command}` (made {date}; seed {seed}; commit {commit}, digest {code}: `python -m
  tools.bench.judge --digest {commit}` prints it)
- World: 20 tenants x 6 length buckets = 120 strata; 2 requests/s per stratum and arm; TTFT lognormal (sigma 0.5; heavy:
  3 % Pareto 1.8), medians 0.12 to 1.2 s; 2 h of stable's history (two pods); 5 s blocks, stall tolerance 15 s; judged
  for at most 2 h after a warm-up of 180 s. Bursts: AR(1), 30 % of the variance of log latency, forgotten in 60 s.
- Gates: TTFT P99 at most 1.25x stable, TTFT P99 within 1.6x stable's true P99 (a limit per stratum, which a policy file
  cannot say), success 99.5 % (stable fails 0.1 %). Error rates: rollback 1 % per rollout, promotion 5 % per step.
- Peers: candidate's P99 above 1.25x stable's, from vLLM's histogram by PromQL, every minute, 30 measurements; Kayenta:
  30 one-minute P99s, exact. "All traffic": one metric; "per stratum": any of 120. L: failureLimit, T: threshold.
- The first decision counts; comparability guards are left out (both arms serve alike). Brackets: 95 % (Clopper-Pearson
  for shares, order statistics for medians). Times are seconds after the warm-up, or after a late breach began.
- Scenarios of one world (plain, bursty, heavy, Zipf) have the same requests of stable, and the candidate's dice, run by
  run. After minute 36, when no peer looks any more, counts are drawn by the law of the requests, not each request.
"""


def markdown(
    head: Head,
    scenarios: Sequence[Scenario],
    found: Mapping[str, dict[str, Figures]],
    results: Mapping[str, Sequence[RunResult]],
) -> str:
    parts = [HEADER.format(**asdict(head), date=datetime.date.today())]
    if head.note:
        parts.append(head.note.strip() + "\n")
    without = [s.name for s in scenarios if s.name not in found]
    if without:
        parts.append(f"**Not run yet with this code:** {', '.join(without)}.\n")
    present = [s for s in scenarios if s.name in found]
    parts += [_goal_table(goals(found)), _own_table(present, found, results), _peer_table(present, found)]
    return "\n".join(parts)


def _goal_table(made: Iterable[Goal]) -> str:
    words = {True: "met", False: "**missed**", None: "too few runs"}
    rows = [f"| {g.words} | {g.measured} | {words[g.is_met]} |" for g in made]
    return "\n".join(["## Goals\n", "| goal | measured | |", "|---|---|---|", *rows, ""])


def _own_table(
    scenarios: Iterable[Scenario], found: Mapping[str, dict[str, Figures]], results: Mapping[str, Sequence[RunResult]]
) -> str:
    lines = [
        "## Our judge\n",
        "| scenario | what is true | right | R | false rollback % | false promotion % | undecided % | s to detect"
        " | s to promote | strata passed % |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for s in scenarios:
        f, runs = found[s.name][OURS], results[s.name]
        values = [f.false_rollback, f.false_promotion, f.inconclusive, f.detect, f.promote]
        cells = " | ".join("-" if v is None else str(v) for v in values)
        passed = 100 * float(np.mean([run.strata_passed for run in runs]))
        lines.append(f"| {s.name} | {s.words} | {s.truth.value} | {len(runs)} | {cells} | {passed:.0f} |")
    return "\n".join([*lines, ""])


def _peer_table(scenarios: Iterable[Scenario], found: Mapping[str, dict[str, Figures]]) -> str:
    lines = [
        "## Everybody, the same requests\n",
        "Wrong decisions in % (false rollbacks where promoting or staying is right, false promotions where rolling back"
        " or staying is right), and the median seconds to detect where rolling back is right.\n",
        "| scenario | right | R | ours | " + " | ".join(PEERS.values()) + " |",
        "|---" * (len(PEERS) + 4) + "|",
    ]
    for s in scenarios:
        judges = found[s.name]
        cells = [_peer_cell(judges[name]) for name in (OURS, *PEERS)]
        lines.append(f"| {s.name} | {s.truth.value} | {judges[OURS].rollback.n} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def _peer_cell(f: Figures) -> str:
    wrong = "-" if f.wrong is None else str(f.wrong)
    return wrong if f.detect is None else f"{wrong}; {f.detect.seconds:.0f} s"
