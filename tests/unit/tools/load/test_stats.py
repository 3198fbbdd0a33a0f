"""The live line: windows, rates, quantiles."""

import pytest

from tools.load.stats import WINDOW_SECONDS, LiveStats, Sample, quantile


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, None), ([3.0], 0.99, 3.0), ([1.0, 2.0, 3.0], 0.5, 2.0), ([float(n) for n in range(1, 101)], 0.99, 99.0)],
)
def test_nearest_rank_quantiles(values: list[float], share: float, expected: float | None) -> None:
    assert quantile(values, share) == expected


def sample(at: float, outcome: str = "ok", tenant: str = "acme", ttft: float = 0.2) -> Sample:
    return Sample(at, tenant, "0-420", outcome, ttft, 0.01, 1.0)


def test_old_samples_leave_the_window_but_not_the_totals() -> None:
    stats = LiveStats()
    stats.count_sent("acme", 0.0, 0.0)
    stats.add(sample(0.0, ttft=9.0))
    stats.add(sample(WINDOW_SECONDS + 1.0))
    line = stats.line(WINDOW_SECONDS + 1.5, WINDOW_SECONDS + 1.5, 1.0, 0, 1)
    assert line["all"]["ok"] == 1
    assert line["all"]["ttft"]["p99"] == 0.2
    assert line["outcomes"] == {"ok": 2}


def test_failures_are_counted_and_stay_out_of_latencies() -> None:
    stats = LiveStats()
    stats.count_sent("acme", 0.0, 0.0)
    stats.add(sample(0.5, outcome="truncated", ttft=99.0))
    stats.add(sample(0.6))
    line = stats.line(1.0, 1.0, 1.0, 0, 1)
    assert (line["tenants"]["acme"]["ok"], line["tenants"]["acme"]["failed"]) == (1, 1)
    assert line["strata"]["acme/0-420"]["ttft"]["p99"] == 0.2


def test_rates_are_those_of_the_last_interval() -> None:
    stats = LiveStats()
    for _ in range(10):
        stats.count_sent("acme", 0.0, 0.001)
    assert stats.line(1.0, 1.0, 2.0, 0, 1)["tenants"]["acme"]["rate"] == 5.0
    assert stats.line(2.0, 2.0, 1.0, 0, 1)["tenants"]["acme"]["rate"] == 0.0


def test_the_summary_adds_up() -> None:
    stats = LiveStats()
    for outcome in ("ok", "ok", "truncated", "timeout"):
        stats.count_sent("acme", 0.0, 0.002)
        stats.add(sample(0.0, outcome=outcome))
    summary = stats.summary(2.0)
    assert (summary["sent"], summary["completed"], summary["failed"], summary["truncated"]) == (4, 2, 2, 1)
    assert summary["lag_p99_s"] == 0.002
