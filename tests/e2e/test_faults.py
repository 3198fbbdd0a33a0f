"""What breaks, and that users stay on stable: candidates, GPUs, API server, database, Envoy, recorder."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.chaos import WeightSampler
from tests.e2e.clients import Clients, failed
from tests.e2e.kube import wait_until
from tests.e2e.rollout import AT_ONCE, FULL, Rollout, condition, is_true
from tests.e2e.system import System
from tests.e2e.test_rollout import TOO_SLOW, approve
from tools.demo import checks
from tools.devcluster.processes import Identity

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]
HANG = {"name": "ENGINESIM_FAULTS", "value": '{"hang": true}'}


def assert_nobody_met_the_candidate(chat: Rollout, attempt: int, clients: Clients) -> None:
    records = clients.take()
    assert records and not failed(records)
    assert checks.live_requests_that_met(chat.blocks(attempt)) == 0


@pytest.mark.parametrize("fault", ["unknown flag", "out of memory", "never ready", "ready but mute"])
def test_a_candidate_that_cannot_serve(fault: str, chat: Rollout, clients: Clients) -> None:
    container: dict[str, Any] = {}
    if fault == "unknown flag":
        spec, reason, words = chat.spec("--no-such-flag=1", steps=AT_ONCE), "CandidateCrashed", "exit code 2"
    elif fault == "out of memory":
        container = {"resources": {"limits": {"nvidia.com/gpu": 1, "memory": "20Mi"}}}
        spec, reason, words = chat.spec(steps=AT_ONCE, **container), "CandidateCrashed", "OOMKilled"
    elif fault == "never ready":
        container = {"readinessProbe": {"httpGet": {"path": "/no-such-path", "port": 8000}, "periodSeconds": 1}}
        spec, reason, words = chat.spec(steps=AT_ONCE, **container), "CandidateDeadline", "is not ready"
    else:
        spec, reason, words = chat.spec(steps=AT_ONCE), "CandidateDeadline", "answered no completion"
        spec["template"]["spec"]["containers"][0]["env"].append(HANG)
    if reason == "CandidateDeadline":
        spec["capacity"]["readyDeadline"] = "8s"
    stable = chat.status()["stable"]
    uids = chat.uids(stable)
    attempt = chat.begin(spec)
    status = chat.wait_ended(attempt, "RolledBack", 60)
    assert status["reason"] == reason and status["stable"] == stable
    told = [text for text in chat.events(reason) if text.startswith("RollingBack")]
    assert words in told[-1]
    assert chat.uids(stable) == uids
    assert_nobody_met_the_candidate(chat, attempt, clients)


def test_without_a_free_gpu_users_are_not_affected(chat: Rollout, clients: Clients) -> None:
    stable = chat.status()["stable"]
    uids = chat.uids(stable)
    taken = {"resources": {"limits": {"nvidia.com/gpu": 5 - chat.replicas}}}
    chat.namespace.start("other", "exec sleep 1000", taken, terminationGracePeriodSeconds=0)
    try:
        wait_until("the other pod to run", lambda: chat.namespace.status("other").get("phase") == "Running")
        attempt = chat.begin(chat.spec(steps=AT_ONCE))
        status = chat.wait("CapacityBlocked", lambda s: is_true(s, "CapacityBlocked"))
        assert "nvidia.com/gpu" in condition(status, "CapacityBlocked")["message"]
        assert status["phase"] == "Shadow" and set(chat.weights()) == {0}
        assert_nobody_met_the_candidate(chat, attempt, clients)
    finally:
        chat.namespace.call("DELETE", chat.namespace.path("pods", "other"))
    status = chat.wait_weight(20)
    assert status["attempt"] == attempt and not is_true(status, "CapacityBlocked")
    assert chat.uids(stable) == uids and not failed(clients.take())


def test_a_candidate_that_hangs_in_shadow(chat: Rollout, clients: Clients) -> None:
    attempt = chat.begin(chat.spec(steps=FULL))
    status = chat.wait("the shadow step", lambda s: s["phase"] == "Shadow" and s["step"].get("startedAt"))
    chat.set_fault(status["candidate"], hang=True)
    status = chat.wait_ended(attempt, "RolledBack", 120)
    assert status["reason"] in ("GateFailed", "CandidateHung")
    assert_nobody_met_the_candidate(chat, attempt, clients)


def test_the_gate_flips_while_the_api_server_is_down(system: System, chat: Rollout, clients: Clients) -> None:
    stable = chat.status()["stable"]
    uids = chat.uids(stable)
    attempt = chat.begin(chat.spec(steps=AT_ONCE))
    candidate = chat.wait_weight(20)["candidate"]
    gates = [pod["metadata"]["name"] for pod in chat.pods("weighlock.dev/gate=chat")]
    faults = [f"http://{pod['status']['podIP']}:9901/faults" for pod in chat.engines(candidate)]
    system.stop_api_server()
    try:
        holding = 'weighlock_rollout_holding{rollout="serving/chat"}'
        wait_until("the operator to hold without its lease", lambda: system.operator_metric(holding) == 1, 120)
        assert {chat.weight_of(gate) for gate in gates} == {20}
        for url in faults:
            httpx.put(url, json=TOO_SLOW, timeout=5).raise_for_status()
        wait_until("every gate to flip", lambda: {chat.weight_of(gate) for gate in gates} == {0}, 240)
    finally:
        system.cluster.up()
    status = chat.wait_ended(attempt, "RolledBack", 240)
    assert status["reason"] == "GateFailed" and status["stable"] == stable and candidate in status["rejected"]
    assert chat.uids(stable) == uids
    assert not failed(clients.take())


@contextmanager
def unwritable(database: Path) -> Iterator[None]:
    """A folder where the database file was: nobody can write that, not even root."""
    away = {path: path.with_name(f"away-{path.name}") for path in database.parent.glob("weighlock.db*")}
    assert database in away
    for path, kept in away.items():
        path.rename(kept)
    database.mkdir()
    try:
        yield
    finally:
        database.rmdir()
        for path, kept in away.items():
            kept.rename(path)


def test_a_breach_rolls_back_without_the_database(system: System, chat: Rollout, clients: Clients) -> None:
    environment = Path(f"/proc/{system.part('operator').pid}/environ").read_text().split("\0")
    folder = next(line.split("=", 1)[1] for line in environment if line.startswith("WEIGHLOCK_DATA="))
    assert not [line for line in environment if "prometheus" in line.lower()]
    attempt = chat.begin(chat.spec(steps=AT_ONCE))
    candidate = chat.wait_weight(20)["candidate"]
    with unwritable(Path(folder) / "weighlock.db"):
        system.kill_part("operator")
        status = chat.wait("EvidenceNotStored", lambda s: is_true(s, "EvidenceNotStored"), 180)
        assert status["step"]["weight"] == 20 and set(chat.weights()) == {20}
        chat.set_fault(candidate, **TOO_SLOW)
        status = chat.wait_ended(attempt, "RolledBack", 240)
        assert status["reason"] == "GateFailed" and is_true(status, "EvidenceNotStored")
        assert set(chat.weights()) == {0} and not failed(clients.take())
    chat.wait("the database to be back", lambda s: not is_true(s, "EvidenceNotStored"), 120)

    def kept() -> list[dict[str, Any]]:
        rows = system.evidence(chat, f"/history?attempt={attempt}")["decisions"]
        return [row for row in rows if row["phase"] in ("RollingBack", "RolledBack")]

    decisions = wait_until("what was decided meanwhile", lambda: rows if len(rows := kept()) >= 2 else None, 120)
    assert all(row["late"] and not row["decision"]["stored"] for row in decisions)


def test_envoy_and_the_recorder_are_killed_in_mid_attempt(system: System, chat: Rollout, clients: Clients) -> None:
    spec = chat.spec(steps=AT_ONCE)
    sampler = WeightSampler(chat.get, lambda: [p["metadata"]["name"] for p in chat.pods("weighlock.dev/gate=chat")])
    with sampler:
        attempt = chat.begin(spec)
        chat.wait_weight(20)
        gate = chat.pods("weighlock.dev/gate=chat")[0]
        clients.refresh(without=gate["metadata"]["name"])  # as a Service does when a pod is no longer ready
        killed_at_s = kill_envoy(system, gate["metadata"]["name"])
        system.kill_part("recorder")
        wait_until("the gate to be back", lambda: chat.weight_of(gate["metadata"]["name"]) == 20, 120)
        system.wait_for_part("recorder")
        wait_until("gates to be ready", lambda: clients.refresh() == 2, 120)
        approve(chat, attempt)
        chat.wait_ended(attempt, "Completed", 240)
    chat.take_as_stable(spec)
    assert sampler.violations == [] and sampler.seen >= {0, 20, 50}
    cut = failed(clients.take())
    # Whoever was connected to the killed Envoy is cut off, and nobody else: the other gate goes on.
    assert all(killed_at_s - 10 < record["t_start_s"] < killed_at_s + 10 for record in cut)


def kill_envoy(system: System, pod: str) -> float:
    """SIGKILL the Envoy of a gate pod; when, in Unix seconds."""
    mark = f"@weighlock-admin-{pod}".encode()
    found = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and re.search(mark, _words(entry)) and b"envoy/_bin/envoy" in _words(entry)
    ]
    assert len(found) == 1
    process = Identity.of(found[0])
    assert process is not None and process.signal(signal.SIGKILL)
    assert process.wait(10)
    return system.now_s()


def _words(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:  # it ended while we looked
        return b""
