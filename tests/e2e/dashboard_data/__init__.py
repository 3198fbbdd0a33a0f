"""A realistic rollout in mid-attempt: chunked prefill and FP8 KV for a 70B chat model, 4 tenants, 3 length buckets.

Tenant, model, argument and pod names that try to be markup are part of it (see XSS): they must stay text everywhere.
"""

from tests.e2e.dashboard_data.judged import verdict
from tests.e2e.dashboard_data.live import diff, live_view
from tests.e2e.dashboard_data.names import EVIDENCE, NAME, SECRET, XSS
from tests.e2e.dashboard_data.objects import actions, rollouts
from tests.e2e.dashboard_data.stored import history, rejudge_report

__all__ = [
    "EVIDENCE",
    "NAME",
    "SECRET",
    "XSS",
    "actions",
    "diff",
    "history",
    "live_view",
    "rejudge_report",
    "rollouts",
    "verdict",
]
