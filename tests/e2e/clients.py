"""Open-loop clients of a rollout's gates, and what each of them saw."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.kube import wait_until
from tests.e2e.rollout import HISTORY_SECONDS, Rollout

CHECKOUT = Path(__file__).resolve().parents[2]
CLOSING_SECONDS = 8  # until the last block of that time is closed
REQUESTS_PER_SECOND = 48
FAILED_OUTCOMES = ("server_error", "truncated", "timeout", "empty", "rejected", "client_error")


class Clients:
    """Open-loop traffic through a rollout's gates, and what each client saw."""

    def __init__(self, rollout: "Rollout", folder: Path) -> None:
        self.rollout, self.folder = rollout, folder
        self.targets, self.records = folder / "targets", folder / "client-records.jsonl"
        self.records.touch()
        self._process: subprocess.Popen[bytes] | None = None
        self._read = self.records.stat().st_size

    def start(self) -> None:
        """Until `stop`."""
        wait_until("gates to be ready", lambda: self.refresh() == self.rollout.gates, 60)
        command = [
            sys.executable, "-m", "tools.load", "--targets-file", str(self.targets), "--rate", str(REQUESTS_PER_SECOND),
            "--tenants", "acme,globex", "--shared-prefix-tenant", "", "--max-prompt", "1200", "--max-output", "12",
            "--out", str(self.records),
        ]  # fmt: skip
        with (self.folder / "load.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=CHECKOUT, stdout=log, stderr=log)

    def stop(self) -> None:
        """Let requests in flight finish."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)

    def refresh(self, without: str = "") -> int:
        """Send to the gates that are ready now (but to one, by name), as a Service would; how many these are."""
        pods = self.rollout.pods(f"weighlock.dev/gate={self.rollout.name}")
        serving = [pod for pod in pods if is_ready(pod) and pod["metadata"]["name"] != without]
        urls = [f"http://{pod['status']['podIP']}:8000" for pod in serving]
        new = self.targets.with_suffix(".new")
        new.write_text("\n".join(urls) + "\n")
        new.rename(self.targets)
        return len(urls)

    def wait_for_history(self) -> None:
        """Until clients have been served for as long as the policy asks to compare stable with itself."""
        starts: list[float] = []

        def is_long() -> bool:
            starts.extend(record["t_start_s"] for record in self.take())
            return bool(starts) and starts[-1] - starts[0] > HISTORY_SECONDS + CLOSING_SECONDS

        wait_until("history", is_long, HISTORY_SECONDS + 60)

    def take(self) -> list[dict[str, Any]]:
        """Records since the last call."""
        assert self._process is None or self._process.poll() is None, f"clients ended; see {self.folder}/load.log"
        with self.records.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


def failed(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Requests that a client could not use."""
    return [record for record in records if record["outcome"] in FAILED_OUTCOMES]


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod's Ready condition is true."""
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions) and "podIP" in pod["status"]
