"""Before any GPU is touched: no baseline, a recorder that cannot be used, another owner."""

from crds.v1alpha1.conditions import Phase
from tests.unit.controller.world import World, installed, rev_of

V1, V2 = rev_of("v1"), rev_of("v2")


def test_broken_stable_is_told_and_a_person_may_go_on() -> None:
    world = installed()
    world.pods[V1] = {"ready": False}
    world.apply("v2")
    world.run_to(Phase.PREFLIGHT)
    world.settle()
    assert world.condition("Holding") == ("True", "NoBaseline") and V2 not in world.running
    world.now += 31 * 60
    world.settle()
    assert world.condition("Stalled") == ("True", "NoBaseline")
    world.act("approve")
    world.settle()
    assert world.status.phase in (Phase.BAKE, Phase.PROMOTED) and world.status.step.weight == 100
    world.pods[V2] = {"oom_killed": True}
    decision = world.step()
    assert decision.phase is Phase.ROLLING_BACK and "was not serving" in decision.message


def test_a_stable_that_recovers_needs_nobody() -> None:
    world = installed()
    world.pods[V1] = {"ready": False}
    world.apply("v2")
    world.run_to(Phase.PREFLIGHT)
    world.settle()
    world.pods.clear()
    world.run_to(Phase.SHADOW)
    assert world.status.baseline == ""  # compared as usual: nobody had to approve a candidate without a baseline


def test_a_second_claim_on_one_service_is_refused_with_the_owner() -> None:
    world = World()
    world.overrides["conflict"] = "first"
    world.settle()
    assert world.condition("Stalled") == ("True", "RouteConflict") and "first" in world.status.message
    assert not world.running and not world.gate_applied and not world.finalizer
    world.overrides.clear()
    world.run_to(Phase.COMPLETED)


def test_no_attempt_begins_on_a_recorder_of_another_release() -> None:
    world = installed().apply("v2")
    world.other_release = "update the recorder"
    world.settle()
    assert world.status.phase is Phase.PREFLIGHT and world.condition("Holding") == ("True", "RecorderIncompatible")
    world.other_release = ""
    world.run_to(Phase.SHADOW)
