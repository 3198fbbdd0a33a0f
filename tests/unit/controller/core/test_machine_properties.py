"""Properties of the state machine under any order of events: Hypothesis drives a world, invariants are checked."""

from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controller.core import machine, plans, waits
from controller.core.machine import TRANSITIONS, decide
from crds.v1alpha1.conditions import TERMINAL, Phase
from policies.verdict import HoldReason
from tests.unit.controller.world import World, installed, rev_of

IMAGES = ("v1", "v2", "v3")
SHAPES: tuple[tuple[dict[str, object], ...], ...] = (
    ({"shadow": {}}, {"canary": {"weight": 5}}, {"ramp": {"weight": 25, "approval": True}}, {"ramp": {"weight": 50}}),
    ({"canary": {"weight": 10}}, {"pause": {"duration": "5m"}}, {"ramp": {"weight": 50}}),
    ({"shadow": {}}, {"pause": {}}, {"ramp": {"weight": 100}}),
)


class Rollouts(RuleBasedStateMachine):
    """Anything may happen at any moment; what must never happen is in the invariants."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World = installed()
        self.entered: list[int] = []
        self.before = (self.world.status.candidate, 0)

    @initialize(steps=st.sampled_from(SHAPES))
    def begin(self, steps: tuple[dict[str, object], ...]) -> None:
        self.world.steps = steps
        self.user_applies("v2")

    # --- what may happen ---

    @rule(times=st.integers(5, 20))
    def reconcile(self, times: int) -> None:
        for _ in range(times):
            self._decide()
            self.world.now += 1.0

    @rule()
    def killed_after_the_first_write(self) -> None:
        """The process dies between its two most important writes, in the order in which act.py makes them."""
        world = self.world
        decision = decide(world.snapshot())
        before = world.status.step.weight if world.status.candidate else 0
        if decision.status.step.weight < before and decision.plan is not None:
            world.published = decision.plan
        else:
            world.status = decision.status
        world.published = None if world.published is None else replace(world.published)

    @rule(image=st.sampled_from(IMAGES))
    def user_applies(self, image: str) -> None:
        self.world.apply(image)
        self.reconcile(8)

    @rule(result=st.sampled_from(["PASS", "PASS", "PASS", "INCONCLUSIVE", "FAIL", None]))
    def judge_says(self, result: str | None) -> None:
        self.world.say(result, *([HoldReason.NO_FRESH_DATA] if result == "INCONCLUSIVE" else []))
        self.reconcile(4)

    @rule(kind=st.sampled_from(["approve", "approve", "pause", "resume", "skip", "retry", "reject", "rollback"]))
    def person_acts(self, kind: str) -> None:
        self.world.act(kind)
        self.reconcile(4)

    @rule(seconds=st.sampled_from([1, 60, 400, 4000, -600]))
    def time_passes(self, seconds: int) -> None:
        self.world.now += seconds

    @rule(image=st.sampled_from(IMAGES), kind=st.sampled_from(["fine", "unready", "crash", "few", "hung"]))
    def pods_change(self, image: str, kind: str) -> None:
        shapes = {
            "fine": {},
            "unready": {"ready": False, "servable": False},
            "crash": {"restarts": 5, "crash": "Error, exit code 1"},
            "few": {"count": 1},
            "hung": {"probe_failures": 3},
        }
        if rev_of(image) in self.world.running:
            self.world.pods[rev_of(image)] = shapes[kind]
        self.reconcile(2)
        if kind != "few":
            self.world.pods.pop(rev_of(image), None)

    @rule(replicas=st.integers(1, 6))
    def autoscaler(self, replicas: int) -> None:
        self.world.replicas, self.world.generation = replicas, self.world.generation + 1

    @rule(up=st.booleans(), synced=st.booleans(), store=st.booleans(), lease=st.sampled_from([True, True, False]))
    def parts_fail_and_recover(self, up: bool, synced: bool, store: bool, lease: bool) -> None:
        world = self.world
        world.recorder_up, world.is_synced = up, synced
        world.overrides = {"store_ok": store, "lease_held": lease}
        world.open_requests = {} if up else None
        self.reconcile(2)
        world.recorder_up, world.is_synced, world.overrides, world.open_requests = True, True, {}, {}

    @precondition(lambda self: self.world.status.phase not in TERMINAL | {Phase.ROLLING_BACK})
    @rule()
    def abort_always_ends_with_stable_at_100(self) -> None:
        world = self.world
        stable = world.status.stable
        world.overrides, world.is_synced, world.recorder_up, world.open_requests = {}, True, True, {}
        world.pods.clear()
        world.act("abort")
        for _ in range(40):
            self._decide()
            world.now += 30
            if world.status.phase is Phase.ROLLED_BACK:
                break
        assert world.status.phase is Phase.ROLLED_BACK
        assert world.status.stable == stable and world.published.stable == stable
        assert world.published.weight == 0 and stable in world.running

    def _decide(self) -> None:
        world = self.world
        was = world.status
        decision = decide(world.snapshot())
        assert decision.phase is was.phase or decision.phase in TRANSITIONS[was.phase]
        self._check_rise(was, decision)
        world.carry_out(decision)

    def _check_rise(self, was: object, decision: machine.Decision) -> None:
        """Only a new step raises the share of a candidate; giving names back after completion raises nobody's."""
        old, new = self.world.status, decision.status
        if new.candidate == old.candidate and new.step.weight > old.step.weight:
            assert (new.step.index, new.step.name) != (old.step.index, old.step.name)
            assert decision.phase in (Phase.CANARY, Phase.RAMP, Phase.PROMOTED)
            is_first = old.step.name == plans.PREPARE
            is_pause = plans.current_step(self.world.snapshot()) is not None and old.step.name == "pause"
            assert self.world.result == "PASS" or old.baseline or is_first or (is_pause and old.step.weight == 0)
            assert self.world.recorder_up and self.world.overrides.get("lease_held", True)
        if new.candidate != old.candidate and new.candidate:
            assert new.step.weight == 0 or (old.stable == new.candidate and decision.phase is Phase.ROLLING_BACK)

    # --- what must always hold ---

    @invariant()
    def gates_never_hold_more_than_status_allows(self) -> None:
        plan, status = self.world.published, self.world.status
        if plan is not None and plan.candidate is not None and plan.candidate == status.candidate:
            assert plan.weight <= status.step.weight or status.phase is Phase.ROLLING_BACK

    @invariant()
    def what_serves_is_never_removed(self) -> None:
        world = self.world
        assert world.status.stable in world.running
        assert world.status.stable in world.stored

    @invariant()
    def terminal_phases_send_everything_to_stable(self) -> None:
        status = self.world.status
        if status.phase in TERMINAL:
            assert status.step.weight == 0 and status.candidate == ""

    @invariant()
    def waiting_never_lasts_for_ever_without_a_look(self) -> None:
        assert decide(self.world.snapshot()).requeue_after_s <= max(waits.STEADY_SECONDS, 15.0)


Rollouts.TestCase.settings = settings(
    max_examples=20, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
test_rollouts = Rollouts.TestCase
