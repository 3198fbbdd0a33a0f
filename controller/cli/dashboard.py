"""`weighlock dashboard`: serves the dashboard. It has no rights of its own; people bring their tokens."""

import argparse
import os
from pathlib import Path

from controller.adapters.person_api import ApiServer
from controller.cli.addresses import bind_address
from controller.cli.errors import BadInput


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--bind", default=":8088", help="host:port; without a host $POD_IP, else 127.0.0.1")
    parser.add_argument("--evidence-url", default="", help="the operator's evidence API")
    parser.add_argument("--kube-url", help="the API server (default: the pod's own cluster)")
    parser.add_argument("--in-cluster", action="store_true", help="say that the pod's own cluster is meant")
    parser.add_argument("--kube-ca", type=Path, help="certificate authority of the API server")
    parser.add_argument(
        "--external-url", default="", help="where people reach the dashboard; https makes its cookie Secure"
    )
    parser.add_argument(
        "--namespaces", default="", help="namespaces to look into for people who may not list them, by comma"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until stopped."""
    import uvicorn

    from controller.dashboard.app import Settings, create_dashboard_app

    host, port = bind_address("--bind", args.bind)
    namespaces = tuple(name.strip() for name in args.namespaces.split(",") if name.strip())
    settings = Settings(_api_server(args), args.evidence_url, args.external_url.rstrip("/"), namespaces)
    uvicorn.run(
        create_dashboard_app(settings), host=host.strip("[]"), port=port, log_level="warning", server_header=False,
        proxy_headers=False, timeout_graceful_shutdown=2,
    )  # fmt: skip
    return 0


def _api_server(args: argparse.Namespace) -> ApiServer:
    if args.kube_url and args.in_cluster:
        raise BadInput("--kube-url", "", "cannot be combined with --in-cluster", "drop one of them")
    if args.kube_ca is not None and not args.kube_ca.is_file():
        raise BadInput("--kube-ca", str(args.kube_ca), "there is no such file", "name the cluster's ca.crt")
    if args.kube_url:
        if not args.kube_url.startswith(("https://", "http://127.", "http://localhost", "http://[::1]")):
            raise BadInput("--kube-url", args.kube_url, "tokens travel to it", "write an https URL")
        return ApiServer(args.kube_url, args.kube_ca)
    try:
        inside = ApiServer.in_cluster(os.environ)
    except KeyError:
        raise BadInput("--kube-url", "", "this is no pod of a cluster", "name the API server") from None
    ca_file = args.kube_ca or inside.ca_file
    return ApiServer(inside.url, ca_file if ca_file and ca_file.is_file() else None)
