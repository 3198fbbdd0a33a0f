"""Recorded streams of blocks, and what the judge said of them; `python -m tests.unit.policies.recorded` stores it.

The streams are made once from seeds and kept as block lists in memory; `judge_stream` gives verdicts along the way and
the final state. Used by `test_recorded`, which holds today's judge to the stored answers.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from policies.blocks import Block
from policies.builder import BlockBuilder, builder_setup
from policies.history import prepare
from policies.judge import Judge
from policies.records import RequestRecord
from policies.setup import JudgeSetup
from policies.verdict import Verdict
from tests.unit.policies.conftest import START_S, history_blocks, make_contract, traffic

GOLDEN = Path(__file__).parent / "golden" / "verdicts.json"
STRATA = (("a", 100), ("a", 1000), ("b", 100))
GATES = (
    {"metric": "ttft", "percentile": "99", "margin": "100%", "limit": "1s"},
    {"metric": "e2e", "percentile": "90", "margin": "50%", "mode": "dryRun"},
    {"metric": "success", "limit": "99%"},
    {"metric": "goodFraction", "margin": "2pp"},
    {"metric": "goodput", "margin": "20%"},
)
SECONDS = 120.0


def streams() -> Iterator[tuple[str, JudgeSetup, list[Block]]]:
    """(name, setup, blocks) of every recorded stream."""
    contract = make_contract(GATES, slo={"ttft": "800ms"}, evidence={"thinStrata": "merge"})
    kinds: dict[str, dict[str, Any]] = {
        "identical": {},
        "one stratum x4": {"factor": {("a", 1000): 4.0}},
        "both slow": {"factor": 3.0, "stable_factor": 3.0},
        "a newcomer": {"strata": (*STRATA, ("new", 100))},
        "cancels": {"outcome": "cancelled", "share": 0.2},
        "no history": {"history": False},
        "first install": {"baseline": False},
        "lost blocks": {"lost": 0.3},
    }
    for number, (name, kind) in enumerate(kinds.items()):
        rng = np.random.default_rng(number)
        past = history_blocks(contract, rng, contract.history_s, 10.0, strata=STRATA)
        setup = prepare(contract, past if kind.get("history", True) else [], kind.get("baseline", True))
        strata = kind.get("strata", STRATA)
        stable = traffic(rng, "stable", SECONDS, 10.0, STRATA, factor=kind.get("stable_factor", 1.0))
        candidate = traffic(rng, "candidate", SECONDS, 10.0, strata, factor=kind.get("factor", 1.0))
        if "outcome" in kind:
            candidate = [_cancelled(r) if rng.random() < kind["share"] else r for r in candidate]
        records = candidate if not kind.get("baseline", True) else stable + candidate
        blocks = _blocks(setup, records)
        yield name, setup, [_lost(b) if rng.random() < kind.get("lost", 0.0) else b for b in blocks]


def _cancelled(record: RequestRecord) -> RequestRecord:
    return replace(record, outcome="cancelled")


def _lost(block: Block) -> Block:
    return replace(block, missing=("candidate",))


def _blocks(setup: JudgeSetup, records: list[RequestRecord]) -> list[Block]:
    """Blocks with the setup's thresholds counted at the source."""
    contract = setup.contract
    builder = BlockBuilder(builder_setup(contract, "chat", 1), setup.thresholds(), START_S)
    found = []
    for record in sorted(records, key=lambda r: r.t_start_s):
        found += builder.tick(record.t_start_s)
        builder.finish(record)
    return found + builder.tick(START_S + SECONDS)


def judge_stream(setup: JudgeSetup, blocks: list[Block]) -> tuple[list[Verdict], dict[str, Any]]:
    """Verdicts every 40 s, over two steps and one restart, and the final state."""
    judge = Judge(setup)
    judge.enter_step(0, START_S, 25.0)
    verdicts = []
    for number, block in enumerate(blocks):
        if number == len(blocks) // 2:
            judge = Judge.restore(setup, judge.state())
            judge.enter_step(1, block.start_s, 50.0)
        judge.feed(block)
        if number % 8 == 7:
            verdicts.append(judge.verdict(block.end_s))
    return verdicts, judge.state()


def answers() -> dict[str, Any]:
    """What is stored: per stream the verdicts in short, floats to nine digits."""
    found = {}
    for name, setup, blocks in streams():
        verdicts, _ = judge_stream(setup, blocks)
        found[name] = [short(v) for v in verdicts]
    return found


def short(verdict: Verdict) -> dict[str, Any]:
    """Result, holds, rollback evidence and every row's evidence."""
    rows = [
        [r.tenant, r.bucket, r.metric, r.gate, r.verdict.value, r.n_candidate, r.exceed_candidate]
        + [_digits(v) for v in (r.e_pass, r.e_fail, r.phi, r.low, r.high, r.ratio_high)]
        for r in verdict.rows
    ]
    return {
        "result": verdict.result.value,
        "decided_at_s": verdict.decided_at_s,
        "holds": sorted({hold.reason.value for hold in verdict.holds}),
        "e": _digits(verdict.rollback.e),
        "culprits": [[c.tenant, c.bucket, c.metric, c.gate, c.proven] for c in verdict.rollback.culprits],
        "rows": rows,
    }


def _digits(value: float | None) -> str | None:
    return None if value is None else f"{value:.9g}"


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(answers(), indent=0) + "\n")
    print(f"wrote {GOLDEN}", file=sys.stderr)
