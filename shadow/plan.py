"""What the data plane is asked to do: frozen values that the state machine decides and `shadow/envoy` renders.

Made by controller/core/plans.py, read by shadow/envoy. Knows nothing of Kubernetes or of the judge.
"""

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """Which part of an attempt a request is served under; travels with every access-log entry."""

    IDLE = "idle"  # stable alone: A/A history
    INSTALL = "install"  # a first revision alone: nothing to compare with
    SHADOW = "shadow"
    CANARY = "canary"
    RAMP = "ramp"
    BAKE = "bake"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One engine pod.

    Attributes:
        address: pod IP.
        port: serving port.
        pod: pod name.
        revision: first 10 characters of the revision that it runs.
        started_at_s: Unix time at which it became ready (its age decides warm-up).
        ready: whether it may receive requests.
    """

    address: str
    port: int
    pod: str
    revision: str
    started_at_s: float
    ready: bool = True


@dataclass(frozen=True, slots=True)
class TrafficPlan:
    """Weights and copies of one rollout.

    Attributes:
        rollout: `namespace/name`.
        attempt: attempt number (0 before the first).
        step: index of the step in force.
        stage: part of the attempt.
        weight: percent of live requests to the candidate, 0..100.
        copies_to_candidate: share of stable-bound live requests that are copied to the candidate, 0..1.
        copies_to_stable: share of candidate-bound live requests that are copied to stable, 0..1.
        stable: revision that serves the rest, None on a first install.
        candidate: revision under test, None when idle.
        endpoints: pods of both revisions.
    """

    rollout: str
    attempt: int
    step: int
    stage: Stage
    weight: int
    copies_to_candidate: float
    copies_to_stable: float
    stable: str | None
    candidate: str | None
    endpoints: tuple[Endpoint, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 100:
            raise ValueError(f"weight {self.weight} is not a percentage")
        if self.weight and self.candidate is None:
            raise ValueError("a weight needs a candidate")


@dataclass(frozen=True, slots=True)
class GateConfig:
    """Everything that one rollout's gates need.

    Attributes:
        plan: weights, copies and endpoints.
        port: client port of the gate.
        include_usage: ask engines for usage, hide it from clients who did not.
        tenant_header: request header that names the tenant (None: see tenant_path / api key hash).
        required_tenants: tenants that keep their own stratum.
        other_tenants: `pooled`, `each` or `ignore`.
        bucket_edges: upper edges of length buckets, prompt tokens.
        bytes_per_token: calibrated request-body bytes per prompt token, by model (`""`: any model).
        overhead_bytes: calibrated bytes of a request body that are no prompt, by model likewise.
        mirror_tenants: tenants that may be copied (`*`: all).
        mirror_except: tenants that are never copied.
        mirror_paths: request paths that may be copied.
        mirror_max_bytes_per_second: bound of copied request bytes.
    """

    plan: TrafficPlan
    port: int
    include_usage: bool = True
    tenant_header: str | None = "x-tenant"
    tenant_path: int | None = None
    tenant_api_key_hash: bool = False
    required_tenants: tuple[str, ...] = ()
    other_tenants: str = "pooled"
    bucket_edges: tuple[int, ...] = (512, 2048)
    bytes_per_token: tuple[tuple[str, float], ...] = (("", 4.0),)
    overhead_bytes: tuple[tuple[str, float], ...] = ()
    mirror_tenants: tuple[str, ...] = ("*",)
    mirror_except: tuple[str, ...] = ()
    mirror_paths: tuple[str, ...] = ("/v1/chat/completions", "/v1/completions")
    mirror_max_bytes_per_second: int = 50 * 2**20


def copies_to_candidate(weight: int, ready_replicas: int, full_replicas: int) -> float:
    """Share of stable-bound requests to copy so that a candidate replica carries its load at 100 %.

    Args:
        weight: percent of live requests that the candidate already serves.
        ready_replicas: candidate replicas that serve now.
        full_replicas: candidate replicas at 100 %.

    Returns:
        `clip((R_c/R_new - w) / (1 - w), 0, 1)`; 0 where the candidate serves everything or has no replica.
    """
    if weight >= 100 or ready_replicas <= 0 or full_replicas <= 0:
        return 0.0
    share = weight / 100.0
    return min(1.0, max(0.0, (ready_replicas / full_replicas - share) / (1.0 - share)))
