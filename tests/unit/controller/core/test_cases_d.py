"""Cases of state and reconciliation that other tools met: after an end nothing comes back, nothing that serves goes."""

from dataclasses import replace

import pytest

from controller.core import actions as a
from controller.core.snapshot import Trial
from crds.v1alpha1.conditions import Phase
from tests.unit.controller.world import World, installed, rev_of, weighing

V1, V2, V3 = rev_of("v1"), rev_of("v2"), rev_of("v3")


def rolled_back() -> World:
    """The judge failed v2; v1 serves."""
    world = weighing(Phase.CANARY)
    world.say("FAIL")
    world.run_to(Phase.ROLLED_BACK)
    world.say(None).settle()
    return world


# --- C69 ---


def test_c69_growth_and_a_node_drain_bring_no_candidate_back() -> None:
    """Rollback done; an autoscaler asks for 8 of 4; one pod is slow; then a node drain takes most of them."""
    world = rolled_back()
    published, attempt = world.published, world.status.attempt
    world.replicas, world.generation = 8, world.generation + 1
    for disturbed in ({"count": 7}, {"count": 8}, {"count": 3}, {"count": 8, "ready": False}, {}):
        world.pods[V1] = disturbed
        world.log.clear()
        for _ in range(10):
            world.step()
            world.now += 5.0
            assert set(world.running) == {V1} and world.status.phase is Phase.ROLLED_BACK
            assert world.published.weight == 0 and world.published.candidate is None
            assert replace(world.published, endpoints=published.endpoints) == published  # only the pods may change
        assert not [act for act in world.log if isinstance(act, a.ApplyVariant | a.TakeOverService | a.ApplyGate)]
    assert world.running == {V1: 8} and world.status.attempt == attempt


# --- C81 ---


def test_c81_a_corrected_rollout_starts_anew() -> None:
    world = installed()
    world.overrides["spec_error"] = "spec.steps.0.canary.weight: Input should be less than or equal to 100."
    world.apply("v2").settle()
    assert world.condition("Stalled") == ("True", "InvalidSpec") and world.status.attempt == 1
    del world.overrides["spec_error"]
    world.run_to(Phase.SHADOW)
    assert world.status.attempt == 2 and world.condition("Stalled")[0] == "False"


def test_c81_after_a_failure_another_revision_is_weighed_with_a_clock_of_its_own() -> None:
    world = rolled_back()
    assert world.condition("Stalled") == ("True", "SpecRejected")  # what spec asks for is not what serves: told
    assert world.condition("Ready")[0] == "False" and world.condition("InSync")[0] == "False"
    world.now += 7200  # far beyond every deadline of the failed attempt
    world.apply("v3").run_to(Phase.SHADOW)
    assert (world.status.attempt, world.status.candidate) == (3, V3)
    for _ in range(5):
        world.step()
    assert world.status.phase is Phase.SHADOW and world.condition("Stalled")[0] == "False"
    assert world.condition("RolledBack")[0] == "False"


def test_c81_the_same_revision_is_weighed_again_by_a_retry_alone() -> None:
    world = rolled_back()
    world.now += 7200
    for _ in range(5):
        world.step()
    assert world.status.phase is Phase.ROLLED_BACK and world.status.attempt == 2
    world.act("retry")
    world.run_to(Phase.SHADOW)
    assert (world.status.attempt, world.status.candidate) == (3, V2)
    for _ in range(5):
        world.step()
    assert world.status.phase is Phase.SHADOW and V2 not in world.status.rejected


def test_c81_a_refused_dry_run_does_not_stay_with_the_next_revision() -> None:
    world = installed().apply("v2")
    world.admission = Trial(0.0, refused="Deployment chat-x: quota exceeded.")
    world.settle()
    assert world.condition("Stalled") == ("True", "DryRunRefused")
    world.admission = Trial(0.0)
    world.apply("v3").run_to(Phase.SHADOW)
    assert world.status.candidate == V3 and world.condition("Stalled")[0] == "False"


# --- C95 ---


def completed_then_rolled_back(ready_stable: int) -> World:
    """v2 was promoted and v1 is being put back; `ready_stable` of its 4 pods are ready."""
    world = weighing(Phase.SHADOW)
    for _ in range(60):
        if world.status.phase is Phase.COMPLETED and world.status.stable == V2:
            break
        world.say("PASS")
        world.step()
        world.now += 400.0
        if world.condition("AwaitingApproval")[0] == "True":
            world.people.clear()
            world.act("approve")
    world.say(None).settle()
    assert world.status.stable == V2
    world.act("rollback")
    world.step()
    world.pods[V1] = {"count": ready_stable}
    world.step()
    assert (world.status.phase, world.status.stable) == (Phase.ROLLING_BACK, V1)
    return world


@pytest.mark.parametrize("ready", [0, 1])
def test_c95_deleted_while_stable_has_no_capacity_what_answers_stays(ready: int) -> None:
    world = completed_then_rolled_back(ready)
    weight = world.status.step.weight
    world.deleted_s = world.now
    log = len(world.log)
    world.step()
    assert world.gone and world.released == V2 and set(world.running) == {V2}
    done = [act for act in world.log[log:] if isinstance(act, a.ReleaseGate | a.DeleteVariant)]
    assert isinstance(done[0], a.ReleaseGate)  # the Service points at what answers before anything is removed
    assert world.weights[-1] <= weight


def test_c95_deleted_when_stable_has_its_pods_again_stable_stays() -> None:
    world = completed_then_rolled_back(4)
    world.deleted_s = world.now
    for _ in range(10):
        world.step()
    assert world.gone and world.released == V1 and set(world.running) == {V1}


def test_c95_deleted_before_the_first_install_was_servable() -> None:
    world = World()
    world.run_to(Phase.SHADOW)
    world.pods[V1] = {"ready": False}
    world.step()
    world.deleted_s = world.now
    for _ in range(5):
        world.step()
    assert world.gone and world.running == {}
