"""The run itself: sends planned requests, keeps records, writes the live line, ends in an orderly way."""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO
from uuid import uuid4

from tools.load.client import Exchange, Pool
from tools.load.plan import Planned, PromptWriter, bucket_name, chat_body
from tools.load.stats import LiveStats, Sample


@dataclass(frozen=True)
class RunOptions:
    """What the command line says about one run. ``targets`` is asked again every second."""

    targets: Callable[[], list[str]]
    duration_seconds: float
    timeout_seconds: float
    drain_seconds: float
    model: str | None
    include_usage: bool
    path: str
    out: TextIO | None
    stats_file: Path | None


class Runner:
    """Open loop: a slow system does not slow the schedule."""

    def __init__(self, options: RunOptions, plan: Iterator[Planned], prompts: PromptWriter) -> None:
        self.options = options
        self.plan = plan
        self.prompts = prompts
        self.loop = asyncio.get_running_loop()
        self.stats = LiveStats()
        self.pools: dict[str, Pool] = {}
        self.order: list[Pool] = []
        self.turn = itertools.count()
        self.in_flight: dict[Exchange, tuple[Planned, str, Pool, asyncio.TimerHandle]] = {}
        self.stop = asyncio.Event()
        self.idle = asyncio.Event()
        self.run_id = uuid4().hex[:8]
        self.started = 0.0
        self.wall_offset = 0.0
        self._next: Planned | None = None
        self._lines: list[str] = []

    async def run(self) -> dict[str, object]:
        """Until the duration is over or ``stop`` is set; the summary."""
        self._use_targets(self.options.targets())
        self.started = time.monotonic()
        self.wall_offset = time.time() - self.started
        self._next = next(self.plan)
        self._arm()
        reporter = self.loop.create_task(self._report())
        try:
            await asyncio.wait_for(self.stop.wait(), self.options.duration_seconds or None)
        except TimeoutError:
            self.stop.set()
        elapsed = time.monotonic() - self.started
        if self.in_flight:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.idle.wait(), self.options.drain_seconds)
        for exchange, (_, _, pool, _) in list(self.in_flight.items()):
            pool.cancel(exchange, "cancelled")
        reporter.cancel()
        self._flush()
        for pool in self.pools.values():
            pool.close()
        return self.stats.summary(elapsed)

    # -- sending ---------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self._next is not None and not self.stop.is_set():
            self.loop.call_at(self.started + self._next.at_seconds, self._send_due)

    def _send_due(self) -> None:
        if self.stop.is_set():
            return
        now = time.monotonic()
        duration = self.options.duration_seconds
        while self._next is not None and self.started + self._next.at_seconds <= now + 5e-4:
            if duration and self._next.at_seconds >= duration:
                self._next = None
                return
            self._send(self._next)
            self._next = next(self.plan)
        self._arm()

    def _send(self, planned: Planned) -> None:
        request_id = f"{self.run_id}-{self.stats.sent:07d}"
        body = chat_body(
            self.prompts.write(planned, request_id), self.options.model, planned.max_tokens, self.options.include_usage
        )
        now = time.monotonic()
        self.stats.count_sent(planned.tenant, now, max(0.0, now - self.started - planned.at_seconds))
        pool = self.order[next(self.turn) % len(self.order)]
        head = (
            f"POST {self.options.path} HTTP/1.1\r\nhost: {pool.host}:{pool.port}\r\nx-tenant: {planned.tenant}\r\n"
            f"x-request-id: {request_id}\r\nx-weighlock-debug: 1\r\n"  # a gate says which variant answers
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        exchange = Exchange(head.encode("latin-1") + body, self._ended)
        exchange.sent_at = now
        exchange.started_unix = now + self.wall_offset
        timer = self.loop.call_later(self.options.timeout_seconds, pool.cancel, exchange, "timeout")
        self.in_flight[exchange] = (planned, request_id, pool, timer)
        pool.send(exchange)

    # -- results ---------------------------------------------------------------------------------------------------

    def _ended(self, exchange: Exchange) -> None:
        planned, request_id, pool, timer = self.in_flight.pop(exchange)
        timer.cancel()
        if self.stop.is_set() and not self.in_flight:
            self.idle.set()
        pool.active.pop(exchange, None)
        assert exchange.outcome is not None
        ttft = None if exchange.first is None else exchange.first - exchange.sent_at
        tokens = exchange.output_tokens
        tpot = (exchange.e2e - ttft) / (tokens - 1) if ttft is not None and tokens is not None and tokens > 1 else None
        bucket = bucket_name(planned.bucket)
        self.stats.add(Sample(time.monotonic(), planned.tenant, bucket, exchange.outcome, ttft, tpot, exchange.e2e))
        if self.options.out is not None:
            self._lines.append(
                json.dumps(self._record(exchange, planned, request_id, bucket, ttft), separators=(",", ":"))
            )

    def _record(
        self, exchange: Exchange, planned: Planned, request_id: str, bucket: str, ttft: float | None
    ) -> dict[str, object]:
        """One request record; what a client cannot know is null."""
        measured = exchange.output_tokens is not None
        return {
            "id": request_id,
            "pair": None,
            "retry_of": None,
            "t_start_s": round(exchange.started_unix, 6),
            "rollout": None,
            "attempt": None,
            "step": None,
            "variant": exchange.variant,
            "revision": None,
            "kind": "live",
            "tenant": planned.tenant,
            "bucket": bucket,
            "model": self.options.model,
            "pod": exchange.pod,
            "prompt_tokens": exchange.prompt_tokens if measured else planned.prompt_tokens,
            "output_tokens": exchange.output_tokens,
            "tokens_source": "usage" if measured else "none",
            "stream": True,
            "status": exchange.status,
            "outcome": exchange.outcome,
            "ttft_s": _micro(ttft),
            "e2e_s": _micro(exchange.e2e),
            "max_gap_s": _micro(exchange.max_gap),
            "max_gap_at_s": _micro(exchange.max_gap_at),
            "gaps_n": exchange.gaps,
            "events": exchange.events,
            "chunks": exchange.chunks,
            "pod_age_s": None,
        }

    def _flush(self) -> None:
        if self.options.out is not None and self._lines:
            self.options.out.write("\n".join(self._lines) + "\n")
            self.options.out.flush()
        self._lines = []

    async def _report(self) -> None:
        """Once a second: records to disk, the live line, targets that changed."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(1.0)
            now = time.monotonic()
            self._flush()
            self._use_targets(self.options.targets())
            line = self.stats.line(now, now - self.started, now - last, len(self.in_flight), len(self.order))
            last = now
            if self.options.stats_file is not None:
                with self.options.stats_file.open("a") as file:
                    file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def _use_targets(self, urls: list[str]) -> None:
        """Round robin over these from now on; requests to a target that is gone may finish."""
        if not urls:
            return
        for url in urls:
            if url not in self.pools:
                self.pools[url] = Pool(url, self.loop)
        for url in set(self.pools) - set(urls):
            self.pools.pop(url).close()
        self.order = [self.pools[url] for url in urls]


def _micro(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
