"""Processes by identity, on real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tools.devcluster import processes
from tools.devcluster.processes import Identity


def sleeper(tmp_path: Path, env: dict[str, str] | None = None) -> Identity:
    process = processes.start(["sleep", "60"], tmp_path / "log", env=env)
    while not Path(f"/proc/{process.pid}/environ").read_bytes():  # for an instant after exec the kernel shows none
        assert process.is_alive()
    return process


def test_an_identity_is_more_than_a_pid(tmp_path: Path) -> None:
    process = sleeper(tmp_path)
    other = Identity(process.pid, process.start_ticks + 1)
    assert process.is_alive()
    assert not other.is_alive()
    assert not other.signal(signal.SIGKILL)
    process.save(tmp_path / "run" / "p.json")
    assert Identity.load(tmp_path / "run" / "p.json") == process
    processes.stop(process, grace_seconds=5)
    assert Identity.load(tmp_path / "run" / "p.json") is None


def test_stop_kills_what_ignores_sigterm_and_its_children(tmp_path: Path) -> None:
    script = 'trap "" TERM; sleep 60 & echo $!; while :; do sleep 60; done'
    process = processes.start(["sh", "-c", script], tmp_path / "log")
    log = tmp_path / "log"
    while not log.read_text().endswith("\n"):
        assert process.is_alive()
    child = Identity.of(int(log.read_text()))
    assert child is not None
    processes.stop(process, grace_seconds=0.1)
    assert child.wait(5)
    assert not process.is_alive()


def test_processes_are_found_by_an_environment_variable(tmp_path: Path) -> None:
    marked = sleeper(tmp_path, {"PATH": os.environ["PATH"], "MARK": f"{tmp_path}/a"})
    plain = sleeper(tmp_path)
    assert list(processes.with_environment("MARK", str(tmp_path))) == [marked]
    assert processes.kill_with_environment("MARK", str(tmp_path)) == 1
    assert not marked.is_alive()
    assert plain.is_alive()
    processes.stop(plain, 5)


def test_memory_of_a_tree_holds_its_children() -> None:
    hold = "import sys; data = b'x' * 50_000_000; print('up', flush=True); sys.stdin.read()"
    spawn = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", spawn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        assert processes.tree_rss_bytes(parent.pid) > 50_000_000
        parent.communicate("")


def test_a_gone_process_has_no_memory_and_no_identity() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert Identity.of(child.pid) is None
    assert processes.tree_rss_bytes(child.pid) == 0
