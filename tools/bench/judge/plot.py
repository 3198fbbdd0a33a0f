"""The table as one picture (SVG): shares of wrong decisions as a grid, and times to detection. Called by `table`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from tools.bench.judge.run import OURS
from tools.bench.judge.scenarios import Scenario, Truth

if TYPE_CHECKING:
    from tools.bench.judge.table import Figures, Head


def draw(path: Path, head: "Head", scenarios: Sequence[Scenario], found: Mapping[str, "dict[str, Figures]"]) -> None:
    """Write the picture; the same figures give the same bytes."""
    from tools.bench.judge.table import PEERS

    matplotlib.rcParams["svg.hashsalt"] = head.code
    matplotlib.rcParams["svg.fonttype"] = "none"
    judges = {OURS: "ours", **PEERS}
    figure = Figure(figsize=(15, 2.5 + 0.32 * len(scenarios)), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    _grid(left, judges, scenarios, found)
    _times(right, judges, scenarios, found)
    figure.suptitle(f"judge-bench: {head.command} (commit {head.commit}, digest {head.code})", fontsize=10)
    figure.savefig(path, metadata={"Date": None})


def _grid(axes: Any, judges: Mapping[str, str], scenarios: Sequence[Scenario], found: Mapping[str, Any]) -> None:
    """Wrong decisions in percent; empty where nothing is wrong."""
    values = np.full((len(scenarios), len(judges)), np.nan)
    for row, scenario in enumerate(scenarios):
        for column, judge in enumerate(judges):
            wrong = found[scenario.name][judge].wrong
            if wrong is not None:
                values[row, column] = 100 * wrong.k / wrong.n
                is_dark = values[row, column] > 60
                text = f"{values[row, column]:.0f}"
                axes.text(
                    column, row, text, ha="center", va="center", fontsize=8, color="white" if is_dark else "black"
                )
    axes.imshow(values, cmap="Reds", vmin=0, vmax=100, aspect="auto")
    axes.set_xticks(range(len(judges)), list(judges.values()), rotation=40, ha="right", fontsize=8)
    names = [f"{s.name} ({s.truth.value})" for s in scenarios]
    axes.set_yticks(range(len(scenarios)), names, fontsize=8)
    axes.set_title("wrong decisions, % of runs", fontsize=10)


def _times(axes: Any, judges: Mapping[str, str], scenarios: Sequence[Scenario], found: Mapping[str, Any]) -> None:
    """Median seconds to detection, ours with its interval; whoever finds less than half of the runs is left out."""
    breaches = [s for s in scenarios if s.truth is Truth.ROLLBACK]
    shown = [OURS, "argo global 60s L3", "argo global 300s L3", "flagger global 60s T5", "kayenta global"]
    for place, judge in enumerate(shown):
        points = [
            (found[s.name][judge].detect.seconds, row + 0.12 * (place - 2))
            for row, s in enumerate(breaches)
            if found[s.name][judge].detect is not None
            and found[s.name][judge].rollback.k * 2 >= found[s.name][judge].rollback.n
        ]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, "o" if judge == OURS else "x", label=judges[judge], ms=6 if judge == OURS else 5, ls="none")
    for row, s in enumerate(breaches):
        detect = found[s.name][OURS].detect
        if detect is not None and detect.low is not None and detect.high is not None:
            axes.plot([detect.low, detect.high], [row - 0.24] * 2, "-", color="C0", lw=2)
    axes.set_xscale("log")
    axes.set_yticks(range(len(breaches)), [s.name for s in breaches], fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("seconds to detection (median); missing: found in less than half of the runs", fontsize=8)
    if breaches:
        axes.legend(fontsize=8, loc="lower right")
    axes.set_title("detection", fontsize=10)
