"""Everything the demo stands on: the cluster, the chart, the load, and typed questions to them.

Called by `acts.py` and `checks.py`. Decides nothing about the rollout; it only applies, asks and waits.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import orjson
import yaml

from policies.blocks import Block
from tools import release
from tools.devcluster.bootstrap import ApiClient
from tools.devcluster.cluster import Cluster
from tools.recorder_access import TO_RECORDER, recorder_client

CHECKOUT = Path(__file__).resolve().parents[2]
MANIFESTS = Path(__file__).resolve().parent / "manifests"
NAMESPACE = "demo"
ROLLOUT = "chat"
TENANTS = ("acme", "globex", "initech")
REQUESTS_PER_SECOND = 180
SHARED_PREFIX = 0.97  # of each of globex's long prompts: standing instructions, and a short question after them
LONGEST_ANSWER = 128  # tokens; nine chunks at a stream interval of 16
CONTROL_PORT = 9901
_OURS = "/apis/weighlock.dev/v1alpha1/namespaces/{}"
_PATHS = {
    "inferencerollout": f"{_OURS}/inferencerollouts",
    "runmanifest": f"{_OURS}/runmanifests",
    "deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "configmaps": "/api/v1/namespaces/{}/configmaps",
    "pods": "/api/v1/namespaces/{}/pods",
}
DASHBOARD_PORT = 8088
PRIORITY = -5  # seven machines' worth of processes share this one: other work on it would look like slow engines


class DemoError(Exception):
    """Something did not become true in time; the message says what was waited for and what was seen last."""


@dataclass
class World:
    """One demo's cluster, release and load.

    Attributes:
        folder: where logs, records and target lists go.
        cluster: the development cluster.
        went_wrong: the logs are to be kept.
    """

    folder: Path
    cluster: Cluster
    values: dict[str, Any] = field(default_factory=dict)
    went_wrong: bool = False
    _http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=30, trust_env=False))
    _load: subprocess.Popen[bytes] | None = None

    @cached_property
    def api(self) -> ApiClient:
        """The administrator's client."""
        return self.cluster.api()

    @property
    def dashboard_url(self) -> str:
        """Address of the dashboard."""
        return str(self.values["advertise"]["dashboardURL"])

    @property
    def evidence_url(self) -> str:
        """Address of the operator's evidence API."""
        return str(self.values["advertise"]["evidenceURL"])

    @property
    def logs(self) -> Path:
        """Where the logs of a demo that went wrong are kept: of the control plane, and of every container."""
        return self.folder / "logs"

    def save_logs(self) -> None:
        """Copy them there, before the cluster's folder goes."""
        for part in (self.cluster.state.logs, self.cluster.state.pods):
            if part.exists():
                shutil.copytree(part, self.logs / part.name, dirs_exist_ok=True)

    @property
    def stats_file(self) -> Path:
        """Where the load generator writes one JSON line a second."""
        return self.folder / "load-stats.jsonl"

    @property
    def records_file(self) -> Path:
        """Where the load generator writes what each client saw."""
        return self.folder / "client-records.jsonl"

    def kubectl(self, *arguments: str, user: str = "admin", stdin: str | None = None) -> str:
        """Output of kubectl as `user`.

        Raises:
            DemoError: kubectl failed; the message is its own.
        """
        command = [
            str(Path(sys.executable).parent / "kubectl"),
            f"--kubeconfig={self.cluster.kubeconfig(user)}",
            *arguments,
        ]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise DemoError(f"kubectl {' '.join(arguments[:3])}: {done.stderr.strip()}")
        return done.stdout

    def get(self, kind: str, name: str = "", *, selector: str = "", namespace: str = NAMESPACE) -> dict[str, Any]:
        """An object, or a List where `name` is empty; asked of the API server directly, because it is asked often.

        Raises:
            OSError: the API server is away.
            DemoError: it answered with an error.
        """
        query = f"?labelSelector={quote(selector)}" if selector else ""
        path = f"{_PATHS[kind].format(namespace)}/{name}".rstrip("/") + query
        code, answer = self.api.call("GET", path)
        if code != HTTPStatus.OK:
            raise DemoError(f"GET {path}: {code} {answer}")
        found: dict[str, Any] = answer
        return found

    def rollout(self) -> dict[str, Any]:
        """The InferenceRollout."""
        return self.get("inferencerollout", ROLLOUT)

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Pods of the demo's namespace by label."""
        items: list[dict[str, Any]] = self.get("pods", selector=selector)["items"]
        return items

    def gate_pods(self) -> list[str]:
        """Names of the gate's pods."""
        return [pod["metadata"]["name"] for pod in self.pods(f"weighlock.dev/gate={ROLLOUT}")]

    def evidence(self, path: str = "") -> dict[str, Any]:
        """Answer of the evidence API about the rollout, at once.

        Raises:
            httpx.HTTPError: the operator does not answer now.
        """
        url = f"{self.evidence_url}/api/v1/rollouts/{NAMESPACE}/{ROLLOUT}{path}"
        answer = self._http.get(url, headers={"Authorization": f"Bearer {self.cluster.token('admin')}"})
        answer.raise_for_status()
        if "ndjson" in answer.headers.get("content-type", ""):
            return {"lines": answer.text.splitlines()}
        body: dict[str, Any] = answer.json()
        return body

    def patient_evidence(self, path: str, seconds: float = 300) -> dict[str, Any]:
        """`evidence`, asked again while the operator is away."""

        def probe() -> dict[str, Any] | None:
            try:
                return self.evidence(path)
            except httpx.HTTPError:
                return None

        found: dict[str, Any] = self.wait(f"the evidence API's answer to {path}", probe, seconds)
        return found

    def blocks(self, attempt: int) -> list[Block]:
        """Closed blocks of an attempt, from the store."""
        return [Block.from_json(line) for line in self.patient_evidence(f"/blocks?attempt={attempt}")["lines"]]

    def records(self, since_s: float, until_s: float) -> Iterator[dict[str, Any]]:
        """Request records as the recorder has them, of requests that started in [since, until), Unix seconds."""
        base = f"{self.values['advertise']['recorderURL']}/v1/rollouts/{NAMESPACE}/{ROLLOUT}/records"
        query = {"since": f"{since_s:.0f}", "until": f"{until_s:.0f}"}
        with (
            recorder_client(self.cluster) as http,
            http.stream("GET", base, params=query, timeout=120, extensions=TO_RECORDER) as answer,
        ):
            answer.raise_for_status()
            rest = b""
            for piece in answer.iter_bytes():
                *lines, rest = (rest + piece).split(b"\n")
                yield from (orjson.loads(line) for line in lines if line)

    def records_size(self) -> int:
        """Bytes of the clients' records so far."""
        return self.records_file.stat().st_size if self.records_file.exists() else 0

    def install(self) -> None:
        """Chart, namespace, and the rights of the approver and the viewer."""
        self.values = release.loopback_values(dashboard_port=_free(DASHBOARD_PORT, "127.77.0.3"))
        release.install(self.cluster.kubeconfig("admin"), self.values)
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(_namespace_and_people()))
        names = ("operator", "recorder", "dashboard")
        for name in names:
            self.kubectl("rollout", "status", f"deployment/weighlock-{name}", "-n", release.NAMESPACE, "--timeout=120s")

    def apply(self, overlay: str) -> None:
        """`kubectl apply -k` of one of the demo's folders."""
        self.kubectl("apply", "-k", str(MANIFESTS / overlay), "-n", NAMESPACE)

    def wait(self, what: str, probe: Callable[[], Any], seconds: float, tick: Callable[[], None] | None = None) -> Any:
        """First truthy answer of `probe`, asked twice a second.

        Raises:
            DemoError: nothing truthy within `seconds`.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            answer = probe()
            if answer:
                return answer
            if tick:
                tick()
            time.sleep(0.5)
        raise DemoError(f"{what}: not within {seconds:.0f} s")

    def start_load(self) -> None:
        """Open-loop traffic to the gate's pods for the rest of the demo."""
        targets = self.folder / "targets"
        pods = self.wait("gate pods with addresses", self._gate_addresses, 60)
        targets.write_text("\n".join(pods) + "\n")
        command = [
            sys.executable, "-m", "tools.load", "--targets-file", str(targets), "--rate", str(REQUESTS_PER_SECOND),
            "--max-output", str(LONGEST_ANSWER), "--tenants", ",".join(TENANTS), "--shared-prefix-tenant", "globex",
            "--shared-prefix-share", str(SHARED_PREFIX),
            "--out", str(self.records_file), "--stats-file", str(self.stats_file), "--nice", "-10",
        ]  # fmt: skip
        log = (self.folder / "load.log").open("ab")
        self._load = subprocess.Popen(command, cwd=CHECKOUT, stdout=log, stderr=subprocess.STDOUT)

    def stop_load(self) -> None:
        """End the traffic; requests in flight finish."""
        if self._load and self._load.poll() is None:
            self._load.send_signal(signal.SIGTERM)
            self._load.wait(timeout=60)

    def load_died(self) -> bool:
        """Whether the load generator ended by itself."""
        return self._load is not None and self._load.poll() is not None

    def felt(self) -> dict[str, Any]:
        """The load generator's last aggregate: what users felt in the last seconds."""
        if not self.stats_file.exists():
            return {}
        return _last_line(self.stats_file)

    def set_fault(self, revision: str, fault: dict[str, Any]) -> None:
        """Switch a fault on in every engine pod of a revision, through the simulator's control port."""
        for pod in self.pods(f"weighlock.dev/rollout={ROLLOUT},weighlock.dev/revision={revision}"):
            self._http.put(f"http://{pod['status']['podIP']}:{CONTROL_PORT}/faults", json=fault).raise_for_status()

    def _gate_addresses(self) -> list[str]:
        pods = self.pods(f"weighlock.dev/gate={ROLLOUT}")
        return [f"http://{pod['status']['podIP']}:8000" for pod in pods if _is_ready(pod)]


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions) and "podIP" in pod["status"]


def _last_line(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 65536))
        lines = [line for line in file.read().split(b"\n")[:-1] if line.strip()]
    return json.loads(lines[-1]) if lines else {}


def _free(port: int, address: str) -> int:
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return release.free_port(address)
    return port


def _namespace_and_people() -> Iterator[dict[str, Any]]:
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    for role, group in (("weighlock-approver", "weighlock:approvers"), ("weighlock-viewer", "weighlock:viewers")):
        yield {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": NAMESPACE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "Group", "name": group, "apiGroup": "rbac.authorization.k8s.io"}],
        }


def go_first() -> None:
    """As root, this process and all that it starts go before other work on the machine; else it had better be quiet."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)


@contextmanager
def make_world(folder: Path, keep: bool) -> Iterator[World]:
    """A world that is taken down at the end, unless `keep`; when something went wrong, its logs stay."""
    folder.mkdir(parents=True, exist_ok=True)
    world = World(folder, Cluster(folder / "cluster", nodes=Path(__file__).resolve().parent / "nodes.yaml"))
    shutil.rmtree(world.logs, ignore_errors=True)
    try:
        yield world
    except BaseException:  # a failure or Ctrl-C; it goes on its way
        world.went_wrong = True
        raise
    finally:
        if not keep:
            world.stop_load()
            if world.went_wrong:
                world.save_logs()
            world.cluster.down()
