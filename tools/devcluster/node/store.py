"""ConfigMaps and Secrets as the node last saw them. Filled by reflectors, read by volumes and environments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from tools.devcluster.node.api import Api
from tools.devcluster.node.kinds import Object, name_of

RESOURCES = {"ConfigMap": "configmaps", "Secret": "secrets"}
Listener = Callable[[str, str, str], None]  # kind, namespace, name of what changed


class ObjectStore:
    """Follows all ConfigMaps and Secrets of the cluster and tells `listener`, once it is set, about each change."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.listener: Listener = lambda kind, namespace, name: None
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.listed = {kind: asyncio.Event() for kind in RESOURCES}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for kind, plural in RESOURCES.items():
                replaced, changed = partial(self._replace, kind), partial(self._change, kind)
                group.create_task(self.api.reflect(f"/api/v1/{plural}", replaced, changed))

    async def wait_listed(self) -> None:
        for event in self.listed.values():
            await event.wait()

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        return self.objects.get((kind, namespace, name))

    def get_in(self, namespace: str, kind: str, name: str) -> Object | None:
        """`get` with the namespace first, for callers that look things up in one namespace."""
        return self.get(kind, namespace, name)

    def _replace(self, kind: str, items: list[Object]) -> None:
        fresh = {(kind, *name_of(item)): item for item in items}
        gone = [key for key in self.objects if key[0] == kind and key not in fresh]
        for key in gone:
            del self.objects[key]
        changed = [key for key, item in fresh.items() if version_of(self.objects.get(key)) != version_of(item)]
        self.objects |= fresh
        self.listed[kind].set()
        for key in [*gone, *changed]:
            self.listener(*key)

    def _change(self, kind: str, event: str, item: Object) -> None:
        key = (kind, *name_of(item))
        if event == "DELETED":
            self.objects.pop(key, None)
        else:
            self.objects[key] = item
        self.listener(*key)


def version_of(item: Object | None) -> str | None:
    return item["metadata"].get("resourceVersion") if item else None
