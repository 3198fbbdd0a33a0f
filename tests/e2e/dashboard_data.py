"""A realistic rollout in mid-attempt: chunked prefill and FP8 KV for a 70B chat model, 4 tenants, 3 length buckets.

Tenant, model, argument and pod names that try to be markup are part of it (see XSS): they must stay text everywhere.
"""

import math
import time
from typing import Any

from controller.evidence.views import (
    ArmLoad,
    CapacityView,
    CheckView,
    LiveView,
    LoadView,
    PlanView,
    PolicyView,
    StepView,
    WitnessView,
)

NAME = "llama-70b-chat"
ROLLOUT = f"chat/{NAME}"
XSS = '"><img src=x onerror=alert(1)>'
SECRET = "hf_abcDEF0123456789marker"
TENANTS = ("acme", "globex", "initech", "other")
BUCKETS = ("0-512", "513-2048", "2049+")
EVIDENCE = "9f2c61d07ab34e18"
NOW = time.time()

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
_SHARE = {"acme": 0.46, "globex": 0.27, "initech": 0.07, "other": 0.2}


def stamp(seconds_ago: float) -> str:
    """RFC 3339 time."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW - seconds_ago))


def gate_rows() -> list[dict[str, Any]]:
    """One row per stratum and check, with the intervals that such counts would give."""
    return [_row(t, b, *check) for t in TENANTS for b in BUCKETS if (t, b) != ("initech", "2049+") for check in CHECKS]


def _row(tenant: str, bucket: str, metric: str, gate: str, mode: str, factor: float) -> dict[str, Any]:
    n = round(31_000 * _SHARE[tenant] * {"0-512": 0.5, "513-2048": 0.35, "2049+": 0.15}[bucket])
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
        "eta_s": None if needed is None else needed / max(0.4, _SHARE[tenant] * 6.0),
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


def diff() -> dict[str, Any]:
    """What `weighlock diff -o json` says of the two manifests."""

    def change(
        setting: str,
        old: Any,
        new: Any,
        mechanism: str | None,
        ledgers: list[str],
        kind: str,
        why: str,
        origin: str = "written",
    ) -> dict[str, Any]:
        return {
            "setting": setting,
            "old": old,
            "new": new,
            "origin": origin,
            "mechanism": mechanism,
            "ledgers": ledgers,
            "class": kind,
            "witness": None,
            "why": why,
        }

    return {
        "effective": True,
        "changes": [
            change(
                "kv-cache-dtype",
                "auto",
                "fp8",
                "kv_quantization",
                ["KV", "A"],
                "approximate",
                "Half the bytes per cached token; attention reads quantized keys and values.",
            ),
            change(
                "enable-chunked-prefill",
                False,
                True,
                "chunked_prefill",
                ["SCHED"],
                "semantic-exact",
                "Long prompts are cut, so running answers are not stalled; first tokens of long prompts come later.",
            ),
            change(
                "max-num-batched-tokens",
                16384,
                2048,
                "chunked_prefill",
                ["SCHED", "A"],
                "semantic-exact",
                "Budget of one scheduler step; default of 0.12.",
                "version-default",
            ),
            change(
                "env:HF_TOKEN",
                "<redacted>",
                "<redacted>",
                None,
                [],
                "none",
                "The secret changed; its value is not shown.",
            ),
            change("served-model-name", "chat", XSS, None, [], "none", f"Only a label. {SECRET}"),
        ],
        "primary": {"mechanisms": ["kv_quantization", "chunked_prefill"], "bundle": True},
        "unresolved": [
            {"what": "model revision", "why": "the repository's main branch may have moved; pin --revision"}
        ],
        "warnings": [],
    }


def live_view() -> LiveView:
    """What the operator says."""
    shares = dict(_SHARE)
    return LiveView(
        rollout=ROLLOUT,
        updated_at_s=NOW,
        phase="Canary",
        attempt=7,
        step_index=1,
        step_name="canary 5",
        steps=(
            StepView(name="shadow", kind="shadow", weight=0),
            StepView(name="canary 5", kind="canary", weight=5),
            StepView(name="ramp 25", kind="ramp", weight=25, approval=True),
            StepView(name="ramp 50", kind="ramp", weight=50),
        ),
        stable="4be1c09d52",
        candidate="a83f2d7710",
        plan=PlanView(stage="canary", weight=5, copies_to_candidate=0.0789, copies_to_stable=1.0),
        load=LoadView(
            stable=ArmLoad(
                replicas_ready=8, replicas_wanted=8, rps=48.9, rps_per_replica=6.11, in_flight=281, tenant_shares=shares
            ),
            candidate=ArmLoad(
                replicas_ready=1,
                replicas_wanted=1,
                rps=6.02,
                rps_per_replica=6.02,
                in_flight=36,
                tenant_shares={"acme": 0.44, "globex": 0.29, "initech": 0.075, "other": 0.195},
            ),
            target_rps_per_replica=6.11,
            candidate_share_live=0.0497,
            worst_mix_gap=0.07,
            matched=True,
            message="a candidate replica carries 6.02 requests per second, at 100 % it would carry 6.11",
        ),
        policy=PolicyView(
            tenants=TENANTS,
            buckets=BUCKETS,
            checks=tuple(CheckView(metric=m, gate=g, mode=mode) for m, g, mode, _ in CHECKS),
        ),
        verdict=verdict(),
        evidence=EVIDENCE,
        diff=diff(),
        diff_sentences=(
            "The KV cache is stored in FP8 instead of the model's own type.",
            "Prefill is chunked: 2,048 tokens per step instead of whole prompts.",
        ),
        witnesses=(
            WitnessView(
                mechanism="chunked_prefill",
                witness="vllm:scheduler_steps with 2,048 tokens",
                expected="> 0",
                observed="1,204",
                state="active",
                source="llama-70b-chat-a83f2d7710-xk2lp",
            ),
            WitnessView(
                mechanism="kv_quantization",
                witness="resolved configuration: cache_config.cache_dtype",
                expected="fp8",
                observed=XSS,
                state="unknown",
                source="start-up log",
            ),
        ),
        capacity=CapacityView(
            strategy="surge",
            accelerators_needed=4,
            accelerators_free=12,
            rollback_s=0.0,
            message="Stable keeps all 8 replicas through Bake.",
        ),
        store_healthy=True,
        recorder_healthy=True,
    )


def _rollout(namespace: str, name: str, status: dict[str, Any], **meta: Any) -> dict[str, Any]:
    steps = [
        {"shadow": {"percent": "auto"}},
        {"canary": {"weight": 5}},
        {"ramp": {"weight": 25, "approval": True}},
        {"ramp": {"weight": 50}},
    ]
    metadata = {"namespace": namespace, "name": name, "creationTimestamp": stamp(86_400 * 40), **meta}
    return {
        "apiVersion": "weighlock.dev/v1alpha1",
        "kind": "InferenceRollout",
        "metadata": metadata,
        "spec": {
            "replicas": 8,
            "steps": steps,
            "policyRef": {"name": "chat"},
            "template": {"spec": {"containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.12.0"}]}},
        },
        "status": status,
    }


def condition(kind: str, reason: str, message: str, status: str = "True", ago: float = 300.0) -> dict[str, Any]:
    """A condition of a rollout."""
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": stamp(ago)}


def rollouts() -> list[dict[str, Any]]:
    """The one in mid-attempt, and three others for the list."""
    running = {
        "phase": "Canary",
        "attempt": 7,
        "step": {"index": 1, "name": "canary 5", "weight": 5, "startedAt": stamp(1500)},
        "stable": "4be1c09d52",
        "candidate": "a83f2d7710",
        "phaseStartedAt": stamp(1520),
        "rejected": ["77d0aa19be"],
        "message": "Canary at 5 %: 27 of 33 required gates of acme pass; ramp 25 waits for an approval.",
        "verdict": {
            "result": "INCONCLUSIVE",
            "evidence": EVIDENCE,
            "requestsNeeded": 2344,
            "message": "needs more requests",
            "worst": {"tenant": "globex", "bucket": "2049+", "metric": "ttft"},
        },
        "conditions": [
            condition("AwaitingApproval", "WaitingForApproval", "ramp 25 needs the approval of one person."),
            condition("Holding", "Held", f"EvidenceRising at globex/2049+. Last log line of the pod: {XSS}", ago=95.0),
            condition("Progressing", "WaitingForEvidence", "The attempt runs.", ago=2400.0),
            condition("DataPlaneSynced", "Synced", "Both gates acknowledged the weights.", ago=1500.0),
        ],
        "history": [
            {
                "attempt": 6,
                "revision": "77d0aa19be",
                "result": "RolledBack",
                "reason": "GateFailed",
                "finishedAt": stamp(90_000),
            },
            {
                "attempt": 5,
                "revision": "4be1c09d52",
                "result": "Completed",
                "reason": "AttemptCompleted",
                "finishedAt": stamp(400_000),
            },
            {
                "attempt": 4,
                "revision": "19c2e6aa04",
                "result": "Completed",
                "reason": "AttemptCompleted",
                "finishedAt": stamp(900_000),
            },
        ],
    }
    baking = {
        "phase": "Bake",
        "attempt": 3,
        "step": {"index": 4, "name": "bake", "weight": 100},
        "stable": "0aa17be4c2",
        "candidate": "c91d33f0e8",
        "message": "All traffic moved; the old variant stays warm for 18 more minutes.",
        "verdict": {"result": "PASS"},
        "conditions": [],
    }
    failed = {
        "phase": "RolledBack",
        "attempt": 12,
        "step": {"index": 2, "name": "ramp 25", "weight": 0},
        "stable": "e51f0042ab",
        "candidate": "99ab01cdee",
        "rejected": ["99ab01cdee"],
        "message": "P99 TPOT of tenant zeta was 1.6 times stable; 5 of 5 replicas serve the stored manifest.",
        "verdict": {"result": "FAIL"},
        "conditions": [condition("RolledBack", "GateFailed", "A gate failed.")],
    }
    idle = {
        "phase": "Idle",
        "attempt": 1,
        "step": {},
        "stable": "5512fe09a7",
        "candidate": "",
        "message": "",
        "conditions": [],
    }
    note = {"annotations": {"note": XSS}}
    return [
        _rollout("chat", NAME, running, **note),
        _rollout("chat", "qwen-32b-tools", baking),
        _rollout("search", "embed-rerank", idle),
        _rollout("search", "mixtral-rag", failed),
    ]


def actions() -> list[dict[str, Any]]:
    """What people did."""

    def action(
        number: int, kind: str, user: str, reason: str, ago: float, attempt: int, revision: str
    ) -> dict[str, Any]:
        spec = {
            "rollout": NAME,
            "action": kind,
            "revision": revision,
            "attempt": attempt,
            "step": 0,
            "evidence": "",
            "user": user,
            "reason": reason,
        }
        meta = {
            "name": f"{NAME}-{kind}-{number:05d}",
            "namespace": "chat",
            "uid": f"uid-{number}",
            "creationTimestamp": stamp(ago),
        }
        return {"metadata": meta, "spec": spec}

    return [
        action(900, "retry", "dana@example.com", "Batch size of the last attempt is fixed.", 90_400, 6, "77d0aa19be"),
        action(901, "pause", "sam@example.com", f"Launch of globex in ten minutes. {XSS}", 1900, 7, "a83f2d7710"),
        action(902, "resume", "sam@example.com", "Launch is over.", 1600, 7, "a83f2d7710"),
    ]


def history() -> dict[str, Any]:
    """What the store says."""

    def decision(ago: float, phase: str, reason: str, weight: int, message: str, late: bool = False) -> dict[str, Any]:
        return {
            "at_s": NOW - ago,
            "phase": phase,
            "reason": reason,
            "weight": weight,
            "attempt": 7,
            "step": 0,
            "late": late,
            "decision": {"message": message, "phase": phase, "reason": reason},
        }

    def outcome(number: int, result: str) -> dict[str, Any]:
        return {"spec": {"uid": f"uid-{number}", "action": "", "user": ""}, "outcome": result, "at_s": NOW}

    return {
        "rollout": ROLLOUT,
        "attempts": [
            {
                "attempt": 7,
                "revision": "a83f2d7710",
                "started_at_s": NOW - 2500,
                "finished_at_s": NOW - 1520,
                "phase": "Canary",
                "reason": "StepStarted",
            }
        ],
        "decisions": [
            decision(2500, "Pending", "NewRevision", 0, "spec asks for revision a83f2d7710."),
            decision(
                2480,
                "Preflight",
                "StepStarted",
                0,
                "No lint of level error; 4 accelerators are free; ramp 25 needs about 41 min.",
            ),
            decision(2390, "Shadow", "StepStarted", 0, "One candidate replica is servable; copies begin."),
            decision(
                1520, "Canary", "StepPassed", 5, "Every mirrored stratum passed; 5 % of live requests move.", late=True
            ),
        ],
        "verdicts": [{"at_s": NOW - 1520, "result": "PASS", "step": 0, "attempt": 7, "evidence": "11c0"}],
        "actions": [outcome(900, "applied"), outcome(901, "applied"), outcome(902, "applied")],
        "audit": [
            {
                "at_s": NOW - 1000,
                "who": "kim@example.com",
                "what": "approve refused",
                "attempt": 7,
                "content": {"message": "kim@example.com may not approve inferencerollout llama-70b-chat in chat"},
            }
        ],
    }


def rejudge_report(rollout: str, attempt: int) -> dict[str, Any]:
    """Attempt 7 comes out again, attempt 6 does not."""
    same = attempt != 6
    entry = {
        "at_s": NOW - 1520,
        "step": 0,
        "last_seq": 210,
        "evidence": "11c0",
        "stored": "PASS",
        "late": False,
        "rejudged": "PASS" if same else "INCONCLUSIVE",
        "same": same,
        "differences": [] if same else ["rows[3].e_pass: stored 20.4, rejudged 18.1"],
    }
    return {"rollout": rollout, "attempt": attempt, "same": same, "verdicts": [entry], "problem": None}
