"""status, history and actions of a person on a real API server, also as a kubectl plugin."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.dashboard_cluster import start_cluster_world
from tests.e2e.dashboard_world import World
from tools.devcluster import Cluster

pytestmark = pytest.mark.e2e
_BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Iterator[World]:
    with start_cluster_world(cluster) as world:
        yield world


def run(world: World, cluster: Cluster, person: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig(person)),
        "WEIGHLOCK_URL": world.evidence_url,
        "PATH": f"{_BIN}:{os.environ['PATH']}",
    }
    command = [*arguments, "-n", world.namespace]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_status_by_kubectl(world: World, cluster: Cluster) -> None:
    done = run(world, cluster, "viewer", "kubectl", "weighlock", "status", world.name, "-o", "json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["phase"], document["live"]["attempt"]) == ("Canary", 7)
    assert document["evidence_problem"] is None


def test_an_approver_signs_as_themselves(world: World, cluster: Cluster) -> None:
    done = run(
        world, cluster, "approver", "weighlock", "approve", world.name, "--reason", "fine", "--yes", "-o", "json"
    )
    assert done.returncode == 0, done.stderr
    created = {action["metadata"]["name"]: action["spec"] for action in world.actions()}
    spec = created[json.loads(done.stdout)["created"]]
    assert (spec["user"], spec["action"], spec["attempt"], spec["step"]) == ("approver", "approve", 7, 1)
    assert (spec["revision"], spec["evidence"]) == ("a83f2d7710", "9f2c61d07ab34e18")


def test_the_admission_policy_speaks_to_the_viewer(world: World, cluster: Cluster) -> None:
    before = len(world.actions())
    done = run(world, cluster, "viewer", "weighlock", "abort", world.name, "--yes")
    assert done.returncode == 2
    assert "viewer may not abort inferencerollout" in done.stderr.splitlines()[-1]
    assert len(world.actions()) == before


def test_a_stranger_is_told_in_one_line(world: World, cluster: Cluster) -> None:
    done = run(world, cluster, "stranger", "weighlock", "status", world.name)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "refused" in done.stderr


def test_history_asks_the_evidence_api_with_the_persons_token(world: World, cluster: Cluster) -> None:
    done = run(world, cluster, "viewer", "weighlock", "history", world.name)
    assert done.returncode == 0, done.stderr
    assert "Canary at 5 % (StepPassed)" in done.stdout
    assert run(world, cluster, "viewer", "weighlock", "history", world.name, "--rejudge").returncode == 0
