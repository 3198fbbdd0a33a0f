"""Make before break: what the xDS server sends to a gate, and when."""

from shadow.envoy.node import CDS, EDS, LDS, RDS, NodeState, Push
from shadow.envoy.snapshot import Snapshot, make_snapshot
from shadow.plan import Stage
from tests.unit.shadow.builders import CANDIDATE, ENDPOINTS, STABLE, make_config, make_plan


class Gate:
    """Plays Envoy's side of one stream; `held` types are received but not acknowledged."""

    def __init__(self) -> None:
        self.state = NodeState("gate-0", {})
        self.snapshot: Snapshot | None = None
        self.log: list[str] = []
        self.held: set[str] = set()
        for type_url in (CDS, LDS):
            self.state.on_request(type_url, (), "", "", None)
        self.state.on_request(RDS, ("copies", "live"), "", "", None)

    def give(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.settle()

    def settle(self) -> None:
        assert self.snapshot is not None
        while pushes := self.state.next_pushes(self.snapshot):
            for push in pushes:
                self.receive(push)

    def receive(self, push: Push) -> None:
        self.log.append(push.type_url.rsplit(".", 1)[-1])
        if push.type_url in self.held:
            return
        nonce = self.state.types[push.type_url].nonce
        names = self.state.types[push.type_url].names or ()
        self.state.on_request(push.type_url, names, push.version, nonce, None)
        if push.type_url == CDS:
            wanted = tuple(sorted(r.name for r in push.resources if r.name != "copies"))  # type: ignore[attr-defined]
            eds = self.state.types[EDS]
            if wanted != (eds.names or ()):  # Envoy never asks for no endpoints
                self.state.on_request(EDS, wanted, eds.acked or "", eds.nonce, None)


def idle() -> Snapshot:
    plan = make_plan(weight=0, stage=Stage.IDLE, candidate=None, endpoints=ENDPOINTS[:2])
    return make_snapshot(make_config(plan))


def canary(weight: int = 5) -> Snapshot:
    return make_snapshot(make_config(make_plan(weight=weight)))


def started() -> Gate:
    gate = Gate()
    gate.give(idle())
    gate.log.clear()
    return gate


def test_first_configuration_goes_clusters_endpoints_routes() -> None:
    gate = Gate()
    gate.give(idle())
    order = [t for t in gate.log if t != "Listener"]
    assert order == ["Cluster", "ClusterLoadAssignment", "RouteConfiguration"]


def test_new_candidate_is_filled_before_it_is_routed() -> None:
    gate = started()
    gate.give(canary())
    assert gate.log == ["Cluster", "ClusterLoadAssignment", "RouteConfiguration"]


def test_route_waits_for_the_endpoints() -> None:
    gate = started()
    gate.held = {EDS}
    gate.give(canary())
    assert "RouteConfiguration" not in gate.log


def test_weight_alone_is_one_message() -> None:
    gate = started()
    gate.give(canary(5))
    gate.log.clear()
    gate.give(canary(0))
    assert gate.log == ["RouteConfiguration"]


def test_old_clusters_go_after_the_route_that_named_them() -> None:
    gate = started()
    gate.give(canary())
    gate.log.clear()
    gate.held = {RDS}
    gate.give(idle())
    assert "Cluster" not in gate.log and gate.log[-1] == "RouteConfiguration"
    assert f"live-{CANDIDATE}" in gate.state.clusters_sent
    gate.held = set()
    state = gate.state.types[RDS]
    gate.state.on_request(RDS, ("copies", "live"), state.sent or "", state.nonce, None)
    gate.settle()
    assert set(gate.state.clusters_sent) == {"copies", f"live-{STABLE}", f"copy-{STABLE}"}


def test_refusal_is_kept_and_is_no_acknowledgement() -> None:
    gate = started()
    gate.held = {RDS}
    gate.give(canary())
    state = gate.state.types[RDS]
    before = state.acked
    gate.state.on_request(RDS, ("copies", "live"), before or "", state.nonce, "no such thing")
    assert gate.state.refusals == {"RouteConfiguration": "no such thing"}
    assert state.acked == before
    assert not gate.state.is_synced(canary())


def test_a_plan_without_any_variant_is_acknowledged_without_endpoints() -> None:
    nothing = make_snapshot(
        make_config(make_plan(weight=0, stage=Stage.IDLE, stable=None, candidate=None, endpoints=()))
    )
    gate = Gate()
    gate.held = {RDS}
    gate.give(nothing)
    assert not gate.state.is_synced(nothing)
    state = gate.state.types[RDS]
    gate.state.on_request(RDS, ("copies", "live"), state.sent or "", state.nonce, None)
    assert gate.state.is_synced(nothing)
    assert "ClusterLoadAssignment" not in gate.log
    gate.held = {EDS}
    gate.give(idle())
    assert not gate.state.is_synced(idle())


def test_same_snapshot_again_sends_nothing() -> None:
    gate = started()
    gate.give(idle())
    assert gate.log == []


def test_answer_to_an_older_message_is_ignored() -> None:
    gate = started()
    gate.held = {RDS}
    gate.give(canary(5))
    old = gate.state.types[RDS].nonce
    version = gate.state.types[RDS].sent or ""
    gate.give(canary(6))
    gate.state.on_request(RDS, ("copies", "live"), version, old, None)
    assert gate.state.types[RDS].acked != version
