"""A container's environment as Kubernetes defines it. Pure: objects in, a dictionary out.

Called when a container starts. Looking up ConfigMaps and Secrets is the caller's `Sources`.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

Sources = Callable[[str, str], Mapping[str, Any] | None]  # (ConfigMap | Secret, name) -> object or None

REFERENCE = re.compile(r"\$(\$)|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
ENVIRONMENT_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*\Z")
SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]\Z")
QUANTITY = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)(m|k|[KMGTPE]i?)?\Z")
SUFFIXES = {"": Decimal(1), "m": Decimal(1) / 1000, "k": Decimal(1000)}
SUFFIXES |= {letter: Decimal(1000) ** power for power, letter in enumerate("KMGTPE", start=1)}
SUFFIXES |= {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)}


class ReferenceMissing(Exception):
    """A ConfigMap, Secret, key or field that the container needs is not there; the message is the kubelet's kind."""


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` by its value; unknown names stay as written, ``$$`` is one dollar sign."""

    def replace(match: re.Match[str]) -> str:
        return "$" if match.group(1) else values.get(match.group(2), match.group(0))

    return REFERENCE.sub(replace, text)


def parse_quantity(text: str | int | float) -> Decimal:
    """A Kubernetes quantity as a number.

    Raises:
        ValueError: it is none.
    """
    match = QUANTITY.match(str(text))
    if match is None:
        raise ValueError(f"{text!r} is no quantity")
    return Decimal(match.group(1)) * SUFFIXES[match.group(2) or ""]


def make_environment(container: Mapping[str, Any], pod: Mapping[str, Any], sources: Sources) -> dict[str, str]:
    """The variables that the container's ``envFrom`` and ``env`` define, later ones winning.

    Args:
        container: a container of the pod's spec.
        pod: the pod; its status must hold ``podIP`` and ``hostIP`` where fields refer to them.
        sources: finds a ConfigMap or Secret of the pod's namespace.

    Raises:
        ReferenceMissing: something not optional is missing.
    """
    values: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        values |= make_from_source(source, sources)
    for entry in container.get("env") or []:
        value = resolve(entry, container, pod, sources, values)
        if value is not None:
            values[entry["name"]] = value
    return values


def make_from_source(source: Mapping[str, Any], sources: Sources) -> dict[str, str]:
    kind, reference = ("ConfigMap", source.get("configMapRef")) if "configMapRef" in source else ("Secret", None)
    reference = reference or source["secretRef"]
    found = sources(kind, reference["name"])
    if found is None:
        if reference.get("optional"):
            return {}
        raise ReferenceMissing(f'{kind.lower()} "{reference["name"]}" not found')
    prefix = source.get("prefix", "")
    pairs = {prefix + key: value for key, value in data_of(kind, found).items()}
    return {key: value.decode() for key, value in pairs.items() if ENVIRONMENT_NAME.match(key)}


def resolve(
    entry: Mapping[str, Any],
    container: Mapping[str, Any],
    pod: Mapping[str, Any],
    sources: Sources,
    values: Mapping[str, str],
) -> str | None:
    """The value of one ``env`` entry, None where an optional reference is missing."""
    origin = entry.get("valueFrom")
    if not origin:
        return expand(entry.get("value") or "", values)
    if "fieldRef" in origin:
        return field_value(pod, origin["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in origin:
        return resource_value(container, origin["resourceFieldRef"])
    kind = "ConfigMap" if "configMapKeyRef" in origin else "Secret"
    reference = origin["configMapKeyRef" if kind == "ConfigMap" else "secretKeyRef"]
    found = sources(kind, reference["name"])
    data = data_of(kind, found) if found is not None else {}
    if reference["key"] in data:
        return data[reference["key"]].decode()
    if reference.get("optional"):
        return None
    missing = f'{kind.lower()} "{reference["name"]}" not found'
    if found is not None:
        missing = f"couldn't find key {reference['key']} in {kind} {reference['name']}"
    raise ReferenceMissing(missing)


def data_of(kind: str, found: Mapping[str, Any]) -> dict[str, bytes]:
    """The content of a ConfigMap or Secret as bytes by key."""
    if kind == "Secret":
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
    text = {key: value.encode() for key, value in (found.get("data") or {}).items()}
    binary = {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
    return text | binary


def field_value(pod: Mapping[str, Any], path: str) -> str:
    """A field of the downward API.

    Raises:
        ReferenceMissing: the API has no such field.
    """
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    subscript = SUBSCRIPT.match(path)
    if subscript:
        return str((metadata.get(subscript.group(1)) or {}).get(subscript.group(2), ""))
    if path in ("metadata.labels", "metadata.annotations"):
        pairs = metadata.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f'{key}="{value}"' for key, value in sorted(pairs.items()))
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.podIP": status.get("podIP", ""),
        "status.podIPs": status.get("podIP", ""),
        "status.hostIP": status.get("hostIP", ""),
        "status.hostIPs": status.get("hostIP", ""),
    }
    if path not in fields:
        raise ReferenceMissing(f"unsupported field {path}")
    return str(fields[path])


def resource_value(container: Mapping[str, Any], reference: Mapping[str, Any]) -> str:
    """A limit or request of the container in units of the divisor, rounded up; 0 where there is none."""
    kind, name = reference["resource"].split(".", 1)
    resources = container.get("resources") or {}
    amount = (resources.get(kind) or {}).get(name) or (resources.get("limits") or {}).get(name) or 0
    divisor = parse_quantity(reference.get("divisor") or 1) or Decimal(1)
    return str(math.ceil(parse_quantity(amount) / divisor))
