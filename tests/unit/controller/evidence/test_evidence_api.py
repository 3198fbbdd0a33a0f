"""The evidence API: who may read, what is answered, and what a database that is away costs."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError

from controller.evidence.app import create_evidence_app
from controller.evidence.auth import AuthUnavailable, ClusterAuth, Identity
from controller.evidence.source import StoredEvidence
from controller.evidence.views import LiveView
from controller.store.sink import EvidenceStore
from policies.blocks import Block
from policies.verdict import Hold, Result, Rollback, Verdict

ROLLOUT = "chat/llama"
WAIT_SECONDS = 20


class Auth:
    """ann may read chat/llama; bob is known and may read nothing; `down` makes it unavailable."""

    down = False

    def authenticate(self, token: str) -> Identity | None:
        if self.down:
            raise AuthUnavailable("the API server could not be asked")
        return {"ann-token": Identity("ann"), "bob-token": Identity("bob")}.get(token)

    def allowed(self, identity: Identity, verb: str, namespace: str, name: str) -> bool:
        return (identity.user, verb, namespace, name) == ("ann", "get", "chat", "llama")


class Live:
    def live(self, rollout: str) -> LiveView | None:
        return LiveView(rollout=rollout, updated_at_s=5.0, phase="Canary", verdict={"e": float("inf")})

    def version(self, rollout: str) -> int:
        return 7


class CountingJudge:
    """Says how many blocks it has seen: enough to tell a right re-judge from a wrong one."""

    def __init__(self, setup: Any) -> None:
        self.seen = setup["start"]

    def add(self, block: Block) -> None:
        self.seen += 1

    def verdict(self, now_s: float, guards: Sequence[Hold] = ()) -> Verdict:
        return make_verdict(now_s, self.seen)


def make_verdict(now_s: float, seen: int) -> Verdict:
    rollback = Rollback(float(seen), float("inf"))
    return Verdict(Result.INCONCLUSIVE, now_s, 0, None, (), (), rollback, None, seen, None, (f"{seen} blocks",))


@pytest.fixture
def store(tmp_path: Any) -> Iterator[EvidenceStore]:
    store = EvidenceStore(f"{tmp_path}/weighlock.db")
    store.put_setup(ROLLOUT, 1, {"start": 0}, at_s=1.0)
    store.put_blocks(Block(seq, ROLLOUT, 1, 0, 10.0 + 5 * seq, 15.0 + 5 * seq) for seq in range(6))
    store.put_verdict(ROLLOUT, 1, 2, make_verdict(25.0, 3))
    store.put_verdict(ROLLOUT, 1, 5, make_verdict(40.0, 6))
    store.put_decision(ROLLOUT, 1, 0, {"phase": "Canary", "reason": "StepStarted", "weight": 5}, at_s=2.0)
    assert store.flush(WAIT_SECONDS)
    yield store
    store.close()


@pytest.fixture
def auth() -> Auth:
    return Auth()


@pytest.fixture
def client(store: EvidenceStore, auth: Auth) -> TestClient:
    source = StoredEvidence(store, Live(), CountingJudge)
    return TestClient(create_evidence_app(source, auth), headers={"Authorization": "Bearer ann-token"})


URL = "/api/v1/rollouts/chat/llama"


@pytest.mark.parametrize(
    "path", ["", "/history", "/setup?attempt=1", "/rejudge?attempt=1", "/blocks?attempt=1", "/events"]
)
def test_every_path_needs_a_token_whose_owner_may_get_it(client: TestClient, path: str) -> None:
    spoof = {"X-Forwarded-User": "admin", "X-Remote-User": "admin", "Impersonate-User": "ann"}
    assert client.get(URL + path, headers={"Authorization": "", **spoof}).status_code == 401
    assert client.get(URL + path, headers={"Authorization": "Bearer forged", **spoof}).status_code == 401
    assert client.get(URL + path, headers={"Authorization": "Bearer bob-token", **spoof}).status_code == 403
    assert client.get(URL.replace("llama", "other") + path).status_code == 403


def test_nobody_gets_in_while_the_api_server_is_away(client: TestClient, auth: Auth) -> None:
    auth.down = True
    assert client.get(URL).status_code == 503


def test_live_is_json_even_with_infinite_evidence(client: TestClient) -> None:
    answer = client.get(URL)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    view = LiveView.model_validate_json(answer.content)
    assert (view.phase, view.rollout) == ("Canary", ROLLOUT)


def test_history_setup_and_blocks(client: TestClient) -> None:
    history = client.get(f"{URL}/history").json()
    assert [row["phase"] for row in history["decisions"]] == ["Canary"]
    assert client.get(f"{URL}/setup", params={"attempt": 1}).json() == {"start": 0}
    assert client.get(f"{URL}/setup", params={"attempt": 9}).status_code == 404
    lines = client.get(f"{URL}/blocks", params={"attempt": 1}).content.splitlines()
    assert [Block.from_json(line).seq for line in lines] == list(range(6))


def test_rejudge_finds_equal_verdicts_equal(client: TestClient) -> None:
    report = client.get(f"{URL}/rejudge", params={"attempt": 1}).json()
    assert report["same"] is True
    assert [(row["last_seq"], row["stored"], row["rejudged"]) for row in report["verdicts"]] == [
        (2, "INCONCLUSIVE", "INCONCLUSIVE"),
        (5, "INCONCLUSIVE", "INCONCLUSIVE"),
    ]


def test_a_namesake_sees_nothing_of_its_deleted_predecessor(store: EvidenceStore, auth: Auth) -> None:
    born_s = 100.0
    source = StoredEvidence(store, Live(), CountingJudge, lambda rollout: born_s if rollout == ROLLOUT else 0.0)
    client = TestClient(create_evidence_app(source, auth), headers={"Authorization": "Bearer ann-token"})
    history = client.get(f"{URL}/history").json()
    assert (history["attempts"], history["decisions"], history["verdicts"]) == ([], [], [])
    assert client.get(f"{URL}/setup", params={"attempt": 1}).status_code == 404
    assert client.get(f"{URL}/blocks", params={"attempt": 1}).content == b""
    assert client.get(f"{URL}/rejudge", params={"attempt": 1}).json()["same"] is None
    store.put_setup(ROLLOUT, 1, {"start": 0}, at_s=101.0)  # the same content as its predecessor's
    store.put_blocks(Block(seq, ROLLOUT, 1, 0, 110.0 + 5 * seq, 115.0 + 5 * seq) for seq in range(3))
    store.put_verdict(ROLLOUT, 1, 2, make_verdict(125.0, 3))
    store.put_decision(ROLLOUT, 1, 0, {"phase": "Shadow", "reason": "StepStarted", "weight": 0}, at_s=102.0)
    assert store.flush(WAIT_SECONDS)
    history = client.get(f"{URL}/history").json()
    assert [row["phase"] for row in history["decisions"]] == ["Shadow"]
    assert [(a["started_at_s"], a["finished_at_s"]) for a in history["attempts"]] == [(102.0, 102.0)]
    assert len(client.get(f"{URL}/blocks", params={"attempt": 1}).content.splitlines()) == 3
    report = client.get(f"{URL}/rejudge", params={"attempt": 1}).json()
    assert report["same"] is True and [row["last_seq"] for row in report["verdicts"]] == [2]


def test_rejudge_names_what_differs(client: TestClient, store: EvidenceStore) -> None:
    store.put_setup(ROLLOUT, 1, {"start": 1}, at_s=3.0)
    assert store.flush(WAIT_SECONDS)
    report = client.get(f"{URL}/rejudge", params={"attempt": 1}).json()
    assert report["same"] is False
    assert "requests_needed: stored 3, rejudged 4" in report["verdicts"][0]["differences"]


def test_rejudge_does_not_call_missing_blocks_equal(client: TestClient, store: EvidenceStore) -> None:
    store.put_verdict(ROLLOUT, 1, 9, make_verdict(60.0, 6))
    assert store.flush(WAIT_SECONDS)
    report = client.get(f"{URL}/rejudge", params={"attempt": 1}).json()
    assert report["same"] is False
    assert report["verdicts"][-1]["differences"] == ["blocks 6 to 9 are not stored"]
    assert client.get(f"{URL}/rejudge", params={"attempt": 3}).json()["problem"]


def test_a_database_that_is_away_is_said_in_words(client: TestClient, store: EvidenceStore) -> None:
    def away(*_: Any) -> Any:
        raise OperationalError("SELECT secret", {}, Exception("connection refused"))

    store.reader.history = away  # type: ignore[method-assign]
    answer = client.get(f"{URL}/history")
    assert answer.status_code == 503
    assert "database" in answer.json()["detail"] and "secret" not in answer.text
    assert client.get(URL).status_code == 200


class Answer:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def test_cluster_auth_asks_the_api_server_and_keeps_answers_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = [0.0], []
    auth = ClusterAuth(None, clock=lambda: now[0])

    def review(body: Any) -> Any:
        calls.append(json.dumps(body))
        user = Answer(username="ann", uid="1", groups=["dev"], extra={"scope": ["a"]})
        return Answer(status=Answer(authenticated=body["spec"]["token"] == "good", user=user))

    def access(body: Any) -> Any:
        calls.append(json.dumps(body))
        return Answer(status=Answer(allowed=body["spec"]["groups"] == ["dev"]))

    monkeypatch.setattr(auth._authentication, "create_token_review", review)
    monkeypatch.setattr(auth._authorization, "create_subject_access_review", access)
    identity = auth.authenticate("good")
    assert identity is not None and identity.user == "ann"
    assert auth.authenticate("bad") is None
    assert auth.allowed(identity, "get", "chat", "llama")
    assert '"group": "weighlock.dev"' in calls[-1] and '"extra": {"scope": ["a"]}' in calls[-1]
    before = len(calls)
    assert auth.authenticate("good") == identity and auth.allowed(identity, "get", "chat", "llama")
    assert len(calls) == before
    now[0] += 60.0
    assert auth.authenticate("good") == identity
    assert len(calls) == before + 1


def test_an_audit_entry_carries_the_verified_name_only(client: TestClient, store: EvidenceStore) -> None:
    entry = {"action": "approve", "message": "ann may not approve"}
    assert client.post(f"{URL}/audit", json={**entry, "who": "admin"}).status_code == 422
    assert client.post(f"{URL}/audit", json=entry, headers={"X-Forwarded-User": "admin"}).status_code == 204
    assert client.post(f"{URL}/audit", json=entry, headers={"Authorization": "Bearer bob-token"}).status_code == 403
    assert store.flush(WAIT_SECONDS)
    assert [(row["who"], row["what"]) for row in store.reader.events("audit", ROLLOUT)] == [("ann", "approve refused")]
