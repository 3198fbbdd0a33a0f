"""Ports and networks of clusters that run side by side."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tools.devcluster import settings
from tools.devcluster.settings import KUBELET_PORT, PORT_RANGE, Settings


def test_a_first_cluster_gets_three_free_ports_and_a_network(tmp_path: Path) -> None:
    chosen = settings.choose(None, keep_network=False)
    ports = {chosen.etcd_client, chosen.etcd_peer, chosen.apiserver}
    assert len(ports) == 3
    assert all(PORT_RANGE[0] <= port < PORT_RANGE[1] for port in ports)
    assert chosen.node_address(0) == f"127.{chosen.network}.0.1"
    chosen.save(tmp_path / "cluster.json")
    assert Settings.load(tmp_path / "cluster.json") == chosen


def test_a_stopped_cluster_takes_its_own_again() -> None:
    first = settings.choose(None, keep_network=False)
    assert settings.choose(first, keep_network=False) == first


def test_what_others_took_meanwhile_is_chosen_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "PATIENCE_SECONDS", 0.05)
    first = settings.choose(None, keep_network=False)
    with (
        socket.create_server(("127.0.0.1", first.apiserver)),
        socket.create_server((first.node_address(0), KUBELET_PORT)),
    ):
        second = settings.choose(first, keep_network=False)
        assert settings.choose(first, keep_network=True).network == first.network
    assert second.apiserver != first.apiserver
    assert second.etcd_client == first.etcd_client
    assert second.network != first.network


def test_no_file_means_no_settings(tmp_path: Path) -> None:
    assert Settings.load(tmp_path / "none.json") is None


def test_an_etcd_that_runs_keeps_its_ports() -> None:
    first = settings.choose(None, keep_network=False)
    with socket.socket() as etcd:
        etcd.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        etcd.bind(("127.0.0.1", first.etcd_client))
        etcd.listen()
        assert settings.choose(first, keep_network=True, keep_etcd=True) == first
        assert settings.choose(first, keep_network=True).etcd_client != first.etcd_client
