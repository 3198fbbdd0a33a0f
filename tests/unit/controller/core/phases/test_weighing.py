"""Shadow, Canary, Ramp and Bake in a world where parts fail."""

from controller.core.machine import decide
from crds.v1alpha1.conditions import Phase
from policies.verdict import HoldReason
from tests.unit.controller.world import installed, rev_of, weighing

V1, V2 = rev_of("v1"), rev_of("v2")


def test_an_autoscaler_that_follows_the_load_takes_no_pod_from_stable_in_an_attempt() -> None:
    world = weighing(Phase.RAMP)
    world.replicas, world.generation = 1, world.generation + 1
    world.settle()
    assert world.running[V1] == 4


def test_ready_pods_that_answer_nothing_get_no_weight() -> None:
    world = installed(steps=({"canary": {"weight": 5}},)).apply("v2")
    world.run_to(Phase.SHADOW)
    world.pods[V2] = {"servable": False}
    world.say("PASS").settle()
    assert world.status.step.weight == 0 and "answered no completion" in world.status.message
    world.now += 31 * 60
    assert world.step().reason == "CandidateDeadline"


def test_the_whole_plan_follows_from_status_and_world() -> None:
    world = weighing(Phase.RAMP)
    plan = world.published
    world.published = None  # a new leader remembers nothing
    decision = world.step()
    assert decision.plan == plan and decision.status.step == world.status.step


def test_killed_between_status_and_gates_no_step_is_skipped() -> None:
    world = weighing(Phase.SHADOW)
    world.say("PASS")
    decision = decide(world.snapshot())
    world.status = decision.status  # status was written, the gates were not told
    world.say(None)
    assert world.step().plan.weight == 5
    world.settle()
    assert world.status.step.index == 1


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


def test_why_a_container_cannot_start_is_told() -> None:
    world = installed().apply("v2")
    world.run_to(Phase.SHADOW)
    world.step()
    world.pods[rev_of("v2")] = {"ready": False, "waiting": "ErrImagePull: no such image"}
    world.step()
    assert "is not ready (ErrImagePull: no such image)" in world.status.message
