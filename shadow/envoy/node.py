"""What the xDS server has told one gate and what the gate acknowledged: decides what may be sent next. Pure.

Order (make before break): clusters and endpoints first; a route is sent once every cluster that it names is known and
filled at the gate; clusters that only an older route names stay until that route is gone. A change of weights alone
goes out at once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import message

from shadow.envoy.snapshot import Snapshot, clusters_of, version_of

CDS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
EDS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
LDS = "type.googleapis.com/envoy.config.listener.v3.Listener"
RDS = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
TYPES = (CDS, EDS, LDS, RDS)


@dataclass(frozen=True, slots=True)
class Push:
    """One answer to send: the resources of a type and their version."""

    type_url: str
    version: str
    resources: tuple[message.Message, ...]


@dataclass(slots=True)
class _Type:
    names: tuple[str, ...] | None = None  # subscribed; None before the first request
    sent: str | None = None
    sent_names: frozenset[str] = frozenset()
    acked: str | None = None
    acked_names: frozenset[str] = frozenset()
    nonce: str = ""
    refused: str | None = None  # why the last answer was refused
    is_asked_anew: bool = False


@dataclass(slots=True)
class NodeState:
    """One gate on one stream. listeners: its own listeners by name (they carry its address)."""

    name: str
    listeners: Mapping[str, message.Message]
    types: dict[str, _Type] = field(default_factory=lambda: {t: _Type() for t in TYPES})
    routes_sent: tuple[Any, ...] = ()
    routes_in_force: tuple[Any, ...] = ()
    clusters_sent: dict[str, message.Message] = field(default_factory=dict)
    nonce: int = 0

    def on_request(self, type_url: str, names: tuple[str, ...], version: str, nonce: str, error: str | None) -> None:
        """A request of the gate: a first one, an acknowledgement, a refusal, or other names than before."""
        state = self.types[type_url]
        if nonce and nonce != state.nonce:
            state.names = names if state.names is None else state.names
            return  # an answer to something older; the gate will answer the newest too
        if state.names != names:
            state.is_asked_anew = state.names is not None or state.sent is not None
            state.names = names
        if error is not None:
            state.refused = error
        elif nonce and version == state.sent:
            state.acked, state.acked_names, state.refused = version, state.sent_names, None
            if type_url == RDS:
                self.routes_in_force = self.routes_sent

    def next_pushes(self, snapshot: Snapshot) -> list[Push]:
        """What can be sent now to bring the gate towards `snapshot`."""
        pushes = [self._push(CDS, self._wanted_clusters(snapshot))]
        asked = self.types[EDS].names or ()
        pushes.append(self._push(EDS, {n: a for n, a in snapshot.assignments.items() if n in asked}))
        pushes.append(self._push(LDS, self.listeners))
        if self._may_route(snapshot):
            routes = self._push(RDS, {n: r for n, r in snapshot.routes.items() if n in (self.types[RDS].names or ())})
            if routes is not None:
                self.routes_sent = routes.resources
            pushes.append(routes)
        return [p for p in pushes if p is not None]

    def is_synced(self, snapshot: Snapshot) -> bool:
        """Whether the gate acknowledged all of `snapshot`'s routes, and their clusters with endpoints.

        A gate never asks for endpoints while no cluster has any (before a first install).
        """
        routes = self.types[RDS]
        wanted = version_of(r for n, r in snapshot.routes.items() if n in (routes.names or ()))
        asked = self.types[EDS].names or ()
        endpoints = version_of(a for n, a in snapshot.assignments.items() if n in asked)
        return (
            self.types[LDS].acked is not None
            and set(snapshot.routes) <= set(routes.names or ())
            and routes.acked == wanted
            and (not snapshot.assignments or self.types[EDS].acked == endpoints)
        )

    @property
    def refusals(self) -> dict[str, str]:
        """Why the gate refused what it was told, by type."""
        return {t.rsplit(".", 1)[-1]: s.refused for t, s in self.types.items() if s.refused is not None}

    def _wanted_clusters(self, snapshot: Snapshot) -> dict[str, message.Message]:
        """The snapshot's clusters, and those that the routes in force still name (they cannot be taken away yet)."""
        wanted: dict[str, message.Message] = dict(snapshot.clusters)
        in_force = self.types[RDS].acked == version_of(snapshot.routes.values())
        if not in_force:
            kept = clusters_of(self.routes_in_force)
            for name, cluster in self.clusters_sent.items():
                if name in kept:
                    wanted.setdefault(name, cluster)
        return wanted

    def _may_route(self, snapshot: Snapshot) -> bool:
        filled = self.types[EDS].acked_names | (snapshot.used_clusters - set(snapshot.assignments))
        return snapshot.used_clusters <= self.types[CDS].acked_names and snapshot.used_clusters <= filled

    def _push(self, type_url: str, resources: Mapping[str, message.Message]) -> Push | None:
        state = self.types[type_url]
        if state.names is None:
            return None
        version = version_of(resources.values())
        if version == state.sent and not state.is_asked_anew:
            return None
        self.nonce += 1
        state.sent, state.sent_names, state.is_asked_anew = version, frozenset(resources), False
        state.nonce = str(self.nonce)
        if type_url == CDS:
            self.clusters_sent = dict(resources)
        return Push(type_url, version, _sorted(resources))


def _sorted(resources: Mapping[str, message.Message]) -> tuple[message.Message, ...]:
    return tuple(resources[name] for name in sorted(resources))


def nonce_of(state: NodeState, push: Push) -> str:
    """Nonce of an answer just made."""
    return state.types[push.type_url].nonce


def names_of(names: Iterable[str]) -> tuple[str, ...]:
    """Subscribed names in one order."""
    return tuple(sorted(names))
