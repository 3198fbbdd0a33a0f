"""Fixtures for end-to-end tests: one real cluster per session, a namespace of its own for each test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kube import Namespace
from tools.devcluster import Cluster

NODES = Path(__file__).with_name("nodes.yaml")


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
