"""The demo's changes, replayed through the model without real time: what each must do to whom.

The commands are those of docs/engine-simulator.md; one replica at a third of the demo's 180 requests/s.
"""

from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile

import pytest

from tools.demo.world import SHARED_PREFIX
from tools.enginesim.batcher import Batcher
from tools.enginesim.metrics import Metrics
from tools.enginesim.sequence import Sequence
from tools.enginesim.settings import resolve
from tools.enginesim.text import block_hashes
from tools.load.__main__ import DEFAULT_TRACE
from tools.load.plan import Planned, PromptWriter, plan_requests, read_trace
from tools.load.stats import quantile

BASE = ("serve", "Qwen/Qwen3-30B-A3B", "-tp", "4", "--max-model-len", "32K", "--max-num-seqs", "512")
BASE += ("--long-prefill-token-threshold", "76", "--stream-interval", "16")
STABLE = ("--max-num-batched-tokens", "3072")
BAD = (*STABLE, "--speculative-config", '{"method":"ngram","num_speculative_tokens":3}', "--no-enable-prefix-caching")
FRONTEND_SECONDS = 0.15
WARMUP_SECONDS = 5.0
STRATA = [(tenant, bucket) for tenant in ("acme", "globex", "initech") for bucket in range(3)]


@dataclass
class Outcome:
    """Latencies per stratum, warm-up left out."""

    ttft: dict[tuple[str, int], list[float]] = field(default_factory=lambda: {stratum: [] for stratum in STRATA})
    e2e: list[float] = field(default_factory=list)

    def ttft_p99(self, stratum: tuple[str, int]) -> float:
        """As a client sees it: behind the front end."""
        value = quantile(self.ttft[stratum], 0.99)
        assert value is not None
        return value + FRONTEND_SECONDS


@cache
def replay(flags: tuple[str, ...], rate: float = 60.0, seconds: float = 20.0, version: str = "0.32.0") -> Outcome:
    """The demo's load on one replica."""
    chosen = resolve([*BASE, *flags], {"ENGINESIM_VERSION": version})
    core = Batcher(chosen, Metrics(chosen.max_model_len, chosen.speculation.tokens if chosen.speculation else 0))
    requests = plan_requests(
        read_trace(DEFAULT_TRACE),
        ["acme", "globex", "initech"],
        rate,
        1,
        output_cap=128,
        output_floor=1,
        prompt_cap=16000,
        arrivals="poisson",
    )
    waiting = list(takewhile(lambda request: request.at_seconds < seconds, requests))[::-1]
    writer = PromptWriter(1, "globex", SHARED_PREFIX)
    outcome = Outcome()
    now = 0.0

    def submit(planned: Planned) -> None:
        prompt = writer.write(planned, f"{len(waiting):08d}")
        seen: list[float] = []

        def emit(sequence: Sequence, finish_reason: str | None) -> None:
            seen.append(now)
            if finish_reason and planned.at_seconds > WARMUP_SECONDS:
                outcome.ttft[planned.tenant, planned.bucket].append(seen[0] - planned.at_seconds)
                outcome.e2e.append(now - planned.at_seconds)

        hashes = block_hashes(prompt, "", chosen.block_size) if chosen.prefix_caching else []
        acceptance = chosen.speculation.acceptance if chosen.speculation else 0.0
        core.submit(
            Sequence(
                f"{len(waiting)}",
                planned.prompt_tokens,
                hashes,
                planned.max_tokens,
                emit,
                interval=16,
                acceptance=acceptance,
                arrival=planned.at_seconds,
            )
        )

    while True:
        while waiting and waiting[-1].at_seconds <= now:
            submit(waiting.pop())
        duration = core.begin_step(now)
        if duration is not None:
            now += duration
            core.end_step(now)
        elif waiting:
            now = waiting[-1].at_seconds
        else:
            return outcome


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_the_bad_change_pleases_the_average_and_hurts_one_stratum() -> None:
    stable, bad = replay(STABLE), replay(BAD)
    ratios = {stratum: bad.ttft_p99(stratum) / stable.ttft_p99(stratum) for stratum in STRATA}
    assert ratios.pop(("globex", 2)) > 2.5
    assert max(ratios.values()) < 1.5
    assert mean(bad.e2e) < 0.9 * mean(stable.e2e)


@pytest.mark.parametrize(("flags", "version"), [(("--max-num-batched-tokens", "8192"), "0.32.0"), (STABLE, "0.33.0")])
def test_good_changes_are_no_worse_anywhere(flags: tuple[str, ...], version: str) -> None:
    stable, good = replay(STABLE), replay(flags, version=version)
    assert all(good.ttft_p99(stratum) < 1.03 * stable.ttft_p99(stratum) for stratum in STRATA)
    assert mean(good.e2e) < 1.01 * mean(stable.e2e)


def test_one_replica_could_carry_the_load_of_two() -> None:
    single, double = replay(STABLE), replay(STABLE, rate=120.0)
    assert all(double.ttft_p99(stratum) < 2.5 * single.ttft_p99(stratum) for stratum in STRATA)
    assert max(double.ttft_p99(stratum) for stratum in STRATA) < 1.2
