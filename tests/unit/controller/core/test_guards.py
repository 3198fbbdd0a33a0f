"""The guards: a dying candidate, a deletion, an edit in mid-attempt, an old schema."""

import pytest

from crds.v1alpha1.conditions import Phase
from tests.unit.controller.world import World, installed, rev_of, weighing

V1, V2, V3 = rev_of("v1"), rev_of("v2"), rev_of("v3")


def test_a_flapping_crash_loop_counts_by_restarts() -> None:
    world = weighing(Phase.SHADOW)
    for restarts in range(3):
        world.pods[V2] = {"restarts": restarts, "ready": restarts % 2 == 0, "crash": "Error, exit code 1: bad kernel"}
        assert world.step().phase is Phase.SHADOW
    world.pods[V2] = {"restarts": 3, "ready": True, "crash": "Error, exit code 1: bad kernel"}
    decision = world.step()
    assert decision.phase is Phase.ROLLING_BACK and "bad kernel" in decision.message


def test_out_of_memory_before_any_request_fails_at_once() -> None:
    world = installed().apply("v2")
    world.run_to(Phase.SHADOW)
    world.pods[V2] = {"ready": False, "servable": False, "restarts": 1, "oom_killed": True, "crash": "OOMKilled"}
    world.step()
    assert world.step().reason == "CandidateCrashed"


def test_an_invalid_spec_in_mid_attempt_holds_and_still_rolls_back() -> None:
    world = weighing(Phase.CANARY)
    world.overrides |= {"spec_error": "spec.bake: 'soon' is not a duration.", "target": None}
    world.say("PASS").settle()
    assert world.status.phase is Phase.CANARY and world.condition("Stalled") == ("True", "InvalidSpec")
    world.say("FAIL")
    assert world.step().phase is Phase.ROLLING_BACK


def test_rapid_edits_end_in_one_plan() -> None:
    world = weighing(Phase.CANARY)
    for image in ("v1", "v3", "v1", "v3"):
        world.apply(image).say(None)
        world.step()
    world.run_to(Phase.SHADOW)
    assert world.status.candidate == V3 and V2 not in world.running
    world.settle()
    assert {e.revision for e in world.published.endpoints} <= {V1, V3}


def test_probe_failures_in_a_row_end_a_ramp_without_any_request() -> None:
    world = weighing(Phase.RAMP)
    world.pods[V2] = {"probe_failures": 2}
    assert world.step().phase is Phase.RAMP
    world.pods[V2] = {"probe_failures": 3, "probe_error": "ReadTimeout"}
    decision = world.step()
    assert decision.reason == "CandidateHung" and decision.plan.weight == 0


def test_a_candidate_without_any_usable_pod_loses_its_weight_at_once() -> None:
    world = weighing(Phase.CANARY)
    world.pods[V2] = {"ready": False}
    decision = world.step()
    assert decision.phase is Phase.ROLLING_BACK and decision.plan.weight == 0


@pytest.mark.parametrize("phase", [Phase.CANARY, Phase.RAMP])
def test_a_new_leader_asks_a_candidate_before_it_calls_it_dead(phase: Phase) -> None:
    """The pod lost and regained its readiness while nobody led, so its age does not say that it once answered."""
    world = weighing(phase)
    weight = world.status.step.weight
    world.published, world.pods[V2] = None, {"servable": False, "probe_failures": 0}
    decision = world.step()
    assert (decision.phase, decision.plan) == (phase, None)  # the gates keep what they hold
    assert world.condition("Holding") == ("True", "WaitingForPods") and "first completion" in decision.message
    assert world.say("PASS").step().phase is phase  # nothing moves forward on a candidate that nobody has asked
    world.pods[V2] = {}
    assert world.say(None).step().plan.weight == weight > 0


def test_a_candidate_that_fails_its_first_question_loses_its_weight_at_once() -> None:
    world = weighing(Phase.CANARY)
    world.published, world.pods[V2] = None, {"servable": False, "probe_failures": 1, "probe_error": "ConnectError"}
    decision = world.step()
    assert decision.reason == "CandidateCrashed" and decision.plan.weight == 0


@pytest.mark.parametrize("phase", [Phase.COMPLETED, Phase.SHADOW, Phase.CANARY, Phase.RAMP, Phase.ROLLING_BACK])
def test_deletion_leaves_what_serves(phase: Phase) -> None:
    if phase is Phase.COMPLETED:
        world = installed()
    else:
        world = weighing(Phase.CANARY if phase is Phase.ROLLING_BACK else phase)
        if phase is Phase.ROLLING_BACK:
            world.act("abort")
            world.step()
    world.deleted_s = world.now
    for _ in range(10):
        world.step()
        if world.gone:
            break
    assert world.gone and world.running == {V1: 4} and world.released == V1
    assert world.published.weight == 0


def test_deletion_with_policy_delete_removes_everything() -> None:
    world = installed(spec_extra={"deletionPolicy": "Delete"})
    world.deleted_s = world.now
    world.step()
    assert world.gone and world.running == {} and world.released == ""


def test_deletion_does_not_wait_for_gates_that_never_answer() -> None:
    world = weighing(Phase.RAMP)
    world.deleted_s, world.is_synced = world.now, False
    world.settle()
    assert not world.gone and V2 in world.running
    world.now += 31
    world.step()
    assert world.gone and V2 not in world.running


def test_deletion_of_what_was_never_created() -> None:
    world = World(finalizer=True, gates=())
    world.deleted_s = world.now
    world.step()
    assert world.gone


def test_an_older_schema_stops_every_advance_and_no_rollback() -> None:
    world = weighing(Phase.CANARY)
    world.overrides["schema_missing"] = ("rolloutpolicies.weighlock.dev: spec.tenants.required",)
    world.say("PASS").settle()
    assert world.condition("Stalled") == ("True", "SchemaTooOld") and world.status.step.weight == 5
    world.say("FAIL")
    assert world.step().phase is Phase.ROLLING_BACK


def test_refuse_says_no_when_there_is_no_gpu() -> None:
    world = installed(spec_extra={"capacity": {"strategy": "refuse"}}).apply("v2")
    world.run_to(Phase.SHADOW)
    world.step()
    world.pods[V2] = {"ready": False, "unschedulable": "Insufficient nvidia.com/gpu"}
    assert world.step().reason == "InsufficientCapacity"
