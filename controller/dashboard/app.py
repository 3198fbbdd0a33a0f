"""The dashboard's routes: sign in, list, one rollout (live), one cell, confirm, act.

Made by `weighlock dashboard`. The process has no rights of its own: every read and every action carries the token of
the person who asks. Everything works without JavaScript; `live.js` only swaps fragments that were rendered here.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import httpx
import structlog
from fastapi import FastAPI, Form, Request
from fastapi import Path as InPath
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.base import RequestResponseEndpoint

from controller.adapters.evidence_client import EvidenceClient, EvidenceProblem
from controller.adapters.person_api import ApiServer, NotSignedIn, PersonApi, Refused
from controller.dashboard import render, streaming
from controller.dashboard.gather import gather_listing, gather_page, gather_rights
from controller.dashboard.security import HEADERS, is_same_origin
from controller.dashboard.sessions import Session, Sessions
from controller.person import Signed, make_signed
from crds.v1alpha1.action import ActionKind

_log = structlog.get_logger("weighlock.audit")
_STATIC = Path(__file__).with_name("static")
_COOKIE = "weighlock_session"
_NAME = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
Name = Annotated[str, InPath(pattern=_NAME)]


@dataclass(frozen=True, slots=True)
class Settings:
    """How the dashboard is reached and whom it asks.

    api_server: the API server; evidence_url: the operator's evidence API ("" = none); external_url: where people reach
    it ("" = as they come; https makes the cookie Secure); namespaces: shown to people who may not list namespaces.
    """

    api_server: ApiServer
    evidence_url: str = ""
    external_url: str = ""
    namespaces: tuple[str, ...] = ()


class Dashboard:
    """What the routes share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sessions = Sessions()
        self.client: httpx.AsyncClient = settings.api_server.make_client()
        self.evidence = EvidenceClient(settings.evidence_url)

    def session(self, request: Request) -> Session:
        """The signed-in session of a request; NotSignedIn otherwise. No header names a person."""
        session = self.sessions.get(request.cookies.get(_COOKIE))
        if session is None:
            raise NotSignedIn
        return session

    def api(self, session: Session) -> PersonApi:
        """The API server as this person."""
        return PersonApi(self.client, session.token)

    async def close(self) -> None:
        """Let go of all connections."""
        await self.client.aclose()
        await self.evidence.close()


def create_dashboard_app(settings: Settings) -> FastAPI:
    """The dashboard as an ASGI application."""
    board = Dashboard(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await board.close()

    app = FastAPI(title="Weighlock", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    _add_guards(app, board)
    _add_sign_in(app, board)
    _add_pages(app, board)
    _add_actions(app, board)
    return app


def _add_guards(app: FastAPI, board: Dashboard) -> None:
    @app.middleware("http")
    async def protect(request: Request, call_next: RequestResponseEndpoint) -> Response:
        if request.method not in ("GET", "HEAD") and not is_same_origin(request.headers, board.settings.external_url):
            response: Response = render.problem(403, "This form did not come from this dashboard.", None)
        else:
            response = await call_next(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.exception_handler(NotSignedIn)
    async def sign_in_first(request: Request, error: Exception) -> Response:
        session = board.sessions.get(request.cookies.get(_COOKIE))
        if session is not None:
            board.sessions.end(session)
        target = request.url.path if request.method == "GET" and not request.url.path.endswith("/events") else "/"
        response = RedirectResponse(f"/login?next={quote(target)}", status_code=303)
        response.delete_cookie(_COOKIE)
        return response

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        session = board.sessions.get(request.cookies.get(_COOKIE))
        return render.problem(error.code if error.code >= 400 else 502, error.message, session)

    @app.exception_handler(HTTPException)
    async def wrong(request: Request, error: HTTPException) -> Response:
        session = board.sessions.get(request.cookies.get(_COOKIE))
        return render.problem(error.status_code, str(error.detail), session)


def _add_sign_in(app: FastAPI, board: Dashboard) -> None:
    @app.get("/healthz")
    async def healthz() -> Response:
        return Response("ok", media_type="text/plain")

    @app.get("/login")
    async def login_page(next: str = "/") -> HTMLResponse:
        return render.login(_own_path(next), "")

    @app.post("/login")
    async def login(
        token: Annotated[str, Form(max_length=20_000)] = "", next: Annotated[str, Form()] = "/"
    ) -> Response:
        text = "".join(token.split())
        try:
            user = await PersonApi(board.client, text).who() if text.isascii() and text else ""
        except NotSignedIn:
            user = ""
        except Refused as error:
            return render.login(_own_path(next), error.message, 502)
        if not user:
            return render.login(_own_path(next), "The API server does not know this token.", 401)
        session = board.sessions.begin(text, user)
        response = RedirectResponse(_own_path(next), status_code=303)
        secure = board.settings.external_url.startswith("https:")
        response.set_cookie(_COOKIE, session.key, httponly=True, samesite="strict", secure=secure, path="/")
        return response

    @app.post("/logout")
    async def logout(request: Request, csrf: Annotated[str, Form()] = "") -> Response:
        session = board.session(request)
        if not session.has_csrf(csrf):
            return render.problem(403, "This form is not of your session.", session)
        board.sessions.end(session)
        response = RedirectResponse("/login", status_code=303)
        response.delete_cookie(_COOKIE)
        return response


def _add_pages(app: FastAPI, board: Dashboard) -> None:
    @app.get("/")
    async def listing(request: Request, namespace: str = "") -> HTMLResponse:
        session = board.session(request)
        found = await gather_listing(board.api(session), board.settings.namespaces, namespace)
        return render.listing(found, session, namespace)

    @app.get("/r/{namespace}/{name}")
    async def rollout(
        request: Request, namespace: Name, name: Name, tenant: str = "", bucket: str = ""
    ) -> HTMLResponse:
        session = board.session(request)
        api, where, selected = board.api(session), (namespace, name), (tenant, bucket) if tenant else None
        page = await gather_page(api, board.evidence, session.token, where, selected)
        rights = await gather_rights(api, session, where)
        return render.rollout(page, rights, session)

    @app.get("/r/{namespace}/{name}/events")
    async def events(
        request: Request, namespace: Name, name: Name, tenant: str = "", bucket: str = ""
    ) -> StreamingResponse:
        session = board.session(request)
        api, where, selected = board.api(session), (namespace, name), (tenant, bucket) if tenant else None

        async def fragments() -> dict[str, str]:
            if board.sessions.get(session.key) is None:
                raise NotSignedIn
            page = await gather_page(api, board.evidence, session.token, where, selected)
            return render.fragments(page, await gather_rights(api, session, where), session)

        stream = streaming.stream(fragments, request.is_disconnected)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _add_actions(app: FastAPI, board: Dashboard) -> None:
    @app.get("/r/{namespace}/{name}/act/{action}")
    async def confirm(request: Request, namespace: Name, name: Name, action: ActionKind, to: str = "") -> HTMLResponse:
        session = board.session(request)
        api, where = board.api(session), (namespace, name)
        page = await gather_page(api, board.evidence, session.token, where, None)
        rights = await gather_rights(api, session, where)
        return render.confirm(page, make_signed(page.rollout, action, session.user, to=to), rights, session)

    @app.post("/r/{namespace}/{name}/act/{action}")
    async def act(
        request: Request,
        namespace: Name,
        name: Name,
        action: ActionKind,
        csrf: Annotated[str, Form()] = "",
        form: Annotated[str, Form()] = "",
        revision: Annotated[str, Form(max_length=80)] = "",
        attempt: Annotated[int, Form(ge=0)] = 0,
        step: Annotated[int, Form(ge=0)] = 0,
        evidence: Annotated[str, Form(max_length=100)] = "",
        reason: Annotated[str, Form(max_length=2000)] = "",
    ) -> Response:
        session = board.session(request)
        if not session.has_csrf(csrf):
            return render.problem(403, "This form is not of your session; nothing was done.", session)
        back = RedirectResponse(f"/r/{namespace}/{name}", status_code=303)
        if not session.take_form(form):
            session.flash = "This form was sent before; nothing was done the second time."
            return back
        api, where = board.api(session), (namespace, name)
        page = await gather_page(api, board.evidence, session.token, where, None)
        current = make_signed(page.rollout, action, session.user, reason.strip(), revision)
        shown = Signed(
            action, name, namespace, session.user, revision, attempt, step, current.step_name, evidence, reason.strip()
        )
        rights = await gather_rights(api, session, where)
        if shown != current:
            problem = "What you saw has changed since; look at what you would sign now. Nothing was done."
            return render.confirm(page, current, rights, session, problem, 409)
        try:
            created = await api.create_action(shown.to_object())
        except Refused as error:
            await _audit(board, session, shown, error.message)
            return render.confirm(page, current, rights, session, error.message, error.code or 502)
        _log.info("action", user=session.user, **_facts(shown), created=created.get("metadata", {}).get("name"))
        session.flash = f"{action.value} was signed and handed to the API server."
        return back


async def _audit(board: Dashboard, session: Session, signed: Signed, message: str) -> None:
    """A refused act is kept: in our log, and at the operator's audit trail where that answers."""
    _log.warning("action refused", user=session.user, **_facts(signed), message=message)
    try:
        await board.evidence.audit(session.token, signed.namespace, signed.rollout, signed.action.value, message)
    except EvidenceProblem as error:
        _log.warning("the operator did not take the audit entry", problem=str(error))


def _facts(signed: Signed) -> dict[str, object]:
    return {
        "action": signed.action.value,
        "rollout": f"{signed.namespace}/{signed.rollout}",
        "attempt": signed.attempt,
        "step": signed.step,
        "revision": signed.revision,
        "evidence": signed.evidence,
    }


def _own_path(target: str) -> str:
    """A path of ours, never somebody else's page."""
    is_ours = (
        target.startswith("/") and not target.startswith(("//", "/\\")) and "\n" not in target and "\r" not in target
    )
    return target if is_ours else "/"
