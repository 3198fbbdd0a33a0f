"""The recorder's interface as an administrator of a development cluster, with the recorder's own certificate.

It answers the operator alone (docs/install.md); the demo and tests read request records to compare them with clients'.
"""

import base64
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from shadow.envoy.bootstrap import TlsFiles
from shadow.http_tls import client_context
from shadow.identity import CONTROL_NAME
from tools import release
from tools.devcluster import Cluster

TO_RECORDER: dict[str, Any] = {"sni_hostname": CONTROL_NAME}
"""Request extension: the certificate carries this name, whatever the address is called."""


@contextmanager
def recorder_client(cluster: Cluster) -> Iterator[httpx.Client]:
    """A client of the recorder of the installation on this cluster; RuntimeError where there is none."""
    path = f"/api/v1/namespaces/{release.NAMESPACE}/secrets/weighlock-recorder-tls"
    code, secret = cluster.api().call("GET", path)
    if code != 200:
        raise RuntimeError(f"GET {path}: {code} {secret}")
    with tempfile.TemporaryDirectory(prefix="weighlock-") as folder:
        files = [Path(folder) / name for name in ("tls.crt", "tls.key", "ca.crt")]
        for file in files:
            file.write_bytes(base64.b64decode(secret["data"][file.name]))
        context = client_context(TlsFiles(*map(str, files)))
    with httpx.Client(verify=context, trust_env=False) as client:
        yield client
