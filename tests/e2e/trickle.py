"""A few requests at a time to one address while a test goes on."""

from typing import Any

import httpx

from tests.e2e.background import Background


class Trickle(Background):
    """Asks again and again; `answers` holds the status, or the error, of each request in the order of its end.

    Args:
        threads: how many ask at once; pause_seconds: between two questions of one of them.
        body: of the request, beside its message.
    """

    def __init__(self, url: str, threads: int = 1, pause_seconds: float = 0.05, **body: Any) -> None:
        self.threads, self.join_seconds = threads, 60.0
        self._url, self._pause_seconds = f"{url}/v1/chat/completions", pause_seconds
        self._body = {"messages": [{"role": "user", "content": "hello " * 20}], "max_tokens": 2, **body}
        self.answers: list[str] = []

    def work(self) -> None:
        with httpx.Client(timeout=30, trust_env=False) as client:
            while not self.has_ended(self._pause_seconds):
                try:
                    answer = client.post(self._url, json=self._body, headers={"x-tenant": "acme"})
                    self.answers.append(str(answer.status_code))
                except httpx.HTTPError as error:
                    self.answers.append(type(error).__name__)
