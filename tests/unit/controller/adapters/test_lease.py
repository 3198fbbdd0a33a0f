"""C111: what a leader may still do when its lease is not renewed: silent server, frozen process, another leader."""

from types import SimpleNamespace
from typing import Any

import pytest

from controller.adapters import lease as module
from controller.adapters.kube import KubeCluster
from controller.adapters.lease import DURATION_SECONDS, LeaseHolder
from controller.ports import Ref, Retryable


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Election:
    """The official election, of which only the outcome matters here; `during` happens while the server is asked."""

    def __init__(self, holder: LeaseHolder) -> None:
        self._holder = holder
        self.outcome, self.other = "renewed", ""
        self.during = lambda: None

    @property
    def observed_record(self) -> Any:
        return SimpleNamespace(holder_identity=self.other or "me")

    def try_acquire_or_renew(self) -> bool:
        self.during()
        self._holder._lock.is_silent = self.outcome == "silent"
        return self.outcome == "renewed"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def holder(clock: Clock) -> LeaseHolder:
    lost: list[bool] = []
    holder = LeaseHolder(None, "ops", "me", lambda: lost.append(True))  # type: ignore[arg-type]
    holder._election = Election(holder)
    holder.lost = lost
    assert not holder.is_held() and not holder.may_lower()
    assert holder.try_once() and holder.is_held() and holder.may_lower()
    return holder


def test_a_silent_server_leaves_only_the_way_down(holder: LeaseHolder, clock: Clock) -> None:
    holder._election.outcome = "silent"
    for _ in range(30):
        clock.now_s += 2.0
        assert holder.try_once()
    assert not holder.is_held() and holder.may_lower()


def test_a_process_that_was_frozen_asks_before_it_says_anything(holder: LeaseHolder, clock: Clock) -> None:
    clock.now_s += 60.0
    assert not holder.is_held() and not holder.may_lower()
    holder._election.outcome, holder._election.other = "refused", "another"
    assert not holder.try_once() and holder.lost == [True]
    assert not holder.is_held() and not holder.may_lower()


def test_an_attempt_that_was_frozen_in_the_middle_proves_nothing(holder: LeaseHolder, clock: Clock) -> None:
    def freeze() -> None:
        clock.now_s += 60.0

    holder._election.during = freeze
    holder._election.outcome = "silent"  # the connection broke meanwhile
    assert holder.try_once() and not holder.may_lower()
    holder._election.outcome = "renewed"  # the answer was read a minute late
    assert holder.try_once() and not holder.is_held()
    assert DURATION_SECONDS < 60.0


def test_no_write_without_the_lease() -> None:
    cluster = KubeCluster.__new__(KubeCluster)
    asked: list[str] = []
    cluster.rest = SimpleNamespace(call=lambda method, *_: asked.append(method))  # type: ignore[assignment]
    cluster.fence = lambda: False
    for write in (
        cluster.delete,
        lambda ref: cluster.patch(ref, {}),
        lambda ref: cluster.apply({"apiVersion": "v1", "metadata": {"name": "x"}}, ref.plural),
    ):
        with pytest.raises(Retryable, match="lease"):
            write(Ref("v1", "pods", "ops", "x"))
    assert asked == []
    assert cluster.get(Ref("v1", "pods", "ops", "x")) is None and asked == ["GET"]
