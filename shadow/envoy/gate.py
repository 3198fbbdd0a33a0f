"""Process of a gate pod: starts Envoy, and on SIGTERM lets its streams end before Envoy does.

The container's entry point (`python3 -m shadow.envoy.gate`). Envoy alone would cut every stream when its pod is
deleted; here it first tells clients to close their connections, then waits until no request is running. Standard
library only: it starts in the time of an interpreter and stays small.
"""

import argparse
import contextlib
import ctypes
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from shadow.envoy.process import envoy_command

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.2
_QUIET_S = 1.0  # no request runs for this long: nobody is about to send one either
_ACTIVE = "http.live.downstream_rq_active"


class _AdminConnection(http.client.HTTPConnection):
    """HTTP to Envoy's admin interface on an abstract unix socket."""

    def __init__(self, name: str) -> None:
        super().__init__("admin", timeout=2.0)
        self._name = name

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._name.replace("@", "\0", 1))


def ask_admin(name: str, method: str, path: str) -> str:
    """Answer of Envoy's admin interface; OSError where it cannot be reached."""
    connection = _AdminConnection(name)
    try:
        connection.request(method, path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def active_requests(name: str) -> int:
    """Live requests that are running now."""
    text = ask_admin(name, "GET", f"/stats?filter=^{_ACTIVE}$")
    return sum(int(line.rpartition(":")[2]) for line in text.splitlines() if line.startswith(_ACTIVE))


def drain(name: str, grace_s: float) -> None:
    """Ask clients to go elsewhere and wait until no request runs, at most `grace_s` seconds."""
    deadline = time.monotonic() + grace_s
    ask_admin(name, "POST", "/drain_listeners?graceful&skip_exit")
    quiet_since: float | None = None
    while time.monotonic() < deadline:
        if active_requests(name) > 0:
            quiet_since = None
        elif quiet_since is None:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since >= _QUIET_S:
            return
        time.sleep(_POLL_S)


def _die_with_parent() -> None:
    """In the child: end when this process is killed, so that no Envoy is left behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="weighlock-gate", description="Envoy of a rollout's gate, with a drained end."
    )
    parser.add_argument("--config", type=Path, default=Path("/etc/weighlock/bootstrap.yaml"), help="Envoy bootstrap")
    parser.add_argument("--rollout", required=True, help="namespace/name of the rollout")
    parser.add_argument("--grace", type=float, default=110.0, help="seconds that running requests get at the end")
    parser.add_argument("--log-level", default="warning", help="Envoy's log level")
    return parser.parse_args()


def main() -> int:
    """Run Envoy until it or this process is told to end; returns its exit code."""
    args = _parse()
    pod, address = os.environ.get("POD_NAME") or socket.gethostname(), os.environ.get("POD_IP") or "127.0.0.1"
    admin = f"@weighlock-admin-{pod}"
    command = envoy_command(
        args.config, node=pod, rollout=args.rollout, pod_ip=address, admin_socket=admin, log_level=args.log_level
    )
    # Certificates are named relative to the bootstrap's folder.
    child = subprocess.Popen(command, cwd=args.config.absolute().parent, preexec_fn=_die_with_parent)
    asked: list[int] = []

    def ask(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    while child.poll() is None and not asked:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=1.0)
    if child.poll() is None:
        try:
            drain(admin, args.grace)
        except (OSError, http.client.HTTPException, ValueError) as error:
            print(f"weighlock-gate: could not drain: {error}", file=sys.stderr)
        child.terminate()
    code = child.wait()
    return 0 if asked else code


if __name__ == "__main__":
    sys.exit(main())
