"""Scenarios of the state machine: state in, event, actions out, state out."""

import pytest

from controller.core import actions as a
from controller.core.machine import PHASES, TRANSITIONS
from crds.v1alpha1.conditions import Phase
from shadow.plan import Stage
from tests.unit.controller.world import World, installed, rev_of, weighing

V1, V2 = rev_of("v1"), rev_of("v2")


def test_every_phase_has_a_function_and_moves() -> None:
    assert set(PHASES) == set(Phase) == set(TRANSITIONS)


def test_first_install_needs_readiness_only_and_says_so() -> None:
    world = World()
    world.run_to(Phase.PENDING)
    assert world.status.reason == "FirstInstall"
    world.run_to(Phase.SHADOW)
    assert world.published is not None and world.published.stage is Stage.INSTALL
    world.run_to(Phase.COMPLETED)
    assert world.status.stable == V1 and world.running == {V1: 4}
    assert world.stored[V1].labelled_stable
    world.settle()
    assert world.condition("Ready") == ("True", "Synced")
    assert world.condition("InSync") == ("True", "Synced")
    assert world.published.stage is Stage.IDLE and world.published.stable == V1 and world.published.attempt == 0


def test_a_happy_rollout_step_by_step() -> None:
    world = installed().apply("v2")
    world.run_to(Phase.PENDING)
    assert world.status.attempt == 2 and world.status.candidate == V2
    world.run_to(Phase.SHADOW)
    assert world.setup_attempt == 2 and V2 in world.stored
    world.settle()
    assert world.running == {V1: 4, V2: 1}
    assert world.published.copies_to_candidate == 0.25
    world.say("PASS").run_to(Phase.CANARY)
    assert world.status.step.weight == 5
    world.say(None).settle()
    assert world.condition("Gated")[0] == "True"
    world.say("PASS").settle()
    assert world.condition("AwaitingApproval") == ("True", "WaitingForApproval")
    assert world.status.step.weight == 5
    world.act("approve")
    world.run_to(Phase.RAMP)
    assert world.status.step.weight == 25 and world.running[V2] == 1
    world.settle()
    assert world.status.step.weight == 100 and world.status.phase is Phase.BAKE
    assert world.running == {V1: 4, V2: 4}
    assert world.published.copies_to_stable == 1.0
    world.now += 301
    world.run_to(Phase.COMPLETED)
    assert world.status.stable == V2 and world.status.candidate == ""
    world.now += 5
    world.settle()
    assert world.running == {V2: 4}
    assert world.status.history[0].revision == V2


def test_a_shadow_with_more_pods_gets_more_copies_at_the_same_load() -> None:
    steps = ({"shadow": {"capacity": 60}}, {"canary": {"weight": 5}})
    world = installed(steps=steps).apply("v2")
    world.run_to(Phase.SHADOW)
    world.settle()
    assert world.running == {V1: 4, V2: 3}
    assert world.published.copies_to_candidate == 0.75 and world.status.step.weight == 0
    world.say("PASS").run_to(Phase.CANARY)
    assert world.status.step.weight == 5 and world.running[V2] == 3


def test_weights_of_a_happy_rollout_only_rise() -> None:
    world = weighing(Phase.CANARY)
    world.weights.clear()
    world.say("PASS").settle()
    world.act("approve")
    world.run_to(Phase.BAKE)
    rising = [w for w in world.weights if w]
    assert rising == sorted(rising)


@pytest.mark.parametrize("phase", [Phase.SHADOW, Phase.CANARY, Phase.RAMP, Phase.BAKE])
def test_fail_rolls_back_from_every_phase(phase: Phase) -> None:
    world = weighing(phase)
    world.say("FAIL")
    decision = world.step()
    assert decision.phase is Phase.ROLLING_BACK and decision.plan.weight == 0 and decision.status.step.weight == 0
    world.run_to(Phase.ROLLED_BACK)
    world.settle()
    assert world.status.stable == V1 and world.running == {V1: 4}
    assert world.status.rejected == (V2,)
    assert world.condition("InSync") == ("False", "SpecRejected")
    assert world.condition("RolledBack") == ("True", "GateFailed")
    assert world.condition("Stalled")[0] == "True"
    assert world.status.verdict.result == "FAIL"


@pytest.mark.parametrize(
    "phase", [Phase.PENDING, Phase.DIFFED, Phase.PREFLIGHT, Phase.SHADOW, Phase.CANARY, Phase.RAMP, Phase.BAKE]
)
@pytest.mark.parametrize("kind", ["abort", "reject", "rollback"])
def test_a_person_ends_an_attempt_in_every_phase(phase: Phase, kind: str) -> None:
    if phase in (Phase.PENDING, Phase.DIFFED, Phase.PREFLIGHT):
        world = installed().apply("v2")
        world.run_to(phase)
    else:
        world = weighing(phase)
    world.act(kind)
    assert world.step().phase is Phase.ROLLING_BACK
    world.run_to(Phase.ROLLED_BACK)
    assert world.status.stable == V1 and world.status.step.weight == 0
    assert world.status.rejected == (V2,)
    world.settle()
    assert world.running == {V1: 4}
    assert world.told("ActionAccepted")


def test_the_flip_comes_before_drain_and_removal() -> None:
    world = weighing(Phase.CANARY)
    world.say("FAIL")
    world.open_requests = {V2: 3}
    world.step()
    world.settle()
    assert V2 in world.running and world.published.weight == 0
    world.open_requests = {}
    world.run_to(Phase.ROLLED_BACK)
    assert V2 not in world.running


def test_unacknowledged_flip_keeps_the_candidate() -> None:
    world = weighing(Phase.CANARY)
    world.say("FAIL").is_synced = False
    world.settle()
    assert world.status.phase is Phase.ROLLING_BACK and V2 in world.running
    world.now += 100_000
    world.settle()
    assert V2 in world.running
    world.is_synced = True
    world.run_to(Phase.ROLLED_BACK)


def test_a_blind_recorder_delays_removal_only() -> None:
    world = weighing(Phase.CANARY)
    world.open_requests, world.recorder_up = None, False
    world.act("abort")
    world.settle()
    assert V2 in world.running and world.published.weight == 0
    world.now += 121
    world.run_to(Phase.ROLLED_BACK)


def test_no_effective_change_rolls_nothing() -> None:
    world = installed().apply("v1-renamed")
    world.diff = world.diff.__class__(False)
    world.settle()
    assert world.status.attempt == 1 and world.running == {V1: 4}
    assert world.condition("InSync") == ("True", "NoEffectiveChange")
    assert world.told("NoEffectiveChange")
    count = len(world.events)
    world.settle()
    assert len(world.events) == count


def test_paused_spec_holds_and_still_rolls_back() -> None:
    world = weighing(Phase.CANARY)
    world.spec_extra["paused"] = True
    world.say("PASS").settle()
    assert world.condition("Holding") == ("True", "Paused") and world.status.phase is Phase.CANARY
    world.say("FAIL")
    assert world.step().phase is Phase.ROLLING_BACK


def test_pause_and_resume_actions() -> None:
    world = weighing(Phase.CANARY)
    world.act("pause")
    world.settle()
    assert world.status.paused_by_action
    world.say("PASS").settle()
    assert world.condition("Holding") == ("True", "Paused")
    world.act("resume")
    world.settle()
    assert world.condition("AwaitingApproval")[0] == "True"


def test_open_pause_step_waits_for_resume() -> None:
    steps = ({"shadow": {}}, {"canary": {"weight": 5}}, {"pause": {}}, {"ramp": {"weight": 50}})
    world = installed(steps=steps).apply("v2")
    world.run_to(Phase.SHADOW)
    world.say("PASS").settle()
    assert world.status.step.name == "pause" and world.status.step.weight == 5
    assert world.published.step == 1
    world.now += 100_000
    world.settle()
    assert world.status.step.name == "pause"
    world.act("resume")
    world.settle()
    assert world.status.phase is Phase.BAKE


def test_timed_pause_ends_by_itself_and_clock_jumps_do_not_matter() -> None:
    """A clock that went back gives no negative duration and no early end."""
    steps = ({"canary": {"weight": 5}}, {"pause": {"duration": "10m"}}, {"ramp": {"weight": 50}})
    world = installed(steps=steps).apply("v2")
    world.run_to(Phase.SHADOW)
    world.say("PASS").settle()
    assert world.status.step.name == "pause"
    start = world.now
    world.now = start - 600
    decision = world.settle()
    assert world.status.step.name == "pause" and 0 < decision.requeue_after_s <= 600
    world.now = start + 599
    world.settle()
    assert world.status.step.name == "pause"
    world.now = start + 601
    world.settle()
    assert world.status.phase is Phase.BAKE


def test_skip_ends_a_timed_pause() -> None:
    steps = ({"canary": {"weight": 5}}, {"pause": {"duration": "10m"}}, {"ramp": {"weight": 50}})
    world = installed(steps=steps).apply("v2")
    world.run_to(Phase.SHADOW)
    world.say("PASS").settle()
    world.act("skip")
    world.settle()
    assert world.status.phase is Phase.BAKE


def test_steps_that_begin_with_a_weight_prepare_pods_first() -> None:
    world = installed(steps=({"canary": {"weight": 50}},)).apply("v2")
    world.run_to(Phase.SHADOW)
    assert world.status.step.name == "prepare"
    world.pods[V2] = {"ready": False, "servable": False}
    world.settle()
    assert world.status.step.weight == 0 and world.running[V2] == 1
    world.pods.clear()
    world.run_to(Phase.CANARY)
    assert world.running[V2] == 2 and world.status.step.weight == 50


def test_pods_are_servable_before_a_weight_rises() -> None:
    world = weighing(Phase.CANARY)
    world.say("PASS")
    world.settle()
    world.act("approve")
    world.run_to(Phase.RAMP)
    world.pods[V2] = {"count": 1}
    world.settle()
    assert world.running[V2] == 2 and world.status.step.weight == 25
    world.pods.clear()
    world.step()
    world.step()
    assert world.status.step.weight == 50


def test_rollback_after_completion_goes_to_the_stored_manifest() -> None:
    world = weighing(Phase.BAKE)
    world.now += 301
    world.run_to(Phase.COMPLETED)
    world.now += 5
    world.settle()
    assert world.running == {V2: 4}
    world.act("rollback")
    world.step()
    assert world.status.phase is Phase.ROLLING_BACK and world.status.stable == V1
    assert world.published.weight == 100 and world.published.candidate == V2  # nothing moves before pods are there
    world.pods[V1] = {"count": 1}
    world.step()
    world.step()
    assert world.status.step.weight == 75
    world.pods.clear()
    world.run_to(Phase.ROLLED_BACK)
    world.settle()
    assert world.running == {V1: 4} and world.status.rejected == (V2,)
    assert world.published.stable == V1 and world.published.candidate is None


def test_rollback_to_an_unknown_revision_is_refused() -> None:
    world = installed()
    world.act("rollback", revision="ffffffffff")
    world.settle()
    assert world.status.phase is Phase.COMPLETED and world.told("ActionRefused")


def test_replicas_alone_scale_what_serves() -> None:
    world = installed()
    world.replicas = 6
    world.generation += 1
    world.settle()
    assert world.running == {V1: 6} and world.status.attempt == 1


def test_edited_stable_is_told_and_put_back_by_a_rollback() -> None:
    """What an edit added is gone after a rollback."""
    world = weighing(Phase.CANARY)
    world.pods[V1] = {"drift": "spec.containers[0].env"}
    world.settle()
    assert world.condition("BaselineChanged")[0] == "True"
    world.say("FAIL")
    world.run_to(Phase.ROLLED_BACK)
    assert any(isinstance(x, a.ApplyVariant) and x.restore for x in world.log)
    assert "equal to its stored manifest" in world.status.message


def test_policy_edit_only_sets_a_condition() -> None:
    world = weighing(Phase.CANARY)
    world.policy = world.policy.model_copy(update={"gates": (*world.policy.gates, *world.policy.gates)})
    world.settle()
    assert world.condition("PolicyChanged") == ("True", "PolicyEdited") and world.status.phase is Phase.CANARY


def test_lost_status_takes_up_the_labelled_manifest() -> None:
    world = installed()
    world.status = world.status.__class__()
    world.settle()
    assert world.status.stable == V1 and world.running == {V1: 4} and world.status.attempt == 0


def test_attempt_numbers_never_repeat_after_a_lost_status() -> None:
    world = weighing(Phase.CANARY)
    world.status = world.status.__class__()
    world.settle()
    assert world.status.attempt == 3


def test_store_failure_is_told_and_stops_nothing() -> None:
    world = weighing(Phase.CANARY)
    world.overrides["store_ok"] = False
    world.say("FAIL")
    world.run_to(Phase.ROLLED_BACK)
    assert world.condition("EvidenceNotStored") == ("True", "EvidenceNotStored")


def test_transition_times_move_only_on_flips() -> None:
    world = weighing(Phase.CANARY)
    before = {c.type: c.last_transition_time for c in world.status.conditions if c.status == "False"}
    world.now += 1000
    world.settle()
    for c in world.status.conditions:
        if c.status == "False" and c.type in before:
            assert c.last_transition_time == before[c.type]


def test_conditions_start_anew_with_an_attempt() -> None:
    world = weighing(Phase.CANARY)
    world.say("FAIL")
    world.run_to(Phase.ROLLED_BACK)
    world.apply("v3").say(None)
    world.run_to(Phase.PENDING)
    assert world.condition("RolledBack") == ("False", "AttemptRunning")


def test_max_hold_tells_or_rolls_back() -> None:
    world = weighing(Phase.CANARY)
    world.say(None).settle()
    world.now += 3 * 3600
    world.settle()
    assert world.condition("Holding") == ("True", "MaxHoldExceeded") and world.condition("Stalled")[0] == "True"
    policy = world.policy.model_copy(
        update={"evidence": world.policy.evidence.model_copy(update={"on_max_hold": "rollback"})}
    )
    world.overrides["attempt_policy"] = type(policy).model_validate(policy.model_dump(by_alias=True))
    assert world.step().phase is Phase.ROLLING_BACK


def test_a_new_leader_does_not_publish_before_the_judge_is_rebuilt() -> None:
    world = weighing(Phase.RAMP, steps=({"ramp": {"weight": 25}}, {"ramp": {"weight": 50}}))
    world.say(None).published, world.rebuilt = None, False
    assert world.step().plan is None
    world.rebuilt = True
    assert world.step().plan is not None


def test_lost_lease_only_lowers() -> None:
    world = weighing(Phase.CANARY)
    world.overrides["lease_held"] = False
    world.say("PASS").settle()
    assert world.condition("Holding") == ("True", "LeaseLost") and world.status.step.weight == 5
    world.say("FAIL")
    assert world.step().plan.weight == 0


def test_a_new_attempt_waits_until_the_last_ones_pods_are_gone() -> None:
    world = weighing(Phase.BAKE)
    world.now += 301
    world.run_to(Phase.COMPLETED)
    world.apply("v3")
    world.step()
    assert world.status.phase is Phase.COMPLETED and V1 in world.running  # not drained yet: its GPUs are still taken
    world.now += 5
    world.run_to(Phase.PENDING)
    assert V1 not in world.running and world.status.attempt == 3
