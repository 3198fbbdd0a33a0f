"""What the operator shows live: the diff, load, plan and witnesses."""

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
from tests.e2e.dashboard_data.judged import CHECKS, SHARE, verdict
from tests.e2e.dashboard_data.names import BUCKETS, EVIDENCE, NOW, ROLLOUT, SECRET, TENANTS, XSS


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
    shares = dict(SHARE)
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
