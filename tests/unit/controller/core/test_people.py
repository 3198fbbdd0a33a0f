"""Approvals, rejects and other acts of people: what binds what, and what is stale."""

from dataclasses import replace

import pytest

from controller.core.snapshot import PersonAction
from crds.v1alpha1.action import ActionKind
from crds.v1alpha1.conditions import Phase
from policies.verdict import HoldReason
from tests.unit.controller.world import POLICY, World, installed, pass_step, rev_of, weighing

V3 = rev_of("v3")


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
def test_an_approval_that_binds_something_else_has_no_effect(binding: dict[str, object], reason: str) -> None:
    world = awaiting()
    world.act("approve", **binding)
    world.settle()
    assert world.status.step.weight == 5 and world.told(reason)
    assert world.people[0].uid in world.status.applied_actions


def test_an_approval_of_the_attempt_before_is_stale() -> None:
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


def test_reject_wins_over_approve() -> None:
    world = awaiting()
    world.act("approve")
    world.act("reject", user="bob")
    world.run_to(Phase.ROLLED_BACK)
    assert world.condition("RolledBack") == ("True", "Rejected") and world.status.step.weight == 0


def test_a_replayed_approval_does_nothing_more() -> None:
    world = awaiting()
    first = world.act("approve")
    world.run_to(Phase.RAMP)
    world.say(None).settle()
    world.people.append(replace(first, uid="replayed"))
    world.say("PASS")
    world.settle()
    assert "replayed" in world.status.applied_actions and world.told("ActionStale")


def test_people_are_counted_by_name() -> None:
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


def test_an_approval_is_withdrawn_when_the_evidence_turns() -> None:
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


def test_an_approval_outlives_a_change_of_leader() -> None:
    world = awaiting()
    world.rebuilt = False  # the next leader has not read the evidence back yet
    act = world.act("approve")
    world.settle()
    assert act.uid not in world.status.applied_actions and world.status.step.weight == 5
    world.rebuilt = True
    world.run_to(Phase.RAMP)
    assert not world.told("ApprovalWithdrawn")


def test_an_approval_from_the_future_does_not_live_for_ever() -> None:
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
