"""The values that the whole package speaks in: manifest, setting, finding, document.

Called by everybody who reads a manifest (operator, CLI, dashboard). Knows nothing of YAML, Kubernetes or engines;
holds data and its JSON shape. Everything is immutable: a manifest is a fact about an input, not a work area.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REDACTED = "<redacted>"
LEVELS = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation about an input (``W``): a stable code, a level, where, and a whole sentence that says what to
    do."""

    code: str
    level: str
    file: str
    path: str
    message: str

    def to_json(self) -> dict[str, Any]:
        """The ``W`` shape."""
        return {"code": self.code, "level": self.level, "file": self.file, "path": self.path, "message": self.message}


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Something that cannot be known from the input alone: ``what`` names it, ``why`` says what would tell."""

    what: str
    why: str

    def to_json(self) -> dict[str, str]:
        """The shape of one entry of ``unresolved``."""
        return {"what": self.what, "why": self.why}


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective value of the engine.

    ``value`` is typed (number, bool, string, list, object; None or an expression when known only at run time),
    ``origin`` says where it came from (args, command, env, config-file, configmap, custom-resource, default),
    ``written`` is the text as the author wrote it, ``line`` the 1-based line in the file, None where the input had
    no lines. ``expression`` is set when the value is unresolved: two equal expressions are the only thing that may
    be called equal.
    """

    value: Any
    origin: str
    written: str
    line: int | None = None
    expression: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The shape of one entry of ``settings``; ``expression`` beside it where the value is unresolved."""
        out = {"value": self.value, "origin": self.origin, "written": self.written, "line": self.line}
        return out if self.expression is None else out | {"expression": self.expression}


@dataclass(frozen=True, slots=True)
class Backend:
    """The engine under a Dynamo worker (its own version is known only where the image says so)."""

    name: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """Which engine serves, in which version (the engine's own, without ``v``), from which image."""

    name: str = "unknown"
    version: str | None = None
    image: str | None = None
    backend: Backend | None = None

    @property
    def family(self) -> str:
        """The engine whose flags count: ``dynamo-vllm`` -> ``vllm``."""
        return self.name.removeprefix("dynamo-") if self.name.startswith("dynamo-") else self.name

    @property
    def family_version(self) -> str | None:
        """Version of :attr:`family`; a Dynamo release number is never taken for the engine's."""
        return (self.backend.version if self.backend else None) if self.name.startswith("dynamo-") else self.version

    def to_json(self) -> dict[str, Any]:
        """The ``engine`` shape; ``backend`` only where there is one."""
        out: dict[str, Any] = {"name": self.name, "version": self.version, "image": self.image}
        if self.backend is not None:
            out["backend"] = {"name": self.backend.name, "version": self.backend.version}
        return out


@dataclass(frozen=True, slots=True)
class Model:
    """Identity of the weights: id (repository or path) and revision (None = the repository's default branch)."""

    id: str | None = None
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Where a manifest was found: file, document index (from 0), kind, path inside the document."""

    file: str
    index: int
    kind: str | None
    path: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One container that takes part in serving (``M``).

    ``environment``: name -> value as the container gets it; secrets are ``"<redacted>"``, references written as
    ``secretKeyRef:NAME/KEY``. ``secrets``: name -> salted hash, never printed, so that a diff can still say "changed".
    ``resources``: ``gpu`` per pod, ``accelerator`` (resource name), ``pods`` per replica group, ``product`` (GPU
    label), cpu, memory. ``files``: mounted path -> text of ConfigMaps in the same input. ``pod``: what else of the
    pod matters for a comparison (replicas, probes, topology, volumes). ``extra``: generation semantics, traffic and
    hardware of a run manifest. ``patch``: an incomplete object (Kustomize patch) of which only what it sets is known.
    """

    name: str
    namespace: str | None
    role: str
    source: Source
    engine: Engine = Engine()
    model: Model = Model()
    rank: str | None = None
    container: str | None = None
    replicas: int | None = None
    argv: tuple[str, ...] = ()
    settings: Mapping[str, Setting] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    unresolved: tuple[Unresolved, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    pod: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    patch: bool = False
    reason: str | None = None

    def value(self, name: str) -> Any:
        """A setting's value; None where it is not set."""
        setting = self.settings.get(name)
        return setting.value if setting is not None else None

    @property
    def digest(self) -> str:
        """Hex SHA-256 over everything effective: equal digests mean that nothing that is known differs. No secret
        enters."""
        content = {
            "engine": self.engine.to_json(),
            "model": [self.model.id, self.model.revision],
            "settings": {key: s.expression or s.value for key, s in self.settings.items()},
            "environment": dict(self.environment),
            "resources": dict(self.resources),
            "files": dict(self.files),
            "pod": dict(self.pod),
            "extra": dict(self.extra),
            "role": [self.role, self.rank, self.replicas],
        }
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The ``M`` shape, plus ``container``, ``replicas``, ``pod`` and ``reason`` beside it."""
        out: dict[str, Any] = {
            "name": self.name,
            "namespace": self.namespace,
            "role": self.role,
            "rank": self.rank,
            "container": self.container,
            "source": {
                "file": self.source.file,
                "index": self.source.index,
                "kind": self.source.kind,
                "path": self.source.path,
            },
            "engine": self.engine.to_json(),
            "model": {"id": self.model.id, "revision": self.model.revision},
            "argv": list(self.argv),
            "settings": {key: setting.to_json() for key, setting in self.settings.items()},
            "environment": dict(self.environment),
            "resources": dict(self.resources),
            "unresolved": [entry.to_json() for entry in self.unresolved],
            "replicas": self.replicas,
            "digest": self.digest,
        }
        for name, value in (("files", self.files), ("pod", self.pod), ("extra", self.extra)):
            if value:
                out[name] = dict(value)
        if self.reason:
            out["reason"] = self.reason
        if self.patch:
            out["patch"] = True
        plain_out: dict[str, Any] = plain(out)
        return plain_out


@dataclass(frozen=True, slots=True)
class Document:
    """What became of one YAML document: ``handled`` is manifest, context, not-ours or refused; ``reason`` says why."""

    file: str
    index: int
    kind: str | None
    name: str | None
    handled: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """The shape of one entry of ``documents``."""
        return {
            "file": self.file,
            "index": self.index,
            "kind": self.kind,
            "name": self.name,
            "handled": self.handled,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Refusal:
    """One bad input in one line: file, path (line:column), what is wrong, what to do."""

    file: str
    path: str
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ImportResult:
    """Answer of an import: what serves, what became of every document, what to know, and what was refused."""

    manifests: tuple[Manifest, ...] = ()
    documents: tuple[Document, ...] = ()
    warnings: tuple[Finding, ...] = ()
    refused: tuple[Refusal, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The shape of ``weighlock import -o json``."""
        return {
            "manifests": [manifest.to_json() for manifest in self.manifests],
            "documents": plain([document.to_json() for document in self.documents]),
            "warnings": plain([warning.to_json() for warning in self.warnings]),
        }


def canonical_json(value: Any) -> str:
    """One text per value: sorted keys, no blanks, ASCII; what digests and comparisons are made of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)


def plain(value: Any) -> Any:
    """The same value in builtin types only: strings and numbers that know their line or spelling lose it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float) and type(value) is not float:
        return float(value)
    return value
