"""What an installation by the chart may do (and does), and whom it listens to."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

from tests.e2e.background import Background
from tests.e2e.kube import Namespace, wait_until
from tests.e2e.rollout import API, Rollout, condition
from tests.e2e.system import System
from tools import release

pytestmark = pytest.mark.e2e
CLUSTERS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
OPERATOR = f"system:serviceaccount:{release.NAMESPACE}:weighlock-operator"
OTHERS = ("serving", "leaving", "doomed", "doomed-blind", "large", "cases")
"""Namespaces of other tests, which take rights away and break things on purpose."""
Right = tuple[str, str, str]


@pytest.fixture(scope="module")
def watched(system: System) -> Iterator[Rollout]:
    """A small rollout that took over a Service of the user's."""
    rollout = TakingOver(system, Namespace(system.cluster.api(), "watched"), replicas=1, gpus=1, gates=1)
    front = {"metadata": {"name": "front"}, "spec": {"selector": {"app": "front"}, "ports": [{"port": 80}]}}
    rollout.namespace.call("POST", rollout.namespace.path("services"), front)
    rollout.install()
    yield rollout
    system.call("DELETE", rollout.namespace.path("services", "front"))
    # What served stays when a rollout is deleted; other tests need its GPU.
    system.call("DELETE", rollout.namespace.path("deployments", version="apps/v1"))
    wait_until("its pods to go", lambda: not rollout.namespace.list("pods"), 60)


class TakingOver(Rollout):
    def spec(self, *flags: str, **more: Any) -> dict[str, Any]:
        spec = super().spec(*flags, **more)
        spec["traffic"]["takeOverService"] = "front"
        return spec


# --- mutual TLS ---


def secret(rollout: Rollout) -> tuple[bytes, bytes, bytes]:
    """Key, certificate and authority of a rollout's gates."""
    data = rollout.namespace.get("secrets", "chat-gate-tls")["data"]
    key, certificate, authority = (base64.b64decode(data[name]) for name in ("tls.key", "tls.crt", "ca.crt"))
    return key, certificate, authority


def ask_xds(system: System, credentials: grpc.ChannelCredentials | None, rollout: str = "watched/chat") -> int:
    """Clusters that the operator tells whoever asks with these credentials; grpc.RpcError where it refuses."""
    address = system.values["advertise"]["xds"]
    names = (("grpc.ssl_target_name_override", "weighlock-xds"),)
    channel = (
        grpc.secure_channel(address, credentials, options=names)
        if credentials is not None
        else grpc.insecure_channel(address)
    )
    request = discovery_pb2.DiscoveryRequest(type_url=CLUSTERS)
    request.node.id, request.node.cluster = "somebody", rollout
    with channel:
        stream = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources
        return len(next(iter(stream(iter([request]), timeout=10))).resources)


def test_gates_speak_mutual_tls_and_nobody_else_is_answered(system: System, watched: Rollout) -> None:
    key, certificate, authority = secret(watched)
    assert condition(watched.status(), "DataPlaneSynced")["status"] == "True"
    bootstrap = watched.namespace.get("configmaps", "chat-gate")["data"]
    assert bootstrap["bootstrap.yaml"].count("UpstreamTlsContext") == 2
    assert ask_xds(system, grpc.ssl_channel_credentials(authority, key, certificate)) > 0
    for stranger in (None, grpc.ssl_channel_credentials(authority)):
        with pytest.raises(grpc.RpcError) as refused:
            ask_xds(system, stranger)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(grpc.RpcError) as refused:  # a gate's certificate is good for its own rollout alone
        ask_xds(system, grpc.ssl_channel_credentials(authority, key, certificate), "serving/chat")
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    recorder = watched.namespace.call("GET", f"/api/v1/namespaces/{release.NAMESPACE}/secrets/weighlock-recorder-tls")
    assert base64.b64decode(recorder["data"]["ca.crt"]) == authority


# --- rights ---


def granted(system: System) -> set[Right]:
    """(group, resource, verb) of every role that is bound to the operator."""
    found: set[Right] = set()
    for kind, bindings in (("roles", "rolebindings"), ("clusterroles", "clusterrolebindings")):
        root = "/apis/rbac.authorization.k8s.io/v1"
        for binding in system.call("GET", f"{root}/{bindings}")["items"]:
            subjects = {s["name"] for s in binding.get("subjects") or () if s["kind"] == "ServiceAccount"}
            if "weighlock-operator" not in subjects:
                continue
            namespace = binding["metadata"].get("namespace")
            inside = f"/namespaces/{namespace}" if namespace else ""
            role = system.call("GET", f"{root}{inside}/{kind}/{binding['roleRef']['name']}")
            found |= {
                (group, resource, verb)
                for rule in role["rules"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return found


def used(system: System, may: set[Right], since: str) -> tuple[set[Right], set[Right]]:
    """What the operator did, and what it was refused, by the API server's audit log.

    A server-side apply that made an object needs `create` beside `patch`, and the log shows it by the answer 201 alone.
    An API server that has just started refuses what its roles grant until it has read them: other tests restart it, so
    refusals from before `since` count only where no role grants the right.
    """
    done: set[Right] = set()
    refused: set[Right] = set()
    for line in system.cluster.state.audit.read_text().splitlines():
        event = json.loads(line)
        about = event.get("objectRef")
        if event["user"]["username"] != OPERATOR or about is None or about.get("namespace") in OTHERS:
            continue
        resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
        code = event.get("responseStatus", {}).get("code", 200)
        right = (about.get("apiGroup", ""), resource, event["verb"])
        if code == 403 and right in may and event["requestReceivedTimestamp"] < since:
            continue
        (refused if code == 403 else done).add(right)
        if (event["verb"], code) == ("patch", 201):
            done.add((*right[:2], "create"))
    return done, refused


class Meddler(Background):
    """Somebody else who writes the rollout's metadata all the time, so that the operator meets conflicts."""

    def __init__(self, rollout: Rollout) -> None:
        self.rollout = rollout

    def work(self) -> None:
        count = 0
        while not self.has_ended(0.001):
            count += 1
            body = {"metadata": {"annotations": {"meddled": str(count)}}}
            self.rollout.system.call("PATCH", self.rollout.path, body, "application/merge-patch+json")


def test_c109_every_right_is_used_and_nothing_else_is_done(system: System, watched: Rollout) -> None:
    since = datetime.now(UTC).isoformat()
    may = granted(system)
    system.evidence(watched)
    acts = watched.namespace.path("rolloutactions", version=API)
    act = {"rollout": "no-such-rollout", "action": "pause", "user": "approver", "reason": "end-to-end test"}
    body = {"apiVersion": API, "kind": "RolloutAction", "metadata": {"name": "typo"}, "spec": act}
    assert system.cluster.api("approver").call("POST", acts, body)[0] == 201
    attempt = watched.begin(watched.spec(steps=({"canary": {"weight": 20}},)))
    watched.wait("a candidate pod", lambda s: s["step"]["weight"] == 20)
    read_again = ("weighlock.dev", "inferencerollouts", "get")
    with Meddler(watched):
        watched.takes("abort")
        watched.wait_ended(attempt, "RolledBack")
        wait_until("a conflict", lambda: read_again in used(system, may, since)[0], 60)
    never = Rollout(system, watched.namespace, "never", replicas=1, gpus=0, gates=1)
    never.apply(never.spec("--no-such-flag=1"))
    wait_until("its gate", lambda: never.namespace.get("deployments", "never-gate", "apps/v1"), 60)
    for rollout in (never, watched):
        rollout.namespace.call("DELETE", rollout.path)
        wait_until("the object to go", lambda rollout=rollout: not rollout.get(), 60)
    wait_until("the act without a rollout to go", lambda: not system.call("GET", acts)["items"], 90)
    told = [e for e in watched.namespace.list("events") if e["involvedObject"]["name"] == "typo"]
    assert told and "There is no InferenceRollout no-such-rollout" in told[0]["message"]
    done, refused = used(system, may, since)
    assert not refused
    assert sorted(may - done) == [], "granted and not used"
    assert sorted(done - may) == [], "used beyond the roles"
