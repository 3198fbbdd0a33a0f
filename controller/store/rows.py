"""Pure builders: a domain value in, a row out; and back. Called by `sink.py` (out) and `reader.py` (back)."""

import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import Any

from controller.jsonable import jsonable
from controller.store.tables import ActionRow, AuditRow, BlockRow, DecisionRow, SetupRow, VerdictRow
from policies.blocks import Block
from policies.verdict import Verdict


def make_block(block: Block) -> BlockRow:
    """Row of a closed block; its JSON form is unchanged inside the compression."""
    return BlockRow(
        rollout=block.rollout,
        attempt=block.attempt,
        start_us=round(block.start_s * 1e6),
        seq=block.seq,
        step=block.step,
        end_s=block.end_s,
        payload=zlib.compress(block.to_json(), 6),
    )


def read_block(row: BlockRow) -> Block:
    """The block of a row; ValueError for one of another schema version."""
    return Block.from_json(zlib.decompress(row.payload))


def make_setup(rollout: str, attempt: int, at_s: float, setup: Mapping[str, Any]) -> SetupRow:
    """Row of a judge's setup (anything that JSON can hold; the same setup twice at one time is one row).

    The time is in the key: a re-created rollout may have the very setup of its deleted namesake.
    """
    payload = dump(setup)
    digest = hashlib.sha256(f"{at_s:.3f} {payload}".encode()).hexdigest()
    return SetupRow(rollout=rollout, attempt=attempt, digest=digest, at_s=at_s, payload=payload)


def make_verdict(rollout: str, attempt: int, last_seq: int, verdict: Verdict, evidence: str = "") -> VerdictRow:
    """Row of a verdict that had seen blocks up to `last_seq`."""
    return VerdictRow(
        key=_key(rollout, attempt, verdict.step, last_seq, f"{verdict.now_s:.6f}"),
        rollout=rollout,
        attempt=attempt,
        step=verdict.step,
        at_s=verdict.now_s,
        payload=dump(verdict.to_dict()),
        result=verdict.result.value,
        last_seq=last_seq,
        evidence=evidence,
    )


def make_decision(rollout: str, attempt: int, step: int, at_s: float, content: Mapping[str, Any]) -> DecisionRow:
    """Row of a decision; `content` holds at least phase and reason, and the weight after it."""
    payload = dump(content)
    return DecisionRow(
        key=_key(rollout, attempt, step, f"{at_s:.6f}", payload),
        rollout=rollout,
        attempt=attempt,
        step=step,
        at_s=at_s,
        payload=payload,
        phase=str(content["phase"]),
        reason=str(content["reason"]),
        weight=int(content.get("weight", 0)),
    )


def make_action(rollout: str, at_s: float, outcome: str, uid: str, content: Mapping[str, Any]) -> ActionRow:
    """Row of a RolloutAction (`content`: its spec) and what became of it; one row per uid and outcome."""
    return ActionRow(
        key=_key(uid, outcome),
        rollout=rollout,
        attempt=int(content.get("attempt", 0)),
        step=int(content.get("step", 0)),
        at_s=at_s,
        payload=dump({"uid": uid, **content}),
        action=str(content["action"]),
        user=str(content["user"]),
        outcome=outcome,
    )


def make_audit(
    rollout: str, at_s: float, who: str, what: str, content: Mapping[str, Any], attempt: int = 0, step: int = 0
) -> AuditRow:
    """Row of anything else that must be found later."""
    payload = dump(content)
    return AuditRow(
        key=_key(rollout, attempt, step, f"{at_s:.6f}", who, what, payload),
        rollout=rollout,
        attempt=attempt,
        step=step,
        at_s=at_s,
        payload=payload,
        who=who,
        what=what,
    )


def dump(value: Any) -> str:
    """JSON text with sorted keys."""
    return json.dumps(jsonable(value), sort_keys=True, separators=(",", ":"))


def _key(*parts: object) -> str:
    return hashlib.sha256("\0".join(str(part) for part in parts).encode()).hexdigest()
