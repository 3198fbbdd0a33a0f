"""Faults that people met in the field, one named test each (numbers: docs of the project's field cases)."""

from dataclasses import replace

import pytest

from controller.core import actions as a
from controller.core.machine import decide
from controller.core.snapshot import PersonAction
from crds.v1alpha1.action import ActionKind
from crds.v1alpha1.conditions import Phase
from policies.verdict import HoldReason
from shadow.plan import Stage
from tests.unit.controller.world import POLICY, World, installed, pass_step, rev_of, weighing

V1, V2, V3 = rev_of("v1"), rev_of("v2"), rev_of("v3")


def rolled_back() -> World:
    world = weighing(Phase.CANARY)
    world.say("FAIL")
    world.run_to(Phase.ROLLED_BACK)
    world.say(None)
    world.now += 5
    world.settle()
    return world


# --- D: controller, reconcile, rollback ---


def test_c69_autoscaling_never_brings_an_aborted_candidate_back() -> None:
    world = rolled_back()
    world.replicas, world.generation = 8, world.generation + 1
    world.pods[V1] = {"count": 7}
    plans = set()
    for _ in range(50):
        world.step()
        world.now += 10
        plans.add((world.published.weight, world.published.candidate, world.published.stage))
        assert world.running == {V1: 8} and world.status.step.weight == 0
    assert plans == {(0, None, Stage.IDLE)}


def test_c71_traffic_returns_only_as_fast_as_stable_has_pods() -> None:
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


def test_c71_a_dying_candidate_loses_traffic_at_once_and_it_is_said() -> None:
    world = weighing(Phase.RAMP)
    world.pods[V1] = {"count": 1}
    world.pods[V2] = {"oom_killed": True, "crash": "OOMKilled, exit code 137"}
    decision = world.step()
    assert decision.plan.weight == 0 and "OOMKilled" in decision.message


def test_c73_the_second_canary_does_not_remember_the_first() -> None:
    world = rolled_back().apply("v3")
    world.run_to(Phase.SHADOW)
    world.settle()
    assert world.status.stable == V1 and world.status.candidate == V3 and V2 not in world.running
    assert {e.revision for e in world.published.endpoints} == {V1, V3}
    world.say("FAIL")
    world.run_to(Phase.ROLLED_BACK)
    assert world.status.stable == V1


def test_c73_after_a_promotion_in_between_the_promoted_one_is_restored() -> None:
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


def test_c75_replicas_that_toggle_start_no_attempt() -> None:
    world = weighing(Phase.CANARY)
    attempt = world.status.attempt
    for n in range(20):
        world.replicas, world.generation, world.now = 3 if n % 2 else 5, world.generation + 1, world.now + 10
        world.step()
    assert world.status.attempt == attempt and world.status.phase is Phase.CANARY


def test_c75_an_autoscaler_that_follows_the_load_takes_no_pod_from_stable_in_an_attempt() -> None:
    world = weighing(Phase.RAMP)
    world.replicas, world.generation = 1, world.generation + 1
    world.settle()
    assert world.running[V1] == 4


def test_c77_broken_stable_is_told_and_a_person_may_go_on() -> None:
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


def test_c77_a_stable_that_recovers_needs_nobody() -> None:
    world = installed()
    world.pods[V1] = {"ready": False}
    world.apply("v2")
    world.run_to(Phase.PREFLIGHT)
    world.settle()
    world.pods.clear()
    world.run_to(Phase.SHADOW)
    assert world.status.baseline == ""  # compared as usual: nobody had to approve a candidate without a baseline


def test_c79_a_flapping_crash_loop_counts_by_restarts() -> None:
    world = weighing(Phase.SHADOW)
    for restarts in range(3):
        world.pods[V2] = {"restarts": restarts, "ready": restarts % 2 == 0, "crash": "Error, exit code 1: bad kernel"}
        assert world.step().phase is Phase.SHADOW
    world.pods[V2] = {"restarts": 3, "ready": True, "crash": "Error, exit code 1: bad kernel"}
    decision = world.step()
    assert decision.phase is Phase.ROLLING_BACK and "bad kernel" in decision.message


def test_c79_out_of_memory_before_any_request_fails_at_once() -> None:
    world = installed().apply("v2")
    world.run_to(Phase.SHADOW)
    world.pods[V2] = {"ready": False, "servable": False, "restarts": 1, "oom_killed": True, "crash": "OOMKilled"}
    world.step()
    assert world.step().reason == "CandidateCrashed"


def test_c81_each_new_input_starts_a_fresh_attempt() -> None:
    world = installed()
    world.overrides["spec_error"] = "spec.bake: 'soon' is not a duration."
    world.settle()
    assert world.condition("Stalled") == ("True", "InvalidSpec")
    world.overrides.clear()
    world.apply("v2")
    world.run_to(Phase.SHADOW)
    world.settle()
    world.say("FAIL")
    world.run_to(Phase.ROLLED_BACK)
    world.say(None).apply("v3")
    world.run_to(Phase.SHADOW)
    assert world.status.attempt == 3 and world.status.held_since is None
    world.settle()
    world.say("FAIL")
    world.run_to(Phase.ROLLED_BACK)
    world.say(None).settle()
    assert world.condition("Stalled") == ("True", "SpecRejected")
    world.act("retry")
    world.run_to(Phase.SHADOW)
    assert world.status.attempt == 4 and V3 not in world.status.rejected


def test_c81_an_invalid_spec_in_mid_attempt_holds_and_still_rolls_back() -> None:
    world = weighing(Phase.CANARY)
    world.overrides |= {"spec_error": "spec.bake: 'soon' is not a duration.", "target": None}
    world.say("PASS").settle()
    assert world.status.phase is Phase.CANARY and world.condition("Stalled") == ("True", "InvalidSpec")
    world.say("FAIL")
    assert world.step().phase is Phase.ROLLING_BACK


def test_c89_stable_applied_again_in_mid_attempt_is_a_rollback() -> None:
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


def test_c89_rapid_edits_end_in_one_plan() -> None:
    world = weighing(Phase.CANARY)
    for image in ("v1", "v3", "v1", "v3"):
        world.apply(image).say(None)
        world.step()
    world.run_to(Phase.SHADOW)
    assert world.status.candidate == V3 and V2 not in world.running
    world.settle()
    assert {e.revision for e in world.published.endpoints} <= {V1, V3}


def test_c91_ready_pods_that_answer_nothing_get_no_weight() -> None:
    world = installed(steps=({"canary": {"weight": 5}},)).apply("v2")
    world.run_to(Phase.SHADOW)
    world.pods[V2] = {"servable": False}
    world.say("PASS").settle()
    assert world.status.step.weight == 0 and "answered no completion" in world.status.message
    world.now += 31 * 60
    assert world.step().reason == "CandidateDeadline"


def test_c91_probe_failures_in_a_row_end_a_ramp_without_any_request() -> None:
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


def test_c93_a_second_claim_on_one_service_is_refused_with_the_owner() -> None:
    world = World()
    world.overrides["conflict"] = "first"
    world.settle()
    assert world.condition("Stalled") == ("True", "RouteConflict") and "first" in world.status.message
    assert not world.running and not world.gate_applied and not world.finalizer
    world.overrides.clear()
    world.run_to(Phase.COMPLETED)


@pytest.mark.parametrize("phase", [Phase.COMPLETED, Phase.SHADOW, Phase.CANARY, Phase.RAMP, Phase.ROLLING_BACK])
def test_c95_deletion_leaves_what_serves(phase: Phase) -> None:
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


def test_c95_deletion_with_policy_delete_removes_everything() -> None:
    world = installed(spec_extra={"deletionPolicy": "Delete"})
    world.deleted_s = world.now
    world.step()
    assert world.gone and world.running == {} and world.released == ""


def test_c95_deletion_does_not_wait_for_gates_that_never_answer() -> None:
    world = weighing(Phase.RAMP)
    world.deleted_s, world.is_synced = world.now, False
    world.settle()
    assert not world.gone and V2 in world.running
    world.now += 31
    world.step()
    assert world.gone and V2 not in world.running


def test_c95_deletion_of_what_was_never_created() -> None:
    world = World(finalizer=True, gates=())
    world.deleted_s = world.now
    world.step()
    assert world.gone


def test_c97_the_whole_plan_follows_from_status_and_world() -> None:
    world = weighing(Phase.RAMP)
    plan = world.published
    world.published = None  # a new leader remembers nothing
    decision = world.step()
    assert decision.plan == plan and decision.status.step == world.status.step


def test_c97_killed_between_status_and_gates_no_step_is_skipped() -> None:
    world = weighing(Phase.SHADOW)
    world.say("PASS")
    decision = decide(world.snapshot())
    world.status = decision.status  # status was written, the gates were not told
    world.say(None)
    assert world.step().plan.weight == 5
    world.settle()
    assert world.status.step.index == 1


def test_c97_killed_between_gates_and_status_of_a_rollback_nothing_rises() -> None:
    world = weighing(Phase.RAMP)
    world.say("FAIL")
    world.published = decide(world.snapshot()).plan  # the gates were told, status was not
    assert world.published.weight == 0
    assert world.step().plan.weight == 0


# --- E: approvals ---


def awaiting() -> World:
    world = weighing(Phase.CANARY)
    world.say("PASS").settle()
    assert world.condition("AwaitingApproval")[0] == "True"
    return world


@pytest.mark.parametrize(
    ("binding", "reason"),
    [
        ({"attempt": 1}, "ActionStale"),
        ({"attempt": 0}, "ActionStale"),
        ({"revision": "ffffffffff"}, "ActionStale"),
        ({"step": 0}, "ActionStale"),
        ({"evidence": "0000000000000000"}, "ApprovalWithdrawn"),
        ({"evidence": ""}, "ApprovalWithdrawn"),
        ({"reason": " "}, "ActionRefused"),
        ({"created_s": 1.0}, "ActionExpired"),
    ],
)
def test_c101_an_approval_that_binds_something_else_has_no_effect(binding: dict[str, object], reason: str) -> None:
    world = awaiting()
    world.act("approve", **binding)
    world.settle()
    assert world.status.step.weight == 5 and world.told(reason)
    assert world.people[0].uid in world.status.applied_actions


def test_c101_an_approval_of_the_attempt_before_is_stale() -> None:
    world = awaiting()
    old = world.act("approve")
    world.apply("v3").say(None)
    world.run_to(Phase.SHADOW)
    world.settle()
    pass_step(world)
    world.say("PASS").settle()
    assert world.status.candidate == V3 and world.status.step.weight == 5
    assert old.uid in world.status.applied_actions
    assert world.condition("AwaitingApproval")[0] == "True"


def test_c101_reject_wins_over_approve() -> None:
    world = awaiting()
    world.act("approve")
    world.act("reject", user="bob")
    world.run_to(Phase.ROLLED_BACK)
    assert world.condition("RolledBack") == ("True", "Rejected") and world.status.step.weight == 0


def test_c101_a_replayed_approval_does_nothing_more() -> None:
    world = awaiting()
    first = world.act("approve")
    world.run_to(Phase.RAMP)
    world.say(None).settle()
    world.people.append(replace(first, uid="replayed"))
    world.say("PASS")
    world.settle()
    assert "replayed" in world.status.applied_actions and world.told("ActionStale")


def test_c101_people_are_counted_by_name() -> None:
    world = installed()
    two = POLICY.model_copy(update={"approval": POLICY.approval.model_copy(update={"people": 2})})
    world.overrides["attempt_policy"] = two
    world.apply("v2")
    world.run_to(Phase.SHADOW)
    world.settle()
    pass_step(world)
    world.say("PASS").settle()
    world.act("approve")
    world.act("approve")
    world.settle()
    assert world.status.step.weight == 5
    world.act("approve", user="bob")
    world.run_to(Phase.RAMP)


def test_c101_an_approval_is_withdrawn_when_the_evidence_turns() -> None:
    world = awaiting()
    world.overrides["attempt_policy"] = POLICY.model_copy(
        update={"approval": POLICY.approval.model_copy(update={"people": 2})}
    )
    act = world.act("approve")
    world.settle()
    assert act.uid not in world.status.applied_actions
    world.say("INCONCLUSIVE", HoldReason.EVIDENCE_RISING)
    world.settle()
    assert act.uid in world.status.applied_actions and world.told("ApprovalWithdrawn")
    world.overrides.clear()
    world.say("PASS").settle()
    assert world.status.step.weight == 5 and world.condition("AwaitingApproval")[0] == "True"


def test_c51d_an_approval_from_the_future_does_not_live_for_ever() -> None:
    world = awaiting()
    world.act("approve", created_s=world.now + 300)
    world.now += 300 + 3601
    world.settle()
    assert world.told("ActionExpired") and world.status.step.weight == 5


def test_an_abort_of_an_older_attempt_does_not_hit_the_new_one() -> None:
    world = weighing(Phase.CANARY)
    world.people.append(
        PersonAction("old", "old", ActionKind.ABORT, "ann", world.now - 100_000, attempt=0, reason="old")
    )
    world.settle()
    assert world.status.phase is Phase.CANARY and world.told("ActionStale")


# --- F: schema, writers ---


def test_c107_an_older_schema_stops_every_advance_and_no_rollback() -> None:
    world = weighing(Phase.CANARY)
    world.overrides["schema_missing"] = ("rolloutpolicies.weighlock.dev: spec.tenants.required",)
    world.say("PASS").settle()
    assert world.condition("Stalled") == ("True", "SchemaTooOld") and world.status.step.weight == 5
    world.say("FAIL")
    assert world.step().phase is Phase.ROLLING_BACK


def test_c113_a_new_operator_writes_nothing_to_running_workloads() -> None:
    for world in (installed(), weighing(Phase.RAMP)):
        world.published = None
        world.log.clear()
        world.settle()
        writes = (a.ApplyVariant, a.ScaleVariant, a.DeleteVariant, a.StoreRunManifest)
        assert not [x for x in world.log if isinstance(x, writes)]


# --- capacity ---


def test_no_free_gpu_blocks_and_users_are_not_affected() -> None:
    world = installed().apply("v2")
    world.run_to(Phase.SHADOW)
    world.step()
    world.pods[V2] = {"ready": False, "servable": False, "unschedulable": "0/3 nodes: Insufficient nvidia.com/gpu"}
    world.settle()
    assert world.condition("CapacityBlocked") == ("True", "InsufficientCapacity")
    for _ in range(20):
        world.now += 600
        world.step()
    assert world.status.phase is Phase.SHADOW and world.published.weight == 0
    world.pods[V2] = {"ready": False, "servable": False}
    world.step()
    assert world.status.phase is Phase.SHADOW  # loading has its own clock
    world.pods.clear()
    world.settle()
    assert world.condition("CapacityBlocked")[0] == "False"


def test_refuse_says_no_when_there_is_no_gpu() -> None:
    world = installed(spec_extra={"capacity": {"strategy": "refuse"}}).apply("v2")
    world.run_to(Phase.SHADOW)
    world.step()
    world.pods[V2] = {"ready": False, "unschedulable": "Insufficient nvidia.com/gpu"}
    assert world.step().reason == "InsufficientCapacity"


def test_recorder_away_holds_and_a_person_can_still_roll_back() -> None:
    world = weighing(Phase.CANARY)
    world.recorder_up = False
    world.say("PASS").settle()
    assert world.condition("Holding") == ("True", "RecorderUnreachable") and world.status.step.weight == 5
    world.open_requests = None
    world.overrides["store_ok"] = False
    world.act("rollback")
    assert world.step().plan.weight == 0


def test_a_recorder_of_another_release_holds_and_says_what_to_do() -> None:
    world = weighing(Phase.CANARY)
    world.other_release = "update the recorder"
    world.say("PASS").settle()
    assert world.condition("Holding") == ("True", "RecorderIncompatible") and world.status.step.weight == 5
    assert "update the recorder" in world.status.message
    world.other_release = ""
    world.say("PASS").settle()
    assert world.condition("Holding")[0] == "False"


def test_no_attempt_begins_on_a_recorder_of_another_release() -> None:
    world = installed().apply("v2")
    world.other_release = "update the recorder"
    world.settle()
    assert world.status.phase is Phase.PREFLIGHT and world.condition("Holding") == ("True", "RecorderIncompatible")
    world.other_release = ""
    world.run_to(Phase.SHADOW)


def test_a_failed_first_install_is_told_and_the_fix_installs() -> None:
    world = World()
    world.run_to(Phase.SHADOW)
    world.step()
    world.pods[V1] = {"ready": False, "servable": False, "restarts": 3, "crash": "Error, exit code 1"}
    world.run_to(Phase.ROLLED_BACK)
    world.settle()
    assert world.status.stable == "" and world.running == {} and world.condition("Stalled")[0] == "True"
    world.apply("v2")
    world.run_to(Phase.COMPLETED)
    assert world.status.stable == V2


def test_bake_ends_only_with_data_at_hand() -> None:
    world = weighing(Phase.BAKE)
    world.now += 301
    world.recorder_up = False
    world.settle()
    assert world.status.phase is Phase.BAKE and world.condition("Holding")[0] == "True"
    world.recorder_up = True
    world.run_to(Phase.COMPLETED)


def test_stable_keeps_its_addresses_when_a_control_plane_that_was_away_calls_all_pods_unready() -> None:
    world = weighing(Phase.CANARY)
    world.pods[V1] = {"ready": False, "ready_since_s": None}
    plan = world.step().plan
    assert plan is not None
    assert [e.ready for e in plan.endpoints if e.revision == V1] == [True] * world.running[V1]
    world.pods[V2] = {"ready": False, "ready_since_s": None}
    plan = world.step().plan
    assert plan is not None and plan.weight == 0
    assert not [e for e in plan.endpoints if e.revision == V2 and e.ready]


def test_a_candidate_that_had_nothing_to_answer_yet_is_not_silent() -> None:
    world = installed()
    world.steps = ({"canary": {"weight": 5}}, {"ramp": {"weight": 50}})
    world.image = "v2"
    world.say("INCONCLUSIVE", HoldReason.TELEMETRY_SILENT)
    world.run_to(Phase.CANARY)
    assert world.status.step.weight == 5
