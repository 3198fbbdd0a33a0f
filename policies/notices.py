"""What a verdict says beside its rows: why it holds, warnings about mended input, and rows that are withheld because
other work was done. Called by `explain`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from policies import blocks
from policies.verdict import GateRow, Hold, HoldReason, Result

OTHER_WORK = frozenset(
    {
        HoldReason.OUTPUT_LENGTH_SHIFT,
        HoldReason.PROMPT_MIX_SHIFT,
        HoldReason.CANCEL_SHIFT,
        HoldReason.REJECT_SHIFT,
        HoldReason.NOT_LOAD_MATCHED,
        HoldReason.CACHE_WARMTH,
        HoldReason.HARDWARE_DIFFERS,
    }
)
"""Holds that say that the arms did not do the same work: their latencies prove nothing."""

_MENDED = {
    "badNumber": "measurements that no clock can give (NaN, negative, text, an instant answer) count as unknown",
    "badTime": "records without a usable start were dropped",
    "unknownOutcome": "unknown outcomes count as server_error",
    "unknownKind": "unknown kinds count as live",
    "swappedTimes": "records with a first token after the end: their latencies count as unknown",
    "endless": "requests took more than six hours; they count as too slow, and end with the input",
    "probe": "probes were left out",
    "warmup": "requests on pods younger than warmup were left out",
    "duplicate": "duplicate requests were dropped",
    "historyOfCandidate": "records of the history are the candidate's and were left out",
    "historyOfStep": "records of the history are of the step itself and were left out",
    "late": "requests ended in a block that was already closed; they count in the next one",
    "future": "requests with times in the future were dropped",
    "pooledTenants": "requests of tenants beyond the cap were pooled",
    "ignoredTenants": "requests of tenants outside the policy were ignored",
    "lost": "requests never ended",
}
_MANY = 3


def withheld(rows: Iterable[GateRow], holds: Sequence[Hold]) -> list[GateRow]:
    """The rows; a latency that passed, or is open, while other work was done is INCONCLUSIVE, with that reason."""
    return [_withheld(row, holds) for row in rows]


def _withheld(row: GateRow, holds: Sequence[Hold]) -> GateRow:
    is_open = row.verdict is Result.INCONCLUSIVE and row.hold is None
    if row.metric not in blocks.LATENCIES or not (is_open or row.verdict is Result.PASS):
        return row
    for hold in holds:
        is_here = hold.tenant in ("", row.tenant)
        is_pace = hold.reason is HoldReason.IMPLAUSIBLE and row.metric == blocks.TPOT
        if is_here and (hold.reason in OTHER_WORK or is_pace):
            head = row.reason.split(": ", 1)[0]
            words = f"{head}: not comparable, so nothing is proven: {hold.message}"
            return replace(row, verdict=Result.INCONCLUSIVE, hold=hold.reason, reason=words)
    return row


def mended(dropped: Mapping[str, int]) -> list[str]:
    """How many entries of the input were mended or left out, by kind."""
    return [f"{count} {_MENDED.get(reason, reason)}" for reason, count in sorted(dropped.items())]


def grouped(warnings: Iterable[str]) -> list[str]:
    """Warnings that say the same of many tenants, as one."""
    tails: dict[str, list[str]] = {}
    for warning in warnings:
        head, colon, tail = warning.partition(": ")
        tails.setdefault(tail if colon else warning, []).append(head if colon else "")
    found = []
    for tail, heads in tails.items():
        if len(heads) <= _MANY:
            found += [f"{head}: {tail}" if head else tail for head in heads]
        else:
            found.append(f"{'; '.join(heads[:_MANY])} and {len(heads) - _MANY} more: {tail}")
    return found


def reasons(holds: Sequence[Hold]) -> tuple[str, ...]:
    """One sentence per reason and finding: the first rows it holds for, and how many more; a row that only repeats what
    is said of the whole, or of its tenant, is left out.
    """
    general = {(h.reason, h.tenant) for h in holds if not h.bucket}
    told: dict[HoldReason, list[str]] = {}
    for h in holds:
        repeats = h.bucket and h.reason in OTHER_WORK and general & {(h.reason, ""), (h.reason, h.tenant)}
        told.setdefault(h.reason, []) if repeats else told.setdefault(h.reason, []).append(h.message)
    sentences = ((reason, words) for reason, messages in told.items() for words in grouped(messages))
    return tuple(dict.fromkeys(f"{reason.value}: {words}" for reason, words in sentences))
