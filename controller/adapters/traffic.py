"""What the recorder saw start in the last seconds, per rollout, read every two seconds off the decision path.

Made by `Judgements` (recorder.py); observe.py puts the last reading into the snapshot. One thread for all rollouts. A
reading that is too old is none: nobody decides by what was true a while ago.
"""

import threading
from collections.abc import Mapping
from typing import Any, Protocol

import structlog

from controller.core.snapshot import Traffic
from controller.ports import Clock, Retryable

log = structlog.get_logger("weighlock.traffic")

REFRESH_SECONDS = 2.0
STALE_SECONDS = 10.0


class StatsClient(Protocol):
    """The one call that is needed of a recorder."""

    def stats(self, rollout: str) -> dict[str, Any]:
        """`GET /stats`; Retryable where there is no answer."""


def read_traffic(raw: Mapping[str, Any], read_s: float) -> Traffic:
    """A reading from the recorder's JSON; ValueError, KeyError or TypeError for anything else."""
    counts: dict[tuple[str, str, str], int] = {}
    for row in raw["rates"]:
        key = (str(row["variant"]), str(row["kind"]), str(row["tenant"]))
        counts[key] = counts.get(key, 0) + int(row["n"])
    last = {place.removesuffix("/live"): float(at) for place, at in raw["last_start_s"].items() if "/live" in place}
    attempt = raw.get("attempt")
    return Traffic(
        read_s=read_s,
        window_s=float(raw["window_s"]),
        until_s=float(raw["until_s"]),
        attempt=int(attempt) if attempt is not None else None,
        counts=counts,
        last_live_s=last,
    )


class TrafficWatch:
    """Last reading per rollout; a rollout is read from the first time that somebody asks for it until `forget`."""

    def __init__(self, client: StatsClient, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._lock = threading.Lock()
        self._readings: dict[str, Traffic | None] = {}
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def get(self, rollout: str) -> Traffic | None:
        """The last reading; None where there is none that is fresh. Never waits."""
        with self._lock:
            if rollout not in self._readings:
                self._readings[rollout] = None
                self._wake.set()
                self._begin()
            found = self._readings[rollout]
        if found is None or self._clock.now() - found.read_s > STALE_SECONDS:
            return None
        return found

    def forget(self, rollout: str) -> None:
        """Stop reading a rollout."""
        with self._lock:
            self._readings.pop(rollout, None)

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._wake.set()

    def refresh(self) -> None:
        """Read every rollout once; the thread does it again and again."""
        with self._lock:
            rollouts = list(self._readings)
        for rollout in rollouts:
            try:
                reading: Traffic | None = read_traffic(self._client.stats(rollout), self._clock.now())
            except Retryable as error:
                log.debug("no statistics", rollout=rollout, error=str(error))
                continue  # the last reading grows stale by itself
            except (ValueError, KeyError, TypeError) as error:
                log.error("the recorder's statistics cannot be read", rollout=rollout, error=repr(error))
                reading = None
            with self._lock:
                if rollout in self._readings:
                    self._readings[rollout] = reading

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            self.refresh()
            self._wake.wait(REFRESH_SECONDS)
