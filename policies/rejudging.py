"""A recorded attempt judged again: the same events give the same verdicts. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from policies.judge import Judge
from policies.setup import JudgeSetup
from policies.verdict import Verdict


def rejudge(setup: JudgeSetup, events: Iterable[Mapping[str, Any]]) -> list[Verdict]:
    """Verdicts of a recorded attempt: the same events give the same verdicts.

    events, in order: {"kind": "enter_step", "step", "now_s", "weight", "step_kind"}, {"kind": "block", "block":
    Block} and {"kind": "tick", "now_s"}; every tick gives one verdict.
    """
    judge = Judge(setup)
    found = []
    for event in events:
        if event["kind"] == "enter_step":
            judge.enter_step(event["step"], event["now_s"], event["weight"], event.get("step_kind", "ramp"))
        elif event["kind"] == "block":
            judge.feed(event["block"])
        elif event["kind"] == "tick":
            found.append(judge.verdict(event["now_s"]))
        else:
            raise ValueError(f"unknown event {event['kind']!r}; write enter_step, block or tick")
    return found
