"""Equal load, or no verdict: what the recorder's last seconds say about the arms, and when that holds a step."""

import pytest

from controller.core.load import load_of
from crds.v1alpha1.conditions import Phase
from tests.unit.controller.world import POLICY, World, weighing

Counts = dict[tuple[str, str, str], int]

EVEN: Counts = {
    ("stable", "live", "acme"): 1425,
    ("stable", "live", "beta"): 475,
    ("candidate", "live", "acme"): 75,
    ("candidate", "live", "beta"): 25,
    ("candidate", "topup", "acme"): 300,
    ("candidate", "topup", "beta"): 100,
}
"""200 live requests/s, 5 % to the candidate: one of four replicas at 50 requests/s, with stable's mix."""


def judged(counts: Counts, phase: Phase = Phase.CANARY, wait_s: float = 60.0) -> World:
    """A world whose judge passes the step while the recorder sees `counts`."""
    world = weighing(phase)
    world.now += wait_s
    world.counts = dict(counts)
    return world.say("PASS")


def without_topup(counts: Counts) -> Counts:
    return {key: n for key, n in counts.items() if key[1] != "topup"}


def test_a_replica_at_its_load_with_the_live_mix_is_matched() -> None:
    world = judged(EVEN)
    load = load_of(world.snapshot(), world.status)
    assert load.matched is True
    assert load.target_rps_per_replica == pytest.approx(50.0)
    assert load.candidate.rps_per_replica == pytest.approx(50.0)
    assert load.stable.rps_per_replica == pytest.approx(47.5)
    assert load.candidate_share_live == pytest.approx(0.05)
    assert load.worst_mix_gap == pytest.approx(0.0)
    assert load.candidate.tenant_shares == {"acme": 0.75, "beta": 0.25}
    world.settle()
    assert world.condition("AwaitingApproval")[0] == "True"


@pytest.mark.parametrize(
    "counts",
    [
        without_topup(EVEN),
        EVEN | {("candidate", "topup", "acme"): 100, ("candidate", "topup", "beta"): 300},
        EVEN | {("candidate", "topup", "acme"): 500},
    ],
    ids=["no copies", "another mix", "too many copies"],
)
def test_another_load_holds_in_spite_of_a_pass(counts: Counts) -> None:
    world = judged(counts)
    world.settle()
    assert world.status.phase is Phase.CANARY and world.status.step.weight == 5
    assert world.condition("Holding") == ("True", "NotLoadMatched")
    world.counts = dict(EVEN)
    world.settle()
    assert world.condition("Holding")[0] == "False"


def test_a_fail_needs_no_equal_load() -> None:
    world = judged(without_topup(EVEN)).say("FAIL")
    world.step()
    assert world.status.phase is Phase.ROLLING_BACK


def test_too_few_requests_say_nothing() -> None:
    few = {key: n // 10 for key, n in without_topup(EVEN).items()}
    world = judged(few)
    assert load_of(world.snapshot(), world.status).matched is None
    world.settle()
    assert world.condition("Holding")[0] == "False"


def test_seconds_before_the_step_say_nothing_about_it() -> None:
    world = judged(without_topup(EVEN), wait_s=5.0)
    assert load_of(world.snapshot(), world.status).matched is None


def test_chance_is_no_mismatch() -> None:
    counts = {("stable", "live", "acme"): 400, ("candidate", "mirror", "acme"): 80}
    world = judged(counts, Phase.SHADOW)
    load = load_of(world.snapshot(), world.status)
    assert load.candidate.rps_per_replica == pytest.approx(8.0) and load.target_rps_per_replica == pytest.approx(10.0)
    assert load.matched is True


def test_a_policy_that_bounds_copies_is_shown_and_does_not_hold() -> None:
    world = judged(without_topup(EVEN))
    mirror = POLICY.mirror.model_copy(update={"percent": "10"})
    world.overrides["attempt_policy"] = POLICY.model_copy(update={"mirror": mirror})
    assert load_of(world.snapshot(), world.status).matched is False
    world.settle()
    assert world.condition("Holding")[0] == "False"


def test_nothing_known_is_no_number() -> None:
    world = judged(EVEN)
    world.recorder_up = False
    load = load_of(world.snapshot(), world.status)
    assert load.matched is None and load.target_rps_per_replica is None and load.candidate.rps is None
