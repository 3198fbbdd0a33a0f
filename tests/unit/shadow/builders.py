"""Plans and configurations that several tests of the data plane start from."""

from typing import Any

from shadow.plan import Endpoint, GateConfig, Stage, TrafficPlan

STABLE, CANDIDATE = "aaaaaaaaaa", "bbbbbbbbbb"


def make_endpoint(pod: str, revision: str, host: int, ready: bool = True) -> Endpoint:
    return Endpoint(f"10.0.0.{host}", 8000, pod, revision, 1_700_000_000.0, ready)


ENDPOINTS = (
    make_endpoint("old-0", STABLE, 1),
    make_endpoint("old-1", STABLE, 2),
    make_endpoint("new-0", CANDIDATE, 3),
)


def make_plan(**changes: Any) -> TrafficPlan:
    """A canary at 5 % with top-up, changed as asked."""
    values: dict[str, Any] = {
        "rollout": "prod/chat",
        "attempt": 3,
        "step": 1,
        "stage": Stage.CANARY,
        "weight": 5,
        "copies_to_candidate": 0.25,
        "copies_to_stable": 1.0,
        "stable": STABLE,
        "candidate": CANDIDATE,
        "endpoints": ENDPOINTS,
    }
    return TrafficPlan(**{**values, **changes})


def make_config(plan: TrafficPlan | None = None, **changes: Any) -> GateConfig:
    return GateConfig(plan or make_plan(), 8000, **changes)
