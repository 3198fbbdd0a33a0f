"""The API server with a person's own token: everything that the dashboard reads and does.

Used by controller/dashboard. Asynchronous; one pooled HTTP client for all people, the token goes with each call and is
never logged, nor part of an error.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from crds.v1alpha1.common import API_VERSION, GROUP

_TIMEOUT_SECONDS = 10.0


class NotSignedIn(Exception):
    """The API server does not know this token (any more)."""


class Refused(Exception):
    """The API server said no, or could not be asked.

    `message`: its own sentence; `code`: its HTTP status, 0 where there was no answer.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Where the API server is.

    url: for example https://10.0.0.1:443; ca_file: its certificate authority (None: the system's).
    """

    url: str
    ca_file: Path | None = None

    @staticmethod
    def in_cluster(environment: Mapping[str, str]) -> "ApiServer":
        """From a pod's environment; KeyError outside of a pod."""
        host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
        host = f"[{host}]" if ":" in host else host
        return ApiServer(f"https://{host}:{port}", Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"))

    def make_client(self) -> httpx.AsyncClient:
        """The shared client; proxies of the environment are not for the API server."""
        import ssl

        verify = ssl.create_default_context(cafile=str(self.ca_file)) if self.ca_file else True
        return httpx.AsyncClient(base_url=self.url, verify=verify, timeout=_TIMEOUT_SECONDS, trust_env=False)


class PersonApi:
    """Calls of one person."""

    def __init__(self, client: httpx.AsyncClient, token: str) -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}

    async def who(self) -> str:
        """Their user name; NotSignedIn for a token that is nobody's."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await self._call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
        user = str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "")
        if not user or user == "system:anonymous":
            raise NotSignedIn
        return user

    async def may(self, verb: str, plural: str, namespace: str, name: str = "") -> bool:
        """Whether they may do this with one of our kinds."""
        attributes = {"group": GROUP, "resource": plural, "verb": verb, "namespace": namespace, "name": name}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = await self._call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
        return bool((answer.get("status") or {}).get("allowed"))

    async def namespaces(self) -> list[str]:
        """Names of all namespaces; Refused where they may not list them."""
        answer = await self._call("GET", "/api/v1/namespaces")
        return sorted(item["metadata"]["name"] for item in answer.get("items") or [])

    async def list(self, plural: str, namespace: str = "") -> list[dict[str, Any]]:
        """Objects of one of our kinds in a namespace ("" = everywhere)."""
        items = (await self._call("GET", _path(plural, namespace))).get("items") or []
        return [dict(item) for item in items]

    async def get(self, plural: str, namespace: str, name: str) -> dict[str, Any]:
        """One object of ours."""
        return await self._call("GET", f"{_path(plural, namespace)}/{name}")

    async def create_action(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Create a RolloutAction as this person."""
        return await self._call("POST", _path("rolloutactions", obj["metadata"]["namespace"]), obj)

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            answer = await self._client.request(method, path, json=body, headers=self._headers)
        except httpx.HTTPError as error:
            raise Refused(0, f"The API server does not answer ({type(error).__name__}).") from None
        if answer.status_code == 401:
            raise NotSignedIn
        if answer.is_error:
            raise Refused(answer.status_code, _sentence(answer))
        content = answer.json()
        return dict(content) if isinstance(content, dict) else {}


def _path(plural: str, namespace: str) -> str:
    where = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{API_VERSION}{where}/{plural}"


def _sentence(answer: httpx.Response) -> str:
    try:
        message = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        message = f"The API server answered {answer.status_code}."
    return message[:500]


async def may_all(api: PersonApi, verbs: list[str], namespace: str, name: str) -> dict[str, bool]:
    """Which verbs on a rollout are allowed, and (`create`) whether RolloutActions may be created at all."""
    asked = [api.may(verb, "inferencerollouts", namespace, name) for verb in verbs]
    answers = await asyncio.gather(*asked, api.may("create", "rolloutactions", namespace))
    return dict(zip([*verbs, "create"], answers, strict=True))
