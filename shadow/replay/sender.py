"""Sends planned requests, open loop, and reads the answers with the gate's own meter.

A slow target does not slow the schedule: what waits is the target's fault and part of the latency. What is sent too
late is ours, is reported as lag, and makes the run invalid when it is more than a few milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx
import numpy as np

from policies.records import RequestRecord
from shadow.replay.schedule import Planned, PromptWriter
from shadow.stream import Meter

LAG_LIMIT_S = 0.05
_COMPLETIONS = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go and how they are marked."""

    url: str
    model: str | None = None
    tenant: str = "replay"
    tenant_header: str = "x-tenant"
    variant: str = "stable"
    timeout_s: float = 600.0
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def endpoint(self) -> str:
        """The URL that is posted to: chat completions unless the URL has a path of its own."""
        url = httpx.URL(self.url)
        return self.url if url.path.strip("/") else str(url.copy_with(path=_COMPLETIONS))


@dataclass(slots=True)
class Report:
    """What became of a run; `to_json` is the shape of `weighlock replay -o json`."""

    sent: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    lags_s: list[float] = field(default_factory=list)
    offered_rps: float = 0.0
    elapsed_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Counts, rates per second and the 99th percentile of the lag; valid below `LAG_LIMIT_S`."""
        lag = float(np.quantile(self.lags_s, 0.99, method="higher")) if self.lags_s else 0.0
        completed = sum(n for outcome, n in self.outcomes.items() if outcome != "cancelled")
        return {
            "sent": self.sent,
            "completed": completed,
            "outcomes": dict(sorted(self.outcomes.items())),
            "lag_p99_s": round(lag, 6),
            "lag_valid": lag <= LAG_LIMIT_S,
            "offered_rps": round(self.offered_rps, 3),
            "achieved_rps": round(self.sent / self.elapsed_s, 3) if self.elapsed_s else 0.0,
        }


async def find_model(client: httpx.AsyncClient, target: Target) -> str | None:
    """The first model that the target lists, None where it lists none; errors as httpx raises them."""
    answer = await client.get(str(httpx.URL(target.url).copy_with(path="/v1/models")), headers=target.headers)
    if answer.status_code != 200:
        return None
    data = answer.json().get("data") or []
    return str(data[0]["id"]) if data and isinstance(data[0], dict) and "id" in data[0] else None


class Sender:
    """One run. `keep` gets every record as it ends, `progress` is called about once a second."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        target: Target,
        prompts: PromptWriter,
        keep: Callable[[RequestRecord], None],
        progress: Callable[[Report, int], None],
    ) -> None:
        self._client, self._target, self._prompts = client, target, prompts
        self._keep, self._progress = keep, progress
        self._run = uuid4().hex[:8]
        self.report = Report()

    async def run(self, planned: list[Planned]) -> Report:
        """Send all, wait for all answers. Cancelling it ends what is in flight as `cancelled`."""
        started = time.monotonic()
        if planned and planned[-1].at_s > 0:
            self.report.offered_rps = len(planned) / planned[-1].at_s
        tasks: set[asyncio.Task[None]] = set()
        shown = started
        try:
            for item in planned:
                await asyncio.sleep(max(0.0, started + item.at_s - time.monotonic()))
                now = time.monotonic()
                self.report.lags_s.append(max(0.0, now - started - item.at_s))
                self.report.sent += 1
                task = asyncio.create_task(self._one(item))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                if now - shown >= 1.0:
                    shown = now
                    self._progress(self.report, len(tasks))
            self.report.elapsed_s = time.monotonic() - started
            while tasks:
                await asyncio.wait(tasks, timeout=1.0)
                self._progress(self.report, len(tasks))
        finally:
            self.report.elapsed_s = self.report.elapsed_s or time.monotonic() - started
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self.report

    async def _one(self, item: Planned) -> None:
        name = f"{self._run}-{item.number:07d}"
        tenant = item.row.tenant or self._target.tenant
        began, unix = time.monotonic(), time.time()
        answer = _Answer(Meter(began))
        outcome: str | None = None
        try:
            async with asyncio.timeout(self._target.timeout_s):
                await self._stream(item, {self._target.tenant_header: tenant, "x-request-id": name}, answer)
        except TimeoutError:
            outcome = "timeout"
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except httpx.HTTPError:
            outcome = "server_error" if answer.status is None else "truncated"
        finally:
            seen = {"prompt_tokens": item.row.prompt_tokens} | answer.fields(began, time.monotonic(), outcome)
            self.report.outcomes[seen["outcome"]] += 1
            record = RequestRecord(
                id=name,
                t_start_s=unix,
                variant=self._target.variant,
                tenant=tenant,
                kind="replay",
                model=self._target.model,
                stream=True,
                **seen,
            )
            self._keep(record)

    async def _stream(self, item: Planned, marks: dict[str, str], answer: _Answer) -> None:
        body = {
            "messages": [{"role": "user", "content": self._prompts.write(item.row, item.number)}],
            "max_tokens": max(1, item.row.output_tokens),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._target.model is not None:
            body["model"] = self._target.model
        headers = {**self._target.headers, **marks}
        async with self._client.stream("POST", self._target.endpoint, json=body, headers=headers) as response:
            answer.status = response.status_code
            async for data in response.aiter_bytes():
                answer.meter.feed(data, time.monotonic())
            answer.meter.finish(time.monotonic())


@dataclass(slots=True)
class _Answer:
    """What was seen of one answer so far."""

    meter: Meter
    status: int | None = None

    def fields(self, began: float, ended: float, outcome: str | None) -> dict[str, Any]:
        """Fields of a request record; what was not seen is left out."""
        reading, times = self.meter.reading(), self.meter.times()
        first, gap_at = times["first_at"], times["gap_at"]
        seen: dict[str, Any] = {
            "outcome": outcome or _outcome(self.status, reading.outcome),
            "status": self.status,
            "ttft_s": None if first is None else first - began,
            "e2e_s": ended - began,
            "max_gap_s": times["gap"],
            "max_gap_at_s": None if gap_at is None else gap_at - began,
            "gaps_n": max(0, reading.content_events - 1),
            "events": reading.events,
            "tokens_source": reading.tokens_source,
            "prompt_tokens": reading.prompt_tokens,
            "output_tokens": reading.output_tokens,
        }
        return {key: value for key, value in seen.items() if value is not None}


def _outcome(status: int | None, read: str) -> str:
    if status is None or status >= 500:
        return "server_error"
    if status == 429:
        return "rejected"
    return "client_error" if status >= 400 else read
