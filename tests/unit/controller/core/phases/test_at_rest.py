"""At rest: what starts an attempt, what does not, and what never comes back."""

from controller.core import actions as a
from crds.v1alpha1.conditions import Phase
from shadow.plan import Stage
from tests.unit.controller.world import World, installed, rev_of, weighing

V1, V2, V3 = rev_of("v1"), rev_of("v2"), rev_of("v3")


def rolled_back() -> World:
    world = weighing(Phase.CANARY)
    world.say("FAIL")
    world.run_to(Phase.ROLLED_BACK)
    world.say(None)
    world.now += 5
    world.settle()
    return world


def test_autoscaling_never_brings_an_aborted_candidate_back() -> None:
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


def test_replicas_that_toggle_start_no_attempt() -> None:
    world = weighing(Phase.CANARY)
    attempt = world.status.attempt
    for n in range(20):
        world.replicas, world.generation, world.now = 3 if n % 2 else 5, world.generation + 1, world.now + 10
        world.step()
    assert world.status.attempt == attempt and world.status.phase is Phase.CANARY


def test_each_new_input_starts_a_fresh_attempt() -> None:
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


def test_a_new_operator_writes_nothing_to_running_workloads() -> None:
    for world in (installed(), weighing(Phase.RAMP)):
        world.published = None
        world.log.clear()
        world.settle()
        writes = (a.ApplyVariant, a.ScaleVariant, a.DeleteVariant, a.StoreRunManifest)
        assert not [x for x in world.log if isinstance(x, writes)]


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
