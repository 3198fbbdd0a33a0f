"""What stays of a demo: logs where it went wrong, none of an earlier one where it went well."""

from pathlib import Path

import pytest

from tools.demo.world import DemoError, World, make_world


@pytest.fixture
def downs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Clusters that were taken down; no process is ever started."""
    seen: list[Path] = []

    def down(cluster: object, keep_state: bool = False) -> None:
        seen.append(cluster.state.root)  # type: ignore[attr-defined]

    monkeypatch.setattr("tools.devcluster.cluster.Cluster.down", down)
    return seen


def write_logs(world: World) -> None:
    (world.cluster.state.logs).mkdir(parents=True, exist_ok=True)
    (world.cluster.state.logs / "etcd.log").write_text("ready\n")
    pod = world.cluster.state.pods / "demo_chat-0_uid" / "engine"
    pod.mkdir(parents=True, exist_ok=True)
    (pod / "0.log").write_text("simulated\n")


def test_logs_of_a_failure_stay(tmp_path: Path, downs: list[Path]) -> None:
    with pytest.raises(DemoError), make_world(tmp_path, keep=False) as world:
        write_logs(world)
        raise DemoError("nobody came")
    assert (tmp_path / "logs/logs/etcd.log").read_text() == "ready\n"
    assert (tmp_path / "logs/pods/demo_chat-0_uid/engine/0.log").read_text() == "simulated\n"
    assert downs == [tmp_path / "cluster"]


def test_a_check_that_failed_keeps_them_too_and_the_next_demo_begins_without(tmp_path: Path, downs: list[Path]) -> None:
    with make_world(tmp_path, keep=False) as world:
        write_logs(world)
        world.went_wrong = True
    assert (tmp_path / "logs/logs/etcd.log").exists()
    with make_world(tmp_path, keep=False) as world:
        assert not world.logs.exists()
        write_logs(world)
    assert not world.logs.exists() and len(downs) == 2
