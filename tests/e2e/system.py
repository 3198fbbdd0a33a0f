"""The whole product at small scale for end-to-end tests: a cluster with the chart installed.

`start_system` is used by the session fixture `system`. Everything is real but the engines. rollout.py is one rollout of
it, clients.py the traffic through its gates.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import yaml

from tests.e2e.kube import Namespace, wait_until
from tools import release
from tools.devcluster import Cluster
from tools.devcluster.processes import Identity

if TYPE_CHECKING:
    from tests.e2e.rollout import Rollout

NODES = Path(__file__).with_name("system_nodes.yaml")


@dataclass
class System:
    """A cluster with the chart installed.

    Attributes:
        folder: logs, records and target lists.
        values: the chart's values of this run; addresses belong to it alone.
        namespaces: what the operator watches.
    """

    folder: Path
    cluster: Cluster
    values: dict[str, Any]
    namespaces: tuple[str, ...]

    @property
    def dashboard_url(self) -> str:
        return str(self.values["advertise"]["dashboardURL"])

    @property
    def evidence_url(self) -> str:
        return str(self.values["advertise"]["evidenceURL"])

    def install(self) -> None:
        """The chart, and the rights of the approver and the viewer in every watched namespace."""
        release.install(self.cluster.kubeconfig(), self.values)
        for namespace in self.namespaces:
            for role, group in (("weighlock-approver", "approvers"), ("weighlock-viewer", "viewers")):
                subject = {"kind": "Group", "name": f"weighlock:{group}", "apiGroup": "rbac.authorization.k8s.io"}
                reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
                path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
                self.call("POST", path, {"metadata": {"name": role}, "subjects": [subject], "roleRef": reference})
        for part in ("operator", "recorder", "dashboard"):
            self.wait_for_part(part)

    def wait_for_part(self, part: str) -> None:
        """Until a part of the product is ready."""
        path = f"/apis/apps/v1/namespaces/{release.NAMESPACE}/deployments/weighlock-{part}"

        def is_ready() -> bool:
            return bool(self.call("GET", path)["status"].get("readyReplicas"))

        wait_until(f"{part} to be ready; see {self.cluster.state.pods}", is_ready, 180)

    def call(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Any:
        """As the administrator; an error of the API server fails the test."""
        code, answer = self.cluster.api().call(method, path, body, content_type)
        assert code < 400, f"{method} {path}: {code} {answer}"
        return answer

    def evidence(self, rollout: "Rollout", path: str = "", user: str = "admin") -> dict[str, Any]:
        """An answer of the operator's evidence API."""
        url = f"{self.evidence_url}/api/v1/rollouts/{rollout.namespace.name}/{rollout.name}{path}"
        answer = httpx.get(url, headers={"Authorization": f"Bearer {self.cluster.token(user)}"}, timeout=30)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def run(self, user: str, *command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """A command line tool of this environment (`kubectl`, `weighlock`) as a person."""
        binaries = Path(sys.executable).parent
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.cluster.kubeconfig(user)),
            "WEIGHLOCK_URL": self.evidence_url,
            "PATH": f"{binaries}:{os.environ['PATH']}",
        }
        return subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True, timeout=120)

    # --- faults ---

    def process_of(self, namespace: str, selector: str, container: int = 0) -> Identity:
        """The process of the first pod that a label selector finds."""
        pods = self.call("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")["items"]
        state = pods[0]["status"]["containerStatuses"][container]
        found = Identity.of(int(state["containerID"].removeprefix("process://")))
        assert found is not None, f"{selector} does not run"
        return found

    def part(self, name: str) -> Identity:
        """The process of the operator, the recorder or the dashboard."""
        return self.process_of(release.NAMESPACE, f"app.kubernetes.io/component={name}")

    def kill_part(self, name: str) -> None:
        """SIGKILL; the node starts it again."""
        process = self.part(name)
        assert process.signal(signal.SIGKILL)
        assert process.wait(10)

    def stop_api_server(self) -> None:
        """End the API server at once; `Cluster.up` starts it again."""
        process = Identity.load(self.cluster.state.run / "kube-apiserver.json")
        assert process is not None
        process.signal(signal.SIGKILL)
        assert process.wait(10)

    def now_s(self) -> float:
        """Unix seconds, the clock of client records."""
        return time.time()

    def operator_metric(self, name: str) -> float:
        """A metric of the operator, named with its labels; 0 where it is not there."""
        text = httpx.get(f"{self.evidence_url}/metrics", timeout=10).text
        lines = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(lines[0].split()[-1]) if lines else 0.0


def make_addresses() -> dict[str, Any]:
    """Chart values with loopback addresses that no other release on this machine has."""
    second, third = random.SystemRandom().randrange(100, 250), random.SystemRandom().randrange(1, 250)
    return release.loopback_values(*(f"127.{second}.{third}.{host}" for host in (201, 202, 203)))


@contextmanager
def start_system(folder: Path) -> Iterator[System]:
    """A cluster of its own with the chart; `WEIGHLOCK_SYSTEM` may name the folder of one to keep and to use again.

    The cluster is not the other tests': this one's API server is stopped on purpose.
    """
    kept = os.environ.get("WEIGHLOCK_SYSTEM")
    folder = Path(kept) if kept else folder
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(folder / "cluster", nodes=NODES)
    known = folder / "values.yaml"
    try:
        cluster.up()
        names = ("serving", "leaving", "watched", "doomed", "doomed-blind", "large", "cases")
        if known.exists():
            yield System(folder, cluster, yaml.safe_load(known.read_text()), names)
            return
        values = make_addresses() | {"watchNamespaces": list(names)}
        system = System(folder, cluster, values, names)
        for name in names:
            Namespace(cluster.api(), name).open()
        system.install()
        known.write_text(yaml.safe_dump(values))
        yield system
    finally:
        if not kept:
            cluster.down()
