"""Who asks, and may they: bearer token -> TokenReview -> SubjectAccessReview `get inferencerollouts`.

Used by the evidence API. Only what the API server says of the token counts: no header names a person here.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from crds.v1alpha1.common import GROUP

_KEPT_SECONDS = 10.0
_KEPT_ENTRIES = 2000
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Identity:
    """A verified person or service account."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class AuthUnavailable(Exception):
    """The API server could not be asked: nobody is let in."""


class KubeAuth(Protocol):
    """Authentication and authorization by the cluster; both raise AuthUnavailable when it cannot be asked."""

    def authenticate(self, token: str) -> Identity | None:
        """Whose token this is; None when it is nobody's."""

    def allowed(self, identity: Identity, verb: str, namespace: str, name: str) -> bool:
        """Whether they may do `verb` on that InferenceRollout."""


class ClusterAuth:
    """KubeAuth by the official client; answers are kept for a few seconds, under a digest of the token.

    Args:
        api_client: `kubernetes.client.ApiClient` with the operator's own rights (tokenreviews, subjectaccessreviews).
        clock: monotonic seconds.
    """

    def __init__(self, api_client: Any, clock: Callable[[], float] = time.monotonic) -> None:
        from kubernetes import client

        self._authentication: Any = client.AuthenticationV1Api(api_client)
        self._authorization: Any = client.AuthorizationV1Api(api_client)
        self._identities: _Kept[Identity | None] = _Kept(clock)
        self._answers: _Kept[bool] = _Kept(clock)

    def authenticate(self, token: str) -> Identity | None:
        """See KubeAuth."""
        key = hashlib.sha256(token.encode()).hexdigest()
        return self._identities.get(key, lambda: self._review(token))

    def allowed(self, identity: Identity, verb: str, namespace: str, name: str) -> bool:
        """See KubeAuth."""
        return self._answers.get((identity, verb, namespace, name), lambda: self._ask(identity, verb, namespace, name))

    def _review(self, token: str) -> Identity | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        answer = _asked(lambda: self._authentication.create_token_review(body)).status
        if not answer.authenticated or not answer.user or not answer.user.username:
            return None
        user = answer.user
        extra = tuple(sorted((key, tuple(values)) for key, values in (user.extra or {}).items()))
        return Identity(user.username, user.uid or "", tuple(user.groups or ()), extra)

    def _ask(self, identity: Identity, verb: str, namespace: str, name: str) -> bool:
        attributes = {
            "group": GROUP,
            "resource": "inferencerollouts",
            "verb": verb,
            "namespace": namespace,
            "name": name,
        }
        spec = {
            "user": identity.user,
            "uid": identity.uid,
            "groups": list(identity.groups),
            "extra": {key: list(values) for key, values in identity.extra},
            "resourceAttributes": attributes,
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return bool(_asked(lambda: self._authorization.create_subject_access_review(body)).status.allowed)


def _asked(call: Callable[[], V]) -> V:
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        return call()
    except (ApiException, HTTPError) as error:
        # The client's own text may hold the request: never pass it on.
        raise AuthUnavailable(f"the API server could not be asked who you are ({type(error).__name__})") from None


class _Kept(Generic[V]):
    """Answers of the last few seconds, bounded."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[Any, tuple[float, V]] = OrderedDict()

    def get(self, key: Any, ask: Callable[[], V]) -> V:
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and self._clock() - entry[0] < _KEPT_SECONDS:
                return entry[1]
        value = ask()
        with self._lock:
            self._entries[key] = (self._clock(), value)
            self._entries.move_to_end(key)
            while len(self._entries) > _KEPT_ENTRIES:
                self._entries.popitem(last=False)
        return value
