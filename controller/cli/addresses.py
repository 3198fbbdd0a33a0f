"""What `--bind` options say. Used by the commands that serve."""

import os

from controller.cli.errors import BadInput


def bind_address(option: str, text: str) -> tuple[str, int]:
    """Host (as written; without one $POD_IP, else 127.0.0.1) and port of `host:port`; BadInput for anything else."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise BadInput(option, "", f"{text!r} is no address", "write host:port")
    return host or os.environ.get("POD_IP") or "127.0.0.1", int(port)


def bind_text(option: str, text: str) -> str:
    """The same as `host:port`."""
    host, port = bind_address(option, text)
    return f"{host}:{port}"
