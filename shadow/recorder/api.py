"""HTTP side of the recorder: blocks by number, records, setups, counts (see docs/architecture.md). JSON."""

import math
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import orjson
from fastapi import Body, FastAPI, HTTPException, Query, Response
from fastapi.responses import StreamingResponse
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from shadow.protocol import PROTOCOL
from shadow.recorder.recorder import Recorder

MAX_BLOCKS = 2000
RECORDS_IN_A_PIECE = 500


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")


def _blocks(recorder: Recorder, stored: list[bytes], after: int, first: int) -> Response:
    """Blocks as they were written; `next` is what to pass as `after` in the next call."""
    parts = [orjson.loads(payload) for payload in stored]
    found = [p["block"] for p in parts]
    about = [{"seq": p["block"]["seq"], **p["about"]} for p in parts]
    last = found[-1]["seq"] if found else after
    where = {"next": last, "first": first, "recorder": recorder.identity, "protocol": PROTOCOL}
    return _json({"blocks": found, "about": about, **where})


def _in_pieces(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Many lines at a time: each piece of a streamed answer costs a change of threads."""
    while piece := b"".join(islice(lines, RECORDS_IN_A_PIECE)):
        yield piece


def make_app() -> FastAPI:
    """An empty application."""
    return FastAPI(title="weighlock recorder", docs_url=None, redoc_url=None, openapi_url=None)


def add_health(app: FastAPI, recorder: Recorder, registry: CollectorRegistry) -> None:
    """What probes and Prometheus ask: nothing about any request."""

    @app.get("/healthz")
    async def healthz() -> Response:
        return _json({"status": "ok", "recorder": recorder.identity, "protocol": PROTOCOL})

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def add_rollouts(app: FastAPI, recorder: Recorder) -> None:
    """What the operator asks: blocks, records, setups, counts."""
    base = "/v1/rollouts/{namespace}/{name}"

    def log_of(namespace: str, name: str) -> Any:
        try:
            return recorder.rollout(f"{namespace}/{name}")
        except ValueError as error:
            raise HTTPException(400, str(error)) from error

    @app.get(base + "/blocks")
    async def blocks(
        namespace: str,
        name: str,
        after: Annotated[int | None, Query(ge=-1)] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_BLOCKS)] = 500,
        wait: Annotated[float, Query(ge=0, le=60)] = 0.0,
        since: float | None = None,
        until: float | None = None,
    ) -> Response:
        log = log_of(namespace, name)
        if since is not None or until is not None:
            until_s = math.inf if until is None else until
            return _blocks(recorder, log.blocks_between(since or 0.0, until_s, limit), log.last_seq, log.first_seq)
        start = -1 if after is None else after
        if wait:
            await recorder.wait_for_block(f"{namespace}/{name}", start, wait)
        return _blocks(recorder, log.blocks_after(start, limit), start, log.first_seq)

    @app.put(base + "/setup")
    async def put_setup(namespace: str, name: str, body: Annotated[dict[str, Any], Body()]) -> Response:
        if not isinstance(body.get("attempt"), int):
            raise HTTPException(400, "attempt: is missing or no whole number")
        try:
            log_of(namespace, name).put_setup(body, recorder.clock.now())
        except (ValueError, KeyError, TypeError) as error:
            raise HTTPException(400, f"setup: {error}") from error
        return _json({"attempt": body["attempt"], "recorder": recorder.identity})

    @app.get(base + "/setup")
    async def get_setup(namespace: str, name: str, attempt: int) -> Response:
        found = log_of(namespace, name).setup(attempt)
        if found is None:
            raise HTTPException(404, f"attempt {attempt} has no setup")
        return _json(found)

    @app.get(base + "/records")
    async def records(namespace: str, name: str, since: float = 0.0, until: float | None = None) -> Response:
        log = log_of(namespace, name)
        lines: Iterator[bytes] = log.records_between(since, math.inf if until is None else until, recorder.clock.now())
        return StreamingResponse(_in_pieces(lines), media_type="application/x-ndjson")

    @app.get(base + "/open")
    async def open_requests(namespace: str, name: str) -> Response:
        return _json(log_of(namespace, name).open_view(recorder.clock.now()))

    @app.get(base + "/stats")
    async def stats(namespace: str, name: str) -> Response:
        return _json(log_of(namespace, name).stats_view(recorder.clock.now()))
