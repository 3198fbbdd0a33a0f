"""Where the cluster keeps its files. Called by every other module; knows names of files, not their contents."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = Path(__file__).resolve().parent
CONTROL_PLANE_MODULE = PACKAGE / "controlplane"


def cache_dir() -> Path:
    """Folder outside the checkout for what is expensive to build: ``$WEIGHLOCK_CACHE`` or ``~/.cache/weighlock``."""
    return Path(os.environ.get("WEIGHLOCK_CACHE") or Path.home() / ".cache" / "weighlock")


@dataclass(frozen=True)
class State:
    """The files of one cluster below its state folder."""

    root: Path

    @classmethod
    def at(cls, root: Path | str | None = None) -> State:
        """The state at `root`; without one, the checkout's own ``.weighlock/cluster``."""
        return cls(Path(root).resolve() if root else CHECKOUT / ".weighlock" / "cluster")

    @property
    def settings(self) -> Path:
        """Ports and the loopback network this cluster has taken."""
        return self.root / "cluster.json"

    @property
    def lock(self) -> Path:
        return self.root.parent / f".{self.root.name}.lock"

    @property
    def etcd(self) -> Path:
        return self.root / "etcd"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def run(self) -> Path:
        """One file per process of the control plane: its pid and when it started."""
        return self.root / "run"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def audit(self) -> Path:
        """What people asked of the API server and what became of it, one JSON object a line."""
        return self.logs / "audit.log"

    @property
    def nodes(self) -> Path:
        """A copy of the node configuration that `up` was given; absent while the package's own is in force."""
        return self.root / "nodes.yaml"

    @property
    def images(self) -> Path:
        """A copy of the image table that `up` was given; absent while the package's own is in force."""
        return self.root / "images.yaml"

    @property
    def nodes_in_force(self) -> Path:
        return self.nodes if self.nodes.exists() else PACKAGE / "nodes.yaml"

    @property
    def images_in_force(self) -> Path:
        return self.images if self.images.exists() else PACKAGE / "images.yaml"

    @property
    def bins(self) -> Path:
        """Generated image shims, one folder per image reference."""
        return self.root / "bin"

    @property
    def pods(self) -> Path:
        """Container logs: ``<namespace>_<pod>_<uid>/<container>/<restart>.log``."""
        return self.root / "pods"

    @property
    def files(self) -> Path:
        """Volumes and root folders of pods. The names are short: a Unix socket's path must fit into 107 bytes."""
        return self.root / "fs"

    @property
    def claims(self) -> Path:
        """Files of PersistentVolumeClaims."""
        return self.root / "claims"

    def kubeconfig(self, user: str) -> Path:
        return self.root / "kubeconfig" / f"{user}.yaml"
