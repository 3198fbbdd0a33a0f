"""Command lines of the control plane's processes. Pure: paths and settings in, argument lists out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tools.devcluster.paths import PACKAGE, State
from tools.devcluster.settings import Settings

SERVICE_RANGE = "10.96.0.0/16"
AUDIT_POLICY = PACKAGE / "audit-policy.yaml"
# In stop order: whoever writes through the API server ends before it, etcd ends last. The other way round the API
# server hangs for a minute on its way out.
STOP_ORDER = ("node", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")


def make_etcd(binary: Path, state: State, settings: Settings) -> list[str]:
    peer = f"http://127.0.0.1:{settings.etcd_peer}"
    return [
        str(binary),
        "--name=devcluster",
        f"--data-dir={state.etcd}",
        f"--listen-client-urls={settings.etcd}",
        f"--advertise-client-urls={settings.etcd}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=devcluster={peer}",
        "--unsafe-no-fsync",  # a development cluster may lose its last writes in a power cut
        "--log-level=warn",
    ]


def make_apiserver(binary: Path, state: State, settings: Settings) -> list[str]:
    pki = state.pki
    return [
        str(binary),
        f"--etcd-servers={settings.etcd}",
        f"--secure-port={settings.apiserver}",
        "--bind-address=127.0.0.1",
        "--advertise-address=10.0.0.1",  # the kubernetes Service refuses a loopback endpoint
        f"--cert-dir={pki}",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--service-account-key-file={pki}/service-account.key",
        f"--service-account-signing-key-file={pki}/service-account.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={pki}/tokens.csv",
        "--authorization-mode=RBAC",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={pki}/kubelet-client.crt",
        f"--kubelet-client-key={pki}/kubelet-client.key",
        "--allow-privileged=true",
        "--profiling=false",
        f"--audit-policy-file={AUDIT_POLICY}",
        f"--audit-log-path={state.audit}",
        "--audit-log-maxsize=50",
        "--audit-log-maxbackup=1",
    ]


def make_controller_manager(binary: Path, state: State) -> list[str]:
    config = state.kubeconfig("controller-manager")
    return [
        str(binary),
        f"--kubeconfig={config}",
        f"--service-account-private-key-file={state.pki}/service-account.key",
        f"--root-ca-file={state.pki}/ca.crt",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
    ]


def make_scheduler(binary: Path, state: State) -> list[str]:
    return [
        str(binary),
        f"--kubeconfig={state.kubeconfig('scheduler')}",
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
    ]


def make_node(state: State) -> list[str]:
    return [sys.executable, "-m", "tools.devcluster.node", "--state", str(state.root)]


def make_commands(binaries: Mapping[str, Path], state: State, settings: Settings) -> dict[str, list[str]]:
    """The command of every process by name, in start order."""
    return {
        "etcd": make_etcd(binaries["etcd"], state, settings),
        "kube-apiserver": make_apiserver(binaries["kube-apiserver"], state, settings),
        "kube-controller-manager": make_controller_manager(binaries["kube-controller-manager"], state),
        "kube-scheduler": make_scheduler(binaries["kube-scheduler"], state),
        "node": make_node(state),
    }
