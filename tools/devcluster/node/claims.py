"""Volumes for PersistentVolumeClaims: a folder each. Started by the agent; Kubernetes' own controller binds them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import structlog

from tools.devcluster.bootstrap import PROVISIONER, STORAGE_CLASS
from tools.devcluster.node.api import TRANSPORT_ERRORS, Api, ApiError
from tools.devcluster.node.kinds import Object, name_of

log = structlog.get_logger()
VOLUMES = "/api/v1/persistentvolumes"
RETRY_SECONDS = 1.0


def claim_folder(root: Path, namespace: str, name: str) -> Path:
    """Where a claim's files lie, whichever node shows them."""
    return root / f"{namespace}_{name}"


def make_volume(claim: Object, folder: Path) -> Object:
    """A PersistentVolume that only this claim can have. Pure."""
    namespace, name = name_of(claim)
    uid = claim["metadata"]["uid"]
    spec = claim["spec"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{uid}", "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "storageClassName": STORAGE_CLASS,
            "persistentVolumeReclaimPolicy": "Retain",  # the folder is removed here, with the claim
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": name,
                "uid": uid,
            },
            "hostPath": {"path": str(folder), "type": "DirectoryOrCreate"},
        },
    }


class ClaimProvisioner:
    """Gives every pending claim of our storage class a volume, and takes it away with the claim."""

    def __init__(self, api: Api, root: Path) -> None:
        self.api, self.root = api, root
        self.work: asyncio.Queue[tuple[str, Object]] = asyncio.Queue()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.api.reflect("/api/v1/persistentvolumeclaims", self._replace, self._change))
            group.create_task(self._work())

    def _replace(self, claims: list[Object]) -> None:
        for claim in claims:
            self._change("MODIFIED", claim)

    def _change(self, event: str, claim: Object) -> None:
        is_ours = claim["spec"].get("storageClassName") == STORAGE_CLASS
        if is_ours and (event == "DELETED" or not claim["spec"].get("volumeName")):
            self.work.put_nowait((event, claim))

    async def _work(self) -> None:
        while True:
            event, claim = await self.work.get()
            try:
                await (self._remove(claim) if event == "DELETED" else self._provide(claim))
            except ApiError as error:
                log.warning("claim not served", claim=name_of(claim), error=str(error))
            except TRANSPORT_ERRORS as error:
                log.warning("claim not served", claim=name_of(claim), error=repr(error))
                await asyncio.sleep(RETRY_SECONDS)
                self.work.put_nowait((event, claim))

    async def _provide(self, claim: Object) -> None:
        folder = claim_folder(self.root, *name_of(claim))
        folder.mkdir(parents=True, exist_ok=True)
        try:
            await self.api.call("POST", VOLUMES, make_volume(claim, folder))
        except ApiError as error:
            if error.status != 409:  # a repeated event: the volume is there
                raise

    async def _remove(self, claim: Object) -> None:
        await self.api.call("DELETE", f"{VOLUMES}/pvc-{claim['metadata']['uid']}")
        folder = claim_folder(self.root, *name_of(claim))
        if folder.exists():
            shutil.rmtree(folder)
