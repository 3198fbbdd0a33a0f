"""A rollback: how fast traffic returns, what it goes back to, and what a kill in the middle leaves."""

from controller.core.machine import decide
from crds.v1alpha1.conditions import Phase
from tests.unit.controller.world import World, rev_of, weighing

V1, V2, V3 = rev_of("v1"), rev_of("v2"), rev_of("v3")


def rolled_back() -> World:
    world = weighing(Phase.CANARY)
    world.say("FAIL")
    world.run_to(Phase.ROLLED_BACK)
    world.say(None)
    world.now += 5
    world.settle()
    return world


def test_traffic_returns_only_as_fast_as_stable_has_pods() -> None:
    world = weighing(Phase.RAMP)
    weight = world.status.step.weight
    world.pods[V1] = {"count": 1}
    world.say("FAIL")
    for count in (1, 2, 3, 4):
        world.pods[V1] = {"count": count}
        decision = world.step()
        stable_share = 100 - decision.plan.weight
        assert stable_share <= max(100 * count / 4, 100 - weight)
    assert world.status.step.weight == 0


def test_a_dying_candidate_loses_traffic_at_once_and_it_is_said() -> None:
    world = weighing(Phase.RAMP)
    world.pods[V1] = {"count": 1}
    world.pods[V2] = {"oom_killed": True, "crash": "OOMKilled, exit code 137"}
    decision = world.step()
    assert decision.plan.weight == 0 and "OOMKilled" in decision.message


def test_the_second_canary_does_not_remember_the_first() -> None:
    world = rolled_back().apply("v3")
    world.run_to(Phase.SHADOW)
    world.settle()
    assert world.status.stable == V1 and world.status.candidate == V3 and V2 not in world.running
    assert {e.revision for e in world.published.endpoints} == {V1, V3}
    world.say("FAIL")
    world.run_to(Phase.ROLLED_BACK)
    assert world.status.stable == V1


def test_after_a_promotion_in_between_the_promoted_one_is_restored() -> None:
    world = weighing(Phase.BAKE)
    world.now += 301
    world.run_to(Phase.COMPLETED)
    world.now += 5
    world.settle()
    world.people.clear()
    world.apply("v3").say(None)
    world.run_to(Phase.SHADOW)
    world.settle()
    world.say("FAIL")
    world.run_to(Phase.ROLLED_BACK)
    assert world.status.stable == V2 and world.status.rejected == (V3,)


def test_stable_applied_again_in_mid_attempt_is_a_rollback() -> None:
    world = weighing(Phase.RAMP)
    world.apply("v1")
    decision = world.step()
    assert decision.reason == "StableReapplied" and decision.plan.weight == 0 and V2 in world.running
    world.run_to(Phase.ROLLED_BACK)
    world.now += 5
    world.settle()
    assert world.condition("InSync") == ("True", "Synced") and world.status.rejected == ()
    world.apply("v2").say(None)
    world.run_to(Phase.SHADOW)


def test_killed_between_gates_and_status_of_a_rollback_nothing_rises() -> None:
    world = weighing(Phase.RAMP)
    world.say("FAIL")
    world.published = decide(world.snapshot()).plan  # the gates were told, status was not
    assert world.published.weight == 0
    assert world.step().plan.weight == 0
