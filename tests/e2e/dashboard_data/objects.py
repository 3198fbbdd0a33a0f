"""What the API server holds: rollouts in every state, and acts of people."""

from typing import Any

from tests.e2e.dashboard_data.names import EVIDENCE, NAME, XSS, stamp


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
