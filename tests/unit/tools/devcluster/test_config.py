"""Nodes and back-off from YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.devcluster.node.config import Backoff, ConfigError, NodeConfig, NodeSpec, make_labels, make_node_status
from tools.devcluster.paths import PACKAGE


def test_back_off_doubles_to_its_cap() -> None:
    backoff = Backoff()
    delays = [backoff.delay_seconds(failures) for failures in range(8)]
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]
    assert backoff.delay_seconds(10_000) == 300


def test_the_default_nodes() -> None:
    config = NodeConfig.load(PACKAGE / "nodes.yaml")
    assert {node.name: node.gpus for node in config.nodes} == {"gpu-a": 8, "gpu-b": 4, "gpu-c": 2, "cpu-1": 0}
    assert {node.zone for node in config.nodes} == {"a", "b", "c"}


def test_a_gpu_node_says_so_and_others_do_not() -> None:
    spec = NodeSpec("n", zone="z", gpus=2, product="P", labels={"own": "1"})
    labels = make_labels(spec)
    assert (labels["nvidia.com/gpu.product"], labels["topology.kubernetes.io/zone"], labels["own"]) == ("P", "z", "1")
    status = make_node_status(spec, "127.9.0.1", 10250, "v1", "now")
    assert status["allocatable"]["nvidia.com/gpu"] == "2"
    plain = NodeSpec("m")
    assert "nvidia.com/gpu.product" not in make_labels(plain)
    assert "nvidia.com/gpu" not in make_node_status(plain, "127.9.0.2", 10250, "v1", "now")["capacity"]


@pytest.mark.parametrize(
    "text",
    ["nodes: [{name: a, gpu: 1}]", "nodes: [{zone: a}]", "backoff: {}", "{nodes: [{name: a}], nodez: []}"],
)
def test_unknown_or_missing_fields_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        NodeConfig.load(file)
