"""A pod's phase and conditions from its containers."""

from __future__ import annotations

from typing import Any

import pytest

from tools.devcluster.node.pod import restore_view
from tools.devcluster.node.status import ContainerView, make_phase, make_status

POD: dict[str, Any] = {"metadata": {"generation": 3}, "spec": {}, "status": {}}
RUNNING = {"running": {"startedAt": "t"}}


def ended(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code}}


def view(
    state: dict[str, Any] | None = None, finished: bool = False, ready: bool = False, **spec: Any
) -> ContainerView:
    made = ContainerView({"name": "c", "image": "i", **spec}, finished=finished, ready=ready)
    made.state = state or made.state
    return made


@pytest.mark.parametrize(
    ("inits", "mains", "phase"),
    [
        ([], [view()], "Pending"),
        ([], [view(RUNNING)], "Running"),
        ([], [view(RUNNING), view(ended(0), finished=True)], "Running"),
        ([], [view(ended(1))], "Running"),  # it will be started again
        ([], [view(ended(0), finished=True)], "Succeeded"),
        ([], [view(ended(0), finished=True), view(ended(2), finished=True)], "Failed"),
        ([view(RUNNING)], [view()], "Pending"),
        ([view(ended(1), finished=True)], [view()], "Failed"),
        ([view(RUNNING, restartPolicy="Always")], [view(ended(0), finished=True)], "Succeeded"),
    ],
)
def test_phase(inits: list[ContainerView], mains: list[ContainerView], phase: str) -> None:
    assert make_phase(inits, mains) == phase


def conditions(pod: dict[str, Any], mains: list[ContainerView], now: str = "t1") -> dict[str, Any]:
    status = make_status(pod, [], mains, {}, now)
    return {condition["type"]: condition for condition in status["conditions"]}


def test_ready_needs_every_container() -> None:
    assert conditions(POD, [view(RUNNING, ready=True)])["Ready"]["status"] == "True"
    found = conditions(POD, [view(RUNNING, ready=True), view(RUNNING)])["Ready"]
    assert (found["status"], found["reason"]) == ("False", "ContainersNotReady")
    assert found["observedGeneration"] == 3


def test_ready_needs_every_readiness_gate() -> None:
    gated = {**POD, "spec": {"readinessGates": [{"conditionType": "x/y"}]}}
    found = conditions(gated, [view(RUNNING, ready=True)])
    assert (found["ContainersReady"]["status"], found["Ready"]["status"]) == ("True", "False")
    gated["status"] = {"conditions": [{"type": "x/y", "status": "True", "lastTransitionTime": "t0"}]}
    assert conditions(gated, [view(RUNNING, ready=True)])["Ready"]["status"] == "True"


@pytest.mark.parametrize(("before", "since"), [("True", "t0"), ("False", "t1")])
def test_a_transition_time_moves_only_with_the_status(before: str, since: str) -> None:
    known = {"conditions": [{"type": "Ready", "status": before, "lastTransitionTime": "t0"}]}
    assert conditions({**POD, "status": known}, [view(RUNNING, ready=True)])["Ready"]["lastTransitionTime"] == since


@pytest.mark.parametrize(
    ("policy", "state", "restarts", "finished", "code"),
    [
        ("Always", RUNNING, 3, False, 137),
        ("Never", RUNNING, 2, True, 137),
        ("OnFailure", ended(0), 2, True, 0),
        ("OnFailure", ended(1), 3, False, 1),
    ],
)
def test_what_an_earlier_node_process_ran(
    policy: str, state: dict[str, Any], restarts: int, finished: bool, code: int
) -> None:
    known = {"restartCount": 2, "state": state, "lastState": {}}
    found = restore_view({"name": "c", "image": "i"}, known, policy)
    assert (found.restart_count, found.finished, found.exit_code) == (restarts, finished, code)
