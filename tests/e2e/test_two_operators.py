"""C111: two operators, one frozen beyond its lease and woken again: it may say nothing to the gates any more."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chaos import live_weight
from tests.e2e.kube import Namespace, wait_until
from tests.e2e.test_operator import Installation, apply_crds, is_true
from tests.e2e.trickle import Trickle
from tools.devcluster import Cluster
from tools.release import free_port

pytestmark = pytest.mark.e2e
HOSTS = {"first": "127.91.1.1", "second": "127.91.1.2"}
LEASE = "coordination.k8s.io/v1"


class Front:
    """The address that gates know, as a Service would be: passes each connection on to `target`."""

    def __init__(self) -> None:
        self.target: tuple[str, int] | None = None
        self.asked = 0
        self._listener = socket.create_server(("127.91.1.9", 0))
        host, port = self._listener.getsockname()[:2]
        self.address = f"{host}:{port}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._run, daemon=True).start()

    def turn_to(self, address: str) -> None:
        """From now on this one is asked, also by who was connected to another."""
        host, _, port = address.rpartition(":")
        self.target = (host, int(port))
        self.asked = 0
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                gate, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.target or ("127.91.1.9", 1), timeout=1)
            except OSError:
                gate.close()
                continue
            self.asked += 1
            self._open += [gate, server]
            threading.Thread(target=_pass_on, args=(gate, server), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    pairs = {one: other, other: one}
    with one, other, contextlib.suppress(OSError, ValueError):
        while True:
            for ready in select.select(list(pairs), [], [])[0]:
                data = ready.recv(65536)
                if not data:
                    return
                pairs[ready].sendall(data)


class Two(Installation):
    """Two operators behind one address."""

    def __init__(self, cluster: Cluster, namespace: Namespace, folder: Path) -> None:
        super().__init__(cluster, namespace, folder)
        self.front = Front()
        self.addresses = {name: tuple(f"{host}:{free_port(host)}" for _ in range(2)) for name, host in HOSTS.items()}

    def arguments(self, name: str) -> list[str]:
        if name == "recorder":
            return super().arguments(name)
        http, xds = self.addresses[name]
        return self.operator(name, http, xds, self.front.address)

    def leader(self) -> str:
        lease = self.namespace.get("leases", "weighlock-operator", LEASE) or {}
        return str((lease.get("spec") or {}).get("holderIdentity") or "").removeprefix("the-one-")

    def point_to(self, name: str) -> None:
        self.front.turn_to(self.addresses[name][1])

    def gate(self) -> str:
        pods = [p for p in self.namespace.list("pods") if "weighlock.dev/gate" in p["metadata"]["labels"]]
        return str(pods[0]["metadata"]["name"])

    def decisions(self, name: str) -> list[tuple[float, str, int]]:
        """Time, reason and weight of what one operator decided."""
        with contextlib.closing(sqlite3.connect(self.folder / f"{name}.db")) as database:
            return list(database.execute("select at_s, reason, weight from decisions order by at_s"))


@pytest.fixture
def two(cluster: Cluster, namespace: Namespace, tmp_path: Path) -> Iterator[Two]:
    apply_crds(cluster)
    own = Two(cluster, namespace, tmp_path)
    own.start("recorder")
    own.start("first")
    wait_until("the first to lead", lambda: own.leader() == "first", 60)
    own.point_to("first")
    own.start("second")
    try:
        yield own
    finally:
        if own.process("first").poll() is None:
            own.kill("first")  # it may be frozen
        own.stop()
        own.front.close()


def held(two: Two, weight: int) -> None:
    gate = two.gate()
    wait_until(f"the gate to hold {weight}", lambda: live_weight(gate) == weight, 30)


def test_c111_a_leader_that_was_frozen_says_nothing_any_more(two: Two) -> None:
    two.create()
    stable = two.wait_for("Completed")["stable"]
    with Trickle(two.gate_url(), threads=4, pause_seconds=0.2, model="m", stream=True) as requests:
        frozen_s = freeze_and_wake_the_leader(two)
    assert two.status()["stable"] == stable and two.leader() == "second"
    answers = Counter(requests.answers)
    assert set(answers) == {"200"} and answers["200"] > 100, answers
    # The first decided nothing after it was frozen, the second each step once.
    assert all(at_s < frozen_s + 1.0 for at_s, _, _ in two.decisions("first"))
    assert [weight for _, _, weight in two.decisions("second")] == [50, 0, 0]


def freeze_and_wake_the_leader(two: Two) -> float:
    """The first leader sleeps from a canary of 20 on, while the second ramps and aborts; then it wakes.

    Returns the time at which it was frozen.
    """
    two.set_argument("--max-num-seqs=96")
    candidate = awaiting(two)["candidate"]
    held(two, 20)

    two.process("first").send_signal(signal.SIGSTOP)
    frozen_s = time.time()
    wait_until("the second to lead", lambda: two.leader() == "second", 60)
    two.point_to("second")
    approve(two, candidate)
    held(two, 50)
    two.act("abort", revision=candidate)
    two.wait_for("RolledBack")
    held(two, 0)

    # The worst moment: every gate asks the old leader just when it wakes, and it remembers a weight of 20.
    two.point_to("first")
    two.process("first").send_signal(signal.SIGCONT)
    gate = two.gate()
    seen: set[int | None] = set()

    def is_over() -> bool:
        seen.add(live_weight(gate))
        return two.process("first").poll() is not None

    wait_until("the old leader to end", is_over, 30)
    assert two.process("first").returncode == 1 and seen == {0}
    assert two.front.asked > 0, "no gate asked the old leader, so nothing was tried"
    two.point_to("second")
    wait_until("the gate to be served again", lambda: is_true(two.status(), "DataPlaneSynced"), 30)
    return frozen_s


def approve(two: Two, candidate: str) -> None:
    """Again where the evidence turned while the new leader read it back: an approval binds what was seen."""
    signed = applied = 0

    def is_raised() -> bool:
        nonlocal signed, applied
        status = two.status()
        applied = len(status.get("appliedActions") or ())
        if is_true(status, "AwaitingApproval") and applied >= signed:
            two.act("approve", revision=candidate, evidence=status["verdict"]["evidence"])
            signed = applied + 1
        return bool(status["step"]["weight"] == 50)

    wait_until("the ramp", is_raised, 120)


def awaiting(two: Two) -> dict[str, Any]:
    """The status in which a person is asked, with evidence of a leader that has judged."""
    wait_until("approval to be asked for", lambda: is_true(two.status(), "AwaitingApproval"), 180)
    return two.status()
