"""Routes, endpoints, clusters: what Envoy is told for each stage (golden files: tests/unit/shadow/golden.py)."""

import json
from collections import Counter

import pytest
from google.protobuf import json_format

from shadow.envoy import build
from shadow.envoy.clusters import make_clusters
from shadow.envoy.endpoints import make_assignments
from shadow.envoy.routes import CREDENTIALS, bucket_names, make_copy_routes, make_live_routes
from shadow.envoy.snapshot import clusters_of, make_snapshot
from shadow.plan import Stage
from tests.unit.shadow.builders import CANDIDATE, ENDPOINTS, STABLE, make_config, make_endpoint, make_plan
from tests.unit.shadow.golden import GOLDEN, render


def live(**changes: object) -> list[dict]:
    routes = make_live_routes(make_config(make_plan(**changes)))
    return json_format.MessageToDict(routes)["virtualHosts"][0]["routes"]


def shares(routes: list[dict]) -> list[tuple[str, int | None]]:
    """(route name, share in parts per million; None: all that is left)."""
    found = []
    for route in routes:
        fraction = route["match"].get("runtimeFraction", {}).get("defaultValue")
        found.append((route["name"], fraction["numerator"] if fraction else None))
    return found


def mirrored(route: dict) -> float:
    policies = route["route"].get("requestMirrorPolicies", [])
    return sum(p["runtimeFraction"]["defaultValue"]["numerator"] for p in policies) / 1e6


@pytest.mark.parametrize("name", sorted(p.stem for p in GOLDEN.glob("*.json")))
def test_golden(name: str) -> None:
    assert render(name) == json.loads((GOLDEN / f"{name}.json").read_text())


def test_canary_splits_first_and_the_rest_is_stable() -> None:
    routes = live()
    assert shares(routes) == [
        ("ready", None),
        ("candidate-copied", 50_000),
        ("candidate", 50_000),
        ("stable-copied", None),
        ("stable", None),
    ]
    assert [bool(mirrored(r)) for r in routes[1:]] == [True, False, True, False]


@pytest.mark.parametrize("weight", [0, 5, 20, 50, 95])
@pytest.mark.parametrize(("to_candidate", "to_stable"), [(0.25, 1.0), (0.375, 0.5), (1.0, 0.1)])
def test_the_share_of_an_arm_is_copied_though_envoy_draws_one_number_for_route_and_copy(
    weight: int, to_candidate: float, to_stable: float
) -> None:
    plan = {"weight": weight, "copies_to_candidate": to_candidate, "copies_to_stable": to_stable}
    routes = [route for route in live(**plan) if route["name"].endswith("-copied")]
    limits = {name: 1e6 if limit is None else limit for name, limit in shares(routes)}
    taken, copied = Counter[str](), Counter[str]()
    for draw in range(0, 1_000_000, 500):
        route = next(r for r in routes if draw < limits[r["name"]])
        taken[route["name"]] += 1
        copied[route["name"]] += draw < mirrored(route) * 1e6
    expected = {"candidate-copied": to_stable, "stable-copied": to_candidate}
    assert taken["candidate-copied"] == 20 * weight
    for name, count in taken.items():
        assert copied[name] / count == pytest.approx(expected[name], abs=0.01)


def test_idle_has_one_route() -> None:
    routes = live(weight=0, stage=Stage.IDLE, candidate=None, endpoints=ENDPOINTS[:2])
    assert shares(routes) == [("ready", None), ("stable", None)]


def test_full_weight_leaves_no_route_to_stable() -> None:
    assert [r["name"] for r in live(weight=100, stage=Stage.BAKE)] == ["ready", "candidate-copied", "candidate"]


def test_first_install_sends_everything_to_the_only_revision() -> None:
    routes = live(weight=100, stable=None, stage=Stage.INSTALL, endpoints=ENDPOINTS[2:])
    assert shares(routes) == [("ready", None), ("candidate", None)]


def test_candidate_without_ready_pods_gets_neither_weight_nor_copies() -> None:
    routes = live(endpoints=(*ENDPOINTS[:2], make_endpoint("new-0", CANDIDATE, 3, ready=False)))
    assert [r["name"] for r in routes] == ["ready", "stable"]


def test_nobody_serves_says_so() -> None:
    routes = live(weight=0, stable=None, candidate=None, stage=Stage.IDLE, endpoints=())
    assert routes[-1]["directResponse"]["status"] == 503


def test_streams_have_no_route_timeout_and_retries_are_safe() -> None:
    for route in live()[1:]:
        action = route["route"]
        assert action["timeout"] == "0s"
        assert set(action["retryPolicy"]["retryOn"].split(",")) == {
            "connect-failure",
            "refused-stream",
            "reset-before-request",
        }


def test_copies_lose_every_credential_and_are_never_retried() -> None:
    routes = json_format.MessageToDict(make_copy_routes(make_config()))["virtualHosts"][0]["routes"]
    assert [r["route"]["cluster"] for r in routes] == [f"copy-{STABLE}", f"copy-{CANDIDATE}"]
    for route in routes:
        assert set(CREDENTIALS) <= set(route["requestHeadersToRemove"])
        assert "retryPolicy" not in route["route"]
    for route in live():
        for policy in route.get("route", {}).get("requestMirrorPolicies", []):
            removed = {m["remove"] for m in policy["requestHeadersMutations"] if "remove" in m}
            assert removed == set(CREDENTIALS)


def test_live_candidate_falls_over_to_stable_and_copies_do_not() -> None:
    found = {n: json_format.MessageToDict(a) for n, a in make_assignments(make_plan()).items()}
    assert [e.get("priority", 0) for e in found[f"live-{CANDIDATE}"]["endpoints"]] == [0, 1]
    assert len(found[f"live-{CANDIDATE}"]["endpoints"][1]["lbEndpoints"]) == 2
    assert len(found[f"live-{STABLE}"]["endpoints"]) == 1
    assert len(found[f"copy-{CANDIDATE}"]["endpoints"]) == 1


def test_unready_pods_serve_only_where_stable_has_no_other() -> None:
    one_ready = (make_endpoint("old-0", STABLE, 1), make_endpoint("old-1", STABLE, 2, ready=False))
    none_ready = tuple(make_endpoint(f"old-{i}", STABLE, i + 1, ready=False) for i in range(2))
    idle = {"weight": 0, "candidate": None, "stage": Stage.IDLE}
    assert [e.pod for e in build.endpoints_of(make_plan(endpoints=one_ready, **idle), STABLE)] == ["old-0"]
    assert len(build.endpoints_of(make_plan(endpoints=none_ready, **idle), STABLE)) == 2


def test_every_routed_cluster_exists() -> None:
    for weight in (0, 5, 100):
        snapshot = make_snapshot(make_config(make_plan(weight=weight)))
        assert snapshot.used_clusters <= set(snapshot.clusters)
        assert clusters_of(snapshot.routes.values()) == snapshot.used_clusters


def test_copies_are_bounded_and_live_requests_are_not() -> None:
    clusters = make_clusters(make_plan())
    copy = clusters[f"copy-{CANDIDATE}"].circuit_breakers.thresholds[0]
    live_limits = clusters[f"live-{CANDIDATE}"].circuit_breakers.thresholds[0]
    assert copy.max_pending_requests.value == 16
    assert live_limits.max_pending_requests.value == 1_000_000
    hop = clusters[build.COPIES_CLUSTER].circuit_breakers.thresholds[0]
    assert hop.max_requests.value > copy.max_requests.value


def test_version_follows_content() -> None:
    assert make_snapshot(make_config()).version == make_snapshot(make_config()).version
    assert make_snapshot(make_config()).version != make_snapshot(make_config(make_plan(weight=6))).version
    assert make_snapshot(make_config()).version != make_snapshot(make_config(bytes_per_token=(("", 3.0),))).version
    turned = make_plan(endpoints=tuple(reversed(ENDPOINTS)))
    assert make_snapshot(make_config()).version == make_snapshot(make_config(turned)).version


def test_bucket_names() -> None:
    assert bucket_names((512, 2048)) == ["0-512", "513-2048", "2049+"]
    assert bucket_names(()) == ["0+"]
