"""The pictures and the table of costs of docs/judge.md: run `python -m tools.bench.judge.chartbook`.

Everything comes from the judge's own functions; the one simulated step has a fixed seed.
"""

import math
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from scipy.special import ndtr, ndtri

from policies.blocks import Block
from policies.builder import BlockBuilder, builder_setup, limit_thresholds
from policies.contract import Contract, contract_from_mapping
from policies.growth import DEFAULT_AIM, ratio_aim, ratio_drift, requests_for, slowest_z
from policies.history import prepare
from policies.intervals import critical_counts
from policies.judge import Judge
from policies.records import RequestRecord
from policies.sequential import PASS_FACTORS, Array, aimed

DOCUMENT, IMAGES = Path("docs/judge.md"), Path("docs/images")
BEGIN, END = "<!-- cost:begin -->", "<!-- cost:end -->"
MARGINS, SIGMAS, STRATA = (0.1, 0.25, 0.5, 1.0), (0.3, 0.5, 1.0), 120
LEVEL = math.log(20.0)
_POLICY: dict[str, Any] = {
    "tenants": {"required": ["a"], "other": "ignore"},
    "lengthBuckets": {"edges": []},
    "gates": [{"metric": "ttft", "percentile": "99", "margin": "50%", "limit": "2s"}],
    "evidence": {"history": "10m", "minStep": "1m", "minBlocks": 5},
}
_RPS, _HISTORY_S, _STEP_S, _BREAK_S = 12.0, 600.0, 420.0, 180.0


# --- the table ---


def cost(candidate: float, stable: float = 0.01) -> int:
    """Median requests of the candidate to pass a margin on P99 at equal shares, aimed at the slowest of 120 strata."""
    aim = ratio_aim(candidate, stable, 0.5, 1.0, LEVEL, slowest_z(STRATA))
    factors, weights = aimed(PASS_FACTORS, np.array([aim]))
    need = requests_for(*ratio_drift(candidate, stable, 0.5, 1.0, factors[0]), LEVEL, 0.0, weights[0])
    assert need is not None
    return math.ceil(need)


def cost_table() -> str:
    """Markdown: rows are tails, columns margins."""
    lines = ["| | " + " | ".join(f"margin {m:.0%}" for m in MARGINS) + " |", "|---" * (len(MARGINS) + 1) + "|"]
    for sigma in SIGMAS:
        values = [cost(float(ndtr(-(ndtri(0.99) + math.log1p(m) / sigma)))) for m in MARGINS]
        lines.append(f"| sigma {sigma} | " + " | ".join(f"{v:,}" for v in values) + " |")
    heavy = [cost(0.01 * (1 + m) ** -1.8) for m in MARGINS]
    lines.append("| Pareto 1.8 tail | " + " | ".join(f"{v:,}" for v in heavy) + " |")
    return "\n".join(lines)


# --- a step with a break in it ---


def _traffic(
    rng: np.random.Generator, variant: str, start_s: float, seconds: float, break_s: float
) -> list[RequestRecord]:
    """Poisson arrivals, lognormal TTFT (median 0.2 s, sigma 0.4); from `break_s` on three times as slow."""
    times = np.sort(rng.uniform(start_s, start_s + seconds, rng.poisson(_RPS * seconds)))
    ttft = 0.2 * np.exp(0.4 * rng.standard_normal(len(times))) * np.where(times >= break_s, 3.0, 1.0)
    pods = rng.integers(0, 2, len(times))
    rows = zip(times.tolist(), ttft.tolist(), pods.tolist(), strict=True)
    return [
        RequestRecord(f"{variant}-{start_s}-{i}", t, variant, "a", "ok", pod=f"{variant}-{p}", prompt_tokens=9,
                      output_tokens=20, stream=True, ttft_s=x, e2e_s=x + 0.3)
        for i, (t, x, p) in enumerate(rows)
    ]  # fmt: skip


def _blocks(contract: Contract, records: list[RequestRecord], builder: BlockBuilder, end_s: float) -> list[Block]:
    found = []
    for record in sorted(records, key=lambda r: r.t_start_s):
        found += builder.tick(record.t_start_s)
        builder.finish(record)
    return found + builder.tick(end_s)


def step(break_s: float, seed: int) -> tuple[Array, Array, Array]:
    """(seconds, evidence of PASS of the margin, evidence of a breach) after every block of a step."""
    rng, contract = np.random.default_rng(seed), contract_from_mapping(_POLICY)
    before = _traffic(rng, "stable", 0.0, _HISTORY_S, math.inf)
    first = BlockBuilder(builder_setup(contract, "chat", 1), limit_thresholds(contract), 0.0)
    judge = Judge(prepare(contract, _blocks(contract, before, first, _HISTORY_S)))
    end_s = _HISTORY_S + _STEP_S
    records = _traffic(rng, "stable", _HISTORY_S, _STEP_S, math.inf)
    records += _traffic(rng, "candidate", _HISTORY_S, _STEP_S, _HISTORY_S + break_s)
    builder = BlockBuilder(builder_setup(contract, "chat", 1), judge.thresholds(), _HISTORY_S)
    judge.enter_step(0, _HISTORY_S, 50.0)
    found = []
    for block in _blocks(contract, records, builder, end_s):
        judge.feed(block)
        passing = math.exp(min(50.0, float(judge.tracks[0].log_pass_evidence()[0])))
        found.append((block.end_s - _HISTORY_S, passing, judge.rollback_evidence()))
    seconds, passing, failing = np.array(found).T
    return seconds, passing, failing


# --- pictures ---


def _axes(width: float, height: float) -> tuple[Figure, Any]:
    matplotlib.rcParams["svg.hashsalt"], matplotlib.rcParams["svg.fonttype"] = "judge", "none"
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def draw_limit(path: Path) -> None:
    """How many of n requests may be above a limit on P99 for a PASS, and for a breach."""
    n = np.geomspace(200, 20_000, 60)
    share = np.full(len(n), 0.01)
    k_pass = 1.2 * critical_counts(n / 1.2, share, 0.05, np.full(len(n), DEFAULT_AIM))[0]
    k_fire = 1.2 * critical_counts(n / 1.2, share, 0.01)[1]
    figure, axes = _axes(6.5, 3.6)
    axes.plot(n, 100 * k_fire / n, color="firebrick", label="above: breach (e = 100)")
    axes.plot(n, np.full(len(n), 1.0), color="grey", linestyle=":", label="the limit: 1 % above")
    axes.plot(n, 100 * k_pass / n, color="seagreen", label="below: PASS (e = 20)")
    axes.set(xscale="log", ylim=(0, 5), xlabel="requests (phi 1.2)", ylabel="above the limit, %")
    axes.legend(fontsize=8)
    axes.set_title("Limit on P99: what must be seen, however often one looks", fontsize=9)
    figure.savefig(path, metadata={"Date": None})


def draw_evidence(path: Path) -> None:
    """The evidence of a healthy step, and of one whose candidate becomes three times as slow after three minutes."""
    figure, axes = _axes(6.5, 3.6)
    for break_s, style, name in ((math.inf, "-", "healthy"), (_BREAK_S, "--", "3 x slower from 180 s")):
        seconds, passing, failing = step(break_s, 7)
        axes.plot(seconds, passing, color="seagreen", linestyle=style, label=f"PASS, {name}")
        axes.plot(seconds, np.minimum(failing, 1e6), color="firebrick", linestyle=style, label=f"breach, {name}")
    axes.axhline(20, color="seagreen", linewidth=0.7)
    axes.axhline(100, color="firebrick", linewidth=0.7)
    axes.set(yscale="log", ylim=(1e-3, 1e6), xlabel="seconds of the step", ylabel="e-value")
    axes.legend(fontsize=8, loc="upper left")
    axes.set_title("One stratum, 12 requests/s an arm, P99 margin 50 %: 20 passes, 100 rolls back", fontsize=9)
    figure.savefig(path, metadata={"Date": None})


def draw_cost(path: Path) -> None:
    """Requests to pass by margin, for three widths of the distribution."""
    margins = np.linspace(0.1, 1.0, 25)
    figure, axes = _axes(6.5, 3.2)
    for sigma, colour in zip(SIGMAS, ("seagreen", "steelblue", "darkorange"), strict=True):
        values = [cost(float(ndtr(-(ndtri(0.99) + math.log1p(m) / sigma)))) for m in margins]
        axes.plot(100 * margins, values, color=colour, label=f"sigma {sigma}")
    axes.set(yscale="log", xlabel="margin, %", ylabel="requests (x phi)")
    axes.legend(fontsize=8)
    axes.set_title("Requests of an identical candidate to pass a P99 margin", fontsize=9)
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Write all of it."""
    for name, draw in (("limit", draw_limit), ("evidence", draw_evidence), ("cost", draw_cost)):
        draw(IMAGES / f"judge-{name}.svg")
    before, rest = DOCUMENT.read_text(encoding="utf-8").split(BEGIN, 1)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{cost_table()}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
