"""Reading the evidence API with a person's token. Used by the dashboard (asynchronous) and by the CLI (see `fetch`)."""

from collections.abc import Mapping
from typing import Any

import httpx
from pydantic import ValidationError

from controller.evidence.views import LiveView

_TIMEOUT_SECONDS = 10.0
_LONG_SECONDS = 120.0  # a re-judge reads an attempt's blocks


class EvidenceProblem(Exception):
    """The evidence API gave no evidence; the message is for people, `code` the HTTP status (0: no answer)."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class EvidenceClient:
    """The evidence API of one operator; the token goes with each call.

    Args:
        url: base URL without path, "" where none is configured.
        client: shared HTTP client (the operator is never behind the environment's proxy).
    """

    def __init__(self, url: str, client: httpx.AsyncClient | None = None) -> None:
        self._url = url.rstrip("/")
        self._client = client or httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False)

    async def live(self, token: str, namespace: str, name: str) -> LiveView:
        """What is known now."""
        return parse_live(await self._get(token, namespace, name, ""))

    async def history(self, token: str, namespace: str, name: str) -> dict[str, Any]:
        """Attempts, decisions, verdicts, actions, audit."""
        return dict(await self._get(token, namespace, name, "/history"))

    async def audit(self, token: str, namespace: str, name: str, action: str, message: str) -> None:
        """Keep what this person tried without success."""
        await self._call("POST", token, namespace, name, "/audit", _audit(action, message))

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()

    async def _get(self, token: str, namespace: str, name: str, path: str) -> Any:
        return (await self._call("GET", token, namespace, name, path)).json()

    async def _call(
        self, method: str, token: str, namespace: str, name: str, path: str, body: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        if not self._url:
            raise EvidenceProblem("No evidence API is configured: start the dashboard with --evidence-url.")
        url = f"{self._url}/api/v1/rollouts/{namespace}/{name}{path}"
        try:
            answer = await self._client.request(method, url, json=body, headers={"Authorization": f"Bearer {token}"})
        except httpx.HTTPError as error:
            raise no_answer(error) from None
        return checked(answer)


def fetch(url: str, token: str, namespace: str, name: str, path: str = "", **params: Any) -> Any:
    """One synchronous read for the CLI; EvidenceProblem where there is no answer."""
    timeout = _LONG_SECONDS if path == "/rejudge" else _TIMEOUT_SECONDS
    return _ask("GET", _target(url, namespace, name, path), token, params=params, timeout=timeout).json()


def post_audit(url: str, token: str, namespace: str, name: str, action: str, message: str) -> None:
    """Keep what this person tried without success, for the CLI; EvidenceProblem where the operator does not take it."""
    _ask("POST", _target(url, namespace, name, "/audit"), token, json=_audit(action, message), timeout=_TIMEOUT_SECONDS)


def _target(url: str, namespace: str, name: str, path: str) -> str:
    return f"{url.rstrip('/')}/api/v1/rollouts/{namespace}/{name}{path}"


def _audit(action: str, message: str) -> dict[str, str]:
    return {"action": action[:40], "message": message[:600]}


def _ask(method: str, target: str, token: str, **given: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    try:
        answer = httpx.request(method, target, headers=headers, trust_env=False, **given)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise no_answer(error) from None
    return checked(answer)


def parse_live(content: Any) -> LiveView:
    """LiveView of an answer; EvidenceProblem for one of another shape."""
    try:
        return LiveView.model_validate(content)
    except ValidationError:
        raise EvidenceProblem("The operator answers in a shape that this release does not know; update it.") from None


def no_answer(error: Exception) -> EvidenceProblem:
    """Words for an evidence API that cannot be reached."""
    return EvidenceProblem(f"The operator's evidence API does not answer ({type(error).__name__}).")


def checked(answer: httpx.Response) -> httpx.Response:
    """The answer where it is one; EvidenceProblem with the operator's own sentence otherwise."""
    if answer.is_success:
        return answer
    try:
        detail = str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"HTTP {answer.status_code}"
    raise EvidenceProblem(f"The evidence API says: {detail[:480]}.", answer.status_code)
