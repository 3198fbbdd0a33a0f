"""The operator process: makes the parts, starts them in order, ends them in order.

Called by controller/cli/operator.py. Holds no rule about rollouts. Threads: one informer per watched kind, one feed per
rollout, a prober, the lease, the xDS loop, the HTTP server, two workers.
"""

import signal
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI, Response
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from controller.act import Actor
from controller.adapters.certificates import CertificateAuthority
from controller.adapters.clock import SteadyClock
from controller.adapters.dataplane import EnvoyDataPlane
from controller.adapters.kube import KubeCluster, load_configuration
from controller.adapters.leader_label import LeaderLabel
from controller.adapters.lease import AlwaysHeld, LeaseHolder
from controller.adapters.metrics import OperatorMetrics
from controller.adapters.prober import HttpProber
from controller.adapters.prometheus import PrometheusReader, ProviderWatch
from controller.adapters.recorder import Judgements
from controller.adapters.recorder_client import RecorderClient
from controller.adapters.schema import SchemaWatch
from controller.adapters.witnesses import WitnessScraper
from controller.core import times, variants
from controller.core.actions import Decision
from controller.core.snapshot import Snapshot
from controller.evidence.app import create_evidence_app
from controller.evidence.auth import ClusterAuth
from controller.evidence.source import StoredEvidence
from controller.judging import AttemptJudge
from controller.live import LiveRollouts
from controller.observe import Observer
from controller.orphans import OrphanActs
from controller.ports import Retryable, Terminal
from controller.queue import WorkQueue
from controller.reconcile import Reconciler
from controller.store.sink import EvidenceStore
from controller.writes.gate import GateSettings
from shadow.envoy.bootstrap import TlsFiles, Upstream
from shadow.envoy.xds import XdsServer

log = structlog.get_logger("weighlock.operator")

WORKERS = 2
RENEW_SECONDS = 24 * 3600.0
RENEW_RETRY_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Options:
    """Command line of the operator; addresses are `host:port`.

    namespace: where its Lease and Secrets are; watch: watched namespaces (empty: all); tls_dir: folder for mutual TLS
    between gates, operator and recorder (None: plain text); tls_authority_secret: who signs ("": we ourselves).
    """

    namespace: str
    bind: str
    xds_bind: str
    advertise_xds: str
    advertise_recorder: str
    recorder_url: str
    database: str
    gate_image: str
    watch: tuple[str, ...] = ()
    prometheus_url: str | None = None
    leader_election: bool = True
    tls_dir: Path | None = None
    tls_authority_secret: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


class Operator:
    """One operator. `run` returns the exit code when a signal, or the loss of the lease, ends it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._stop = threading.Event()
        self._exit_code = 0
        self._is_acting = False
        self._http: uvicorn.Server | None = None
        self._threads: list[threading.Thread] = []
        # A container that restarts in its pod is the same holder and need not wait for its own lease to end.
        identity = options.environment.get("POD_NAME") or f"{socket.gethostname()}-{uuid.uuid4().hex[:6]}"
        self.queue = WorkQueue()
        self.metrics = OperatorMetrics()
        self.clock = SteadyClock()
        self.store = EvidenceStore(options.database)
        configuration = load_configuration(options.environment)
        self.cluster = KubeCluster(configuration, options.watch, self._on_change, identity)
        self.lease = (
            LeaseHolder(self.cluster.api_client, options.namespace, identity, self._lose)
            if options.leader_election
            else AlwaysHeld()
        )
        self._label = LeaderLabel(self.cluster, options.namespace, options.environment.get("POD_NAME", ""))
        authority = (
            CertificateAuthority(self.cluster, options.namespace, options.tls_dir, options.tls_authority_secret)
            if options.tls_dir
            else None
        )
        self._authority = authority
        self.schema = SchemaWatch(self.cluster.rest)
        self.prober = HttpProber(self.queue.add)
        self.witnesses = WitnessScraper()
        self.provider = (
            ProviderWatch(PrometheusReader(options.prometheus_url), self.clock) if options.prometheus_url else None
        )
        recorder = RecorderClient(options.recorder_url, tls=authority.paths if authority is not None else None)
        self.judgements = Judgements(recorder, self.store, self.clock, self._on_verdict)
        self._gates = GateSettings(
            options.gate_image, _upstream(options.advertise_xds), _upstream(options.advertise_recorder), authority
        )
        self.xds: XdsServer | None = None
        self.live: LiveRollouts | None = None

    # --- life ---

    def run(self) -> int:
        """Serve until the end."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        try:
            self.start()
            self._stop.wait()
        finally:
            self.stop()
        return self._exit_code

    def start(self) -> None:
        """Caches and HTTP at once; everything that acts only as leader."""
        self.cluster.start()
        self._serve_http()
        self._spawn("lead", self._lead)

    def stop(self) -> None:
        """Stop acting first, then watching; the gates keep what they have."""
        self._stop.set()
        self.queue.close()
        if self._http is not None:
            self._http.should_exit = True
        for thread in self._threads:
            thread.join(timeout=10.0)
        self.prober.stop()
        self.witnesses.stop()
        if self.provider is not None:
            self.provider.stop()
        self.judgements.stop()
        self.schema.stop()
        if self.xds is not None:
            self.xds.stop_in_thread()
        if isinstance(self.lease, LeaseHolder):
            self.lease.stop()
        self.cluster.stop()
        self.store.close()

    def _lead(self) -> None:
        if isinstance(self.lease, LeaseHolder):
            self._label.drop()
            self.lease.start()
            while not self.lease.is_elected.wait(0.5):
                if self._stop.is_set():
                    return
        while not self.cluster.is_synced():
            if self._stop.wait(0.05):
                return
        try:
            self._begin_to_act()
        except Exception:  # whatever it is: told whole, and the process ends, so that another replica leads
            log.exception("cannot lead")
            self._exit_code = 1
            self._stop.set()
        self._keep_certificates()

    def _keep_certificates(self) -> None:
        """Renew what ends within weeks, once a day; a failure is tried again long before that."""
        pause_s = RENEW_SECONDS
        while self._authority is not None and not self._stop.wait(pause_s):
            known = [obj["metadata"] for obj in self.cluster.cached("inferencerollouts", "")]
            try:
                self._authority.renew((meta["namespace"], meta["name"]) for meta in known)
                pause_s = RENEW_SECONDS
            except (Retryable, Terminal) as error:
                log.warning("certificates not renewed", error=str(error))
                pause_s = RENEW_RETRY_SECONDS

    def _begin_to_act(self) -> None:
        """This process leads: serve gates, decide."""
        self.cluster.fence = self.lease.is_held
        self.schema.start()
        tls = self._authority.server_files() if self._authority is not None else None
        self.xds = XdsServer(
            self._options.xds_bind,
            _tls_files(tls),
            on_ack=lambda rollout, *_: self.queue.add(rollout),
            may_speak=self.lease.may_lower,
        )
        self.xds.start_in_thread()
        data_plane = EnvoyDataPlane(self.xds)
        shared = (self.cluster, data_plane, self.judgements)
        observer = Observer(*shared, self.prober, self.store, self.lease, self.clock, self.schema.missing)
        actor = Actor(*shared, self.store, self.lease, self.clock, self._gates)
        observer.set_actor(actor.gate_applied, actor.trial)
        self.live = LiveRollouts(observer, data_plane, self.judgements, self.witnesses, self.provider)
        orphans = OrphanActs(self.cluster, self.store, self.clock)
        reconciler = Reconciler(
            self.cluster, observer, actor, self.queue, self.metrics, orphans, self._note, self.live.forget
        )
        self._mount_evidence(self.live)
        self._label.take()
        self.metrics.leading.set(1)
        self._is_acting = True
        for obj in self.cluster.cached("inferencerollouts", ""):
            self.queue.add(_key(obj))
        for number in range(WORKERS):
            self._spawn(f"worker-{number}", lambda: reconciler.work(self._stop.is_set))

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _lose(self) -> None:
        """Somebody else leads: this process must not write any more, and a fresh one is the safest state."""
        self._exit_code = 1
        self._stop.set()

    # --- what is reported ---

    def _on_change(self, plural: str, obj: dict[str, Any]) -> None:
        meta = obj["metadata"]
        namespace = meta.get("namespace", "")
        if plural == "inferencerollouts":
            self.queue.add(_key(obj))
            return
        if plural == "rolloutpolicies":
            for rollout in self.cluster.cached("inferencerollouts", namespace):
                self.queue.add(_key(rollout))
            return
        labels = meta.get("labels") or {}
        name = (obj.get("spec") or {}).get("rollout") if plural == "rolloutactions" else None
        name = name or labels.get(variants.ROLLOUT)
        if name:
            self.queue.add(f"{namespace}/{name}")

    def _on_verdict(self, rollout: str, urgent: bool) -> None:
        self.queue.add(rollout, urgent=urgent)

    def _note(self, snapshot: Snapshot, decision: Decision) -> None:
        self.metrics.note(snapshot, decision)
        if self.live is not None:
            self.live.note(snapshot, decision)

    # --- HTTP ---

    def _serve_http(self) -> None:
        app = self._app = FastAPI(title="weighlock operator", docs_url=None, redoc_url=None, openapi_url=None)

        @app.get("/healthz")
        def healthz() -> Response:
            return Response("ok", media_type="text/plain")

        @app.get("/readyz")
        def readyz() -> Response:
            is_ready = self.cluster.is_synced()
            return Response("ok" if is_ready else "caches are not filled", 200 if is_ready else 503)

        @app.get("/metrics")
        def metrics() -> Response:
            return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)

        host, _, port = self._options.bind.rpartition(":")
        config = uvicorn.Config(app, host=host.strip("[]"), port=int(port), log_level="warning", access_log=False)
        self._http = uvicorn.Server(config)
        sockets = [config.bind_socket()]
        self._spawn("http", lambda: self._http.run(sockets=sockets) if self._http else None)

    def _born_s(self, rollout: str) -> float:
        namespace, _, name = rollout.partition("/")
        obj = self.cluster.get_cached("inferencerollouts", namespace, name)
        return (times.from_text(obj["metadata"].get("creationTimestamp")) or 0.0) if obj is not None else 0.0

    def _mount_evidence(self, live: LiveRollouts) -> None:
        source = StoredEvidence(self.store, live, AttemptJudge.from_stored, self._born_s)
        self._app.mount("/", create_evidence_app(source, ClusterAuth(self.cluster.api_client)))


def _key(obj: Mapping[str, Any]) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def _upstream(address: str) -> Upstream:
    host, _, port = address.rpartition(":")
    return Upstream(host.strip("[]"), int(port))


def _tls_files(files: tuple[Path, Path, Path] | None) -> TlsFiles | None:
    return TlsFiles(*(str(path) for path in files)) if files is not None else None
