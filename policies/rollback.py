"""How the evidence of all cells is weighed against a rollback, and which cells carry it.

Called by `Judge`; reads it, changes nothing. The weights of a rollout never exceed 1 together.
"""

from typing import TYPE_CHECKING

import numpy as np

from policies.contract import Check
from policies.projection import Strata, Stratum
from policies.sequential import Array, closed_test
from policies.verdict import Culprit

if TYPE_CHECKING:
    from policies.judge import Judge

LEVEL_WEIGHTS = (0.6, 0.1, 0.1, 0.1)
"""Strata, tenants, buckets, the whole; the rest is kept for strata that appear later."""
RESERVE = 0.1
_BASEL = 6.0 / np.pi**2  # sum over newcomers of 6/(pi j)^2 is 1


def cell_weights(strata: Strata, known: int) -> Array:
    """Weight of every cell of one check before the checks share: strata from `known` on are newcomers."""
    s = strata
    counted = np.array([bool(bucket) for _, bucket in s.names], dtype=float)
    counted[known:] = 0.0
    own = counted * (LEVEL_WEIGHTS[0] / max(1.0, counted.sum()))
    for j, place in enumerate(range(known, s.size), start=1):
        own[place] = RESERVE * _BASEL / j**2 if s.names[place][1] else 0.0
    levels = [
        np.full(len(names), share / len(names)) if names else np.zeros(0)
        for share, names in zip(LEVEL_WEIGHTS[1:3], (s.tenants, s.buckets), strict=True)
    ]
    return np.asarray(np.concatenate([own, *levels, [LEVEL_WEIGHTS[3]]]))


def _cells(judge: "Judge") -> tuple[list[Check], Array, Array]:
    """Enforced checks, and evidence and weight of all their cells in one row, check by check."""
    enforced = [(c, t) for c, t in zip(judge.checks, judge.tracks, strict=True) if c.enforce]
    shifted = judge.does_other_work()
    evidence = np.concatenate([judge.fail_evidence(c, t, shifted) for c, t in enforced])
    return [c for c, _ in enforced], evidence, np.concatenate([judge.weights(c) for c, _ in enforced])


def find_culprits(judge: "Judge", most: int = 10) -> tuple[Culprit, ...]:
    """Cells that carry the rollback evidence, strongest first; `proven` ones by closed testing."""
    checks, evidence, weights = _cells(judge)
    proven = set(closed_test(evidence, weights, 1.0 - float(weights.sum()), judge.contract.alpha_rollback))
    found = []
    for cell in np.argsort(-(evidence * weights), kind="stable")[:most]:
        if evidence[cell] < 1.0 / judge.contract.alpha_rollback:
            continue
        check = checks[int(cell) // judge.strata.cells]
        tenant, bucket = judge.strata.cell_name(int(cell) % judge.strata.cells)
        found.append(Culprit(tenant, bucket, check.metric, check.gate, float(evidence[cell]), int(cell) in proven))
    return tuple(found)


def strongest_stratum(judge: "Judge") -> tuple[Check, Stratum]:
    """The check and stratum (not a sum over several) with the most evidence of a breach."""
    checks, evidence, _ = _cells(judge)
    of_strata = evidence.reshape(len(checks), judge.strata.cells)[:, : judge.strata.size]
    number, place = np.unravel_index(int(np.argmax(of_strata)), of_strata.shape)
    return checks[int(number)], judge.strata.names[int(place)]
