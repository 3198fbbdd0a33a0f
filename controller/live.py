"""What is known of every rollout now, for the evidence API: the last snapshot and decision, in the readers' shape.

Filled by the reconciler, read by the evidence API's threads. Waits for nothing.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from controller.core import plans, times
from controller.core.actions import Decision
from controller.core.freezing import manifests_of
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
    ProviderView,
    StepView,
    ThresholdView,
    WitnessView,
)
from controller.observe import Observer
from controller.ports import DataPlane, Judgement
from controller.reads.memo import Memo
from controller.reads.pods import host_of
from crds.v1alpha1.common import parse_duration_seconds
from crds.v1alpha1.conditions import TERMINAL, Phase
from crds.v1alpha1.policy import RolloutPolicySpec
from crds.v1alpha1.rollout import CapacityStrategy, InferenceRolloutStatus, Step
from manifests.engines.metric_table import METRICS, PREFIXES
from manifests.layout import group_gpus
from manifests.ledger import ledger
from manifests.model import Manifest
from policies.contract import ContractError, make_contract
from policies.setup import JudgeSetup
from shadow.plan import TrafficPlan


class Witnesses(Protocol):
    """Who reads the candidate's metrics pages."""

    def watch(self, rollout: str, manifest: Manifest | None, targets: Mapping[str, str]) -> None:
        """Read exactly these pages: pod -> URL."""

    def views(self, rollout: str) -> tuple[WitnessView, ...]:
        """What was seen last."""


class Provider(Protocol):
    """Who reads the user's Prometheus."""

    def watch(self, rollout: str, metric: str, selector: str, candidate: str = "") -> None:
        """Read this histogram of stable's pods from now on, and of the candidate's where their matchers are given."""

    def view(self, rollout: str) -> ProviderView:
        """What was read last."""

    def forget(self, rollout: str) -> None:
        """Read it no more."""


@dataclass(frozen=True, slots=True)
class _Entry:
    snapshot: Snapshot
    decision: Decision
    version: int


class LiveRollouts:
    """Implements `controller.evidence.source.LiveSource`."""

    def __init__(
        self,
        observer: Observer,
        data_plane: DataPlane,
        judgement: Judgement,
        witnesses: Witnesses | None = None,
        provider: Provider | None = None,
    ) -> None:
        self._observer, self._data_plane, self._judgement = observer, data_plane, judgement
        self._witnesses, self._provider, self._memo = witnesses, provider, Memo()
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._versions = 0

    def note(self, snapshot: Snapshot, decision: Decision) -> None:
        """A decision was made."""
        if self._witnesses is not None:
            self._witnesses.watch(snapshot.key, *_scrape_targets(snapshot, decision.status))
        self._watch_provider(snapshot)
        with self._lock:
            old = self._entries.get(snapshot.key)
            is_same = old is not None and _mark(old.snapshot, old.decision) == _mark(snapshot, decision)
            if not is_same:
                self._versions += 1
            version = old.version if is_same and old is not None else self._versions
            self._entries[snapshot.key] = _Entry(snapshot, decision, version)

    def forget(self, rollout: str) -> None:
        """A rollout is gone."""
        if self._witnesses is not None:
            self._witnesses.watch(rollout, None, {})
        if self._provider is not None:
            self._provider.forget(rollout)
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

    def _watch_provider(self, s: Snapshot) -> None:
        engine = _engine_of(s.stored.get(s.status.stable))
        metric = ttft_histogram(engine.engine.family) if engine is not None else ""
        if self._provider is not None and metric:
            stable, candidate = (
                f'namespace="{s.namespace}",pod=~"{s.name}-{revision}-.+"' if revision else ""
                for revision in (s.status.stable, s.status.candidate)
            )
            self._provider.watch(s.key, metric, stable, candidate)

    def _ledger(self, s: Snapshot, running: Frozen | None) -> dict[str, Any] | None:
        """Memory and step-time accounts of the candidate, on the accelerator that its pods say they have."""
        manifest = _engine_of(running)
        if running is None or manifest is None:
            return None
        product = next((pod.product for pod in s.variant(running.rev10).pods if pod.product), None)
        return self._memo.get(("ledger", running.rev10, product), lambda: ledger(manifest, product).to_json())

    def _view(self, s: Snapshot, decision: Decision) -> LiveView:
        status = decision.status
        plan = decision.plan or s.data_plane.published
        running = s.frozen(status.candidate) if status.candidate else s.target
        diff = self._observer.diff_between(s.stored.get(status.stable), running)
        is_other = running is not None and running.rev10 != status.stable
        policy = s.attempt_policy or s.policy
        is_running = bool(status.candidate) and status.phase not in TERMINAL
        prepared = self._judgement.prepared(s.key) if is_running else None
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
            ledger=self._ledger(s, running),
            thresholds=_thresholds(prepared[0]) if prepared else (),
            duration_plan=dict(prepared[1]) if prepared and prepared[1] else None,
            witnesses=self._witnesses.views(s.key) if self._witnesses is not None and is_running else (),
            provider=self._provider.view(s.key) if self._provider is not None else ProviderView(),
            capacity=_capacity(s, running),
            store_healthy=s.store_ok,
            recorder_healthy=s.judge.reachable,
        )


def _scrape_targets(s: Snapshot, status: InferenceRolloutStatus) -> tuple[Manifest | None, dict[str, str]]:
    """The candidate's configuration and the metrics pages of its pods; nothing while no attempt runs."""
    frozen = s.frozen(status.candidate) if status.candidate else None
    manifest = _engine_of(frozen)
    if manifest is None or status.phase in TERMINAL or status.phase is Phase.ROLLING_BACK or s.spec is None:
        return None, {}
    pods = plans.usable_pods(s, status.candidate, needs_probe=True)
    return manifest, {pod.name: f"http://{host_of(pod.ip)}:{s.spec.traffic.port}/metrics" for pod in pods if pod.ip}


def _engine_of(frozen: Frozen | None) -> Manifest | None:
    """The configuration of the engine that receives the requests; None where it cannot be read."""
    parts = manifests_of(frozen) if frozen is not None else []
    return next((m for m in parts if m.role not in ("sidecar", "router") and m.engine.name != "unknown"), None)


def ttft_histogram(family: str) -> str:
    """An engine's own histogram of the time to first token, by its newest name; "" where it has none in seconds."""
    metric = next(m for m in METRICS if m.name == "ttft_engine_s")
    source = next((x for x in metric.sources.get(family, ()) if x.where is None and x.scale == 1.0), None)
    return f"{PREFIXES[family][0]}{source.raw}" if source is not None and PREFIXES.get(family) else ""


def _thresholds(setup: JudgeSetup) -> tuple[ThresholdView, ...]:
    found = setup.thresholds().items()
    return tuple(
        ThresholdView(tenant=tenant, bucket=bucket, metric=metric, edge=edge_us / 1e6)
        for (tenant, bucket, metric), edges in sorted(found)
        for edge_us in edges
    )


def _mark(s: Snapshot, decision: Decision) -> tuple[Any, ...]:
    """What readers are woken for; load counts too: it moves while every verdict stands."""
    verdict = s.judge.verdict
    rows = verdict.rows if verdict else None
    return (decision.status, decision.plan, rows, s.store_ok, s.judge.reachable, _load(s, decision.status))


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
    full = plans.full_replicas(s, running.rev10) if running is not None else {}
    gpus = group_gpus(engine) if (engine := _engine_of(running)) is not None else None
    replicas = full.get(plans.entry_role(running), 0)
    blocked = next((p.unschedulable for v in s.variants.values() for p in v.pods if p.unschedulable), "")
    is_flip = strategy is CapacityStrategy.SURGE
    return CapacityView(
        strategy=strategy.value,
        accelerators_needed=gpus * replicas if gpus is not None else None,
        rollback_s=0.0 if is_flip else None,
        message=blocked or ("stable keeps every replica: a rollback is a flip" if is_flip else ""),
    )
