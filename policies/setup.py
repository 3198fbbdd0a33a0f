"""What is fixed before an attempt begins: thresholds, nulls, dependence, weights. Frozen for the attempt; JSON round
trip.

Made by `history.prepare`; read by the judge. A later leader that restores the same setup and state goes on bit for bit.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from policies.blocks import Thresholds
from policies.contract import Check, CheckKind, Contract


@dataclass(frozen=True, slots=True)
class CheckSetup:
    """One check in one stratum; -1 / None = not known (no baseline yet).

    stable_us, candidate_us: thresholds of the arms (equal for limits, 0 for shares of requests); null: share p0 of
    absolute checks, ratio of bad (or good) rates of relative ones. tie_us, tie_share: where many of stable's values are
    equal at its quantile, this share of those above `tie_us` (and not above `stable_us`) counts as exceedances, so that
    stable exceeds as often as it should; a mean over random tie-breaking, which keeps the evidence valid. aim: factor
    of the null at which PASS evidence is aimed (see `growth`), None = the grid alone.
    """

    stable_us: int
    candidate_us: int
    null: float | None
    tie_us: int = -1
    tie_share: float = 0.0
    aim: float | None = None

    def keys(self) -> tuple[int, ...]:
        """Thresholds to count at the source."""
        return tuple(key for key in (self.stable_us, self.candidate_us, self.tie_us) if key >= 0)


@dataclass(frozen=True, slots=True)
class StratumSetup:
    """One tenant x bucket: its checks in the order of `JudgeSetup.checks`, its history.

    n_history: stable requests in the history; rate_rps: their rate; medians: token counts that half of the requests
    exceed.
    """

    tenant: str
    bucket: str
    checks: tuple[CheckSetup, ...]
    n_history: int = 0
    rate_rps: float = 0.0
    medians: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JudgeSetup:
    """Everything the judge knows beside the blocks.

    checks: the contract's, in order, with the kind that is really used (goodFraction may turn absolute); kappa: per
    check and level (stratum, tenant, bucket, global) the excess variance per request, `kappa_ratio` the same for the
    environment comparison of absolute checks; phi_floor: as used (4 without enough history); merged: groups of strata
    that pass together; thin: strata for which their tenant may pass (`thinStrata: parentVeto`); baseline: False on a
    first install; cancel_share, refused_share: stable's shares of cancelled and of refused (4xx) requests; sketches:
    stable's history, for the planner.
    """

    contract: Contract
    checks: tuple[Check, ...]
    strata: tuple[StratumSetup, ...]
    kappa: tuple[Mapping[str, float], ...]
    kappa_ratio: tuple[Mapping[str, float], ...]
    phi_floor: float
    merged: tuple[tuple[tuple[str, str], ...], ...] = ()
    baseline: bool = True
    history_s: float = 0.0
    cancel_share: float = 0.0
    refused_share: float = 0.0
    warnings: tuple[str, ...] = ()
    thin: tuple[tuple[str, str], ...] = ()

    def thresholds(self) -> Thresholds:
        """What the recorder must count at the source."""
        found: dict[tuple[str, str, str], set[int]] = {}
        for check in self.checks:
            if check.kind is CheckKind.QUANTILE_ABS and check.limit is not None:
                found.setdefault(("*", "*", check.metric), set()).add(round(check.limit * 1e6))
        for stratum in self.strata:
            for check, values in zip(self.checks, stratum.checks, strict=True):
                if check.kind is CheckKind.QUANTILE_REL and values.stable_us >= 0:
                    place = (stratum.tenant, stratum.bucket, check.metric)
                    found.setdefault(place, set()).update(values.keys())
        return {place: tuple(sorted(keys)) for place, keys in found.items()}

    def pairs(self) -> dict[tuple[str, str, str], tuple[tuple[int, int], ...]]:
        """Threshold pairs (stable, candidate) for the paired test."""
        found: dict[tuple[str, str, str], tuple[tuple[int, int], ...]] = {}
        for stratum in self.strata:
            for check, values in zip(self.checks, stratum.checks, strict=True):
                if check.kind is CheckKind.QUANTILE_REL and values.stable_us >= 0 and not check.sentinel:
                    place = (stratum.tenant, stratum.bucket, check.metric)
                    found[place] = (*found.get(place, ()), (values.stable_us, values.candidate_us))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` is the inverse."""
        data = asdict(self)
        data["contract"]["attempted"] = sorted(self.contract.attempted)
        data["v"] = 1
        return data

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> "JudgeSetup":
        """Inverse of `to_dict`; ValueError for another schema version."""
        data = dict(raw)
        if data.pop("v", None) != 1:
            raise ValueError("this judge setup was written in another schema version; start a new attempt")
        data["contract"] = _contract(data["contract"])
        data["checks"] = tuple(_check(c) for c in data["checks"])
        data["strata"] = tuple(
            StratumSetup(**{**s, "checks": tuple(CheckSetup(**c) for c in s["checks"])}) for s in data["strata"]
        )
        data["kappa"], data["kappa_ratio"] = tuple(data["kappa"]), tuple(data["kappa_ratio"])
        data["merged"] = tuple(tuple((t, b) for t, b in group) for group in data["merged"])
        data["warnings"] = tuple(data["warnings"])
        data["thin"] = tuple((t, b) for t, b in data.get("thin", ()))
        return JudgeSetup(**data)


def _check(raw: Mapping[str, Any]) -> Check:
    return Check(**{**raw, "kind": CheckKind(raw["kind"])})


def _contract(raw: Mapping[str, Any]) -> Contract:
    data = dict(raw)
    for name in ("required", "bucket_edges", "bucket_names", "mirror_tenants", "mirror_except"):
        if name in data:
            data[name] = tuple(data[name])
    data["attempted"] = frozenset(data["attempted"])
    data["checks"] = tuple(_check(c) for c in data["checks"])
    return Contract(**data)
