"""Routes: who serves a request, who gets a copy, and what the filter and the access log must know of both.

A route's metadata carries the plan in force, so that every access-log entry explains itself, and the filter's
configuration, so that a change of policy touches no listener.
"""

from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from envoy.extensions.retry.priority.previous_priorities.v3 import previous_priorities_config_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.v3 import percent_pb2

from shadow.envoy import build
from shadow.plan import GateConfig, Stage, TrafficPlan

READY_PATH = "/weighlock/ready"
COPY_TO = "x-weighlock-copy-to"
CREDENTIALS = ("authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-goog-api-key")
STABLE, CANDIDATE = "stable", "candidate"


def copy_kind(plan: TrafficPlan) -> str:
    """Kind of the copies made under `plan`: top-up where live requests move too, else mirror."""
    return "topup" if plan.stage in (Stage.CANARY, Stage.RAMP) else "mirror"


def bucket_names(edges: tuple[int, ...]) -> list[str]:
    """Names of the length buckets between `edges` (upper edges, prompt tokens)."""
    if not edges:
        return ["0+"]
    lows = (0, *(e + 1 for e in edges))
    return [f"{low}-{high}" for low, high in zip(lows, edges, strict=False)] + [f"{lows[-1]}+"]


def make_plan_text(plan: TrafficPlan, arm: str, kind: str) -> str:
    """What an access-log entry says about the plan that it was served under."""
    return build.text(
        {
            "rollout": plan.rollout,
            "attempt": plan.attempt,
            "step": plan.step,
            "stage": plan.stage.value,
            "weight": plan.weight,
            "stable": plan.stable,
            "candidate": plan.candidate,
            "arm": arm,
            "kind": kind,
        }
    )


def make_filter_text(config: GateConfig, copy_share: float) -> str:
    """Configuration of the Lua filter for live requests (see lua/request.lua)."""
    return build.text(
        {
            "tenant_header": config.tenant_header or False,
            "tenant_path": False if config.tenant_path is None else config.tenant_path,
            "tenant_api_key_hash": config.tenant_api_key_hash,
            "edges": list(config.bucket_edges),
            "buckets": bucket_names(config.bucket_edges),
            "bytes_per_token": dict(config.bytes_per_token),
            "overhead_bytes": dict(config.overhead_bytes),
            "include_usage": config.include_usage,
            "mirror_tenants": dict.fromkeys(config.mirror_tenants, True),
            "mirror_except": dict.fromkeys(config.mirror_except, True),
            "mirror_paths": list(config.mirror_paths),
            "mirror_rate": config.mirror_max_bytes_per_second,
            "copy_share": copy_share,
            "candidate": config.plan.candidate or "",
        }
    )


def _fraction(share: float) -> percent_pb2.FractionalPercent:
    return percent_pb2.FractionalPercent(
        numerator=round(share * 1e6), denominator=percent_pb2.FractionalPercent.DenominatorType.MILLION
    )


def _retry() -> route_components_pb2.RetryPolicy:
    """Only what surely did nothing yet is tried again; the filter adds `reset` for requests that bear repeating."""
    policy = route_components_pb2.RetryPolicy(
        retry_on="connect-failure,refused-stream,reset-before-request",
        num_retries=build.uint32(3),
        host_selection_retry_max_attempts=5,
    )
    policy.retry_back_off.base_interval.CopyFrom(build.seconds(0.01))
    policy.retry_back_off.max_interval.CopyFrom(build.seconds(0.1))
    policy.retry_host_predicate.add(
        name="envoy.retry_host_predicates.previous_hosts",
        typed_config=build.pack(previous_hosts_pb2.PreviousHostsPredicate()),
    )
    policy.retry_priority.name = "envoy.retry_priorities.previous_priorities"
    leave_at_once = previous_priorities_config_pb2.PreviousPrioritiesConfig(update_frequency=1)
    policy.retry_priority.typed_config.CopyFrom(build.pack(leave_at_once))
    return policy


def _action(revision: str) -> route_components_pb2.RouteAction:
    action = route_components_pb2.RouteAction(cluster=build.live_cluster(revision), timeout=build.seconds(0))
    action.retry_policy.CopyFrom(_retry())
    return action


def _mutation(name: str, value: str) -> mutation_rules_pb2.HeaderMutation:
    header = base_pb2.HeaderValueOption(
        header=base_pb2.HeaderValue(key=name, value=value),
        append_action=base_pb2.HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
    )
    return mutation_rules_pb2.HeaderMutation(append=header)


def _mirror(action: route_components_pb2.RouteAction, share: float, arm: str) -> None:
    policy = action.request_mirror_policies.add(cluster=build.COPIES_CLUSTER, disable_shadow_host_suffix_append=True)
    policy.runtime_fraction.default_value.CopyFrom(_fraction(share))
    policy.trace_sampled.value = False
    policy.request_headers_mutations.append(_mutation(COPY_TO, arm))
    policy.request_headers_mutations.extend(mutation_rules_pb2.HeaderMutation(remove=name) for name in CREDENTIALS)


def _live_route(
    config: GateConfig, arm: str, share: float, copy_share: float, has_copy: bool
) -> route_components_pb2.Route:
    plan = config.plan
    revision = plan.candidate if arm == CANDIDATE else plan.stable
    assert revision is not None
    route = route_components_pb2.Route(
        name=f"{arm}-copied" if has_copy else arm,
        route=_action(revision),
        metadata=build.metadata(
            weighlock={"plan": make_plan_text(plan, arm, "live")},
            envoy__filters__http__lua={"config": make_filter_text(config, copy_share)},
        ),
    )
    route.match.prefix = "/"
    if share < 1.0:
        route.match.runtime_fraction.default_value.CopyFrom(_fraction(share))
    if has_copy:
        route.match.headers.add(name="x-weighlock-copy", string_match=string_pb2.StringMatcher(exact="1"))
        _mirror(route.route, copied_part(plan, arm), STABLE if arm == CANDIDATE else CANDIDATE)
    route.request_headers_to_remove.append("x-weighlock-copy")
    shown = route.response_headers_to_add.add(
        append_action=base_pb2.HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD
    )
    shown.header.key, shown.header.value = "x-weighlock-revision", "%UPSTREAM_METADATA(weighlock:revision)%"
    return route


def copy_share(plan: TrafficPlan, arm: str) -> float:
    """Share of the live requests of `arm` that are copied to the other one; 0 where that has no ready pod."""
    other = plan.stable if arm == CANDIDATE else plan.candidate
    if other is None or not any(e.ready for e in plan.endpoints if e.revision == other):
        return 0.0
    return plan.copies_to_stable if arm == CANDIDATE else plan.copies_to_candidate


def copied_part(plan: TrafficPlan, arm: str) -> float:
    """The fraction for Envoy that makes it copy `copy_share` of an arm's requests.

    Envoy draws one number for a request and compares it both with the route's fraction and with the copy's (the
    stream's id: `FilterUtility::shouldShadow` and the route matcher). The candidate's requests have the numbers below
    its weight, stable's those from there on; a fraction that ignored this would copy too few of stable's requests and
    too many of the candidate's.
    """
    share, weight = copy_share(plan, arm), build.live_weight(plan) / 100 if plan.stable is not None else 1.0
    return weight * share if arm == CANDIDATE else weight + (1.0 - weight) * share


def _direct(name: str, path: str | None, status: int, body: str) -> route_components_pb2.Route:
    route = route_components_pb2.Route(name=name)
    if path is None:
        route.match.prefix = "/"
    else:
        route.match.path = path
    route.direct_response.status = status
    route.direct_response.body.inline_string = body
    return route


def make_live_routes(config: GateConfig) -> route_pb2.RouteConfiguration:
    """Routes of the live listener: the candidate's share first, the rest to stable; each with and without copies."""
    plan = config.plan
    weight = build.live_weight(plan) / 100
    arms: list[tuple[str, float]] = []
    if weight > 0:
        arms.append((CANDIDATE, weight if plan.stable is not None else 1.0))
    if plan.stable is not None and weight < 1:
        arms.append((STABLE, 1.0))
    routes = [_direct("ready", READY_PATH, 200, "ready\n")]
    for arm, share in arms:
        copied = copy_share(plan, arm)
        # The fraction of the stream decides between the arms; both routes of an arm see the same one.
        routes += [_live_route(config, arm, share, copied, True)] if copied > 0 else []
        routes.append(_live_route(config, arm, share, copied, False))
    if not arms:
        routes.append(_direct("nobody", None, 503, "weighlock: no revision serves yet\n"))
    host = route_components_pb2.VirtualHost(name="live", domains=["*"], routes=routes)
    return route_pb2.RouteConfiguration(name=build.LIVE_ROUTES, virtual_hosts=[host])


def make_copy_routes(config: GateConfig) -> route_pb2.RouteConfiguration:
    """Routes of the copies listener; no retries: a copy that fails is evidence."""
    plan = config.plan
    kind = copy_kind(plan)
    routes = []
    for arm, revision in ((STABLE, plan.stable), (CANDIDATE, plan.candidate)):
        if revision is None:
            continue
        route = route_components_pb2.Route(
            name=f"copy-{arm}",
            route=route_components_pb2.RouteAction(cluster=build.copy_cluster(revision), timeout=build.seconds(0)),
            metadata=build.metadata(
                weighlock={"plan": make_plan_text(plan, arm, kind)},
                envoy__filters__http__lua={"config": build.text({"kind": kind})},
            ),
            request_headers_to_remove=[*CREDENTIALS, COPY_TO, "x-weighlock-copy"],
        )
        route.match.prefix = "/"
        route.match.headers.add(name=COPY_TO, string_match=string_pb2.StringMatcher(exact=arm))
        routes.append(route)
    host = route_components_pb2.VirtualHost(name="copies", domains=["*"], routes=routes)
    return route_pb2.RouteConfiguration(name=build.COPIES_ROUTES, virtual_hosts=[host])
