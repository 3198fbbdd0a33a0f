"""What the controller tells the recorder about an attempt, and what the builder makes of it. Pure but for the log."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from policies.blocks import Thresholds, threshold_us
from policies.builder import BuilderSetup, builder_setup, limit_thresholds
from policies.contract import Contract, contract_from_mapping
from policies.setup import JudgeSetup

LINGER_S = 1.5
"""Blocks wait this long for entries on their way: the gate reports unfinished requests every second."""

_DEFAULT_POLICY: dict[str, Any] = {"gates": [{"metric": "success", "limit": "99%"}]}

Pairs = Mapping[tuple[str, str, str], tuple[tuple[int, int], ...]]


@dataclass(frozen=True, slots=True)
class AttemptSetup:
    """Counting rules of one attempt."""

    builder: BuilderSetup
    thresholds: Thresholds
    pairs: Pairs


def _listed(raw: list[Mapping[str, Any]]) -> dict[tuple[str, str, str], tuple[int, ...]]:
    """`[{"tenant","bucket","metric","edge" (seconds)}]` as thresholds."""
    found: dict[tuple[str, str, str], tuple[int, ...]] = {}
    for item in raw:
        place = (str(item["tenant"]), str(item["bucket"]), str(item["metric"]))
        found[place] = tuple(sorted({*found.get(place, ()), threshold_us(float(item["edge"]))}))
    return found


def _merged(*parts: Thresholds) -> Thresholds:
    found: dict[tuple[str, str, str], tuple[int, ...]] = {}
    for part in parts:
        for place, keys in part.items():
            found[place] = tuple(sorted({*found.get(place, ()), *keys}))
    return found


def _rules(contract: Contract, rollout: str, attempt: int) -> BuilderSetup:
    return builder_setup(contract, rollout, attempt, sees_progress=True, linger_s=LINGER_S)


def make_setup(rollout: str, body: Mapping[str, Any] | None, attempt: int) -> AttemptSetup:
    """Counting rules from the body of `PUT /setup` (None: a policy with defaults).

    `setup` is a JudgeSetup, or absent; `contract` a RolloutPolicy spec, used where there is no `setup`; `thresholds`
    adds to both. ValueError or KeyError where they do not fit together.
    """
    body = body or {}
    extra = _listed(list(body.get("thresholds") or ()))
    if body.get("setup"):
        judge = JudgeSetup.from_dict(body["setup"])
        rules = _rules(judge.contract, rollout, attempt)
        return AttemptSetup(rules, _merged(limit_thresholds(judge.contract), judge.thresholds(), extra), judge.pairs())
    contract = contract_from_mapping(body.get("contract") or _DEFAULT_POLICY)
    return AttemptSetup(_rules(contract, rollout, attempt), _merged(limit_thresholds(contract), extra), {})
