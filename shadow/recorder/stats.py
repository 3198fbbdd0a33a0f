"""Counts of the last seconds: rates by variant, kind, tenant and bucket, and what the gates left out.

Called by rollout.py for every request; read by the controller (observed split, load parity, copies that still arrive)
and by /metrics.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from policies.records import RequestRecord

WINDOW_S = 10
SETTLE_S = 2
"""A request is known at the latest this long after its start (the gate reports unfinished ones every second)."""

_Key = tuple[str, str, str, str]


class Stats:
    """Requests by the second in which they started."""

    def __init__(self) -> None:
        self._seconds: dict[int, dict[_Key, int]] = {}
        self._last_start: dict[tuple[str, str], float] = {}
        self._unauthorized: dict[str, int] = defaultdict(int)
        self.skipped: dict[tuple[str, str, str], int] = defaultdict(int)
        self.dropped: dict[tuple[str, str], int] = defaultdict(int)
        self.finished: dict[tuple[str, str, str], int] = defaultdict(int)
        self.fell_over = 0
        self.lost = 0

    def start(self, record: RequestRecord, now_s: float) -> None:
        """A request is seen for the first time."""
        second = int(record.t_start_s)
        if second < now_s - 4 * WINDOW_S:
            return
        key = (record.variant, record.kind, record.tenant, record.bucket or "")
        counts = self._seconds.setdefault(second, {})
        counts[key] = counts.get(key, 0) + 1
        place = (record.variant, record.kind)
        self._last_start[place] = max(record.t_start_s, self._last_start.get(place, 0.0))

    def finish(self, record: RequestRecord) -> None:
        """A request ended."""
        self.finished[record.variant, record.kind, record.outcome] += 1
        if record.status in (401, 403) and record.kind != "live":
            self._unauthorized[record.variant] += 1

    def trim(self, now_s: float) -> None:
        """Forget what is out of every window."""
        for second in [s for s in self._seconds if s < now_s - 4 * WINDOW_S]:
            del self._seconds[second]

    def view(self, now_s: float) -> dict[str, Any]:
        """Rates per second over the window of whole seconds that ends SETTLE_S ago."""
        until = int(now_s) - SETTLE_S
        totals: dict[_Key, int] = defaultdict(int)
        for second in range(until - WINDOW_S, until):
            for key, n in self._seconds.get(second, {}).items():
                totals[key] += n
        rates = [
            {"variant": v, "kind": k, "tenant": t, "bucket": b, "rps": n / WINDOW_S, "n": n}
            for (v, k, t, b), n in sorted(totals.items())
        ]
        return {
            "window_s": WINDOW_S,
            "until_s": float(until),
            "rates": rates,
            "split": _split(totals),
            "last_start_s": {f"{v}/{k}": at for (v, k), at in sorted(self._last_start.items())},
            "skipped": [
                {"tenant": t, "bucket": b, "reason": r, "n": n} for (t, b, r), n in sorted(self.skipped.items())
            ],
            "copies_dropped": {f"{v}/{r}": n for (v, r), n in sorted(self.dropped.items())},
            "copies_unauthorized": dict(self._unauthorized),
            "fell_over": self.fell_over,
            "lost": self.lost,
        }


def _split(totals: Mapping[_Key, int]) -> dict[str, Any]:
    """Live requests by variant and the candidate's share in percent (None without any)."""
    live: dict[str, int] = defaultdict(int)
    for (variant, kind, _, _), n in totals.items():
        if kind == "live":
            live[variant] += n
    total = sum(live.values())
    share = 100.0 * live["candidate"] / total if total else None
    return {"stable": live["stable"], "candidate": live["candidate"], "candidate_percent": share}
