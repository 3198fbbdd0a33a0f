"""What the gates are told: the plan, spec.traffic and what of the policy concerns traffic. Pure; called by act.py."""

from crds.v1alpha1.common import parse_bytes
from crds.v1alpha1.policy import RolloutPolicySpec
from crds.v1alpha1.rollout import InferenceRolloutSpec
from shadow.plan import GateConfig, TrafficPlan


def make_gate_config(
    plan: TrafficPlan,
    spec: InferenceRolloutSpec | None,
    policy: RolloutPolicySpec | None,
    body_size: tuple[tuple[tuple[str, float], ...], tuple[tuple[str, float], ...]],
) -> GateConfig:
    """The configuration of a rollout's gates. body_size: (bytes per prompt token, overhead bytes), each by model."""
    factors, overheads = body_size
    port = spec.traffic.port if spec else 8000
    include_usage = spec.traffic.include_usage if spec else True
    if policy is None:
        return GateConfig(plan, port, include_usage, bytes_per_token=factors, overhead_bytes=overheads)
    source, mirror = policy.tenants.from_, policy.mirror
    return GateConfig(
        plan=plan,
        port=port,
        include_usage=include_usage,
        tenant_header=source.header,
        tenant_path=source.path,
        tenant_api_key_hash=bool(source.api_key_hash),
        required_tenants=policy.tenants.required,
        other_tenants=policy.tenants.other.value,
        bucket_edges=policy.length_buckets.edges,
        bytes_per_token=factors,
        overhead_bytes=overheads,
        mirror_tenants=mirror.tenants,
        mirror_except=mirror.except_tenants,
        mirror_paths=mirror.paths,
        mirror_max_bytes_per_second=parse_bytes(mirror.max_bytes_per_second),
    )
