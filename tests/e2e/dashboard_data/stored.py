"""What SQL knows: history and a re-judged attempt."""

from typing import Any

from tests.e2e.dashboard_data.names import NOW, ROLLOUT


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
