"""Fixtures for end-to-end tests: one real cluster per session, a namespace of its own for each test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.e2e.clients import Clients
from tests.e2e.kube import Namespace
from tests.e2e.rollout import Rollout
from tests.e2e.system import System, start_system
from tools.devcluster import Cluster

NODES = Path(__file__).with_name("nodes.yaml")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure about the serving rollout tells that rollout's story too: its cluster is gone afterwards."""
    report = yield
    rollout = getattr(item, "funcargs", {}).get("chat")
    if report.failed and isinstance(rollout, Rollout):
        try:
            report.sections.append(("rollout", rollout.story()))
        except (OSError, AssertionError) as error:  # the API server is away, which the report says as well
            report.sections.append(("rollout", f"unknown: {error!r}"))
    return report


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running cluster; ``WEIGHLOCK_DEVCLUSTER`` may name the state folder of one that is already up."""
    running = os.environ.get("WEIGHLOCK_DEVCLUSTER")
    if running:
        yield Cluster(running)
        return
    own = Cluster(tmp_path_factory.mktemp("cluster"), nodes=NODES)
    try:
        yield own.up()
    finally:
        own.down()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[Namespace]:
    """A fresh namespace, removed with all that is in it."""
    own = Namespace(cluster.api(), f"test-{uuid.uuid4().hex[:8]}")
    own.open()
    try:
        yield own
    finally:
        own.close()


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """The whole product on a cluster of its own."""
    with start_system(tmp_path_factory.mktemp("system")) as system:
        yield system


@pytest.fixture(scope="session")
def serving(system: System) -> Iterator[tuple[Rollout, Clients]]:
    """A rollout with a stable revision, traffic from clients, and some history."""
    rollout = Rollout(system, Namespace(system.cluster.api(), "serving"))
    rollout.install()
    clients = Clients(rollout, system.folder)
    clients.start()
    try:
        clients.wait_for_history()
        yield rollout, clients
    finally:
        clients.stop()


@pytest.fixture
def chat(serving: tuple[Rollout, Clients]) -> Iterator[Rollout]:
    """The serving rollout at rest and in sync, and so again after the test."""
    rollout, clients = serving
    clients.refresh()
    clients.take()
    yield rollout
    rollout.settle()


@pytest.fixture
def clients(serving: tuple[Rollout, Clients], chat: Rollout) -> Clients:
    """Traffic of the serving rollout."""
    return serving[1]
