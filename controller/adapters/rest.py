"""Raw calls to the API server through the official client: plain dicts in and out, every failure as one of two kinds.

Called by kube.py and lease.py. The generated models are not used: they cost CPU and drop fields that they do not know.
"""

import json
from collections.abc import Mapping
from typing import Any

import urllib3
from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

from controller.ports import Ref, Retryable, Terminal
from crds.v1alpha1.conditions import Reason

FIELD_MANAGER = "weighlock"
CONNECT_SECONDS = 3.0
READ_SECONDS = 10.0
_UNTYPED = "failed to create typed patch object"
"""A server-side apply with a field that the kind does not have is answered 500, and will be for ever."""
_RETRY_STATUSES = frozenset({401, 408, 409, 410, 429, 500, 502, 503, 504})


def path_of(ref: Ref, subresource: str = "") -> str:
    """URL path of an object, or of a collection where `ref.name` is empty."""
    root = f"/api/{ref.api_version}" if "/" not in ref.api_version else f"/apis/{ref.api_version}"
    inside = f"/namespaces/{ref.namespace}" if ref.namespace else ""
    tail = f"/{ref.name}" if ref.name else ""
    return f"{root}{inside}/{ref.plural}{tail}" + (f"/{subresource}" if subresource else "")


class Rest:
    """One API server.

    Raises Retryable for what may pass (conflicts, timeouts, refused connections), Terminal for what a person must
    mend (a field that may not change, a right that is missing).
    """

    def __init__(self, api_client: ApiClient) -> None:
        self._client = api_client

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any] | None:
        """The decoded answer; None for 404."""
        try:
            response = self.raw(method, path, body, query, content_type, (CONNECT_SECONDS, READ_SECONDS))
            data = response.data
        except (urllib3.exceptions.HTTPError, OSError, ApiException) as error:
            raise Retryable(f"the API server does not answer {method} {path}: {type(error).__name__}", 1.0) from error
        if response.status == 404:
            return None
        if not 200 <= response.status < 300:
            raise refusal(method, path, response.status, data, response.headers.get("Retry-After"))
        try:
            decoded: dict[str, Any] = json.loads(data) if data else {}
        except ValueError as error:
            raise Retryable(f"the API server answers {method} {path} with something that is no JSON") from error
        return decoded

    def raw(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        timeout: tuple[float, float] = (CONNECT_SECONDS, READ_SECONDS),
    ) -> Any:
        """The undecoded urllib3 response (watches read it as a stream)."""
        headers = {"Accept": "application/json", "Content-Type": content_type}
        request = self._client.param_serialize(
            method, path, query_params=list((query or {}).items()), header_params=headers, body=body,
            auth_settings=["BearerToken"],
        )  # fmt: skip
        return self._client.call_api(*request, _request_timeout=timeout).response


def refusal(method: str, path: str, status: int, data: bytes, retry_after: str | None) -> Retryable | Terminal:
    """The exception for an answer that is no success."""
    try:
        message = str(json.loads(data).get("message", ""))
    except (ValueError, AttributeError):
        message = data[:200].decode("utf-8", "replace")
    text = f"{method} {path}: {status} {message}"
    if status in _RETRY_STATUSES and _UNTYPED not in message:
        delay_s = float(retry_after) if retry_after and retry_after.isdigit() else 1.0
        return Retryable(text, delay_s)
    return Terminal(Reason.PREFLIGHT_FAILED, text)
