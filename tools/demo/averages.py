"""What act C shows: on average the bundle is faster, and for one tenant's long prompts it is not.

Called by `acts.py` with the recorder's request records. A live request and its copy are the same work, so pairs of
them compare the two revisions and nothing else. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from tools.demo.checks import Finding
from tools.load.stats import quantile

Record = Mapping[str, Any]


@dataclass
class Arm:
    """One revision's side of the pairs; all times in seconds.

    ttft, tpot, e2e: one entry per request of any stratum; hurt: times to first token of the hurt stratum alone.
    """

    ttft: list[float] = field(default_factory=list)
    tpot: list[float] = field(default_factory=list)
    e2e: list[float] = field(default_factory=list)
    hurt: list[float] = field(default_factory=list)

    def take(self, record: Record, is_hurt: bool) -> None:
        """Count a request that was answered whole, with at least two tokens."""
        ttft, e2e = record["ttft_s"], record["e2e_s"]
        self.ttft.append(ttft)
        self.e2e.append(e2e)
        self.tpot.append((e2e - ttft) / (record["output_tokens"] - 1))
        if is_hurt:
            self.hurt.append(ttft)


def better_on_average(records: Iterable[Record], attempt: int, tenant: str, bucket: str) -> list[Finding]:
    """Means of all pairs of an attempt, and the P99 time to first token of one stratum.

    Args:
        records: request records of the recorder, of any attempt.
        tenant, bucket: the stratum that the verdict names.

    Returns:
        Two findings: that the candidate's mean time per token and mean whole request are below stable's, and that the
        stratum's P99 is above.
    """
    stable, candidate = _arms(records, attempt, (tenant, bucket))
    if not stable.hurt:
        return [(False, f"no request of {tenant}/{bucket} was answered by both revisions")]
    per_token = _Pair(fmean(stable.tpot), fmean(candidate.tpot))
    whole = _Pair(fmean(stable.e2e), fmean(candidate.e2e))
    first = _Pair(fmean(stable.ttft), fmean(candidate.ttft))
    hurt = _Pair(quantile(stable.hurt, 0.99) or 0.0, quantile(candidate.hurt, 0.99) or 0.0)
    means = (
        f"mean of {len(stable.e2e):,} requests that both revisions answered, stable → candidate: time per token "
        f"{per_token.sentence}, whole request {whole.sentence}, first token {first.sentence}"
    )
    tail = f"P99 time to first token of {tenant}/{bucket} ({len(stable.hurt):,} of them): {hurt.sentence}"
    return [(per_token.falls and whole.falls, means), (hurt.rises, tail)]


@dataclass(frozen=True)
class _Pair:
    stable: float
    candidate: float

    @property
    def falls(self) -> bool:
        return self.candidate < self.stable

    @property
    def rises(self) -> bool:
        return self.candidate > self.stable

    @property
    def sentence(self) -> str:
        change = 100 * (self.candidate / self.stable - 1)
        return f"{_ms(self.stable)} → {_ms(self.candidate)} ms ({change:+.0f} %)"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f}" if seconds < 0.1 else f"{1000 * seconds:,.0f}"


def _arms(records: Iterable[Record], attempt: int, stratum: tuple[str, str]) -> tuple[Arm, Arm]:
    """Stable's and the candidate's side of the pairs of which both members were answered whole."""
    lone: dict[str, Record] = {}
    arms = {"stable": Arm(), "candidate": Arm()}
    for record in records:
        if record.get("attempt") != attempt or not _is_whole(record):
            continue
        name = record.get("pair") or record["id"]
        other = lone.pop(name, None)
        if other is None:
            lone[name] = record
            continue
        for member in (other, record):
            arms[member["variant"]].take(member, (member["tenant"], member["bucket"]) == stratum)
    return arms["stable"], arms["candidate"]


def _is_whole(record: Record) -> bool:
    known = record.get("ttft_s") is not None and record.get("e2e_s") is not None
    return known and record.get("outcome") == "ok" and (record.get("output_tokens") or 0) > 1
