"""A rollout that is deleted with its whole namespace is let go, whatever else is gone or refused there."""

from typing import Any

import pytest

from controller.adapters.metrics import OperatorMetrics
from controller.core.variants import FINALIZER
from controller.leaving import let_go_with_namespace
from controller.ports import Ref, Terminal
from controller.queue import WorkQueue
from controller.reconcile import Reconciler
from crds.v1alpha1.conditions import Reason
from tests.unit.controller.shell.fakes import FakeCluster

NS, NAME = "ns", "chat"
OTHERS = "example.com/another"


class Leaving(FakeCluster):
    """A namespace of whose content the operator may read the rollout alone."""

    def __init__(self, is_terminating: bool = True, is_deleted: bool = True, may_ask: bool = True) -> None:
        super().__init__([])
        self.may_ask = may_ask
        gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        self.put({"kind": "Namespace", "metadata": {"name": NS, **(gone if is_terminating else {})}})
        meta = {"name": NAME, "namespace": NS, "finalizers": [OTHERS, FINALIZER], **(gone if is_deleted else {})}
        self.put({"kind": "InferenceRollout", "metadata": meta, "spec": {}})

    def get_cached(self, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        return None  # pods and workloads cannot be listed any more, so nothing in the namespace counts as known

    def get(self, ref: Ref) -> dict[str, Any] | None:
        if not self.may_ask:
            raise Terminal(Reason.PREFLIGHT_FAILED, "403")
        return super().get(ref)

    @property
    def finalizers(self) -> list[str]:
        found: list[str] = self.objects["inferencerollouts", NS, NAME]["metadata"]["finalizers"]
        return found


def test_it_is_let_go_and_what_others_hold_stays() -> None:
    cluster = Leaving()
    assert let_go_with_namespace(cluster, NS, NAME)
    assert cluster.finalizers == [OTHERS]
    assert not let_go_with_namespace(cluster, NS, NAME)  # once


@pytest.mark.parametrize(
    "kept", [{"is_terminating": False}, {"is_deleted": False}, {"may_ask": False}], ids=lambda kept: next(iter(kept))
)
def test_everything_else_goes_the_ordinary_way(kept: dict[str, bool]) -> None:
    cluster = Leaving(**kept)
    assert not let_go_with_namespace(cluster, NS, NAME)
    assert FINALIZER in cluster.finalizers


def test_the_reconciler_lets_go_before_it_looks_at_anything_else() -> None:
    cluster = Leaving()
    unused: Any = None
    reconciler = Reconciler(cluster, unused, unused, WorkQueue(), OperatorMetrics(), unused, lambda *_: None)
    reconciler.reconcile(f"{NS}/{NAME}")
    assert cluster.finalizers == [OTHERS]
