"""What is checked before any GPU is touched, as an ordered tuple of named checks; the first problem is told.

Pure; called by phases/preparing.py in Pending (what concerns the manifest) and Preflight (everything).
"""

from collections.abc import Callable

from controller.core.sizes import largest_parts
from controller.core.snapshot import Snapshot
from controller.core.status import Mark
from crds.v1alpha1.conditions import Reason
from crds.v1alpha1.rollout import CapacityStrategy, Provider

Check = Callable[[Snapshot], Mark | None]


def first_problem(s: Snapshot, only_manifest: bool = False) -> Mark | None:
    """The first check that does not hold; None when all do."""
    checks = _MANIFEST_CHECKS if only_manifest else (*_MANIFEST_CHECKS, *_WORLD_CHECKS)
    return next((problem for check in checks if (problem := check(s)) is not None), None)


def check_size(s: Snapshot) -> Mark | None:
    """A manifest over 1 MiB cannot be stored whole, so it could not be put back."""
    candidate = s.frozen(s.status.candidate)
    excess = candidate.size.excess() if candidate is not None else ""
    if candidate is None or not excess:
        return None
    parts = largest_parts(candidate.manifest.config_maps)
    text = f"RunManifest {s.name}-{candidate.rev10} would have {excess}; "
    text += f"the largest parts are {parts}; " if parts else ""
    return Mark(Reason.MANIFEST_TOO_LARGE, text + "move large contents into the image or a volume. Nothing was moved.")


def check_references(s: Snapshot) -> Mark | None:
    """Everything that the templates mount exists."""
    candidate = s.frozen(s.status.candidate)
    if candidate is None or not candidate.problems:
        return None
    return Mark(Reason.MISSING_REFERENCE, " ".join(candidate.problems))


def check_policy(s: Snapshot) -> Mark | None:
    """The policy exists and does not contradict itself."""
    if s.policy_error:
        return Mark(Reason.POLICY_MISSING, s.policy_error)
    return None


def check_supported(s: Snapshot) -> Mark | None:
    """Values that the types keep a place for and this release does not do."""
    if s.spec is None:
        return None
    if s.spec.workload_ref is not None:
        text = "spec.workloadRef is not supported yet; write spec.template or spec.roles."
        return Mark(Reason.PREFLIGHT_FAILED, text)
    if any(role.leader_worker_template is not None for role in s.spec.effective_roles()):
        return Mark(Reason.PREFLIGHT_FAILED, "leaderWorkerTemplate is not supported yet; write a role's template.")
    if s.policy is not None and s.policy.tenants.from_.jwt_claim is not None:
        return Mark(
            Reason.PREFLIGHT_FAILED, "tenants.from.jwtClaim is not supported yet; use header, apiKeyHash or path."
        )
    if s.spec.traffic.provider is not Provider.ENVOY:
        return Mark(Reason.PREFLIGHT_FAILED, "spec.traffic.provider gatewayAPI is not supported yet; use envoy.")
    if s.spec.capacity.strategy is CapacityStrategy.SWAP:
        return Mark(Reason.PREFLIGHT_FAILED, "spec.capacity.strategy swap is not supported yet; use surge or wait.")
    return None


def check_lints(s: Snapshot) -> Mark | None:
    """No finding of level error: the engine would not start, or not do what the manifest says."""
    candidate = s.frozen(s.status.candidate)
    if s.target is not None and s.target.rev10 == s.status.candidate:
        candidate = s.target  # knows what the import itself found as well
    if candidate is None or not candidate.findings:
        return None
    more = f" ({len(candidate.findings) - 3} more)" if len(candidate.findings) > 3 else ""
    text = f"weighlock lint finds {'; '.join(candidate.findings[:3])}{more}. Correct the manifest; no GPU was touched."
    return Mark(Reason.PREFLIGHT_FAILED, text)


def check_data_plane(s: Snapshot) -> Mark | None:
    """Gates run, are connected and took the present configuration."""
    plane = s.data_plane
    is_connected = bool(plane.gates) and plane.connected >= len(plane.gates)
    if plane.applied and is_connected and plane.is_in_force:
        return None
    text = f"{len(plane.gates)} gates are ready, {plane.connected} are connected; the attempt begins when all are both."
    return Mark(Reason.WAITING_FOR_DATA_PLANE, text)


def check_recorder(s: Snapshot) -> Mark | None:
    """Evidence can be collected (a first install has nothing to judge)."""
    if s.status.baseline or s.judge.reachable:
        return None
    if s.judge.other_release:
        return Mark(Reason.RECORDER_INCOMPATIBLE, s.judge.other_release)
    text = "The recorder does not answer, so nothing could be judged; the attempt begins when it does."
    return Mark(Reason.RECORDER_UNREACHABLE, text)


_MANIFEST_CHECKS: tuple[Check, ...] = (check_size, check_references)
_WORLD_CHECKS: tuple[Check, ...] = (check_policy, check_supported, check_lints, check_data_plane, check_recorder)
