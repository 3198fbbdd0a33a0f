"""What the engine answers on each path: completions through the engine, and the small read-only endpoints.

Called by the HTTP connections; owns the requests in flight.
"""

import asyncio
import time
from hashlib import blake2b
from random import Random
from uuid import uuid4

from tools.enginesim.api import DONE_EVENT, ApiError, Call, EventWriter, full_answer, parse_call
from tools.enginesim.batcher import SEGMENT_TOKENS, Batcher
from tools.enginesim.engine import Engine
from tools.enginesim.faults import FaultBoard, Faults
from tools.enginesim.httpserver import Request
from tools.enginesim.info import metrics_page, model_cards, server_info
from tools.enginesim.metrics import Metrics
from tools.enginesim.sequence import Sequence
from tools.enginesim.settings import Settings
from tools.enginesim.text import (
    ANSWER_TOKEN_CHARS,
    WRONG_MEAN_TOKENS,
    answer_text,
    block_hashes,
    count_tokens,
    natural_length,
    prompt_digest,
    uniform,
)

TENANT_HEADERS = ("x-weighlock-tenant", "x-tenant")
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
ACCEPTANCE_SPREAD = 0.3
FRONTEND_WAIT = 0.22  # mean of the exponential wait for the front end, as a share of its own time
ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


class InFlight:
    """One accepted request: from the end of the front end's work to the last byte."""

    __slots__ = (
        "call",
        "created",
        "faults",
        "request",
        "request_id",
        "sent",
        "sequence",
        "service",
        "text",
        "timer",
        "writer",
    )

    def __init__(self, service: "Service", request: Request, call: Call, request_id: str, faults: Faults) -> None:
        self.service = service
        self.request = request
        self.call = call
        self.request_id = request_id
        self.faults = faults
        self.created = int(time.time())
        self.sent = 0
        self.text = ""
        self.writer: EventWriter | None = None
        self.sequence: Sequence | None = None
        self.timer: asyncio.TimerHandle | None = None

    def emit(self, sequence: Sequence, finish_reason: str | None) -> None:
        """The batcher has tokens for this request."""
        connection = self.request.connection
        if not self.call.stream:
            if finish_reason is not None:
                self.service.finished(self)
                document = full_answer(
                    self.call, self.request_id, self.created, self.service.fingerprint, self.text, finish_reason,
                    sequence.generated,
                )  # fmt: skip
                connection.respond_json(200, document, self.service.extra_headers(self.request))
            return
        writer = self.writer
        assert writer is not None
        done = sequence.generated
        text = self.text[self.sent * ANSWER_TOKEN_CHARS : done * ANSWER_TOKEN_CHARS]
        events = [writer.role()] if self.sent == 0 and self.call.chat else []
        events.append(writer.content(text, finish_reason, done))
        self.sent = done
        if finish_reason is None:
            connection.send_events(*events)
            return
        if self.call.include_usage:
            events.append(writer.final_usage(done))
        self.service.finished(self)
        connection.end_stream(*events, DONE_EVENT)

    def gone(self) -> None:
        """The client has hung up."""
        self.service.aborted(self)


class Service:
    """Routes, admission, answers."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self.loop = loop
        speculative = settings.speculation.tokens if settings.speculation else 0
        self.metrics = Metrics(settings.max_model_len, speculative)
        self.faults = FaultBoard(settings.initial_faults, loop.time())
        self.engine = Engine(Batcher(settings, self.metrics), self.faults, loop)
        self.random = Random(settings.seed + 1)
        self.in_flight: set[InFlight] = set()
        self._drained: asyncio.Event | None = None
        self.started = time.time()
        digest = blake2b(repr(settings.resolved()).encode(), digest_size=4).hexdigest()
        ranks = f"-tp{settings.tensor_parallel_size}" if settings.tensor_parallel_size > 1 else ""
        self.fingerprint = f"vllm-{settings.version}{ranks}-{digest}"
        self.routes = {
            ("GET", "/health"): self.health,
            ("GET", "/ping"): self.health,
            ("POST", "/ping"): self.health,
            ("GET", "/load"): self.load,
            ("GET", "/version"): self.version,
            ("GET", "/v1/models"): self.models,
            ("GET", "/metrics"): self.exposition,
            ("GET", "/server_info"): self.server_info,
            ("POST", "/tokenize"): self.tokenize,
            ("POST", "/reset_prefix_cache"): self.reset_prefix_cache,
            ("POST", "/v1/chat/completions"): self.chat,
            ("POST", "/v1/completions"): self.completions,
        }

    def handle(self, request: Request) -> None:
        """Entry point of every request."""
        route = self.routes.get((request.method, request.path))
        if route is None:
            known = any(path == request.path for _, path in self.routes)
            detail = "Method Not Allowed" if known else "Not Found"
            request.connection.respond_json(405 if known else 404, {"detail": detail})
            return
        keys = self.settings.api_keys
        if keys and request.path.startswith("/v1") and request.headers.get("authorization") not in self._bearers():
            request.connection.respond_json(401, {"error": "Unauthorized"})
            return
        try:
            route(request)
        except ApiError as error:
            request.connection.respond_json(error.status, error.document, self.extra_headers(request))

    def _bearers(self) -> set[str]:
        return {f"Bearer {key}" for key in self.settings.api_keys}

    def extra_headers(self, request: Request) -> str:
        """``X-Request-Id`` is echoed only with ``--enable-request-id-headers``, as in vLLM."""
        if not self.settings.request_id_headers:
            return ""
        return f"x-request-id: {request.headers.get('x-request-id') or uuid4().hex}\r\n"

    # -- completions --

    def chat(self, request: Request) -> None:
        """``POST /v1/chat/completions``"""
        self._complete(request, chat=True)

    def completions(self, request: Request) -> None:
        """``POST /v1/completions``"""
        self._complete(request, chat=False)

    def _complete(self, request: Request, chat: bool) -> None:
        now = self.loop.time()
        settings = self.settings
        self.faults.requests += 1
        call = parse_call(request.body, chat, settings.max_model_len, settings.served_names)
        queued = len(self.engine.batcher.waiting)
        if settings.max_num_queued_reqs is not None and queued >= settings.max_num_queued_reqs:
            raise ApiError(503, "The server is overloaded: too many requests are queued.", "ServiceUnavailableError")
        faults = self.faults.in_force(now)
        tenant = next((request.headers[name] for name in TENANT_HEADERS if name in request.headers), None)
        if not faults.matches(tenant, call.prompt_tokens):
            faults = Faults()
        if faults.error_rate and self.random.random() < faults.error_rate:
            raise ApiError(500, ENGINE_DEAD, "InternalServerError")
        identity = request.headers.get("x-request-id") or uuid4().hex
        flight = InFlight(self, request, call, f"{'chatcmpl' if chat else 'cmpl'}-{identity}", faults)
        self.in_flight.add(flight)
        request.on_disconnect = flight.gone
        slow = faults.slow_at(len(self.engine.batcher.running))
        delay = settings.frontend_seconds * (1 + FRONTEND_WAIT * self.random.expovariate(1.0)) * slow
        if delay > 0:
            flight.timer = self.loop.call_later(delay, self._admit, flight, now)
        else:
            self._admit(flight, now)

    def _admit(self, flight: InFlight, arrival: float) -> None:
        """The front end is done with the request: headers go out, the engine gets it."""
        flight.timer = None
        call, faults = flight.call, flight.faults
        if call.stream:
            flight.writer = EventWriter(call, flight.request_id, flight.created, self.fingerprint)
            flight.request.connection.start_stream(self.extra_headers(flight.request))
        if faults.empty_rate and self.random.random() < faults.empty_rate:
            self._answer_nothing(flight)
            return
        sequence = self._sequence(flight, arrival)
        flight.sequence = sequence
        if faults.filtered:
            sequence.work_scale = faults.slow_at(len(self.engine.batcher.running))
            if faults.hang:
                return
        self.engine.submit(sequence)

    def _sequence(self, flight: InFlight, arrival: float) -> Sequence:
        """What the batcher needs to know, and the whole text of the answer to come."""
        call, settings = flight.call, self.settings
        digest = prompt_digest(call.prompt, f"{settings.model.name}|{call.roles}|{call.seed}")
        room = settings.max_model_len - call.prompt_tokens
        natural = call.max_tokens is None and not call.ignore_eos
        tokens = natural_length(digest, room) if natural else min(room, call.max_tokens or room)
        if flight.faults.wrong_tokens:
            flight.text = answer_text(digest, tokens, settings.numerics + "|wrong", WRONG_MEAN_TOKENS)
        else:
            flight.text = answer_text(digest, tokens, settings.numerics)
        hashes: list[int] = []
        if settings.prefix_caching:
            hashes = block_hashes(call.prompt, (call.roles, call.cache_salt), settings.block_size)
        sequence = Sequence(
            flight.request_id,
            call.prompt_tokens,
            hashes,
            tokens,
            flight.emit,
            natural_end=natural,
            interval=settings.stream_interval if call.stream else SEGMENT_TOKENS,
            acceptance=self._acceptance(digest),
            arrival=arrival,
            max_tokens=call.max_tokens or room,
        )
        sequence.queued_at = self.loop.time()
        return sequence

    def _acceptance(self, digest: bytes) -> float:
        """Texts differ in how predictable they are: each has its own chance of acceptance around the method's mean."""
        if self.settings.speculation is None:
            return 0.0
        mean = self.settings.speculation.acceptance
        return min(0.98, max(0.02, mean + ACCEPTANCE_SPREAD * (uniform(digest, b"accept") - 0.5)))

    def _answer_nothing(self, flight: InFlight) -> None:
        """Fault: a well-formed answer without any content."""
        self.finished(flight)
        self.metrics.finished["stop"] += 1
        connection = flight.request.connection
        if flight.writer is not None:
            role = [flight.writer.role()] if flight.call.chat else []
            connection.end_stream(*role, flight.writer.content("", "stop", 0), DONE_EVENT)
            return
        document = full_answer(flight.call, flight.request_id, flight.created, self.fingerprint, "", "stop", 0)
        connection.respond_json(200, document)

    def finished(self, flight: InFlight) -> None:
        """The answer is complete."""
        self.in_flight.discard(flight)
        if self._drained is not None and not self.in_flight:
            self._drained.set()

    async def drained(self) -> None:
        """Waits until nothing is in flight."""
        self._drained = asyncio.Event()
        if self.in_flight:
            await self._drained.wait()

    def aborted(self, flight: InFlight) -> None:
        """The client is gone: the engine forgets the request within a step."""
        self.finished(flight)
        if flight.timer is not None:
            flight.timer.cancel()
            self.metrics.finished["abort"] += 1
        elif flight.sequence is not None:
            if flight.faults.filtered and flight.faults.hang:
                self.metrics.finished["abort"] += 1
            else:
                self.engine.abort(flight.sequence)

    # -- the rest --

    def health(self, request: Request) -> None:
        """200 without a body, as vLLM; it proves nothing about speed."""
        request.connection.respond(200, b"")

    def load(self, request: Request) -> None:
        """Requests in the server now."""
        request.connection.respond_json(200, {"server_load": len(self.in_flight)})

    def version(self, request: Request) -> None:
        """The engine version that is simulated."""
        request.connection.respond_json(200, {"version": self.settings.version})

    def models(self, request: Request) -> None:
        """The served names."""
        request.connection.respond_json(200, model_cards(self.settings, self.started))

    def tokenize(self, request: Request) -> None:
        """Counts only: there are no token ids here."""
        call = parse_call(
            request.body, b'"messages"' in request.body, self.settings.max_model_len, self.settings.served_names
        )
        count = count_tokens(call.prompt)
        request.connection.respond_json(
            200, {"count": count, "max_model_len": self.settings.max_model_len, "tokens": []}
        )

    def reset_prefix_cache(self, request: Request) -> None:
        """Forgets what nobody holds."""
        self.engine.batcher.pool.reset()
        request.connection.respond(200, b"")

    def server_info(self, request: Request) -> None:
        """The resolved configuration. vLLM shows it only with VLLM_SERVER_DEV_MODE=1, the simulator always."""
        request.connection.respond_json(200, server_info(self.settings, self.engine))

    def exposition(self, request: Request) -> None:
        """``GET /metrics``"""
        page = metrics_page(self.settings, self.engine, self.metrics, self.started)
        request.connection.respond(200, page, EXPOSITION)
