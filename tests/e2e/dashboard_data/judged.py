"""What the judge says: one row per stratum and check, with the intervals that such counts would give."""

import math
from typing import Any

from tests.e2e.dashboard_data.names import BUCKETS, NOW, TENANTS

CHECKS = (
    ("ttft", "p99-margin", "enforce", 1.25),
    ("ttft", "p99-limit", "enforce", 2.0),
    ("tpot", "p99-margin", "enforce", 1.25),
    ("maxGap", "p99-margin", "enforce", 1.5),
    ("goodFraction", "margin", "enforce", 0.0),
    ("success", "limit", "enforce", 0.005),
    ("e2e", "p99-margin", "dryRun", 1.25),
)
_BASE = {"ttft": 0.62, "tpot": 0.031, "maxGap": 0.21, "e2e": 11.5}
_LENGTH = {"0-512": 0.55, "513-2048": 1.0, "2049+": 2.05}
SHARE = {"acme": 0.46, "globex": 0.27, "initech": 0.07, "other": 0.2}


def gate_rows() -> list[dict[str, Any]]:
    """One row per stratum and check, with the intervals that such counts would give."""
    return [_row(t, b, *check) for t in TENANTS for b in BUCKETS if (t, b) != ("initech", "2049+") for check in CHECKS]


def _row(tenant: str, bucket: str, metric: str, gate: str, mode: str, factor: float) -> dict[str, Any]:
    n = round(31_000 * SHARE[tenant] * {"0-512": 0.5, "513-2048": 0.35, "2049+": 0.15}[bucket])
    latency = metric in _BASE
    worse = 1.31 if (tenant, bucket, metric) == ("globex", "2049+", "ttft") else 0.97
    base = _BASE.get(metric, 0.004) * (_LENGTH[bucket] if metric in ("ttft", "e2e") else 1.0)
    candidate = base * worse
    limit = factor if gate.endswith("limit") else base * factor if latency else base + 0.01
    width = 1.9 / math.sqrt(max(n, 1) * 0.01)
    low, high = candidate * (1 - 0.6 * width), candidate * (1 + width)
    thin = n < 700
    passes = high < limit and not thin
    failing = worse > 1.0 and gate == "p99-margin"
    hold = "RejectShift" if (tenant, bucket) == ("other", "513-2048") and metric == "success" else None
    verdict = "PASS" if passes and hold is None and not failing else "INCONCLUSIVE"
    e_pass = 20 ** (1.0 + width) if verdict == "PASS" else max(0.4, 20 ** min(0.9, n / 3600))
    needed = None if verdict == "PASS" else max(120, 3600 - n)
    reason = {
        "PASS": f"no breach beyond {factor:g} is left to believe in",
        "INCONCLUSIVE": f"{needed} more candidate requests would settle it at the present rate",
    }[verdict]
    if failing:
        reason = "evidence of a breach grows: 1.31 times stable, limit 1.25; the next minutes decide"
    return {
        "tenant": tenant,
        "bucket": bucket,
        "metric": metric,
        "gate": gate,
        "verdict": verdict,
        "n_stable": n * 3,
        "n_candidate": n,
        "exceed_stable": round(n * 0.03),
        "exceed_candidate": round(n * 0.0098 * worse**4),
        "estimate_stable": base,
        "estimate_candidate": candidate,
        "ratio_low": worse * (1 - 0.5 * width) if gate != "p99-limit" else None,
        "ratio_high": worse * (1 + 0.9 * width) if gate != "p99-limit" else None,
        "low": low,
        "high": None if n < 400 else high,
        "limit": limit,
        "e_pass": 0.2 if failing else e_pass,
        "e_fail": 31.5 if failing else 0.6,
        "phi": 1.34,
        "needed_requests": needed,
        "eta_s": None if needed is None else needed / max(0.4, SHARE[tenant] * 6.0),
        "reason": "stable refuses 0.2 % of requests as wrong, the candidate 0.9 %" if hold else reason,
        "mode": mode,
        "hold": "EvidenceRising" if failing else hold,
    }


def verdict() -> dict[str, Any]:
    """A verdict with one stratum in trouble."""
    culprit = {
        "tenant": "globex",
        "bucket": "2049+",
        "metric": "ttft",
        "gate": "p99-margin",
        "e": 31.5,
        "proven": False,
    }
    return {
        "result": "INCONCLUSIVE",
        "now_s": NOW,
        "step": 1,
        "decided_at_s": None,
        "holds": [
            {
                "reason": "EvidenceRising",
                "message": "P99 time to first token of globex beyond 2k tokens looks 31 % longer.",
                "tenant": "globex",
                "bucket": "2049+",
                "metric": "ttft",
            },
            {
                "reason": "RejectShift",
                "message": "The arms refuse different shares of requests as wrong.",
                "tenant": "other",
                "bucket": "513-2048",
                "metric": "success",
            },
        ],
        "rows": gate_rows(),
        "rollback": {"e": 31.5, "threshold": 100.0, "culprits": [culprit]},
        "worst": {"tenant": "globex", "bucket": "2049+", "metric": "ttft"},
        "requests_needed": 2344,
        "eta_s": 1450.0,
        "sentences": ["27 of 33 gates of acme pass."],
        "warnings": [],
    }
