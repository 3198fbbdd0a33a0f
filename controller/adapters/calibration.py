"""Bytes per prompt token, calibrated by the recorder, frozen where a comparison depends on it.

The gates estimate a request's length bucket from its body. The factor is kept in the recorder's setup of attempt 0
(the history) and copied into every attempt, so a new leader and both variants use the same one. Called by recorder.py.
"""

import threading
from collections.abc import Mapping
from typing import Any

from controller.adapters.recorder_client import RecorderClient
from controller.jsonable import digest_of

HISTORY_ATTEMPT = 0
DEFAULT = (("", 4.0),)
_KEY, _OVERHEAD_KEY = "bytesPerToken", "overheadBytes"
Factors = tuple[tuple[str, float], ...]


class Calibrations:
    """What is in force, by rollout."""

    def __init__(self, client: RecorderClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Factors, Factors]] = {}
        self._wanted: dict[str, Mapping[str, Any]] = {}
        self._done: dict[str, str] = {}

    def of(self, rollout: str) -> tuple[Factors, Factors]:
        """(bytes per token, overhead bytes) by model; the default before the first calibration."""
        with self._lock:
            return self._known.get(rollout, (DEFAULT, ()))

    def body(self, rollout: str) -> dict[str, Any]:
        """What an attempt's setup says about it."""
        factors, overheads = self.of(rollout)
        return {_KEY: dict(factors), _OVERHEAD_KEY: dict(overheads)}

    def want(self, rollout: str, policy: Mapping[str, Any]) -> None:
        """The policy by which history is counted from now on; never waits."""
        with self._lock:
            self._wanted[rollout] = policy

    def sync(self, rollout: str) -> None:
        """Bring the recorder's setup of attempt 0 there; Retryable on silence. Called by the rollout's feed."""
        with self._lock:
            policy = self._wanted.get(rollout)
            mark = digest_of(policy) if policy is not None else ""
            is_done = policy is None or (self._done.get(rollout) == mark and rollout in self._known)
        if is_done or policy is None:
            return
        kept = self._client.setup(rollout, HISTORY_ATTEMPT) or {}
        factors, overheads = dict(kept.get(_KEY) or {}), dict(kept.get(_OVERHEAD_KEY) or {})
        if not factors:
            seen = self._client.stats(rollout)
            factors, overheads = dict(seen.get("bytes_per_token") or {}), dict(seen.get("overhead_bytes") or {})
        if kept.get("contract") != dict(policy) or (factors and kept.get(_KEY) != factors):
            body = {"attempt": HISTORY_ATTEMPT, "contract": dict(policy), _KEY: factors, _OVERHEAD_KEY: overheads}
            self._client.put_setup(rollout, body)
        with self._lock:
            self._done[rollout] = mark
            if factors:
                self._known[rollout] = (_with_any(factors), _with_any(overheads))


def _with_any(factors: dict[str, float]) -> Factors:
    """Factors by model, with the mean for models that were never seen."""
    if not factors:
        return ()
    return tuple(sorted({"": sum(factors.values()) / len(factors), **factors}.items()))
