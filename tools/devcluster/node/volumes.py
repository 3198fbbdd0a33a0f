"""A pod's volumes on disk: written before containers start, updated while they run, removed with the pod.

Called by the pod's worker. File volumes change by the swap of one symbolic link, as a kubelet does it, so that a
reader sees all old or all new files.
"""

from __future__ import annotations

import datetime
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.devcluster.node.api import Api
from tools.devcluster.node.claims import claim_folder
from tools.devcluster.node.environment import ReferenceMissing
from tools.devcluster.node.files import File, is_file_volume, make_files
from tools.devcluster.node.kinds import Object
from tools.devcluster.node.store import ObjectStore

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
REFRESH_SHARE = 0.8  # a token is renewed after this part of its life
DATA_LINK = "..data"


class PodVolumes:
    """The volumes of one pod below `folder`. Claims are folders below `claims`, kept when the pod is gone."""

    def __init__(self, pod: Object, folder: Path, claims: Path, store: ObjectStore, api: Api) -> None:
        self.pod, self.folder, self.claims = pod, folder, claims
        self.store, self.api = store, api
        self.tokens: dict[str, tuple[str, float]] = {}  # by projection: token, time to renew (monotonic seconds)

    async def update(self) -> float | None:
        """Bring all volumes up to date; returns in how many seconds a token is to be renewed.

        Raises:
            ReferenceMissing: a ConfigMap, Secret or key is not there (yet).
            ApiError: no token was given.
        """
        for volume in self.pod["spec"].get("volumes") or []:
            folder = self.path(volume)
            if is_file_volume(volume):
                await self._renew_tokens(volume)
                write_files(folder, make_files(volume, self.pod, self._source, self._token))
            elif "hostPath" not in volume or "OrCreate" in (volume["hostPath"].get("type") or ""):
                folder.mkdir(parents=True, exist_ok=True)
        renewals = [renew for _, renew in self.tokens.values()]
        return max(1.0, min(renewals) - time.monotonic()) if renewals else None

    def uses(self, kind: str, name: str) -> bool:
        """Whether some volume shows this ConfigMap or Secret."""
        for volume in self.pod["spec"].get("volumes") or []:
            parts = (volume.get("projected") or {}).get("sources") or [volume]
            for part in parts:
                source = part.get("configMap" if kind == "ConfigMap" else "secret")
                if source and name in (source.get("name"), source.get("secretName")):
                    return True
        return False

    def path(self, volume: Mapping[str, Any]) -> Path:
        """Where a volume's content lies."""
        if "hostPath" in volume:
            return Path(str(volume["hostPath"]["path"]))
        if "persistentVolumeClaim" in volume:
            namespace = self.pod["metadata"]["namespace"]
            return claim_folder(self.claims, namespace, volume["persistentVolumeClaim"]["claimName"])
        return self.folder / "volumes" / str(volume["name"])

    def mount(self, container: Object, expand_subpath: Mapping[str, str]) -> Path:
        """Make the container's root folder with a link at every mount path; returns it.

        Args:
            container: of the pod's spec.
            expand_subpath: values for ``subPathExpr`` by mount path.
        """
        root = self.folder / str(container["name"]) / "rootfs"
        root.mkdir(parents=True, exist_ok=True)
        volumes = {volume["name"]: volume for volume in self.pod["spec"].get("volumes") or []}
        mounts = container.get("volumeMounts") or []
        for mount in sorted(mounts, key=lambda mount: len(mount["mountPath"])):
            target = self.path(volumes[mount["name"]])
            subpath = expand_subpath.get(mount["mountPath"]) or mount.get("subPath") or ""
            if subpath:
                target = target / subpath
                if not target.exists() and not is_file_volume(volumes[mount["name"]]):
                    target.mkdir(parents=True)
            link(root / mount["mountPath"].strip("/"), target)
        return root

    def remove(self) -> None:
        """Remove the pod's folder; folders of the host and claims stay."""
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def _source(self, kind: str, name: str) -> Object | None:
        return self.store.get(kind, self.pod["metadata"]["namespace"], name)

    def _token(self, projection: Mapping[str, Any]) -> str:
        return self.tokens[projection["path"]][0]

    async def _renew_tokens(self, volume: Object) -> None:
        for part in (volume.get("projected") or {}).get("sources") or []:
            projection = part.get("serviceAccountToken")
            if not projection:
                continue
            _, renew = self.tokens.get(projection["path"], ("", 0.0))
            if time.monotonic() >= renew:
                self.tokens[projection["path"]] = await self._request_token(projection)

    async def _request_token(self, projection: Mapping[str, Any]) -> tuple[str, float]:
        metadata = self.pod["metadata"]
        account = self.pod["spec"].get("serviceAccountName", "default")
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        audiences = [projection["audience"]] if projection.get("audience") else []
        seconds = projection.get("expirationSeconds") or 3600
        spec = {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound}
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        status = (await self.api.call("POST", path, body))["status"]
        expires = datetime.datetime.fromisoformat(status["expirationTimestamp"])
        life = min((expires - datetime.datetime.now(datetime.UTC)).total_seconds(), seconds)
        return status["token"], time.monotonic() + REFRESH_SHARE * life


def write_files(folder: Path, files: Mapping[str, File]) -> bool:
    """Make `folder` show exactly `files`; returns whether anything changed. Readers never see a mixture."""
    folder.mkdir(parents=True, exist_ok=True)
    current = folder / DATA_LINK
    if current.is_symlink() and read_files(current.resolve()) == dict(files):
        return False
    version = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    version.chmod(0o755)
    for name, file in files.items():
        target = version / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)
    previous = current.resolve() if current.is_symlink() else None
    scratch = folder / "..data_new"
    scratch.symlink_to(version.name)
    scratch.rename(current)
    reconcile_links(folder, {name.split("/", 1)[0] for name in files})
    if previous and previous != version:
        shutil.rmtree(previous)
    return True


def read_files(version: Path) -> dict[str, File]:
    found = (path for path in version.rglob("*") if path.is_file())
    return {str(path.relative_to(version)): File(path.read_bytes(), path.stat().st_mode & 0o777) for path in found}


def reconcile_links(folder: Path, names: set[str]) -> None:
    """One link per top-level name through the data link, and none for names that are gone."""
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
    for name in names:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{DATA_LINK}/{name}")


def link(path: Path, target: Path) -> None:
    """Make `path` a symbolic link to `target`, whatever link was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    path.symlink_to(target)


__all__ = ["SERVICE_ACCOUNT", "PodVolumes", "ReferenceMissing", "write_files"]
