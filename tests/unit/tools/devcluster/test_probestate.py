"""A probe's standing result against thresholds."""

from __future__ import annotations

from tools.devcluster.node.probestate import ProbeState, ProbeTiming


def results(timing: ProbeTiming, initial: bool, outcomes: str) -> str:
    """The standing result after each outcome, ``+`` and ``-``."""
    state = ProbeState(timing, initial)
    shown = ""
    for outcome in outcomes:
        state.observe(outcome == "+")
        shown += "+" if state.result else "-"
    return shown


def test_defaults_are_those_of_kubernetes() -> None:
    assert ProbeTiming.of({"httpGet": {}}) == ProbeTiming(0, 10, 1, 1, 3)


def test_failures_count_only_in_a_row() -> None:
    timing = ProbeTiming.of({"failureThreshold": 3})
    assert results(timing, True, "--+---+") == "+++++-+"


def test_successes_count_only_in_a_row() -> None:
    timing = ProbeTiming.of({"successThreshold": 2, "failureThreshold": 1})
    assert results(timing, False, "+-++-+") == "---+--"


def test_observe_tells_when_a_threshold_is_reached() -> None:
    state = ProbeState(ProbeTiming.of({"failureThreshold": 2}), initial=True)
    assert [state.observe(outcome) for outcome in (False, False, True)] == [False, True, True]
