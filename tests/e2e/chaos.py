"""What the end-to-end tests do to a running system, and how they watch it meanwhile."""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shadow.envoy.gate import ask_admin
from tests.e2e.background import Background

SAMPLE_SECONDS = 0.1
LOOK_SECONDS = 2.0
START_SECONDS = 0.5


def operator_pid(xds_bind: str) -> int | None:
    """Process of one release's operator, known by the address on which it serves xDS."""
    mark = f"--xds-bind={xds_bind}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it ended while we looked
            continue
        if b"operator" in words and mark in words:
            return int(entry.name)
    return None


def live_weight(pod: str) -> int | None:
    """Weight that a gate's Envoy holds now; None where it does not answer or serves nobody."""
    try:
        dump = json.loads(ask_admin(f"@weighlock-admin-{pod}", "GET", "/config_dump?resource=dynamic_route_configs"))
    except (OSError, ValueError):  # it is being killed
        return None
    for config in dump.get("configs", []):
        for host in config.get("route_config", {}).get("virtual_hosts", []):
            for route in host.get("routes", []):
                plan = route.get("metadata", {}).get("filter_metadata", {}).get("weighlock", {}).get("plan")
                if plan and host.get("name") == "live":
                    return _share_of_candidate(host["routes"], json.loads(plan))
    return None


def _share_of_candidate(routes: list[dict[str, Any]], plan: dict[str, Any]) -> int:
    for route in routes:
        if str(route.get("name", "")).startswith("candidate"):
            fraction = route.get("match", {}).get("runtime_fraction", {}).get("default_value")
            return round(fraction["numerator"] / 1e4) if fraction else 100
    return 0


@dataclass
class WeightSampler(Background):
    """Compares what every gate holds with what the stored step allows, ten times a second.

    Attributes:
        read: the InferenceRollout from the API server; OSError while that is away.
        gates: names of the gate pods; asked every other second.
        violations: sentences, one per sample that held more than status allowed before and after it.
        samples: how many samples were compared.
        seen: weights that were held at some moment.
    """

    read: Callable[[], dict[str, Any]]
    gates: Callable[[], Sequence[str]]
    violations: list[str] = field(default_factory=list)
    samples: int = 0
    seen: set[int] = field(default_factory=set)

    def work(self) -> None:
        pods: Sequence[str] = []
        looked = 0.0
        while not self.has_ended(SAMPLE_SECONDS):
            try:
                if time.monotonic() - looked > LOOK_SECONDS:
                    pods, looked = self.gates(), time.monotonic()
                before = _allowed(self.read())
                held = {pod: live_weight(pod) for pod in pods}
                after = _allowed(self.read())
            except OSError:  # the API server may be down on purpose; nothing was compared then
                continue
            self._compare(held, before, after)

    def _compare(self, held: dict[str, int | None], before: dict[str, Any], after: dict[str, Any]) -> None:
        for pod, weight in held.items():
            if weight is None:
                continue
            self.samples += 1
            self.seen.add(weight)
            allowed = max(before["weight"], after["weight"])
            if weight > allowed:
                self.violations.append(f"{pod} held {weight} while status allowed {before} then {after}")


def _allowed(rollout: dict[str, Any]) -> dict[str, Any]:
    status = rollout.get("status", {})
    step = status.get("step", {})
    phase = status.get("phase")
    # At rest the promoted revision is the stable one by its new name: the gates hold no candidate, or the old split.
    weight = 100 if phase == "Completed" else int(step.get("weight") or 0)
    return {"phase": phase, "weight": weight, "step": step.get("name")}


@dataclass
class OperatorKiller(Background):
    """SIGKILLs an operator `count` times at random instants, spread exponentially.

    Attributes:
        find: its process now; None while it is not running.
        kills: when it was done, Unix seconds.
    """

    find: Callable[[], int | None]
    count: int
    mean_gap_seconds: float
    seed: int = 7
    kills: list[float] = field(default_factory=list)

    def work(self) -> None:
        dice = random.Random(self.seed)
        while len(self.kills) < self.count:
            while self.find() is None:  # it waits to be started again
                if self.has_ended(START_SECONDS):
                    return
            if self.has_ended(dice.expovariate(1 / self.mean_gap_seconds)):
                return
            pid = self.find()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                self.kills.append(time.time())

    def finish(self, seconds: float = 300.0) -> None:
        """Wait for the last kill."""
        for thread in self._running:
            thread.join(seconds)
        assert len(self.kills) == self.count, f"{len(self.kills)} of {self.count} kills in time"
