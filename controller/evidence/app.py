"""The evidence API: JSON under `/api/v1`, for the dashboard and `weighlock status`/`history`.

Mounted in the operator's process: `create_evidence_app(source, auth)`. Every call needs a bearer token whose owner may
`get` that InferenceRollout; a rollout that they may not see and one that does not exist answer alike.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from controller.evidence.auth import AuthUnavailable, KubeAuth
from controller.evidence.source import EvidenceSource, EvidenceUnavailable
from controller.evidence.views import LiveView
from controller.jsonable import jsonable

T = TypeVar("T")
_EVENT_POLL_SECONDS = 0.5
_KEEP_ALIVE_SECONDS = 15.0
_LONGEST_STREAM_SECONDS = 300.0  # then the reader comes again, with a token that is still good
_PRIVATE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def create_evidence_app(source: EvidenceSource, auth: KubeAuth) -> FastAPI:
    """The API over one source of evidence."""
    app = FastAPI(title="Weighlock evidence", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(_routes(source, _guard(auth)), prefix="/api/v1/rollouts/{namespace}/{name}")

    @app.exception_handler(AuthUnavailable)
    @app.exception_handler(EvidenceUnavailable)
    async def unavailable(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=503, headers=_PRIVATE)

    return app


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody verified, and the rollout (`namespace/name`) that they may read."""

    user: str
    rollout: str


class Audit(BaseModel):
    """What a person tried without success, for the audit trail; their name is the token's, never written here."""

    model_config = ConfigDict(extra="forbid")
    action: Annotated[str, Field(max_length=40)]
    message: Annotated[str, Field(max_length=600)]


def _guard(auth: KubeAuth) -> Callable[..., Reader]:
    """Dependency that answers who reads what; 401, 403 or 503 for everybody else."""

    def guard(namespace: str, name: str, authorization: Annotated[str | None, Header()] = None) -> Reader:
        scheme, _, token = (authorization or "").partition(" ")
        identity = auth.authenticate(token.strip()) if scheme.lower() == "bearer" and token.strip() else None
        if identity is None:
            raise HTTPException(
                401, "send a Kubernetes token: Authorization: Bearer ...", {"WWW-Authenticate": "Bearer"}
            )
        if not auth.allowed(identity, "get", namespace, name):
            raise HTTPException(403, f"{identity.user} may not get inferencerollout {name} in {namespace}")
        return Reader(identity.user, f"{namespace}/{name}")

    return guard


def _routes(source: EvidenceSource, guard: Callable[..., Reader]) -> APIRouter:
    router = APIRouter()
    By = Annotated[Reader, Depends(guard)]
    Attempt = Annotated[int, Query(ge=0)]

    @router.get("")
    def live(by: By, response: Response) -> LiveView:
        response.headers.update(_PRIVATE)
        return _found(source.live(by.rollout), "the operator does not know this rollout")

    @router.get("/history")
    def history(by: By, attempt: Annotated[int | None, Query(ge=0)] = None) -> JSONResponse:
        return _json(source.history(by.rollout, attempt))

    @router.get("/setup")
    def setup(by: By, attempt: Attempt) -> JSONResponse:
        return _json(_found(source.setup(by.rollout, attempt), "no setup of this attempt is stored"))

    @router.get("/rejudge")
    def rejudge(by: By, attempt: Attempt) -> JSONResponse:
        return _json(source.rejudge(by.rollout, attempt))

    @router.get("/blocks")
    def blocks(by: By, attempt: Attempt) -> StreamingResponse:
        lines = (block.to_json() + b"\n" for block in source.blocks(by.rollout, attempt))
        return StreamingResponse(lines, media_type="application/x-ndjson", headers=_PRIVATE)

    @router.get("/events")
    async def events(by: By, request: Request) -> StreamingResponse:
        stream = _events(source, by.rollout, request)
        return StreamingResponse(stream, media_type="text/event-stream", headers=_PRIVATE)

    @router.post("/audit", status_code=204)
    def audit(by: By, entry: Audit) -> None:
        source.audit(by.rollout, by.user, f"{entry.action} refused", {"message": entry.message})

    return router


async def _events(source: EvidenceSource, rollout: str, request: Request) -> AsyncIterator[str]:
    """One message per change (its number; the reader fetches what it shows), a comment while nothing happens."""
    seen: int | None = None
    quiet_seconds = age_seconds = 0.0
    while age_seconds < _LONGEST_STREAM_SECONDS and not await request.is_disconnected():
        version = await run_in_threadpool(source.version, rollout)
        if version != seen:
            seen, quiet_seconds = version, 0.0
            yield f"event: change\ndata: {version}\n\n"
        elif quiet_seconds >= _KEEP_ALIVE_SECONDS:
            quiet_seconds = 0.0
            yield ": nothing new\n\n"
        await asyncio.sleep(_EVENT_POLL_SECONDS)
        quiet_seconds += _EVENT_POLL_SECONDS
        age_seconds += _EVENT_POLL_SECONDS


def _found(value: T | None, otherwise: str) -> T:
    if value is None:
        raise HTTPException(404, otherwise)
    return value


def _json(value: Any) -> JSONResponse:
    return JSONResponse(jsonable(value), headers=_PRIVATE)
