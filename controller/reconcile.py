"""Observe, decide, act: one rollout at a time, each on its own account.

Called by the operator's worker threads. What goes wrong with one rollout is retried with a pause and never stops
another one; what nobody foresaw is logged whole and retried as well.
"""

from collections.abc import Callable
from time import perf_counter

import structlog

from controller.act import Actor
from controller.adapters.metrics import OperatorMetrics
from controller.core.actions import Decision
from controller.core.machine import decide
from controller.core.snapshot import Snapshot
from controller.leaving import let_go_with_namespace
from controller.observe import Observer
from controller.orphans import OrphanActs
from controller.ports import Cluster, Ref, Retryable, Terminal
from controller.queue import WorkQueue
from crds.v1alpha1.common import API_VERSION

log = structlog.get_logger("weighlock.reconcile")

TERMINAL_RETRY_SECONDS = 30.0
Listener = Callable[[Snapshot, Decision], None]


class Reconciler:
    """Joins the observer, the state machine and the actor.

    Args:
        orphans: who looks after acts on a rollout that does not exist.
        on_decision: called after every decision (live view, metrics); on_gone: with the key of a rollout that is gone.
    """

    def __init__(
        self,
        cluster: Cluster,
        observer: Observer,
        actor: Actor,
        queue: WorkQueue,
        metrics: OperatorMetrics,
        orphans: OrphanActs,
        on_decision: Listener,
        on_gone: Callable[[str], None] = lambda _key: None,
    ) -> None:
        self._cluster, self._observer, self._actor = cluster, observer, actor
        self._queue, self._metrics, self._on_decision = queue, metrics, on_decision
        self._orphans, self._on_gone = orphans, on_gone

    def work(self, is_stopped: Callable[[], bool]) -> None:
        """A worker's loop."""
        while not is_stopped():
            key = self._queue.take(timeout_s=1.0)
            if key is None:
                continue
            try:
                self.reconcile(key)
            finally:
                self._queue.done(key)

    def reconcile(self, key: str) -> None:
        """Bring one rollout one step further, and note when to look again."""
        started_s = perf_counter()
        namespace, _, name = key.partition("/")
        try:
            after_s = self._once(namespace, name)
        except Retryable as error:
            self._refresh(namespace, name, error)
            pause_s = self._queue.retry(key, error.delay_s)
            log.info("retry", rollout=key, why=str(error), pause_s=pause_s)
            self._metrics.retries.labels(key).inc()
        except Terminal as error:
            log.warning("a person must act", rollout=key, reason=error.reason.value, why=str(error))
            self._queue.add(key, TERMINAL_RETRY_SECONDS)
        except Exception as error:
            log.exception("defect", rollout=key)
            self._metrics.defects.inc()
            self._tell_defect(namespace, name, error)
            self._queue.retry(key)
        else:
            self._queue.succeeded(key)
            if after_s is not None:
                self._queue.add(key, after_s)
        self._metrics.duration.observe(perf_counter() - started_s)

    def _once(self, namespace: str, name: str) -> float | None:
        if let_go_with_namespace(self._cluster, namespace, name):
            log.info("let go with its namespace", rollout=f"{namespace}/{name}")
            return None
        snapshot = self._observer.observe(namespace, name)
        if snapshot is None:
            self._actor.forget(f"{namespace}/{name}")
            self._metrics.forget(f"{namespace}/{name}")
            self._on_gone(f"{namespace}/{name}")
            return self._orphans.look(namespace, name)
        decision = decide(snapshot)
        self._on_decision(snapshot, decision)
        written = self._actor.carry_out(snapshot, decision)
        if written.phase is not snapshot.status.phase:
            log.info(
                "moved",
                rollout=snapshot.key,
                to=decision.phase.value,
                reason=decision.reason.value,
                why=decision.message,
            )
        return decision.requeue_after_s

    def _tell_defect(self, namespace: str, name: str, error: Exception) -> None:
        try:
            self._actor.tell_defect(namespace, name, error)
        except (Retryable, Terminal) as again:
            log.info("defect not told", rollout=f"{namespace}/{name}", why=str(again))
        except Exception:  # the same defect may sit here as well, and a worker that ends serves no rollout any more
            log.exception("defect not told", rollout=f"{namespace}/{name}")

    def _refresh(self, namespace: str, name: str, error: Retryable) -> None:
        """After a conflict the cache may be behind what the server holds: read the object itself."""
        if "409" not in str(error):
            return
        try:
            self._cluster.refresh(Ref(API_VERSION, "inferencerollouts", namespace, name))
        except (Retryable, Terminal) as again:
            log.info("not refreshed", rollout=f"{namespace}/{name}", why=str(again))
