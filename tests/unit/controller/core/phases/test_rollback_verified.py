"""A rollback is finished when the traffic says so, not when somebody said that it should be."""

from crds.v1alpha1.conditions import Phase
from tests.unit.controller.world import World, rev_of, weighing

V2 = rev_of("v2")


def flipped() -> World:
    """A world in RollingBack whose gates have acknowledged the flip."""
    world = weighing(Phase.CANARY)
    world.say("FAIL").step()
    assert world.status.phase is Phase.ROLLING_BACK and world.status.step.weight == 0
    return world


def test_the_candidate_stays_while_live_requests_still_reach_it() -> None:
    world = flipped()
    world.is_candidate_reached = True
    for _ in range(100):
        world.step()
        world.now += 10.0
    assert V2 in world.running and world.status.phase is Phase.ROLLING_BACK
    assert "still sees" in world.status.message
    world.is_candidate_reached = False
    world.run_to(Phase.ROLLED_BACK)
    assert V2 not in world.running


def test_only_a_reading_from_after_the_flip_proves_it() -> None:
    world = flipped()
    world.settle()
    assert V2 in world.running
    world.now += 1.0
    world.settle()
    assert V2 in world.running
    world.now += 3.0
    world.settle()
    assert V2 not in world.running


def test_a_silent_recorder_leaves_the_gates_word_and_says_so() -> None:
    world = flipped()
    world.recorder_up = False
    world.settle()
    assert V2 in world.running
    world.now += 4.0
    world.step()
    assert "recorder is unreachable" in world.status.message
    world.run_to(Phase.ROLLED_BACK)


def test_a_reachable_recorder_that_was_not_read_yet_is_waited_for() -> None:
    world = flipped()
    world.overrides["traffic"] = None
    world.settle()
    world.now += 5.0
    world.settle()
    assert V2 in world.running
    world.now += 30.0
    world.run_to(Phase.ROLLED_BACK)


def test_the_clock_starts_with_the_acknowledgement_not_with_the_decision() -> None:
    world = flipped()
    world.is_synced = False
    world.settle()
    world.now += 60.0
    world.settle()
    assert world.status.step.started_at is None
    world.is_synced = True
    world.settle()
    assert world.status.step.started_at is not None and V2 in world.running
    world.now += 4.0
    world.run_to(Phase.ROLLED_BACK)
