"""The extension point: a reader turns one Kubernetes object into workloads (pod template plus what only that kind
knows).

A reader is a function ``(obj, scope) -> list[Workload]`` registered with :func:`reader` for a kind (and API group).
It names pods, roles, replicas and fields of the custom resource that become arguments; everything else (command
lines, flags, environment, ConfigMaps, versions) is done for it. See ``docs/manifests.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a custom resource that means an engine setting: the flag's name, its value, the field's path."""

    name: str
    value: Any
    written: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """One pod template that serves, as a reader hands it over.

    ``pod``: the pod spec. ``path``: where it stands in the document. ``pods``: pods of one replica group.
    ``fields``: custom resource fields (weaker than written arguments unless ``fields_win``). ``added_args``:
    arguments that the kind's operator appends. ``engine``: engine name where only the kind knows it; ``catalog`` its
    flags. ``variables``: what the kind's operator injects. ``server``: names of containers that serve, where the
    kind fixes them. ``patch``: an incomplete object.
    """

    name: str
    namespace: str | None
    kind: str
    path: str
    pod: JsonObject
    labels: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)
    role: str | None = None
    rank: str | None = None
    replicas: int | None = None
    pods: int = 1
    fields: tuple[Field, ...] = ()
    added_args: tuple[Any, ...] = ()
    engine: str | None = None
    version: str | None = None
    model_id: str | None = None
    model_revision: str | None = None
    gpu: int | None = None
    accelerator: str | None = None
    product: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    server: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    patch: bool = False
    notes: tuple[str, ...] = ()
    whole: bool = False


@dataclass(slots=True)
class Scope:
    """What else is in the input: ConfigMaps, Secrets' names, claim templates, serving runtimes; and the problems
    found."""

    configmaps: dict[tuple[str | None, str], JsonObject] = field(default_factory=dict)
    claims: dict[str, JsonObject] = field(default_factory=dict)
    runtimes: dict[str, JsonObject] = field(default_factory=dict)
    bases: dict[str, JsonObject] = field(default_factory=dict)
    problems: list[tuple[str, str, str]] = field(default_factory=list)

    def configmap(self, namespace: str | None, name: str) -> JsonObject | None:
        """A ConfigMap of the input by name; the namespace counts only where both state one."""
        exact = self.configmaps.get((namespace, name))
        if exact is not None:
            return exact
        return next(
            (
                found
                for (space, key), found in self.configmaps.items()
                if key == name and (space is None or namespace is None)
            ),
            None,
        )


Reader = Callable[[JsonObject, Scope], list[Workload]]
_READERS: dict[str, Reader] = {}


def reader(*kinds: str) -> Callable[[Reader], Reader]:
    """Registers a reader for kinds, written ``Kind`` or ``Kind.group`` (the longer one wins)."""

    def register(function: Reader) -> Reader:
        for kind in kinds:
            _READERS[kind] = function
        return function

    return register


def find_reader(kind: str, api_version: str) -> Reader | None:
    """The reader of an object's kind, None where there is none."""
    group = api_version.rpartition("/")[0]
    return _READERS.get(f"{kind}.{group}") or _READERS.get(kind)


def mapping(value: Any) -> JsonObject:
    """``value`` when it is a mapping, else an empty one (odd input never raises)."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[JsonObject]:
    """The mappings of a list, nothing of anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_list(value: Any) -> list[Any]:
    """A list of scalars; a single scalar is a list of one."""
    if isinstance(value, list):
        return [item for item in value if not isinstance(item, dict | list)]
    return [] if value is None or isinstance(value, dict) else [value]


def name_of(obj: JsonObject) -> str:
    """``metadata.name`` (or generateName), ``unnamed`` where there is none."""
    meta = mapping(obj.get("metadata"))
    return str(meta.get("name") or meta.get("generateName") or "unnamed")


def namespace_of(obj: JsonObject) -> str | None:
    """``metadata.namespace``."""
    namespace = mapping(obj.get("metadata")).get("namespace")
    return str(namespace) if namespace else None


def whole_number(value: Any) -> int | None:
    """An int of a field, None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isdigit() and len(value) < 10 else None


def merge_env(*lists: Iterable[JsonObject] | None) -> list[JsonObject]:
    """Environment lists laid over each other: a later one replaces by name."""
    out: dict[str, JsonObject] = {}
    for entries in lists:
        for entry in items(list(entries) if entries is not None else []):
            out[str(entry.get("name"))] = entry
    return list(out.values())
