"""What is known of every rollout now, for the evidence API: the last snapshot and decision, in the readers' shape.

Filled by the reconciler, read by the evidence API's threads. Waits for nothing.
"""

import threading
from dataclasses import dataclass
from typing import Any

from controller.core import plans, times
from controller.core.actions import Decision
from controller.core.load import Arm, load_of
from controller.core.snapshot import Frozen, Snapshot
from controller.evidence.views import (
    ArmLoad,
    CapacityView,
    CheckView,
    LiveView,
    LoadView,
    PlanView,
    PolicyView,
    StepView,
)
from controller.observe import Observer
from controller.ports import DataPlane
from crds.v1alpha1.common import parse_duration_seconds
from crds.v1alpha1.policy import RolloutPolicySpec
from crds.v1alpha1.rollout import CapacityStrategy, InferenceRolloutStatus, Step
from policies.contract import ContractError, make_contract
from shadow.plan import TrafficPlan


@dataclass(frozen=True, slots=True)
class _Entry:
    snapshot: Snapshot
    decision: Decision
    version: int


class LiveRollouts:
    """Implements `controller.evidence.source.LiveSource`."""

    def __init__(self, observer: Observer, data_plane: DataPlane) -> None:
        self._observer, self._data_plane = observer, data_plane
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._versions = 0

    def note(self, snapshot: Snapshot, decision: Decision) -> None:
        """A decision was made."""
        with self._lock:
            old = self._entries.get(snapshot.key)
            is_same = old is not None and _mark(old.snapshot, old.decision) == _mark(snapshot, decision)
            if not is_same:
                self._versions += 1
            version = old.version if is_same and old is not None else self._versions
            self._entries[snapshot.key] = _Entry(snapshot, decision, version)

    def forget(self, rollout: str) -> None:
        """A rollout is gone."""
        with self._lock:
            self._entries.pop(rollout, None)

    def version(self, rollout: str) -> int:
        """See LiveSource."""
        with self._lock:
            entry = self._entries.get(rollout)
        return entry.version if entry is not None else 0

    def live(self, rollout: str) -> LiveView | None:
        """See LiveSource."""
        with self._lock:
            entry = self._entries.get(rollout)
        return self._view(entry.snapshot, entry.decision) if entry is not None else None

    def _view(self, s: Snapshot, decision: Decision) -> LiveView:
        status = decision.status
        plan = decision.plan or s.data_plane.published
        running = s.frozen(status.candidate) if status.candidate else s.target
        diff = self._observer.diff_between(s.stored.get(status.stable), running)
        is_other = running is not None and running.rev10 != status.stable
        policy = s.attempt_policy or s.policy
        return LiveView.with_verdict(
            s.judge.verdict,
            rollout=s.key,
            updated_at_s=s.now_s,
            phase=status.phase.value,
            attempt=status.attempt,
            step_index=status.step.index,
            step_name=status.step.name,
            step_started_at_s=times.from_text(status.step.started_at),
            steps=_steps(plans.attempt_steps(s)),
            stable=status.stable,
            candidate=status.candidate,
            plan=_plan(plan),
            load=_load(s, status),
            policy=_policy(policy),
            evidence=(status.verdict.evidence or "") if status.verdict else "",
            diff=diff.to_json() if diff is not None and is_other else None,
            diff_sentences=s.diff.sentences if s.diff is not None and is_other else (),
            capacity=_capacity(s, running),
            store_healthy=s.store_ok,
            recorder_healthy=s.judge.reachable,
        )


def _mark(s: Snapshot, decision: Decision) -> tuple[Any, ...]:
    verdict = s.judge.verdict
    return (decision.status, decision.plan, verdict.rows if verdict else None, s.store_ok, s.judge.reachable)


def _steps(steps: tuple[Step, ...]) -> tuple[StepView, ...]:
    views = []
    for step in steps:
        kind = next(k for k in ("shadow", "canary", "ramp", "pause") if getattr(step, k) is not None)
        weight = 0 if step.shadow else step.weight
        views.append(StepView(name=step.name, kind=kind, weight=weight, approval=step.needs_approval))
    return (
        *views,
        StepView(name="promoted", kind="promoted", weight=100),
        StepView(name="bake", kind="bake", weight=100),
    )


def _plan(plan: TrafficPlan | None) -> PlanView:
    if plan is None:
        return PlanView()
    return PlanView(
        stage=plan.stage.value,
        weight=plan.weight,
        copies_to_candidate=plan.copies_to_candidate,
        copies_to_stable=plan.copies_to_stable,
    )


def _load(s: Snapshot, status: InferenceRolloutStatus) -> LoadView:
    load = load_of(s, status)

    def arm(rev10: str, seen: Arm) -> ArmLoad:
        if not rev10:
            return ArmLoad()
        wanted = s.variant(rev10).replicas.get(plans.entry_role(s.frozen(rev10)))
        in_flight = s.data_plane.open_requests.get(rev10, 0) if s.data_plane.open_requests is not None else None
        ready = len(plans.usable_pods(s, rev10, needs_probe=rev10 == status.candidate))
        return ArmLoad(
            replicas_ready=ready,
            replicas_wanted=wanted,
            rps=seen.rps,
            rps_per_replica=seen.rps_per_replica,
            in_flight=in_flight,
            tenant_shares=dict(seen.tenant_shares),
        )

    return LoadView(
        stable=arm(status.stable, load.stable),
        candidate=arm(status.candidate, load.candidate),
        target_rps_per_replica=load.target_rps_per_replica,
        candidate_share_live=load.candidate_share_live,
        worst_mix_gap=load.worst_mix_gap,
        matched=load.matched,
        message=load.message,
    )


def _policy(policy: RolloutPolicySpec | None) -> PolicyView:
    if policy is None:
        return PolicyView()
    try:
        contract = make_contract(policy)
    except ContractError:
        return PolicyView()
    return PolicyView(
        tenants=contract.required,
        buckets=contract.bucket_names,
        checks=tuple(
            CheckView(metric=c.metric, gate=c.gate, mode="enforce" if c.enforce else "dryRun") for c in contract.checks
        ),
        block_s=contract.block_s,
        require_reason=policy.approval.require_reason,
        people=policy.approval.people,
        expires_s=parse_duration_seconds(policy.approval.expires),
    )


def _capacity(s: Snapshot, running: Frozen | None) -> CapacityView:
    strategy = s.spec.capacity.strategy if s.spec else CapacityStrategy.SURGE
    blocked = next((p.unschedulable for v in s.variants.values() for p in v.pods if p.unschedulable), "")
    is_flip = strategy is CapacityStrategy.SURGE
    return CapacityView(
        strategy=strategy.value,
        rollback_s=0.0 if is_flip else None,
        message=blocked or ("stable keeps every replica: a rollback is a flip" if is_flip else ""),
    )
