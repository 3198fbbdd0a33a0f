"""Leader election on the official client, with a renewal loop of our own around its decision.

The official loop sleeps uninterruptibly, dies on a refused connection and forgets why a renewal failed. Ours tells
three states apart: held; out of reach (the API server does not answer, so nobody else can have taken the lease: weights
may fall, never rise); lost (somebody else holds it: stop). Implements `controller.ports.Lease`.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import structlog
import urllib3
from kubernetes.client import ApiClient, CoordinationV1Api
from kubernetes.client.exceptions import ApiException
from kubernetes.leaderelection.electionconfig import Config
from kubernetes.leaderelection.leaderelection import LeaderElection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

log = structlog.get_logger("weighlock.lease")
logging.getLogger("leaderelection").setLevel(logging.WARNING)  # one line per renewal otherwise

NAME = "weighlock-operator"
DURATION_SECONDS = 15
RENEW_SECONDS = 10
RETRY_SECONDS = 2
ANSWER_SECONDS = (3.0, 5.0)
"""Connecting, reading: a server that takes longer is silent. Get and update together end within the lease."""


class _Leases:
    """The official calls, each with a deadline: a half-open connection must not keep the campaign from going on."""

    def __init__(self, api_client: ApiClient) -> None:
        self._api: Any = CoordinationV1Api(api_client)

    def read_namespaced_lease(self, *given: Any, **named: Any) -> Any:
        return self._api.read_namespaced_lease(*given, _request_timeout=ANSWER_SECONDS, **named)

    def create_namespaced_lease(self, *given: Any, **named: Any) -> Any:
        return self._api.create_namespaced_lease(*given, _request_timeout=ANSWER_SECONDS, **named)

    def replace_namespaced_lease(self, *given: Any, **named: Any) -> Any:
        return self._api.replace_namespaced_lease(*given, _request_timeout=ANSWER_SECONDS, **named)


class _Lock(LeaseLock):
    """The official lock over a given client; a silent server is an answer, not a crash."""

    def __init__(self, api_client: ApiClient, namespace: str, identity: str) -> None:
        self.api_instance: Any = _Leases(api_client)
        self.name, self.namespace, self.identity = NAME, namespace, identity
        self.lease_reference: Any = None
        self.is_silent = False

    def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        try:
            found: tuple[bool, Any] = LeaseLock.get(self, name, namespace)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self.is_silent = True
            return False, SimpleNamespace(body=json.dumps({"code": 0}), reason=type(error).__name__)
        self.is_silent = not found[0] and getattr(found[1], "status", 0) in (None, 0, 429, 500, 502, 503, 504)
        return found

    def create(self, name: str, namespace: str, election_record: Any) -> bool:
        return self._guarded(super().create, name, namespace, election_record)

    def update(self, name: str, namespace: str, updated_record: Any) -> bool:
        return self._guarded(super().update, name, namespace, updated_record)

    def _guarded(self, call: Callable[..., Any], *given: Any) -> bool:
        try:
            return bool(call(*given))
        except (urllib3.exceptions.HTTPError, OSError):
            self.is_silent = True
            return False


class LeaseHolder:
    """Campaigns on a thread of its own.

    Args:
        on_lost: called once when somebody else holds the lease after we did; the process must stop acting.
    """

    def __init__(self, api_client: ApiClient, namespace: str, identity: str, on_lost: Callable[[], None]) -> None:
        self._lock = _Lock(api_client, namespace, identity)
        config = Config(self._lock, DURATION_SECONDS, RENEW_SECONDS, RETRY_SECONDS, lambda: None, lambda: None)
        self._election = LeaderElection(config)
        self._identity, self._on_lost = identity, on_lost
        self._renewed_s: float | None = None
        self._silent_s: float | None = None
        self._is_lost = False
        self._stop = threading.Event()
        self.is_elected = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        """Begin to campaign; `is_elected` is set when this process leads."""
        self._thread.start()

    def stop(self) -> None:
        """End the campaign and let the lease go, so that the next leader need not wait."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)
        if self.is_held():
            self._release()

    def is_held(self) -> bool:
        """Whether the lease is ours by our own steady clock (false after the process was frozen)."""
        return (
            self._renewed_s is not None and not self._is_lost and time.monotonic() - self._renewed_s < DURATION_SECONDS
        )

    def may_lower(self) -> bool:
        """Held, or not renewed only because the API server is silent.

        A process that was frozen does not know that: its last word from the server is old, so it must ask first.
        """
        if self._is_lost or self._renewed_s is None:
            return False
        return self.is_held() or (self._silent_s is not None and time.monotonic() - self._silent_s < DURATION_SECONDS)

    def _run(self) -> None:
        while not self._stop.is_set() and self.try_once():
            self._stop.wait(RETRY_SECONDS)

    def try_once(self) -> bool:
        """Take or renew the lease; False when somebody else has it after we did."""
        tried_s = time.monotonic()
        if self._election.try_acquire_or_renew():
            self._renewed_s = tried_s
            if not self.is_elected.is_set():
                log.info("leading", identity=self._identity)
            self.is_elected.set()
        elif self._renewed_s is not None and self._held_by_other():
            self._is_lost = True
            log.error("another operator leads", identity=self._identity)
            self._on_lost()
            return False
        elif self._lock.is_silent:
            self._silent_s = tried_s  # when it was asked: an attempt that was frozen in between proves nothing
        return True

    def _held_by_other(self) -> bool:
        record = self._election.observed_record
        holder = getattr(record, "holder_identity", None)
        return not self._lock.is_silent and holder is not None and holder != self._identity

    def _release(self) -> None:
        try:
            lease = self._lock.api_instance.read_namespaced_lease(NAME, self._lock.namespace)
            if lease.spec is not None and lease.spec.holder_identity != self._identity:
                return
            if lease.spec is not None:
                lease.spec.holder_identity = None
            self._lock.api_instance.replace_namespaced_lease(NAME, self._lock.namespace, lease)
        except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            log.warning("lease not released", error=type(error).__name__)


class AlwaysHeld:
    """`--no-leader-election`: for a single process on a development machine."""

    def is_held(self) -> bool:
        """Always."""
        return True

    def may_lower(self) -> bool:
        """Always."""
        return True
