"""Prometheus counters of the store, for the operator's /metrics."""

from prometheus_client import Counter, Gauge

WRITTEN = Counter("weighlock_store_rows_written_total", "Rows written to the database.", ["table"])
LATE = Counter("weighlock_store_rows_late_total", "Rows written after the database had been away.", ["table"])
DROPPED = Counter("weighlock_store_rows_dropped_total", "Rows given up, by reason.", ["table", "reason"])
FAILURES = Counter("weighlock_store_write_failures_total", "Writes that the database refused or did not answer.")
PENDING = Gauge("weighlock_store_rows_pending", "Rows that wait to be written.")
HEALTHY = Gauge("weighlock_store_healthy", "1 while the last write succeeded.")
