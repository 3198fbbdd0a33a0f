"""A small world for the dashboard: a fake API server with people, a rollout in mid-attempt, the real evidence API.

`start_world()` answers a `World`; a test that has a real cluster makes a `World` of its own with the same fields and
runs the same checks. The fake keeps to what the real one does: 401 for unknown tokens, 403 with a sentence, the
admission policy's two rules for RolloutActions.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from controller.adapters.person_api import ApiServer
from controller.dashboard.app import Settings, create_dashboard_app
from controller.evidence.app import create_evidence_app
from controller.evidence.auth import Identity
from controller.evidence.views import LiveView
from policies.blocks import Block
from tests.e2e import dashboard_data as data

PEOPLE = {"approver-token": "approver", "viewer-token": "viewer", "stranger-token": "stranger"}
VERBS = {"approver": {"*"}, "viewer": {"get", "list", "watch"}, "stranger": set()}


@dataclass
class World:
    """What a browser test needs to know."""

    url: str
    namespace: str
    name: str
    tokens: Mapping[str, str]
    actions: Callable[[], list[dict[str, Any]]]
    change_evidence: Callable[[str], None] = lambda evidence: None
    change_live: Callable[..., None] = lambda **values: None
    live_view: Callable[[], LiveView] = data.live_view
    judge_action: Callable[[str, str, str], None] = lambda uid, outcome, message: None
    kube_url: str = ""
    evidence_url: str = ""
    audit: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)


class Kube:
    """State of the fake API server."""

    def __init__(self) -> None:
        self.rollouts = data.rollouts()
        self.actions: list[dict[str, Any]] = data.actions()

    def allowed(self, user: str, verb: str) -> bool:
        return bool(VERBS[user] & {verb, "*"})


def make_kube_app(kube: Kube) -> FastAPI:
    """The few paths of the API server that people use."""
    app = FastAPI()
    base = "/apis/weighlock.dev/v1alpha1"

    def user_of(request: Request) -> str | None:
        return PEOPLE.get(request.headers.get("authorization", "").removeprefix("Bearer "))

    def fail(code: int, message: str) -> JSONResponse:
        return JSONResponse({"kind": "Status", "status": "Failure", "message": message, "code": code}, code)

    @app.middleware("http")
    async def authenticate(request: Request, call_next: Any) -> Any:
        return await call_next(request) if user_of(request) else fail(401, "Unauthorized")

    @app.post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
    async def who(request: Request) -> dict[str, Any]:
        return {"status": {"userInfo": {"username": user_of(request)}}}

    @app.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
    async def may(request: Request) -> dict[str, Any]:
        verb = (await request.json())["spec"]["resourceAttributes"]["verb"]
        return {"status": {"allowed": kube.allowed(user_of(request) or "", verb)}}

    @app.get("/api/v1/namespaces")
    async def namespaces(request: Request) -> Any:
        if not kube.allowed(user_of(request) or "", "list"):
            return fail(403, 'namespaces is forbidden: User "stranger" cannot list resource "namespaces"')
        return {"items": [{"metadata": {"name": name}} for name in ("chat", "search")]}

    @app.get(base + "/inferencerollouts")
    @app.get(base + "/namespaces/{namespace}/inferencerollouts")
    async def list_rollouts(request: Request, namespace: str = "") -> Any:
        user = user_of(request) or ""
        if not kube.allowed(user, "list"):
            return fail(403, f'inferencerollouts.weighlock.dev is forbidden: User "{user}" cannot list them')
        return {"items": [r for r in kube.rollouts if namespace in ("", r["metadata"]["namespace"])]}

    @app.get(base + "/namespaces/{namespace}/inferencerollouts/{name}")
    async def get_rollout(request: Request, namespace: str, name: str) -> Any:
        user = user_of(request) or ""
        if not kube.allowed(user, "get"):
            return fail(403, f'inferencerollouts.weighlock.dev "{name}" is forbidden: User "{user}" cannot get it')
        found = [r for r in kube.rollouts if (r["metadata"]["namespace"], r["metadata"]["name"]) == (namespace, name)]
        return found[0] if found else fail(404, f'inferencerollouts.weighlock.dev "{name}" not found')

    @app.get(base + "/namespaces/{namespace}/rolloutactions")
    async def list_actions(request: Request, namespace: str) -> Any:
        return {"items": kube.actions}

    @app.post(base + "/namespaces/{namespace}/rolloutactions", status_code=201)
    async def create_action(request: Request, namespace: str) -> Any:
        user, action = user_of(request) or "", await request.json()
        spec = action["spec"]
        if spec["user"] != user:
            return fail(403, f"spec.user must be you: {user}")
        if not kube.allowed(user, spec["action"]):
            return fail(403, f"{user} may not {spec['action']} inferencerollout {spec['rollout']} in {namespace}")
        number = len(kube.actions)
        meta = {"name": f"{action['metadata']['generateName']}{number:05d}", "uid": f"uid-{number}"}
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        action["metadata"].update(meta, namespace=namespace, creationTimestamp=stamp)
        kube.actions.append(action)
        return action

    return app


class Auth:
    """The cluster's answers for the evidence API, from the same people."""

    def authenticate(self, token: str) -> Identity | None:
        return Identity(PEOPLE[token]) if token in PEOPLE else None

    def allowed(self, identity: Identity, verb: str, namespace: str, name: str) -> bool:
        return bool(VERBS[identity.user] & {verb, "*"})


class Source:
    """Evidence of the fixture."""

    def __init__(self, world_audit: list[tuple[str, str, Mapping[str, Any]]], namespace: str = "chat") -> None:
        self.view = data.live_view().model_copy(update={"rollout": f"{namespace}/{data.NAME}"})
        self.number = 1
        self._audit = world_audit
        self.judged: list[dict[str, Any]] = []

    def judge_action(self, uid: str, outcome: str, message: str) -> None:
        """What the operator makes of an act, as the store keeps it."""
        spec = {"uid": uid, "action": "approve", "user": "approver", "reason": "replayed", "message": message}
        self.judged.append({"at_s": time.time(), "attempt": 7, "outcome": outcome, "spec": spec})
        self.number += 1

    def change(self, **values: Any) -> None:
        """Say something else from now on."""
        self.view = self.view.model_copy(update=values)
        self.number += 1

    def live(self, rollout: str) -> LiveView | None:
        return self.view if rollout == self.view.rollout else None

    def version(self, rollout: str) -> int:
        return self.number

    def history(self, rollout: str, attempt: int | None) -> dict[str, Any]:
        if rollout != self.view.rollout:
            return {}
        found = data.history()
        return {**found, "actions": [*found["actions"], *self.judged]}

    def blocks(self, rollout: str, attempt: int) -> Iterator[Block]:
        return iter(())

    def setup(self, rollout: str, attempt: int) -> dict[str, Any] | None:
        return None

    def rejudge(self, rollout: str, attempt: int) -> dict[str, Any]:
        return data.rejudge_report(rollout, attempt)

    def audit(self, rollout: str, who: str, what: str, content: Mapping[str, Any]) -> None:
        self._audit.append((who, what, content))


@contextmanager
def serve(app: FastAPI) -> Iterator[str]:
    """An application on a free loopback port; answers its URL."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline and thread.is_alive(), "the server did not start"
        threading.Event().wait(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


@contextmanager
def start_world() -> Iterator[World]:
    """Fake API server, evidence API and dashboard, all on loopback."""
    kube = Kube()
    audit: list[tuple[str, str, Mapping[str, Any]]] = []
    source = Source(audit)

    def change_evidence(evidence: str) -> None:
        kube.rollouts[0]["status"]["verdict"]["evidence"] = evidence

    with serve(make_kube_app(kube)) as kube_url, serve(create_evidence_app(source, Auth())) as evidence_url:
        settings = Settings(ApiServer(kube_url), evidence_url, namespaces=("chat",))
        with serve(create_dashboard_app(settings)) as url:
            yield World(
                url=url,
                namespace="chat",
                name=data.NAME,
                tokens={user: token for token, user in PEOPLE.items()},
                actions=lambda: kube.actions,
                change_evidence=change_evidence,
                change_live=source.change,
                live_view=lambda: source.view,
                judge_action=source.judge_action,
                kube_url=kube_url,
                evidence_url=evidence_url,
                audit=audit,
            )
