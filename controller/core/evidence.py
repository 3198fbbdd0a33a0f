"""What an approval binds: a short hash over what the judge proved, stratum by stratum.

The hash stays the same while the same strata pass and changes as soon as one of them turns, so a person can sign it.
Pure; called by observe.py (snapshot) and by tests.
"""

import hashlib
import json

from policies.verdict import Verdict


def evidence_hash(rev10: str, attempt: int, step: int, verdict: Verdict | None) -> str:
    """16 hex digits over revision, attempt, step, result, holds and the verdict of every enforced gate row."""
    rows = sorted(
        [row.tenant, row.bucket, row.metric, row.gate, row.verdict.value]
        for row in (verdict.rows if verdict else ())
        if row.mode == "enforce"
    )
    result = verdict.result.value if verdict else "none"
    holds = sorted({hold.reason.value for hold in verdict.holds}) if verdict else []
    return digest("verdict", rev10, attempt, step, result, holds, rows)


def digest(*parts: object) -> str:
    """16 hex digits over plain JSON values."""
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()[:16]
