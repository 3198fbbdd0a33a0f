"""One-token completions straight to engine pods: Ready is not servable.

Implements `controller.ports.Prober`. Probes never pass the gates, so they are in no count. One small pool of threads
for all rollouts; results are kept by pod uid.
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

EAGER_SECONDS = 1.0
STEADY_SECONDS = 10.0
TIMEOUT_SECONDS = 20.0
_FALLBACK = "/v1/chat/completions"


@dataclass(slots=True)
class _Target:
    rollout: str
    url: str
    has_answered: bool = False
    failures: int = 0
    error: str = ""
    due_s: float = 0.0
    is_busy: bool = False


class HttpProber:
    """Probes what it is told to watch.

    Args:
        on_change: called with the rollout when a pod's result changed.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._targets: dict[str, _Target] = {}
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="probe")
        self._http = httpx.Client(timeout=httpx.Timeout(TIMEOUT_SECONDS, connect=2.0), trust_env=False)
        self._wake = threading.Event()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)
        self._thread.start()

    def watch(self, rollout: str, targets: Mapping[str, str]) -> None:
        """See the protocol."""
        with self._lock:
            for uid in [u for u, t in self._targets.items() if t.rollout == rollout and u not in targets]:
                del self._targets[uid]
            for uid, url in targets.items():
                if uid not in self._targets or self._targets[uid].url != url:
                    self._targets[uid] = _Target(rollout, url)
                    self._wake.set()

    def result(self, uid: str) -> tuple[bool, int, str]:
        """See the protocol."""
        with self._lock:
            target = self._targets.get(uid)
            return (target.has_answered, target.failures, target.error) if target else (False, 0, "")

    def stop(self) -> None:
        """End the threads."""
        self._is_stopped = True
        self._wake.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        while not self._is_stopped:
            now_s = time.monotonic()
            with self._lock:
                due = [t for t in self._targets.values() if not t.is_busy and t.due_s <= now_s]
                for target in due:
                    target.is_busy = True
            for target in due:
                self._pool.submit(self._probe, target)
            self._wake.wait(0.5)
            self._wake.clear()

    def _probe(self, target: _Target) -> None:
        error = self._ask(target.url)
        with self._lock:
            before = (target.has_answered, target.failures)
            target.error = error
            target.failures = target.failures + 1 if error else 0
            target.has_answered = target.has_answered or not error
            target.due_s = time.monotonic() + (STEADY_SECONDS if target.has_answered else EAGER_SECONDS)
            target.is_busy = False
            is_news = before != (target.has_answered, target.failures)
        if is_news:
            self._on_change(target.rollout)

    def _ask(self, url: str) -> str:
        """ "" when a one-token completion was answered, else why not."""
        try:
            model = self._model(url)
            body = {"model": model, "prompt": "1", "max_tokens": 1}
            answer = self._http.post(f"{url}/v1/completions", json=body)
            if answer.status_code == 404:
                chat = {"model": model, "messages": [{"role": "user", "content": "1"}], "max_tokens": 1}
                answer = self._http.post(url + _FALLBACK, json=chat)
            answer.raise_for_status()
            return "" if answer.json().get("choices") else "the completion has no choices"
        except (httpx.HTTPError, ValueError, AttributeError) as error:
            return f"{type(error).__name__}: {error}"[:200]

    def _model(self, url: str) -> str:
        answer = self._http.get(f"{url}/v1/models")
        answer.raise_for_status()
        models = answer.json().get("data") or []
        return str(models[0]["id"]) if models else "default"
