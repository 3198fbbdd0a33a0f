"""Command line of the development cluster: ``python -m tools.devcluster build|up|down|status|env``."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

from tools.devcluster import binaries, identities
from tools.devcluster.cluster import Cluster, ClusterError


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0 fine, 1 not running, 2 it could not be done (the reason is on stderr)."""
    options = parse(argv)
    cluster = Cluster(options.state, nodes=options.nodes, images=options.images)
    try:
        return run(options.command, cluster, options)
    except (ClusterError, binaries.BuildError) as error:
        print(f"devcluster: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.devcluster", description=__doc__)
    parser.add_argument("command", choices=["build", "up", "down", "status", "env"])
    parser.add_argument("--state", type=Path, help="folder of the cluster (default: .weighlock/cluster)")
    parser.add_argument("--nodes", type=Path, help="YAML file of the nodes (up)")
    parser.add_argument("--images", type=Path, help="YAML file of the image table (up)")
    parser.add_argument("--keep-state", action="store_true", help="stop, but keep etcd's data and the logs (down)")
    return parser.parse_args(argv)


def run(command: str, cluster: Cluster, options: argparse.Namespace) -> int:
    if command == "build":
        for name, path in binaries.ensure().items():
            print(f"{name}: {path}")
    elif command == "up":
        print_summary(cluster.up())
    elif command == "down":
        cluster.down(keep_state=options.keep_state)
    elif command == "env":
        for name, value in cluster.env().items():
            print(f"export {name}={shlex.quote(value)}")
    else:
        status = cluster.status()
        print(json.dumps(status, indent=2))
        return 0 if all(status["processes"].values()) and all(status["nodes"].values()) else 1
    return 0


def print_summary(cluster: Cluster) -> None:
    print(f"API server: {cluster.server}")
    for user in identities.PEOPLE:
        print(f"  {user:<9} export KUBECONFIG={cluster.kubeconfig(user)}")


if __name__ == "__main__":
    sys.exit(main())
