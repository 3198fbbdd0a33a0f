"""`weighlock operator`: the process that watches rollouts, decides and acts."""

import argparse
import os
from pathlib import Path

from kubernetes.config.config_exception import ConfigException
from sqlalchemy.exc import SQLAlchemyError

from controller.cli.addresses import bind_text
from controller.cli.errors import BadInput
from controller.logs import log_as_json
from controller.operator import Operator, Options

DEFAULT_GATE_IMAGE = "weighlock/gate:0.1.0"


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    env = os.environ
    add = parser.add_argument
    add("--namespace", default=env.get("POD_NAMESPACE", "weighlock-system"), help="namespace of Lease and Secrets")
    add("--watch-namespaces", default="", help="comma-separated; empty: the whole cluster")
    add("--bind", default=":8080", help="HTTP address; without a host $POD_IP, else 127.0.0.1")
    add("--xds-bind", default=":18000", help="address of the gates' xDS server; host as for --bind")
    add("--advertise-xds", required=True, help="host:port under which gates reach the xDS server")
    add(
        "--advertise-recorder",
        required=True,
        help="host:port under which gates reach the recorder's access-log service",
    )
    add("--recorder-url", required=True, help="URL of the recorder's interface; https with --tls-dir")
    data = env.get("WEIGHLOCK_DATA", "data")
    add("--database", default=env.get("WEIGHLOCK_DATABASE", f"sqlite:///{data}/weighlock.db"), help="SQL URL")
    add("--prometheus-url", default=None, help="Prometheus to cross-check stable's latency with; verdicts need none")
    add("--gate-image", default=DEFAULT_GATE_IMAGE, help="image of the gates")
    add("--no-leader-election", action="store_true", help="act without a Lease (a single process for development)")
    add("--tls-dir", default=None, help="folder for certificates: mutual TLS with gates and recorder")
    add(
        "--tls-authority-secret",
        default="",
        metavar="SECRET",
        help="authority to sign with, tls.crt and tls.key in --namespace (default: one of our own is made)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until a signal ends it, or until another operator leads (exit code 1: be restarted)."""
    if args.tls_authority_secret and not args.tls_dir:
        raise BadInput("--tls-authority-secret", "", "is given without --tls-dir", "name a folder for certificates")
    options = Options(
        namespace=args.namespace,
        bind=bind_text("--bind", args.bind),
        xds_bind=bind_text("--xds-bind", args.xds_bind),
        advertise_xds=bind_text("--advertise-xds", args.advertise_xds),
        advertise_recorder=bind_text("--advertise-recorder", args.advertise_recorder),
        recorder_url=args.recorder_url,
        database=args.database,
        gate_image=args.gate_image,
        watch=tuple(name for name in args.watch_namespaces.split(",") if name),
        prometheus_url=args.prometheus_url,
        leader_election=not args.no_leader_election,
        tls_dir=Path(args.tls_dir) if args.tls_dir else None,
        tls_authority_secret=args.tls_authority_secret,
        environment=dict(os.environ),
    )
    if not args.recorder_url.startswith(("http://", "https://")):
        raise BadInput("--recorder-url", "", f"{args.recorder_url!r} is no URL", "write https://host:port")
    if args.recorder_url.startswith("https://") != bool(args.tls_dir):
        text = "is https:// exactly where certificates are made (--tls-dir)"
        raise BadInput("--recorder-url", "", text, "give both, or neither")
    log_as_json()
    try:
        operator = Operator(options)
    except ConfigException as error:
        problem = " ".join(str(error).split())
        raise BadInput("cluster", "", f"cannot be reached: {problem}", "run in a pod, or set $KUBECONFIG") from None
    except (SQLAlchemyError, ModuleNotFoundError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput("--database", "", f"cannot be opened: {reason}", "check the URL and its driver") from None
    return operator.run()
