"""The pure parts of the dashboard: words, plots, matrix, page, sessions, same-origin, the event stream."""

import asyncio
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.adapters.person_api import NotSignedIn, Refused
from controller.dashboard import changes, plots, render, streaming, words
from controller.dashboard.matrix import State, make_matrix, row_state
from controller.dashboard.page import make_page
from controller.dashboard.security import is_same_origin
from controller.dashboard.sessions import Sessions
from controller.person import make_signed, who_acts, why_not
from crds.v1alpha1.action import ActionKind
from tests.e2e import dashboard_data as data


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0 s"),
        (0.00042, "420 µs"),
        (0.0312, "31.2 ms"),
        (1.0, "1 s"),
        (12.345, "12.3 s"),
        (120.0, "120 s"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0 %"), (0.00001, "<0.01 %"), (0.0497, "4.97 %"), (0.5, "50 %"), (1.0, "100 %")],
)
def test_share(value: float | None, text: str) -> None:
    assert words.share(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(30, "30 s"), (89.4, "89 s"), (89.6, "2 min"), (600, "10 min"), (7500, "2 h 5 min"), (200_000, "2 d 7 h")],
)
def test_duration(value: float, text: str) -> None:
    assert words.duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (31.5, "31.5"), (12_000.0, "10^4"), (1.7e308, "∞"), (1e-9, "<0.001")]
)
def test_evidence(value: float, text: str) -> None:
    assert words.evidence(value) == text


def test_moments() -> None:
    assert words.moment("2026-11-29T18:00:00Z") == words.moment("2026-11-29T19:00:00+01:00") == 1795975200.0
    assert words.moment("yesterday") is None and words.moment(None) is None
    assert words.iso(1795975200.0) == "2026-11-29T18:00:00Z"


def row(**values: Any) -> dict[str, Any]:
    base = {
        "tenant": "acme", "bucket": "0-512", "metric": "ttft", "gate": "p99-limit", "mode": "enforce",
        "verdict": "PASS",
        "hold": None, "reason": "", "e_fail": 0.5, "needed_requests": None, "eta_s": None, "low": 1.0, "high": 1.5,
        "limit": 2.0, "estimate_stable": 1.1, "estimate_candidate": 1.2,
    }  # fmt: skip
    return {**base, **values}


def test_interval_keeps_the_order_of_its_numbers() -> None:
    plot = plots.make_interval(row())
    assert plot is not None and plot.limit is not None and plot.candidate is not None
    assert plot.x1 < plot.candidate < plot.x2 < plot.limit
    assert plot.clear and not plot.breached


def test_interval_says_breached_only_when_all_of_it_is() -> None:
    breached = plots.make_interval(row(low=2.1, high=3.0))
    undecided = plots.make_interval(row(low=1.9, high=3.0))
    good_share = plots.make_interval(row(metric="goodput", low=0.5, high=0.8, limit=0.9))
    assert breached is not None and undecided is not None and good_share is not None
    assert breached.breached and not undecided.breached and not undecided.clear and good_share.breached


def test_an_unknown_bound_is_drawn_open_and_never_clear() -> None:
    plot = plots.make_interval(row(high=None))
    assert plot is not None and plot.open_high and plot.x2 == plots.WIDTH and not plot.clear
    assert plots.make_interval(row(low=None, high=None, estimate_candidate=None)) is None


maybe = st.one_of(st.none(), st.floats(-1e6, 1e6), st.just(1.7976931348623157e308))


@given(low=maybe, high=maybe, limit=maybe, stable=maybe, candidate=maybe)
def test_plots_take_any_numbers(low: Any, high: Any, limit: Any, stable: Any, candidate: Any) -> None:
    values = row(low=low, high=high, limit=limit, estimate_stable=stable, estimate_candidate=candidate)
    plot = plots.make_interval(values)
    if plot is not None:
        assert all(-1 <= x <= plots.WIDTH + 1 for x in (plot.x1, plot.x2))
    distance = plots.make_distance(values)
    if distance is not None:
        assert 0 <= distance.x1 <= plots.WIDTH and 0 <= distance.x2 <= plots.WIDTH


def test_meter_is_full_at_the_threshold() -> None:
    assert plots.meter(20, 20) == plots.meter(1e9, 20) == 1.0
    assert plots.meter(None, 20) == plots.meter(0.3, 20) == 0.0
    assert plots.meter(20**0.5, 20) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ({"verdict": "FAIL"}, State.FAIL),
        ({"verdict": "PASS"}, State.PASS),
        ({"verdict": "INCONCLUSIVE"}, State.INCONCLUSIVE),
        ({"verdict": "INCONCLUSIVE", "hold": "TooFewRequests"}, State.INCONCLUSIVE),
        ({"verdict": "INCONCLUSIVE", "hold": "CancelShift"}, State.HOLD),
        ({"verdict": "INCONCLUSIVE", "hold": "NoTraffic"}, State.HOLD),
        ({"verdict": "INCONCLUSIVE", "reason": "no traffic in history and step"}, State.NO_TRAFFIC),
    ],
)
def test_row_state(values: dict[str, Any], state: State) -> None:
    assert row_state(row(**values)) is state


def test_a_cell_shows_its_worst_enforced_gate() -> None:
    rows = [
        row(),
        row(metric="tpot", verdict="INCONCLUSIVE", needed_requests=300, eta_s=60.0),
        row(metric="maxGap", verdict="INCONCLUSIVE", needed_requests=900, eta_s=100.0),
        row(metric="e2e", verdict="FAIL", mode="dryRun"),
    ]
    cell = make_matrix(rows, ["acme", "globex"], ["0-512"]).cell("acme", "0-512")
    assert cell is not None and cell.worst is not None
    assert (cell.state, cell.worst["metric"], cell.needed, cell.eta_s) == (State.INCONCLUSIVE, "maxGap", 900, 100.0)
    assert (cell.passed, cell.enforced, len(cell.rows)) == (1, 3, 4)


def test_the_matrix_has_a_cell_for_every_pair_and_names_newcomers_last() -> None:
    matrix = make_matrix([row(tenant="zeta"), row(bucket="")], ["acme", "globex"], ["0-512", "513+"])
    assert matrix.tenants == ("acme", "globex", "zeta") and matrix.buckets == ("0-512", "513+")
    assert len(matrix.cells) == 6
    assert matrix.counts()[State.NO_TRAFFIC] == 5


def test_one_unknown_wait_makes_the_whole_wait_unknown() -> None:
    rows = [row(verdict="INCONCLUSIVE", eta_s=None), row(metric="tpot", verdict="INCONCLUSIVE", eta_s=5.0)]
    cell = make_matrix(rows).cell("acme", "0-512")
    assert cell is not None and cell.eta_s is None


def states(rollout: dict[str, Any]) -> list[str]:
    return [stop.state for stop in make_page(rollout, (), None, None).stops]


@pytest.mark.parametrize(
    ("phase", "index", "expected"),
    [
        ("Preflight", 0, ["next"] * 6),
        ("Shadow", 0, ["now"] + ["next"] * 5),
        ("Ramp", 2, ["done", "done", "now", "next", "next", "next"]),
        ("Promoted", 4, ["done"] * 4 + ["now", "next"]),
        ("Bake", 4, ["done"] * 5 + ["now"]),
        ("Completed", 4, ["done"] * 6),
        ("RolledBack", 2, ["done", "done", "failed", "next", "next", "next"]),
    ],
)
def test_timeline(phase: str, index: int, expected: list[str]) -> None:
    rollout = data.rollouts()[0]
    rollout["status"].update(phase=phase, step={"index": index})
    assert states(rollout) == expected


def test_a_page_needs_nothing_but_metadata() -> None:
    page = make_page({"metadata": {"namespace": "a", "name": "b"}}, (), None, None)
    assert (page.phase, page.weight, page.is_running) == ("Idle", 0, False)


def test_what_is_signed_and_why_not() -> None:
    rollout = data.rollouts()[0]
    approve = make_signed(rollout, ActionKind.APPROVE, "ann", "fine")
    assert approve.to_object()["spec"] == {
        "rollout": data.NAME, "action": "approve", "revision": "a83f2d7710", "attempt": 7, "step": 1,
        "evidence": data.EVIDENCE, "user": "ann", "reason": "fine",
    }  # fmt: skip
    assert make_signed(rollout, ActionKind.PAUSE, "ann").evidence == ""
    assert make_signed(rollout, ActionKind.ROLLBACK, "ann").revision == "4be1c09d52"
    rollout["status"].update(phase="Completed", conditions=[], stable="a83f2d7710", candidate="a83f2d7710")
    assert make_signed(rollout, ActionKind.ROLLBACK, "ann").revision == "4be1c09d52"
    possible = {kind for kind in ActionKind if not why_not(rollout, kind)}
    assert possible == {ActionKind.PAUSE, ActionKind.ROLLBACK, ActionKind.RETRY}
    assert who_acts(rollout) == "Nobody: nothing is being weighed."


def test_c105_no_secret_reaches_a_fragment() -> None:
    rollout, live = data.rollouts()[0], data.live_view()
    rollout["status"]["conditions"][0]["message"] = (
        f"failed with --api-key {data.SECRET} at http://u:{data.SECRET}@host/"
    )
    session = Sessions().begin("token-of-the-person", "ann")
    page = make_page(rollout, data.actions(), live, data.history(), selected=("globex", "2049+"))
    text = "".join(render.fragments(page, {}, session).values())
    assert data.SECRET not in text and "token-of-the-person" not in text
    assert "&lt;img src=x onerror" in text and "<img" not in text
    attributes = _Attributes()
    attributes.feed(text)
    assert "href" in attributes.names
    assert not [name for name in attributes.names if name == "style" or name.startswith("on")]


class _Attributes(HTMLParser):
    """Names of all attributes of all tags."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.update(name for name, _ in attrs)


def test_sessions_end_by_idleness_and_by_age() -> None:
    now = [0.0]
    sessions = Sessions(clock=lambda: now[0])
    session = sessions.begin("secret-token", "ann")
    assert "secret-token" not in repr(session)
    for _ in range(8):
        now[0] += 3000
        assert sessions.get(session.key) is session
    now[0] += 5000
    assert sessions.get(session.key) is None
    other = sessions.begin("t", "bob")
    for _ in range(12):
        now[0] += 3000
        sessions.get(other.key)
    assert sessions.get(other.key) is None
    assert sessions.get(None) is None and sessions.get("") is None


def test_a_confirmation_is_taken_once() -> None:
    session = Sessions().begin("t", "ann")
    form = session.new_form()
    assert session.take_form(form) and not session.take_form(form) and not session.take_form("made up")


@pytest.mark.parametrize(
    ("headers", "external", "same"),
    [
        ({"origin": "http://a:1", "host": "a:1"}, "", True),
        ({"referer": "http://a:1/page", "host": "a:1"}, "", True),
        ({"origin": "http://b:1", "host": "a:1"}, "", False),
        ({"origin": "null", "host": "a:1"}, "", False),
        ({"host": "a:1"}, "", False),
        ({"origin": "http://a:1", "host": "a:1", "sec-fetch-site": "cross-site"}, "", False),
        ({"origin": "https://w.example", "host": "a:1"}, "https://w.example", True),
        ({"origin": "http://w.example", "host": "a:1"}, "https://w.example", False),
        ({"origin": "http://a:1", "host": "a:1"}, "https://w.example", False),
    ],
)
def test_same_origin(headers: dict[str, str], external: str, same: bool) -> None:
    assert is_same_origin(headers, external) is same


def test_the_stream_sends_what_changed_and_ends_with_the_session() -> None:
    answers: list[Any] = [
        {"a": "1", "b": "1"},
        {"a": "1", "b": "1"},
        {"a": "2", "b": "1"},
        Refused(0, "away"),
        {"a": "2", "b": "1"},
        NotSignedIn(),
    ]

    async def fragments() -> dict[str, str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    async def is_gone() -> bool:
        return False

    async def read() -> list[str]:
        return [message async for message in streaming.stream(fragments, is_gone, poll_seconds=0.0)]

    events = [
        tuple(line.partition(": ")[2] for line in message.strip().splitlines()) for message in asyncio.run(read())
    ]
    assert [(name, json.loads(content)) for name, content in events] == [
        ("fragments", {"a": "1", "b": "1"}),
        ("fragments", {"a": "2"}),
        ("problem", "away"),
        ("fragments", {"a": "2", "b": "1"}),
        ("signed-out", {}),
    ]


def test_a_finished_attempt_shows_the_verdict_it_ended_on() -> None:
    rollout, history = data.rollouts()[0], data.history()
    history["verdicts"] = [
        {"attempt": 6, "verdict": {"result": "PASS", "rows": [row()]}},
        {"attempt": 7, "verdict": {"result": "FAIL", "rows": [row(verdict="FAIL")]}},
    ]
    page = make_page(rollout, (), None, history)
    assert page.result == "FAIL"
    assert page.matrix.counts()[State.FAIL] == 1
    rollout["status"]["attempt"] = 8
    assert not make_page(rollout, (), None, history).matrix.cells


def test_changes_are_grouped_by_what_they_act_on() -> None:
    found = changes.groups(data.diff())
    assert [(group.correctness, group.mechanism) for group in found][:2] == [
        ("approximate", "kv_quantization"),
        ("semantic-exact", "chunked_prefill"),
    ]
    assert [line["setting"] for line in found[1].lines][:2] == ["enable-chunked-prefill", "max-num-batched-tokens"]
    assert "quality has to be tested" in found[0].answers
    assert sum(len(group.lines) for group in found) == len(data.diff()["changes"])
    assert changes.groups(None) == ()


def test_what_changes_nothing_comes_last_and_says_so() -> None:
    inert = {"setting": "x", "class": "none", "ledgers": [], "mechanism": "scheduler"}
    moved = {"setting": "y", "class": "none", "ledgers": ["W"], "mechanism": "weight_loading"}
    found = changes.groups({"changes": [inert, moved]})
    assert {group.words for group in found} == {"Changes nothing here", "how weights are loaded"}


def test_an_act_without_effect_says_why_on_the_page() -> None:
    why = "It was given for other evidence; the evidence is now 1111111111111111."
    act = data.actions()[0]
    spec = {**act["spec"], "uid": act["metadata"]["uid"], "message": why}
    history = {**data.history(), "actions": [{"at_s": 1.0, "outcome": "ApprovalWithdrawn", "spec": spec}]}
    page = make_page(data.rollouts()[0], data.actions(), data.live_view(), history, "")
    entry = next(entry for entry in page.chronicle if "ApprovalWithdrawn" in entry.title)
    assert entry.text.endswith(f"No effect: {why}")


def fragments_of(live: Any, history: Any = None, rights: bool = True, **status: Any) -> dict[str, str]:
    """What a page says, markup and white space reduced to what people read."""
    rollout = data.rollouts()[0]
    rollout["status"].update(status)
    session = Sessions().begin("token", "kim")
    verbs = dict.fromkeys([*(kind.value for kind in ActionKind), "create"], rights)
    found = render.fragments(make_page(rollout, data.actions(), live, history), verbs, session)
    return {name: " ".join(re.sub(r"<[^>]+>", "", html).split()) for name, html in found.items()}


def test_who_may_do_nothing_reads_one_sentence() -> None:
    act = fragments_of(data.live_view(), rights=False)["act"]
    assert act.count("You may") == 1 and "Nothing is paused" not in act
    assert "create on rolloutactions" in act and "weighlock-approver" in act
    assert "You may" not in fragments_of(data.live_view())["act"]


@pytest.mark.parametrize(
    ("phase", "step", "sentence"),
    [
        ("Shadow", "prepare", "Compared as soon as the candidate's pods serve."),
        ("Bake", "bake", "Not compared in Bake; Shadow, Canary and Ramp hold both arms to equal load."),
        ("RolledBack", "", "No candidate is being weighed."),
    ],
)
def test_load_that_nobody_compares_says_why(phase: str, step: str, sentence: str) -> None:
    view = data.live_view()
    load = view.load.model_copy(update={"matched": None, "message": ""})
    said = fragments_of(view.model_copy(update={"load": load}), phase=phase, step={"name": step})["load"]
    assert sentence in said and "Not known" not in said


def test_without_a_verdict_no_stratum_is_said_to_lack_traffic() -> None:
    view = data.live_view().model_copy(update={"verdict": None})
    said = fragments_of(view, phase="RolledBack")
    assert "no traffic" not in said["matrix"] and "0 of 0" not in said["head"]


def test_without_the_operator_an_act_is_not_said_to_wait() -> None:
    said = fragments_of(None)
    assert "pause · outcome not known now" in said["chronicle"]
    assert "it does not answer for this rollout now" in said["matrix"]
    assert "pause · waiting" in fragments_of(data.live_view(), {})["chronicle"]


def test_a_recorder_that_is_away_is_somebodys_work() -> None:
    holding = [{"type": "Holding", "status": "True", "reason": "RecorderUnreachable", "message": "away"}]
    said = fragments_of(data.live_view().model_copy(update={"recorder_healthy": False}), conditions=holding)["head"]
    assert "Next: Somebody must bring the recorder back" in said
    assert "the numbers below are the last that it gave" in said


def test_a_rollback_says_what_was_breached() -> None:
    view = data.live_view().model_copy(update={"verdict": None})
    verdict = {"result": "FAIL", "message": "globex/2049+/ttft"}
    assert "Breached: globex/2049+/ttft" in fragments_of(view, phase="RolledBack", verdict=verdict)["head"]
