"""The tenant x bucket matrix: the worst gate of every stratum, and the numbers behind it. Pure.

Used by the pages and by `weighlock status`. Reads gate rows as `Verdict.to_dict` writes them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from policies.verdict import HoldReason


class State(StrEnum):
    """What a cell says. Order of the members: worst first."""

    FAIL = "fail"
    HOLD = "hold"
    INCONCLUSIVE = "inconclusive"
    PASS = "pass"
    NO_TRAFFIC = "none"


WORDS = {
    State.FAIL: "FAIL",
    State.HOLD: "HOLD",
    State.INCONCLUSIVE: "INCONCLUSIVE",
    State.PASS: "PASS",
    State.NO_TRAFFIC: "no traffic",
}
SIGNS = {State.FAIL: "✕", State.HOLD: "‖", State.INCONCLUSIVE: "?", State.PASS: "✓", State.NO_TRAFFIC: "∅"}
"""A sign beside each colour: colour is never the only one."""
_SEVERITY = {state: index for index, state in enumerate(State)}
_JUST_WAITING = frozenset({HoldReason.TOO_FEW_REQUESTS.value, HoldReason.MIN_STEP.value})


@dataclass(frozen=True, slots=True)
class Cell:
    """One stratum. `worst`: the gate row that decides it; `needed`, `eta_s`: of its slowest enforced gate."""

    tenant: str
    bucket: str
    state: State
    worst: Mapping[str, Any] | None
    rows: tuple[Mapping[str, Any], ...]
    needed: int | None
    eta_s: float | None
    passed: int
    enforced: int

    @property
    def word(self) -> str:
        """The state in letters."""
        return WORDS[self.state]

    @property
    def sign(self) -> str:
        """The state as one sign."""
        return SIGNS[self.state]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Tenants by buckets; every pair has a cell."""

    tenants: tuple[str, ...]
    buckets: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]

    def cell(self, tenant: str, bucket: str) -> Cell | None:
        """The cell of a stratum, None where there is none of this name."""
        return self.cells.get((tenant, bucket))

    def counts(self) -> dict[State, int]:
        """How many strata are in which state, worst first."""
        return {state: sum(c.state is state for c in self.cells.values()) for state in State}


def row_state(row: Mapping[str, Any]) -> State:
    """What one gate row says."""
    verdict, hold = str(row.get("verdict")), row.get("hold")
    if verdict == "FAIL":
        return State.FAIL
    if verdict == "PASS":
        return State.PASS
    if hold is None and str(row.get("reason", "")).startswith("no traffic"):
        return State.NO_TRAFFIC  # neither in history nor in this step: listed, does not block
    return State.INCONCLUSIVE if hold is None or hold in _JUST_WAITING else State.HOLD


def make_matrix(rows: Iterable[Mapping[str, Any]], tenants: Sequence[str] = (), buckets: Sequence[str] = ()) -> Matrix:
    """Matrix of gate rows; the policy's tenants and buckets come first, whether or not there is a row of them."""
    by_stratum: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        by_stratum.setdefault((str(row["tenant"]), str(row["bucket"])), []).append(row)
    all_tenants = _in_order(tenants, (tenant for tenant, _ in by_stratum))
    all_buckets = _in_order(buckets, (bucket for _, bucket in by_stratum))
    cells = {
        (tenant, bucket): _make_cell(tenant, bucket, by_stratum.get((tenant, bucket), []))
        for tenant in all_tenants
        for bucket in all_buckets
    }
    return Matrix(all_tenants, all_buckets, cells)


def _make_cell(tenant: str, bucket: str, rows: list[Mapping[str, Any]]) -> Cell:
    enforced = [row for row in rows if row.get("mode", "enforce") == "enforce"]
    worst = min(enforced, key=_badness, default=None)
    waiting = [row for row in enforced if row_state(row) is not State.PASS]
    etas = [row.get("eta_s") for row in waiting]
    needed = [row["needed_requests"] for row in waiting if row.get("needed_requests") is not None]
    return Cell(
        tenant=tenant,
        bucket=bucket,
        state=row_state(worst) if worst is not None else State.NO_TRAFFIC,
        worst=worst,
        rows=tuple(rows),
        needed=max(needed, default=None),
        eta_s=None if None in etas else max((eta for eta in etas if eta is not None), default=None),
        passed=sum(row_state(row) is State.PASS for row in enforced),
        enforced=len(enforced),
    )


def _badness(row: Mapping[str, Any]) -> tuple[int, float, float]:
    """Sort key, worst first: state, then evidence of a breach, then how much is missing."""
    needed = row.get("needed_requests")
    return _SEVERITY[row_state(row)], -float(row.get("e_fail") or 0.0), -float("inf" if needed is None else needed)


def _in_order(first: Sequence[str], others: Iterable[str]) -> tuple[str, ...]:
    """The policy's own order, then what else appeared; "" (no bucket known) is no stratum."""
    return tuple(dict.fromkeys([*first, *sorted(name for name in others if name)]))
