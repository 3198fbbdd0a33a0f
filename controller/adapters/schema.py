"""Fields that this release relies on and that the API server's CRDs would silently drop.

Helm does not upgrade CRDs: an old schema prunes a new safety field, and an absent limit must never mean "no limit".
Called by the operator at start and every few minutes; a rollout does not advance while anything is missing.
"""

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import structlog

from controller.adapters.rest import Rest
from controller.ports import Retryable, Terminal
from crds.generate import make_crds

log = structlog.get_logger("weighlock.schema")

CHECK_SECONDS = 300.0
_UNHAPPY_SECONDS = 10.0
_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"


class SchemaWatch:
    """Knows what is missing; asks the API server on a thread of its own."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._missing: tuple[str, ...] = ()
        self._stop = threading.Event()

    def missing(self) -> tuple[str, ...]:
        """Paths of missing fields as of the last answer."""
        return self._missing

    def start(self) -> None:
        """Check once now (a silent server is no answer), then go on in the background."""
        self.check()
        threading.Thread(target=self._run, name="schema", daemon=True).start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()

    def check(self) -> None:
        """Compare now."""
        found: list[str] = []
        for crd in make_crds().values():
            name = crd["metadata"]["name"]
            try:
                live = self._rest.call("GET", _PATH + name)
            except (Retryable, Terminal) as error:
                log.warning("schema not checked", crd=name, error=str(error))
                return
            found += [name] if live is None else [f"{name}: {p}" for p in missing_paths(crd, live)]
        if found and found != list(self._missing):
            log.error("CRDs are older than this operator", missing=found[:20])
        self._missing = tuple(found)

    def _run(self) -> None:
        while not self._stop.wait(_UNHAPPY_SECONDS if self._missing else CHECK_SECONDS):
            self.check()


def missing_paths(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> list[str]:
    """Property paths of `wanted` that `live` (both CustomResourceDefinitions) would drop."""
    has = set(property_paths(_schema(live)))
    open_paths = {path[:-1] for path in has if path[-1:] == ("*",)}
    return sorted(
        ".".join(path)
        for path in property_paths(_schema(wanted))
        if path not in has and not any(path[:n] in open_paths for n in range(len(path) + 1))
    )


def _schema(crd: Mapping[str, Any]) -> Mapping[str, Any]:
    served = [v for v in crd["spec"]["versions"] if v["name"] == "v1alpha1"]
    schema: Mapping[str, Any] = served[0]["schema"]["openAPIV3Schema"] if served else {}
    return schema


def property_paths(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every property under a structural schema; `*` below a node that keeps unknown fields."""
    if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("additionalProperties"):
        yield (*path, "*")
    for name, inner in (schema.get("properties") or {}).items():
        yield (*path, name)
        yield from property_paths(inner, (*path, name))
    if isinstance(schema.get("items"), dict):
        yield from property_paths(schema["items"], path)
