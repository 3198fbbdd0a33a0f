"""What people do to a rollout in mid-attempt, and what they may not do: by kubectl, CLI and dashboard."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.clients import Clients, failed
from tests.e2e.kube import Namespace, wait_until
from tests.e2e.rollout import API, AT_ONCE, POLICY, Rollout, Status, condition, is_true
from tests.e2e.system import System
from tests.e2e.test_dashboard import browser
from tests.e2e.trickle import Trickle

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]
__all__ = ["browser"]
PAUSED = ({"canary": {"weight": 20}}, {"pause": {}}, {"ramp": {"weight": 50, "approval": True}})


def refusals(chat: Rollout, uid_of: str) -> bool:
    """Whether the machine has dealt with an act."""
    return uid_of in (chat.status().get("appliedActions") or ())


def awaited(chat: Rollout, attempt: int) -> Status:
    """Until a person is asked."""
    return chat.wait(
        "approval to be asked for", lambda s: s["attempt"] == attempt and is_true(s, "AwaitingApproval"), 180
    )


def test_only_an_approver_approves_and_only_this_evidence(
    system: System, chat: Rollout, clients: Clients, browser: Browser
) -> None:
    attempt = chat.begin(chat.spec(steps=AT_ONCE))
    status = awaited(chat, attempt)
    before = len(acts(chat))
    for person in ("stranger", "viewer"):
        code, answer = chat.act("approve", person)
        assert code == 403, answer
        code, answer = chat.act("approve", person, user="approver")
        assert code == 403, answer
        done = system.run(person, "weighlock", "approve", "chat", "-n", "serving", "--reason", "because I can", "--yes")
        assert done.returncode == 2 and "Traceback" not in done.stderr
        # Who may not see the rollout gets no form, so what they post by hand is of no session's form.
        assert by_dashboard(system, person, status) == (403 if person == "viewer" else 303)
    assert len(acts(chat)) == before and set(chat.weights()) == {20}
    assert {row["who"] for row in system.evidence(chat, "/history")["audit"] if row["what"] == "approve refused"} == {
        "viewer"  # who may not even see the rollout is turned away before anything can be signed
    }
    refused = [(line["user"]["username"], line["verb"]) for line in refused_by_api_server(system)]
    assert {("stranger", "create"), ("stranger", "get"), ("viewer", "create")} <= set(refused)
    for binding in ({"evidence": "0" * 16}, {"attempt": attempt - 1}, {"step": 7}, {"reason": " "}):
        uid = chat.takes("approve", **binding)
        wait_until(f"word on {binding}", lambda uid=uid: refusals(chat, uid), 60)
    assert set(chat.weights()) == {20} and chat.status()["step"]["weight"] == 20
    known = {item["metadata"]["name"] for item in acts(chat)}
    wait_until("an approval that is in time", lambda: approves_in_browser(system, chat, browser), 180)
    chat.wait_weight(50, 120)
    signed = [item for item in acts(chat) if item["metadata"]["name"] not in known][-1]["spec"]
    assert (signed["user"], signed["attempt"], signed["step"]) == ("approver", attempt, 0)
    assert signed["revision"][:10] == status["candidate"] and len(signed["evidence"]) == 16
    kept = system.evidence(chat, f"/history?attempt={attempt}")["actions"]
    applied = [row for row in kept if (row["action"], row["outcome"]) == ("approve", "applied")]
    assert [(row["user"], row["spec"]["evidence"]) for row in applied] == [("approver", signed["evidence"])]
    chat.takes("abort")
    chat.wait_ended(attempt, "RolledBack", 120)

    second = chat.begin(chat.spec(steps=AT_ONCE))
    awaited(chat, second)
    replayed = {key: signed[key] for key in ("attempt", "step", "revision", "evidence", "reason")}
    stale = chat.takes("approve", **replayed)
    wait_until("word on the replayed approval", lambda: refusals(chat, stale), 60)
    current = chat.status()
    uid = chat.takes("approve", evidence=signed["evidence"])
    wait_until("word on turned evidence", lambda: refusals(chat, uid), 60)
    assert current["step"]["weight"] == chat.status()["step"]["weight"] == 20
    assert any("attempt" in text for text in chat.events("ActionStale"))
    assert any("other evidence" in text for text in chat.events("ApprovalWithdrawn"))
    assert not failed(clients.take())


def refused_by_api_server(system: System) -> list[dict[str, Any]]:
    """The API server's own audit of what it forbade."""
    lines = [json.loads(line) for line in system.cluster.state.audit.read_text().splitlines()]
    return [line for line in lines if line.get("responseStatus", {}).get("code") == 403]


def acts(chat: Rollout) -> list[dict[str, Any]]:
    """RolloutActions of the namespace, oldest first."""
    items = chat.namespace.call("GET", chat.namespace.path("rolloutactions", version=API))["items"]
    return sorted(items, key=lambda item: item["metadata"]["creationTimestamp"])


def by_dashboard(system: System, person: str, status: Status) -> int:
    """Status code of an approval that a person posts to the dashboard by hand, past its disabled button."""
    with httpx.Client(base_url=system.dashboard_url, timeout=30) as web:
        origin = {"Origin": system.dashboard_url}
        login = web.get("/login").text
        csrf = re.search(r'name="csrf" value="([^"]+)"', login)
        form = {"token": system.cluster.token(person), "csrf": csrf[1] if csrf else ""}
        assert web.post("/login", data=form, headers=origin).status_code == 303
        page = web.get("/r/serving/chat/act/approve").text
        fields = dict(re.findall(r'name="(csrf|form)" value="([^"]*)"', page))
        fields |= {
            "revision": status["candidate"],
            "attempt": str(status["attempt"]),
            "step": str(status["step"]["index"]),
            "evidence": status["verdict"]["evidence"],
            "reason": "because I can",
        }
        return web.post("/r/serving/chat/act/approve", data=fields, headers=origin).status_code


def approves_in_browser(system: System, chat: Rollout, browser: Browser) -> bool:
    """The approver clicks, in Chromium; False where the evidence turned between reading and signing."""
    context = browser.new_context()  # signed in by itself
    page: Page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{system.dashboard_url}/r/serving/chat")
    page.get_by_label("Kubernetes token").fill(system.cluster.token("approver"))
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Approve").click()
    expect(page.locator("dl.signed")).to_contain_text("approver", timeout=60_000)
    page.get_by_label("Reason").fill("Tails hold for both tenants.")
    page.get_by_role("button", name="Approve").click()
    answer = page.locator("p.alert.good, p.alert.bad").first
    expect(answer).to_be_visible(timeout=60_000)
    text = answer.inner_text()
    context.close()
    if "approve was signed" not in text:
        assert "has changed since" in text, text
        return False
    signed = chat.status()["verdict"]["evidence"]
    status = chat.wait("word on it", lambda s: s["step"]["weight"] == 50 or s["verdict"]["evidence"] != signed, 120)
    return bool(status["step"]["weight"] == 50)


def test_abort_then_retry_pause_and_resume(chat: Rollout, clients: Clients) -> None:
    stable = chat.status()["stable"]
    uids = chat.uids(stable)
    attempt = chat.begin(chat.spec(steps=PAUSED))
    candidate = chat.wait_weight(20)["candidate"]
    chat.takes("abort")
    status = chat.wait_ended(attempt, "RolledBack")
    assert status["reason"] == "Aborted" and candidate in status["rejected"] and not is_true(status, "InSync")
    wait_until("gates to hold stable alone", lambda: set(chat.weights()) == {0}, 15)

    chat.takes("retry", revision=candidate)
    status = chat.wait_weight(20)
    assert (status["attempt"], status["candidate"]) == (attempt + 1, candidate)
    chat.takes("pause")
    status = chat.wait("Paused", lambda s: condition(s, "Holding").get("reason") == "Paused")
    assert status["step"]["weight"] == 20
    chat.takes("resume")
    chat.wait("the open pause", lambda s: condition(s, "Holding").get("reason") == "WaitingForResume", 90)
    chat.takes("resume")
    chat.wait("the approval that comes next", lambda s: is_true(s, "AwaitingApproval"), 60)
    assert set(chat.weights()) == {20}
    chat.takes("reject")
    assert chat.wait_ended(attempt + 1, "RolledBack")["reason"] == "Rejected"
    assert chat.uids(stable) == uids and not failed(clients.take())


def test_another_revision_the_policy_and_stable_again_in_mid_attempt(chat: Rollout, clients: Clients) -> None:
    stable = chat.status()["stable"]
    uids = chat.uids(stable)
    first = chat.begin(chat.spec(steps=AT_ONCE))
    superseded = chat.wait_weight(20)["candidate"]
    edited = {**POLICY, "evidence": {**POLICY["evidence"], "maxHold": "3h"}}
    edit_policy(chat, edited)
    try:
        status = chat.wait("PolicyChanged", lambda s: is_true(s, "PolicyChanged"))
        assert (status["attempt"], status["step"]["weight"]) == (first, 20)
        chat.begin(chat.spec(steps=AT_ONCE))
        status = chat.wait_weight(20)
        assert status["stable"] == stable and status["candidate"] != superseded
        assert superseded not in status.get("rejected", ()) and not is_true(status, "PolicyChanged")
        wait_until("the superseded one to go", lambda: chat.variants() == {stable, status["candidate"]}, 30)
        again = chat.settle()
        assert again["reason"] == "StableReapplied" and again["stable"] == stable
        assert status["candidate"] not in again.get("rejected", ())
    finally:
        edit_policy(chat, POLICY)
    assert chat.uids(stable) == uids and not failed(clients.take())


def edit_policy(chat: Rollout, spec: dict[str, Any]) -> None:
    """Replace the policy as its owner would."""
    path = chat.namespace.path("rolloutpolicies", "light", API)
    chat.system.call("PATCH", path, {"spec": spec}, "application/merge-patch+json")


WRONG: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("two kinds of step", {"steps": [{"canary": {"weight": 5}, "ramp": {"weight": 50}}]}, "spec.steps[0]"),
    ("weight above 100", {"steps": [{"canary": {"weight": 101}}]}, "spec.steps[0].canary.weight"),
    ("no duration", {"bake": "soon"}, "spec.bake"),
    ("negative replicas", {"replicas": -1}, "spec.replicas"),
    ("template and roles", {"roles": [{"name": "a", "template": {}}]}, "template, roles, workloadRef"),
    ("unknown strategy", {"capacity": {"strategy": "hope"}}, "spec.capacity.strategy"),
    ("falling weights", {"steps": [{"canary": {"weight": 50}}, {"ramp": {"weight": 20}}]}, "spec.steps"),
    ("shadow later", {"steps": [{"canary": {"weight": 5}}, {"shadow": {}}]}, "spec.steps"),
    ("nameless policy", {"policyRef": {"name": ""}}, "spec.policyRef.name"),
)
WRONG_POLICIES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"gates": [{"metric": "ttft", "percentile": "100", "limit": "2s"}]}, "spec.gates[0].percentile"),
    ({"gates": [{"metric": "success", "limit": "100%"}]}, "spec.gates[0].limit"),
    ({"gates": [{"metric": "ttft", "percentile": "99", "margin": "1pp"}]}, "spec.gates[0].margin"),
    ({"gates": [{"metric": "goodFraction", "margin": "1pp"}]}, "spec.slo"),
    ({"lengthBuckets": {"edges": [2048, 512]}}, "spec.lengthBuckets.edges"),
    ({"outcomes": {"attempted": ["timeout"]}}, "spec.outcomes.attempted"),
    ({"evidence": {"alphaRollback": "0"}}, "spec.evidence.alphaRollback"),
    ({"evidence": {"minStep": "2h", "maxHold": "1h"}}, "spec.evidence.minStep"),
)


def test_a_wrong_rollout_is_refused_with_its_field_or_says_so_and_stops_nobody(chat: Rollout) -> None:
    api, path = chat.system.cluster.api(), chat.namespace.path("inferencerollouts", version=API)

    def create(name: str, spec: dict[str, Any]) -> tuple[int, Any]:
        body = {"apiVersion": API, "kind": "InferenceRollout", "metadata": {"name": name}, "spec": spec}
        return api.call("POST", path, body)

    attempt = chat.begin(chat.spec(steps=AT_ONCE))
    for what, change, field in WRONG:
        code, answer = create("wrong", {**chat.spec(), **change})
        assert code == 422 and field in answer["message"], f"{what}: {code} {answer.get('message')}"
    for name in ("dotted.name", "x" * 59):
        code, answer = create(name, chat.spec())
        assert code == 422 and "metadata.name" in answer["message"], f"{name}: {code} {answer.get('message')}"
    cases = {
        "misspelt": ({}, "DryRunRefused", "imagee"),
        "nobody": ({"policyRef": {"name": "nobody"}}, "PolicyMissing", "nobody"),
        "unmounted": ({}, "MissingReference", "no-such-map"),
    }
    try:
        for name, (change, _, _) in cases.items():
            spec = {**chat.spec(), "replicas": 1, "traffic": {"gateReplicas": 1}, **change}
            if name == "misspelt":
                spec["template"]["spec"]["containers"][0]["imagee"] = "x"
            if name == "unmounted":
                spec["template"]["spec"]["volumes"][0]["configMap"]["name"] = "no-such-map"
            assert create(name, spec)[0] == 201
        for name, (_, reason, words) in cases.items():
            other = Rollout(chat.system, chat.namespace, name)
            status = other.wait("Stalled", lambda s: is_true(s, "Stalled"))
            told = condition(status, "Stalled")
            assert told["reason"] == reason and words in told["message"], told
            assert other.variants() == set()
        assert chat.wait_weight(20)["attempt"] == attempt
    finally:
        for name in cases:
            api.call("DELETE", f"{path}/{name}")
    wait_until("wrong rollouts to go", lambda: len(chat.namespace.call("GET", path)["items"]) == 1, 60)


def test_a_policy_that_contradicts_itself_is_refused_with_its_field(system: System) -> None:
    api, path = system.cluster.api(), f"/apis/{API}/namespaces/serving/rolloutpolicies"
    usual = {"gates": [{"metric": "success", "limit": "90%"}]}
    for change, field in WRONG_POLICIES:
        body = {"apiVersion": API, "kind": "RolloutPolicy", "metadata": {"name": "wrong"}, "spec": usual | change}
        code, answer = api.call("POST", path, body)
        assert code == 422 and field in answer["message"], f"{change}: {code} {answer.get('message')}"


@pytest.fixture
def leaving(system: System) -> Iterator[Rollout]:
    """A small rollout in a namespace that nobody needs afterwards."""
    rollout = Rollout(system, Namespace(system.cluster.api(), "leaving"), replicas=1, gpus=0, gates=1)
    rollout.install()
    yield rollout


def test_deleted_in_mid_attempt(leaving: Rollout) -> None:
    stable = leaving.status()["stable"]
    uids = leaving.uids(stable)
    gate = leaving.pods("weighlock.dev/gate=chat")[0]
    with Trickle(f"http://{gate['status']['podIP']}:8000") as users:
        wait_until("answers", lambda: len(users.answers) > 20)
        leaving.begin(leaving.spec(steps=AT_ONCE))
        candidate = leaving.wait_weight(20)["candidate"]
        leaving.namespace.call("DELETE", leaving.path)
        wait_until("traffic to leave the candidate", lambda: set(leaving.weights()) <= {0, None})
    before = users.answers
    wait_until("the object to go", lambda: not leaving.get(), 60)
    assert leaving.variants() == {stable} and leaving.uids(stable) == uids
    service = leaving.namespace.get("services", "chat-gate")
    assert service["spec"]["selector"]["weighlock.dev/revision"] == stable
    assert all(not item["metadata"].get("ownerReferences") for item in [service])
    wait_until("candidate pods to go", lambda: not leaving.uids(candidate), 30)
    answered = before.count("200")  # the gate's own address goes with the gate; until then nobody was refused
    assert before[:answered] == ["200"] * answered, before
    leaving.system.call("DELETE", "/api/v1/namespaces/leaving")

    def is_gone() -> bool:
        return leaving.system.cluster.api().call("GET", "/api/v1/namespaces/leaving")[0] == 404

    wait_until("the namespace to go", is_gone, 90)
