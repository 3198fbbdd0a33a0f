"""What the end-to-end tests do to a running system, and how they watch it meanwhile."""

import json
import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shadow.envoy.gate import ask_admin
from tools.demo.world import ROLLOUT, DemoError, World

SAMPLE_SECONDS = 0.1


def operator_pid(world: World) -> int | None:
    """Process of this world's operator, known by the address on which it serves xDS."""
    mark = f"--xds-bind={world.values['operator']['xdsBind']}".encode()
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
    except OSError:
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
class WeightSampler:
    """Compares what every gate holds with what the stored step allows, ten times a second.

    Attributes:
        violations: sentences, one per sample that held more than status allowed before and after it.
        samples: how many samples were compared.
    """

    world: World
    violations: list[str] = field(default_factory=list)
    samples: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "WeightSampler":
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join(10)

    def _run(self) -> None:
        api = self.world.cluster.api()
        path = f"/apis/weighlock.dev/v1alpha1/namespaces/demo/inferencerollouts/{ROLLOUT}"
        pods: list[str] = []
        looked = 0.0
        while not self._stop.wait(SAMPLE_SECONDS):
            try:
                if time.monotonic() - looked > 5:
                    pods = [pod["metadata"]["name"] for pod in self.world.pods(f"weighlock.dev/gate={ROLLOUT}")]
                    looked = time.monotonic()
                before = _allowed(api.get(path))
                held = {pod: live_weight(pod) for pod in pods}
                after = _allowed(api.get(path))
            except (DemoError, OSError):  # the API server may be down on purpose; nothing was compared then
                continue
            self._compare(held, before, after)

    def _compare(self, held: dict[str, int | None], before: dict[str, Any], after: dict[str, Any]) -> None:
        for pod, weight in held.items():
            if weight is None:
                continue
            self.samples += 1
            allowed = max(before["weight"], after["weight"])
            if weight > allowed:
                self.violations.append(f"{pod} held {weight} while status allowed {before} then {after}")


def _allowed(rollout: dict[str, Any]) -> dict[str, Any]:
    status = rollout.get("status", {})
    step = status.get("step", {})
    return {"phase": status.get("phase"), "weight": int(step.get("weight") or 0), "step": step.get("name")}


@dataclass
class OperatorKiller:
    """SIGKILLs the operator `count` times at random instants, spread over `seconds`."""

    world: World
    count: int
    mean_gap_seconds: float
    seed: int = 7
    kills: list[float] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "OperatorKiller":
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join(10)

    def _run(self) -> None:
        dice = random.Random(self.seed)
        while len(self.kills) < self.count and not self._stop.wait(dice.expovariate(1 / self.mean_gap_seconds)):
            pid = operator_pid(self.world)
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                self.kills.append(time.time())
