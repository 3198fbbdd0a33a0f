"""`python -m tools.bench.judge.tick`: time of one closed block in the judge, 10,000 strata x 4 metrics, one core.

Counts are drawn beforehand; timed is `Judge.take` (all checks, guards, sentinels, the decision). Printed beside a NumPy
pass over arrays of the same size, because a time alone says as much about the machine.
"""

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

from policies.contract import SERVED, contract_from_mapping, sentinels
from policies.judge import Judge
from policies.projection import Counts, Projected
from policies.records import CANDIDATE, STABLE
from policies.setup import CheckSetup, JudgeSetup, StratumSetup

TENANTS, BUCKETS = 2000, 5
RATE_RPS = 2.0
GATES = (
    {"metric": "ttft", "percentile": "99", "margin": "25%"},
    {"metric": "tpot", "percentile": "99", "margin": "25%"},
    {"metric": "e2e", "percentile": "99", "limit": "60s"},
    {"metric": "success", "limit": "99.5%"},
)


def make_judge(tenants: int) -> Judge:
    """A judge in mid-step with thresholds, aims and dependence for every stratum."""
    names = [f"tenant-{i}" for i in range(tenants)]
    contract = contract_from_mapping(
        {
            "tenants": {"required": names[:1], "other": "each"},
            "lengthBuckets": {"edges": [128 * 4**i for i in range(BUCKETS - 1)]},
            "gates": list(GATES),
        }
    )
    checks = (*contract.checks, SERVED, *sentinels(contract.checks))
    values = tuple(
        CheckSetup(1_000_000, 1_250_000, 1.0 if c.kind.is_relative else c.share or 0.05, aim=0.45) for c in checks
    )
    strata = tuple(
        StratumSetup(tenant, bucket, values, 10_000, RATE_RPS) for tenant in names for bucket in contract.bucket_names
    )
    kappa = tuple({"stratum": 0.05} for _ in checks)
    judge = Judge(JudgeSetup(contract, checks, strata, kappa, kappa, 1.2))
    judge.enter_step(1, 0.0, 50.0)
    return judge


def make_blocks(judge: Judge, number: int, seed: int) -> list[Projected]:
    """Blocks with Poisson requests and 1 % events."""
    rng, size, block_s = np.random.default_rng(seed), judge.strata.size, judge.contract.block_s

    def draw() -> Counts:
        arrays = []
        for _ in (CANDIDATE, STABLE):
            n = rng.poisson(RATE_RPS * block_s, size)
            arrays += [n.astype(float), rng.binomial(n, 0.005).astype(float)]
        return Counts(*arrays)

    found = []
    for seq in range(number):
        counts, guards = [draw() for _ in judge.checks], [draw() for _ in judge.guards]
        finished = {CANDIDATE: counts[0].n_c, STABLE: counts[0].n_b}
        start_s = seq * block_s
        found.append(Projected(seq, start_s, start_s + block_s, counts, guards, finished, {}, {}, {}))
    return found


def measure(tenants: int, ticks: int, seed: int) -> tuple[list[float], list[float]]:
    """CPU seconds of each block, and of a pass of exp, log and product over [strata, 12] for each check and guard."""
    judge = make_judge(tenants)
    times, passes = [], []
    tracks = len(judge.checks) + 2 * len(judge.guards)
    array = np.random.default_rng(seed).random((judge.strata.size, 12))
    for block in make_blocks(judge, ticks, seed):
        begun = time.process_time()
        judge.take(block)
        times.append(time.process_time() - begun)
        begun = time.process_time()
        for _ in range(tracks):
            np.exp(array) * np.log(array)
        passes.append(time.process_time() - begun)
    return times, passes


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.judge.tick", description=__doc__)
    parser.add_argument("--tenants", type=int, default=TENANTS, help=f"x {BUCKETS} length buckets")
    parser.add_argument("--ticks", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    times, passes = measure(args.tenants, args.ticks, args.seed)
    middle, least = np.median(times[2:]) * 1e3, min(times[2:]) * 1e3
    ratio = np.median(times[2:]) / np.median(passes[2:])
    print(f"{args.tenants * BUCKETS} strata: median {middle:.0f} ms, least {least:.0f} ms a block; {ratio:.1f} passes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
