"""Installs the Helm chart on a cluster: `python -m tools.release --kubeconfig F [--values F]`.

Used by `make demo` and the end-to-end tests, through the real Helm engine. On the development cluster pods have
loopback addresses and no Services work, so every part gets a fixed loopback address of its own.
"""

import argparse
import socket
import sys
from pathlib import Path
from typing import Any

import yaml
from helm_python.config import Config

CHART = Path(__file__).resolve().parent.parent / "helm" / "weighlock"
RELEASE = "weighlock"
NAMESPACE = "weighlock-system"


def free_port(address: str) -> int:
    """A TCP port on `address` that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def loopback_values(
    operator: str = "127.77.0.1",
    recorder: str = "127.77.0.2",
    dashboard: str = "127.77.0.3",
    dashboard_port: int | None = None,
) -> dict[str, Any]:
    """Chart values for a cluster whose pods are processes on loopback addresses."""
    ports = {name: free_port(host) for name, host in (("http", operator), ("xds", operator))}
    recorder_http, recorder_api, recorder_als = (free_port(recorder) for _ in range(3))
    dashboard_http = dashboard_port or free_port(dashboard)
    return {
        "operator": {"bind": f"{operator}:{ports['http']}", "xdsBind": f"{operator}:{ports['xds']}"},
        "recorder": {
            "bind": f"{recorder}:{recorder_http}",
            "apiBind": f"{recorder}:{recorder_api}",
            "alsBind": f"{recorder}:{recorder_als}",
        },
        "dashboard": {"bind": f"{dashboard}:{dashboard_http}"},
        "probeHost": {"operator": operator, "recorder": recorder, "dashboard": dashboard},
        "advertise": {
            "xds": f"{operator}:{ports['xds']}",
            "recorderALS": f"{recorder}:{recorder_als}",
            "recorderURL": f"https://{recorder}:{recorder_api}",
            "evidenceURL": f"http://{operator}:{ports['http']}",
            "dashboardURL": f"http://{dashboard}:{dashboard_http}",
        },
    }


def install(kubeconfig: Path, values: dict[str, Any], namespace: str = NAMESPACE) -> None:
    """Install the chart, or upgrade it where it is installed already."""
    with Config(namespace=namespace, kubeconfig_path=kubeconfig) as helm:
        if any(release["name"] == RELEASE for release in helm.list()):
            helm.upgrade(CHART, RELEASE, values, namespace=namespace)
            return
        helm.install(CHART, RELEASE, values, namespace=namespace, create_namespace=True)


def main(arguments: list[str]) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--namespace", default=NAMESPACE)
    parser.add_argument("--values", type=Path, help="YAML file; default: values of the development cluster")
    options = parser.parse_args(arguments)
    values = yaml.safe_load(options.values.read_text()) if options.values else loopback_values()
    install(options.kubeconfig, values, options.namespace)
    print(f"weighlock is installed in {options.namespace}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
