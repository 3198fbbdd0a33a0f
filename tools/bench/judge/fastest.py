"""`python -m tools.bench.judge.fastest`: how soon the last of 120 identical strata could pass at best.

A yardstick for `promote`, whatever the test: one look at 5 %, at the best moment, known beforehand (phi 1.2 as in the
bench). A test that may be looked at at any time, or that does not know the moment, is slower. Also what it would cost
to count stable's history as baseline: false PASS at the exact bound when stable has become a little faster since.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.special import betainc, ndtr
from scipy.stats import poisson

from policies import sequential as seq
from tools.bench.judge.scenarios import FAILURE_LIMIT, FAILURES, MARGIN, SIGMA, STRATA, Array
from tools.bench.judge.traffic import RATE_RPS

ALPHA, PHI, P0 = 0.05, 1.2, 0.01
Z99 = 2.3263478740408408
STEP_S = 30.0


def lower_tail(n: Array, p: Array | float, k: Array) -> Array:
    """P(Bin(n, p) <= k) for real n and k."""
    k = np.minimum(k, n - 1e-9)
    return np.asarray(betainc(np.maximum(n - k, 1e-9), k + 1.0, 1.0 - np.asarray(p)))


def limit_passes(requests: float, share: float, p0: float) -> float:
    """P(one look at `requests` passes a limit at `p0`) when the true share is `share`."""
    k = np.arange(0, int(requests * p0) + 1, dtype=float)
    accepts = lower_tail(np.full(len(k), requests / PHI), p0, k / PHI) <= ALPHA
    return float(poisson.cdf(k[accepts].max(), requests * share)) if accepts.any() else 0.0


def margin_passes(requests: float, factor: float, p_c: float, p_b: float) -> float:
    """P(one look passes a margin) with `factor` stable requests per candidate request."""
    most = int(requests * factor * p_b + 8 * np.sqrt(requests * factor * p_b) + 8)
    k_b, k_c = (np.arange(most + 1, dtype=float) for _ in range(2))
    both = (k_b[:, None] + k_c[None, :]) / PHI
    accepts = lower_tail(both, 1.0 / (1.0 + factor), np.broadcast_to(k_c[None, :] / PHI, both.shape)) <= ALPHA
    weight = poisson.pmf(k_b, requests * factor * p_b)[:, None] * poisson.pmf(k_c, requests * p_c)[None, :]
    return float((weight * accepts).sum())


def soonest_minutes(factor: float | None) -> float:
    """Minutes at which all strata pass with probability one half; None: the success limit, else the margin."""
    p_c = float(ndtr(-(Z99 + np.log(1 + MARGIN) / SIGMA)))
    for minutes in np.arange(5.0, 120.0, 0.5):
        n = minutes * 60.0 * RATE_RPS
        passes = limit_passes(n, FAILURES, FAILURE_LIMIT) if factor is None else margin_passes(n, factor, p_c, P0)
        if passes**STRATA >= 0.5:
            return float(minutes)
    return float("inf")


def false_pass(faster: float, runs: int, rng: np.random.Generator) -> tuple[float, float]:
    """(alone, with three history requests per candidate request) in one hour, candidate exactly at the bound.

    The history is counted until a sequential test at 5 % says that stable differs from it.
    """
    p_now = float(ndtr(-(Z99 - np.log1p(-faster) / SIGMA)))
    blocks, per_block = round(3600 / STEP_S), RATE_RPS * STEP_S
    n_c, n_b = rng.poisson(per_block, (2, blocks, runs)).astype(float)
    k_c, k_b = rng.binomial(n_c.astype(int), p_now), rng.binomial(n_b.astype(int), p_now)
    k_h = rng.binomial(3 * n_c.astype(int), P0)
    grid, weights = (a[0] for a in seq.aimed(seq.PASS_FACTORS, np.array([0.45])))

    def passed(stable: Array, events: Array) -> Array:
        llr = seq.ratio_llr(k_c, events, n_c, stable, 1.0, grid)
        return np.asarray(seq.log_sum(np.cumsum(llr, axis=0) / PHI + weights) >= -np.log(ALPHA))

    n, k = np.cumsum(n_b, axis=0), np.cumsum(k_b, axis=0)
    others = np.array([0.3, 0.5, 0.7, 1.4, 2.0, 3.0]) * P0
    differs = seq.log_mean(seq.bernoulli_llr(k, n, P0, others)) >= -np.log(ALPHA)
    still_alike = ~np.logical_or.accumulate(differs, axis=0)
    pooled = passed(n_b + 3 * n_c, k_b + k_h) & still_alike
    return float(passed(n_b, k_b).any(axis=0).mean()), float(pooled.any(axis=0).mean())


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.judge.fastest", description=__doc__)
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--out", type=Path, default=Path(".weighlock/judge-bench/fastest.md"))
    args = parser.parse_args(argv)
    rng = np.random.default_rng(args.seed)
    lines = [
        "# How fast it could be",
        "",
        f"- Command: `python -m tools.bench.judge.fastest --runs {args.runs} --seed {args.seed}`",
        "- The last of the same 120 strata (median over runs), one look at 5 % at the best moment, known beforehand. A",
        "  test that may be looked at at any time needs longer.",
        "",
        "| check | minutes |",
        "|---|---|",
        f"| success limit | {soonest_minutes(None):.1f} |",
    ]
    for factor in (1.0, 2.0, 4.0, 10.0):
        lines.append(f"| margin, {factor:g} stable requests per candidate request | {soonest_minutes(factor):.1f} |")
    lines += [
        "",
        "Stable's history is no baseline: with three of its requests per candidate request, for as long as a",
        "sequential test at 5 % does not tell stable from it, false PASS at the exact bound would be (nominal 5 %):",
        "",
        "| stable is faster than in its history by | concurrent requests alone % | with history % |",
        "|---|---|---|",
    ]
    for faster in (0.0, 0.05, 0.1, 0.15):
        alone, pooled = false_pass(faster, args.runs, rng)
        lines.append(f"| {faster:.0%} | {100 * alone:.1f} | {100 * pooled:.1f} |")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
