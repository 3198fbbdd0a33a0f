"""One access-log entry of a gate as a request record and the plan it was served under.

Called by als.py for every entry, so it is the recorder's hot path; pure. An entry explains itself: the route's
metadata says which plan was in force, the host's which pod answered, the filter's what the request was and how its
answer ran.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson
from envoy.data.accesslog.v3 import accesslog_pb2

from policies.records import CANDIDATE, STABLE, RequestRecord

_UPSTREAM_FAILED = (
    "upstream_remote_reset",
    "upstream_connection_termination",
    "upstream_connection_failure",
    "upstream_protocol_error",
    "local_reset",
    "no_healthy_upstream",
    "no_cluster_found",
    "no_route_found",
    "upstream_retry_limit_exceeded",
    "overload_manager",
    "dns_resolution_failure",
)
_TIMED_OUT = (
    "upstream_request_timeout",
    "stream_idle_timeout",
    "duration_timeout",
    "upstream_max_stream_duration_reached",
)
_CLIENT_LEFT = ("downstream_connection_termination", "downstream_remote_reset", "downstream_protocol_error")


@dataclass(frozen=True, slots=True)
class PlanTag:
    """The plan that a route was part of, as its metadata says. `arm`: whose route; `kind`: live, mirror or topup."""

    rollout: str
    attempt: int
    step: int
    stage: str
    weight: int
    stable: str | None
    candidate: str | None
    arm: str
    kind: str


@dataclass(frozen=True, slots=True)
class HostTag:
    """The pod that answered, as its endpoint's metadata says."""

    pod: str
    revision: str
    started_at: float


@dataclass(frozen=True, slots=True)
class Entry:
    """A request as one entry tells it.

    final: it ended; dropped: why there is no record to count (a copy that was never sent); skip: why a live request
    was not copied; body_bytes: size of its body; fell_over: it was bound for the candidate and stable answered.
    """

    plan: PlanTag
    record: RequestRecord
    final: bool
    dropped: str | None = None
    skip: str | None = None
    body_bytes: float | None = None
    fell_over: bool = False


@lru_cache(maxsize=4096)
def _plan(text: str) -> PlanTag:
    return PlanTag(**orjson.loads(text))


@lru_cache(maxsize=65536)
def _host(text: str) -> HostTag:
    return HostTag(**orjson.loads(text))


def _told(common: accesslog_pb2.AccessLogCommon) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the filter wrote (JSON texts) of the request and of its answer; empty where it wrote nothing."""
    spaces = common.metadata.filter_metadata
    if "weighlock" not in spaces:
        return {}, {}
    fields = spaces["weighlock"].fields
    arrival = orjson.loads(fields["arrival"].string_value) if "arrival" in fields else {}
    return arrival, orjson.loads(fields["meter"].string_value) if "meter" in fields else {}


def _integer(value: Any) -> int | None:
    return None if value is None else int(value)


def _has(flags: Any, names: tuple[str, ...]) -> bool:
    return any(getattr(flags, name) for name in names)


def _outcome_of_status(status: int, has_retry_after: bool, came_from_engine: bool) -> str | None:
    if status == 429 or (status == 503 and has_retry_after and came_from_engine):
        return "rejected"
    if status in (408, 504):
        return "timeout"
    if status == 499:
        return "cancelled"
    if status >= 500:
        return "server_error"
    return "client_error" if status >= 400 else None


def _outcome(entry: accesslog_pb2.HTTPAccessLogEntry, meter: dict[str, Any]) -> str:
    """How the request ended: what the client or the clock did, then the connection, then the status, then the body."""
    common = entry.common_properties
    flags = common.response_flags if common.HasField("response_flags") else None
    told = meter.get("outcome")
    if flags is not None and told != "ok":
        if _has(flags, _CLIENT_LEFT):
            return "cancelled"
        if _has(flags, _TIMED_OUT):
            return "timeout"
        if flags.upstream_overflow:
            return "rejected"
        if _has(flags, _UPSTREAM_FAILED):
            return "server_error"
    response = entry.response
    status = response.response_code.value
    if status == 0:
        return "cancelled"
    by_status = _outcome_of_status(
        status, "retry-after" in response.response_headers, response.response_code_details == "via_upstream"
    )
    return by_status or told or "ok"


def _dropped(entry: accesslog_pb2.HTTPAccessLogEntry, plan: PlanTag) -> str | None:
    if plan.kind == "live" or not entry.common_properties.HasField("response_flags"):
        return None
    flags = entry.common_properties.response_flags
    if flags.upstream_overflow:
        return "overflow"
    return "noPod" if flags.no_healthy_upstream or flags.no_cluster_found else None


def read_entry(entry: accesslog_pb2.HTTPAccessLogEntry) -> Entry | None:
    """The request of one entry; None for what is no generation request (health checks, model lists, no route)."""
    common = entry.common_properties
    tags = common.custom_tags
    arrival, meter = _told(common)
    if "plan" not in tags or "id" not in arrival or "tenant" not in arrival:
        return None
    plan = _plan(tags["plan"])
    host = _host(tags["host"]) if tags.get("host") else None
    final = not common.intermediate_log_entry
    fell_over = plan.arm == CANDIDATE and host is not None and host.revision == plan.stable
    began, lasted = common.start_time, common.duration
    start, duration = began.seconds + began.nanos / 1e9, lasted.seconds + lasted.nanos / 1e9
    is_copy = plan.kind != "live"
    identity = arrival["id"]
    if fell_over:
        host, meter = None, {}
    ttft, gap = meter.get("ttft"), meter.get("gap")
    if ttft is not None and final:
        ttft = min(ttft, duration)  # the filter's clock starts a little before the log's
    record = RequestRecord(
        id=f"{identity}-copy" if is_copy else identity,
        pair=identity if is_copy else None,
        t_start_s=start,
        rollout=plan.rollout,
        attempt=0 if plan.stage == "idle" else plan.attempt,
        step=plan.step,
        variant=CANDIDATE if plan.arm == CANDIDATE else STABLE,
        revision=host.revision if host else (plan.candidate if plan.arm == CANDIDATE else plan.stable),
        kind=plan.kind,
        tenant=arrival["tenant"],
        bucket=arrival.get("bucket"),
        model=arrival.get("model") or meter.get("model"),
        pod=host.pod if host else None,
        prompt_tokens=_integer(meter.get("prompt")),
        output_tokens=_integer(meter.get("output")),
        tokens_source=meter.get("source"),
        stream=meter.get("stream", arrival.get("stream")),
        status=entry.response.response_code.value or None,
        outcome=("server_error" if fell_over else _outcome(entry, meter)) if final else "open",
        ttft_s=ttft,
        e2e_s=duration if final else None,  # how old an unfinished one is depends on when one asks
        max_gap_s=gap,
        max_gap_at_s=meter.get("gap_at"),
        gaps_n=_integer(meter.get("gaps")),
        events=_integer(meter.get("events")),
        chunks=_integer(meter.get("chunks")),
        pod_age_s=max(0.0, start - host.started_at) if host else None,
    )
    dropped = _dropped(entry, plan) if final else None
    return Entry(plan, record, final, dropped, arrival.get("skip"), arrival.get("bytes"), fell_over and final)
