"""The order of writes: what must be in status before the gates hear of it, and what must not wait for anything."""

import time

import pytest

from controller.act import is_raising
from controller.core.machine import decide
from controller.ports import Retryable
from policies.verdict import Result
from shadow.plan import Stage, TrafficPlan
from tests.unit.controller.shell.shell import NAME, NS, Shell


def test_a_rise_is_in_status_before_the_gates_hear_of_it(shell: Shell) -> None:
    shell.apply("vllm/vllm-openai:v0.32.0")
    shell.run_to("Canary")
    rise = shell.journal.index("publish 5")
    assert shell.journal[:rise][-1] == "status" or "status" in shell.journal[rise - 3 : rise]


def test_a_fall_is_at_the_gates_before_anything_else(shell: Shell) -> None:
    shell.weigh()
    shell.say("FAIL")
    shell.once()
    assert shell.journal[0] == "publish 0" and "status" in shell.journal
    assert shell.status["phase"] == "RollingBack"


def test_a_fall_needs_neither_api_server_nor_store(shell: Shell) -> None:
    shell.weigh()
    shell.cluster.is_down, shell.store.is_healthy = True, False
    shell.say("FAIL")
    shell.once()
    assert shell.gates.sent is not None and shell.gates.sent.plan.weight == 0
    shell.cluster.is_down = False
    shell.run_to("RolledBack")


def test_a_fall_happens_also_after_the_lease_ran_out_on_a_silent_server(shell: Shell) -> None:
    shell.weigh()
    shell.lease.held, shell.cluster.is_down = False, True
    shell.say("FAIL")
    shell.once()
    assert shell.journal[0] == "publish 0" and "status" not in shell.journal


def test_c111_a_leader_that_lost_its_lease_writes_nothing(shell: Shell) -> None:
    shell.weigh()
    shell.lease.held = shell.lease.lowering = False
    shell.say("FAIL")
    shell.once()
    assert shell.journal == []


def test_c85_a_conflict_publishes_no_rise_and_is_tried_again(shell: Shell) -> None:
    shell.weigh()
    shell.say("PASS")
    shell.cluster.conflicts = 3
    for _ in range(3):
        shell.once()
        assert "publish 50" not in shell.journal
    shell.run_to("Ramp")
    assert shell.gates.sent is not None and shell.gates.sent.plan.weight == 50


def test_c111_a_write_from_an_old_state_is_refused(shell: Shell) -> None:
    shell.weigh()
    shell.say("PASS")
    snapshot = shell.observer.observe(NS, NAME)
    assert snapshot is not None
    decision = decide(snapshot)
    shell.cluster.put({**shell.cluster.objects["inferencerollouts", NS, NAME]})
    stale = {**shell.cluster.objects["inferencerollouts", NS, NAME]}
    stale["metadata"] = {**stale["metadata"], "resourceVersion": "1"}
    shell.cluster.get_cached = lambda *_: stale  # type: ignore[method-assign]  # the cache of a paused process
    with pytest.raises(Retryable):
        shell.actor.carry_out(snapshot, decision)
    assert not [entry for entry in shell.journal if entry.startswith("publish 50")]


def test_no_write_at_all_while_nothing_happens(shell: Shell) -> None:
    """A steady rollout costs the API server nothing."""
    shell.once()
    shell.journal.clear()
    for _ in range(10):
        shell.once()
    assert shell.journal == []


def test_one_reconcile_of_a_steady_rollout_is_cheap(shell: Shell) -> None:
    shell.once()
    began = time.process_time()
    for _ in range(20):
        shell.reconciler.reconcile(f"{NS}/{NAME}")
    assert (time.process_time() - began) / 20 < 0.05


@pytest.mark.parametrize(
    ("published", "weight", "copies", "rises"),
    [(None, 5, 0.0, True), (5, 5, 0.5, False), (5, 25, 0.0, True), (50, 5, 1.0, False), (None, 0, 0.0, False)],
)
def test_what_counts_as_a_rise(published: int | None, weight: int, copies: float, rises: bool) -> None:
    def plan(percent: int, share: float) -> TrafficPlan:
        return TrafficPlan("ns/chat", 1, 1, Stage.RAMP, percent, share, 1.0, "a", "b")

    before = plan(published, 0.0) if published is not None else None
    assert is_raising(before, plan(weight, copies)) is rises


def test_the_fail_result_is_the_judges(shell: Shell) -> None:
    shell.weigh()
    shell.say("FAIL")
    shell.once()
    assert shell.status["verdict"]["result"] == Result.FAIL
