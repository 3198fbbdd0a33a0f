"""What the run looks like right now (one JSON line a second), and its summary. Used by ``runner.py``."""

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

WINDOW_SECONDS = 10.0


@dataclass(frozen=True)
class Sample:
    """One finished request, as the live view needs it."""

    at: float
    tenant: str
    bucket: str
    outcome: str
    ttft: float | None
    tpot: float | None
    e2e: float


def quantile(values: list[float], share: float) -> float | None:
    """Nearest-rank quantile of unsorted values; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(len(ordered) * share * 10000) // 10000) - 1))]


class LiveStats:
    """A sliding window over finished requests, totals since the start, and schedule lag."""

    def __init__(self) -> None:
        self.window: deque[Sample] = deque()
        self.lags: deque[tuple[float, float]] = deque()
        self.all_lags: list[float] = []
        self.outcomes: Counter[str] = Counter()
        self.sent = 0
        self.sent_by_tenant: Counter[str] = Counter()
        self._sent_before: Counter[str] = Counter()

    def count_sent(self, tenant: str, now: float, lag: float) -> None:
        """A request left, ``lag`` seconds after its planned time."""
        self.sent += 1
        self.sent_by_tenant[tenant] += 1
        self.lags.append((now, lag))
        self.all_lags.append(lag)

    def add(self, sample: Sample) -> None:
        """A request is over."""
        self.window.append(sample)
        self.outcomes[sample.outcome] += 1

    def line(self, now: float, elapsed: float, seconds: float, in_flight: int, targets: int) -> dict[str, Any]:
        """The live document: rates over the last ``seconds``, latencies over the last ten."""
        while self.window and self.window[0].at < now - WINDOW_SECONDS:
            self.window.popleft()
        while self.lags and self.lags[0][0] < now - WINDOW_SECONDS:
            self.lags.popleft()
        tenants: dict[str, Any] = {}
        for tenant in sorted(self.sent_by_tenant):
            rate = (self.sent_by_tenant[tenant] - self._sent_before[tenant]) / max(seconds, 1e-9)
            tenants[tenant] = {
                "rate": round(rate, 2),
                **self._latencies([s for s in self.window if s.tenant == tenant]),
            }
        self._sent_before = Counter(self.sent_by_tenant)
        strata = {
            f"{tenant}/{bucket}": self._latencies([s for s in self.window if (s.tenant, s.bucket) == (tenant, bucket)])
            for tenant, bucket in sorted({(s.tenant, s.bucket) for s in self.window})
        }
        return {
            "elapsed_s": round(elapsed, 2),
            "sent": self.sent,
            "in_flight": in_flight,
            "targets": targets,
            "outcomes": dict(self.outcomes),
            "lag_p99_s": _rounded(quantile([lag for _, lag in self.lags], 0.99)),
            "window_s": WINDOW_SECONDS,
            "all": self._latencies(list(self.window)),
            "tenants": tenants,
            "strata": strata,
        }

    @staticmethod
    def _latencies(samples: list[Sample]) -> dict[str, Any]:
        good = [sample for sample in samples if sample.outcome == "ok"]
        document: dict[str, Any] = {"ok": len(good), "failed": len(samples) - len(good)}
        columns = {
            "ttft": [s.ttft for s in good if s.ttft is not None],
            "tpot": [s.tpot for s in good if s.tpot is not None],
            "e2e": [s.e2e for s in good],
        }
        for name, values in columns.items():
            document[name] = {"p50": _rounded(quantile(values, 0.5)), "p99": _rounded(quantile(values, 0.99))}
        return document

    def summary(self, elapsed: float) -> dict[str, Any]:
        """The end of the run."""
        ok = self.outcomes["ok"]
        over = sum(self.outcomes.values())
        return {
            "sent": self.sent,
            "completed": ok,
            "failed": over - ok,
            "truncated": self.outcomes["truncated"],
            "outcomes": dict(self.outcomes),
            "elapsed_s": round(elapsed, 3),
            "rate": round(self.sent / elapsed, 3) if elapsed > 0 else 0.0,
            "lag_p50_s": _rounded(quantile(self.all_lags, 0.5)),
            "lag_p99_s": _rounded(quantile(self.all_lags, 0.99)),
            "lag_max_s": _rounded(max(self.all_lags, default=0.0)),
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)
