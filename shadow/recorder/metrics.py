"""The recorder's own Prometheus metrics, read from its state when they are scraped."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from shadow.recorder.als import AccessLogs
from shadow.recorder.recorder import Recorder


class _Collector:
    def __init__(self, recorder: Recorder, logs: AccessLogs) -> None:
        self._recorder, self._logs = recorder, logs

    def collect(self) -> Iterator[Metric]:
        """Every metric once per scrape."""
        yield CounterMetricFamily(
            "weighlock_recorder_entries", "Access-log entries received.", value=self._logs.entries
        )
        yield CounterMetricFamily(
            "weighlock_recorder_bad_entries", "Entries that could not be read.", value=self._logs.bad
        )
        yield CounterMetricFamily(
            "weighlock_recorder_entry_cpu_seconds", "CPU time spent on entries.", value=self._logs.seconds
        )
        yield GaugeMetricFamily("weighlock_recorder_streams", "Connected access-log streams.", value=self._logs.streams)
        blocks = CounterMetricFamily("weighlock_recorder_blocks", "Closed blocks.", labels=["rollout"])
        opened = GaugeMetricFamily("weighlock_recorder_open_requests", "Unfinished requests.", labels=["rollout"])
        requests = CounterMetricFamily(
            "weighlock_requests", "Finished requests.", labels=["rollout", "variant", "kind", "outcome"]
        )
        skipped = CounterMetricFamily(
            "weighlock_copies_skipped",
            "Live requests that could not be copied.",
            labels=["rollout", "tenant", "bucket", "reason"],
        )
        dropped = CounterMetricFamily(
            "weighlock_copies_dropped", "Copies that were never sent.", labels=["rollout", "variant", "reason"]
        )
        for log in self._recorder.rollouts:
            blocks.add_metric([log.rollout], log.last_seq + 1)
            opened.add_metric([log.rollout], log.open_count)
            for key, n in log.stats.finished.items():
                requests.add_metric([log.rollout, *key], n)
            for place, n in log.stats.skipped.items():
                skipped.add_metric([log.rollout, *place], n)
            for where, n in log.stats.dropped.items():
                dropped.add_metric([log.rollout, *where], n)
        yield from (blocks, opened, requests, skipped, dropped)


def make_registry(recorder: Recorder, logs: AccessLogs) -> CollectorRegistry:
    """Registry of one recorder."""
    registry = CollectorRegistry()
    registry.register(_Collector(recorder, logs))
    return registry
