"""The operator's own Prometheus metrics. Called by reconcile.py and the HTTP server; holds numbers, decides nothing."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controller.core.actions import Decision
from controller.core.snapshot import Snapshot
from crds.v1alpha1.conditions import ConditionType, Phase


class OperatorMetrics:
    """All series of the operator, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.phase = Gauge("weighlock_rollout_phase", "1 for the phase of a rollout", ["rollout", "phase"], registry=r)
        self.weight = Gauge("weighlock_rollout_weight_percent", "Weight of the candidate", ["rollout"], registry=r)
        self.attempt = Gauge(
            "weighlock_rollout_attempt", "Number of the running or last attempt", ["rollout"], registry=r
        )
        self.holding = Gauge("weighlock_rollout_holding", "1 while a step holds", ["rollout"], registry=r)
        self.moves = Counter("weighlock_moves", "Moves between phases", ["to", "reason"], registry=r)
        self.flips = Counter("weighlock_flips", "Decisions that lowered a weight", registry=r)
        self.verdicts = Counter("weighlock_verdicts", "Verdicts seen by decisions", ["result"], registry=r)
        self.duration = Histogram(
            "weighlock_reconcile_seconds",
            "Duration of one reconcile",
            buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30),
            registry=r,
        )
        self.retries = Counter("weighlock_retries", "Reconciles that are tried again", ["rollout"], registry=r)
        self.defects = Counter("weighlock_defects", "Exceptions that nobody foresaw", registry=r)
        self.leading = Gauge("weighlock_leading", "1 while this process holds the lease", registry=r)
        self.store_ok = Gauge("weighlock_store_healthy", "1 while the database takes rows", registry=r)
        self._shown: dict[str, str] = {}

    def note(self, s: Snapshot, decision: Decision) -> None:
        """Numbers of one decision."""
        key, phase = s.key, decision.phase.value
        if self._shown.get(key) not in (None, phase):
            self.phase.remove(key, self._shown[key])
        self._shown[key] = phase
        self.phase.labels(key, phase).set(1)
        self.weight.labels(key).set(decision.status.step.weight)
        self.attempt.labels(key).set(decision.status.attempt)
        is_holding = any(c.type == ConditionType.HOLDING and c.status == "True" for c in decision.status.conditions)
        self.holding.labels(key).set(is_holding)
        self.store_ok.set(s.store_ok)
        if decision.phase is not s.status.phase:
            self.moves.labels(phase, decision.reason.value).inc()
        if decision.status.step.weight < s.status.step.weight and decision.phase is not Phase.COMPLETED:
            self.flips.inc()
        if s.judge.verdict is not None:
            self.verdicts.labels(s.judge.verdict.result.value).inc()

    def forget(self, key: str) -> None:
        """A rollout is gone."""
        phase = self._shown.pop(key, None)
        if phase is not None:
            self.phase.remove(key, phase)
            for gauge in (self.weight, self.attempt, self.holding):
                gauge.remove(key)
