"""`weighlock recorder`: the process that turns the gates' access logs into closed blocks."""

import argparse
import asyncio
from pathlib import Path

from controller.cli.addresses import bind_text
from controller.cli.errors import BadInput
from shadow.envoy.bootstrap import TlsFiles
from shadow.recorder.serve import Options, RecorderServer


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "--bind", default=":8090", help="HTTP address, host:port; without a host $POD_IP, else 127.0.0.1"
    )
    parser.add_argument(
        "--api-bind", default=":8091", help="HTTPS address of what the operator asks, where TLS files are given"
    )
    parser.add_argument("--als-bind", default=":18090", help="gRPC access-log address, host:port; host as for --bind")
    parser.add_argument("--data", default="data/recorder", help="folder of the spool")
    parser.add_argument("--tls-cert", help="certificate of access-log service and operator's interface (mutual TLS)")
    parser.add_argument("--tls-key", help="its key")
    parser.add_argument("--tls-ca", help="authority of the gates' certificates")


def _tls(args: argparse.Namespace) -> TlsFiles | None:
    given = (args.tls_cert, args.tls_key, args.tls_ca)
    if not any(given):
        return None
    if not all(given):
        raise BadInput(
            "--tls-cert", "", "only a part of the TLS files is given", "give --tls-cert, --tls-key and --tls-ca"
        )
    for path in given:
        if not Path(path).is_file():
            raise BadInput(path, "", "there is no such file", "mount the certificate, or leave the TLS options away")
    return TlsFiles(args.tls_cert, args.tls_key, args.tls_ca)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal ends it."""
    options = Options(
        bind_text("--bind", args.bind),
        bind_text("--als-bind", args.als_bind),
        Path(args.data),
        _tls(args),
        bind_text("--api-bind", args.api_bind),
    )
    try:
        asyncio.run(RecorderServer(options).run())
    except OSError as error:
        raise BadInput(args.data, "", f"cannot start: {error}", "choose another address or folder") from error
    return 0
