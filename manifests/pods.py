"""What a pod template gives its containers: environment, files of mounted ConfigMaps, accelerators, memory.

Called by :mod:`manifests.resolve`. Reads ``env``, ``envFrom``, ``volumeMounts`` (``subPath``, ``items``), resources
and resource claims; a reference that the input does not hold is a problem, never an empty value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from manifests.importers.registry import JsonObject, Scope, Workload, items, mapping, whole_number
from manifests.launch import kubernetes_expand
from manifests.model import REDACTED
from manifests.quantities import canonical_quantity, count
from manifests.secrets import is_secret_env, redact_text
from manifests.shell import Token

_ACCELERATOR = re.compile(
    r"^(?:(?:nvidia|amd|intel|rebellions|furiosa|iluvatar|metax-tech|hygon|cambricon|mthreads|kunlunxin|enflame)\.(?:com|ai)/.*(?:gpu|mig-|gcu|mlu|dcu|npu|rbln|gaudi).*"
    r"|gpu\.intel\.com/.*|habana\.ai/gaudi|google\.com/tpu|aws\.amazon\.com/neuron.*|huawei\.com/(?:ascend|Ascend|npu).*|gpu)$"
)
_PRODUCT_KEYS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "amd.com/gpu.product-name",
    "accelerator",
    "gpu.nvidia.com/model",
    "gpu.nvidia.com/class",
    "node.kubernetes.io/instance-type",
    "instance-type",
    "cloud.google.com/gke-tpu-accelerator",
)


@dataclass(slots=True)
class Environment:
    """Variables as the container gets them (``tokens``), as they may be shown, secrets in the clear (for salted
    hashing only)."""

    tokens: dict[str, Token] = field(default_factory=dict)
    shown: dict[str, Any] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    unresolved: list[tuple[str, str]] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int | None] = field(default_factory=dict)
    mounted: set[str] = field(default_factory=set)
    open: bool = False


def read_environment(workload: Workload, container: JsonObject, scope: Scope) -> Environment:
    """The environment of a container, in the order in which Kubernetes applies it."""
    out = Environment(mounted=set(mounted_files(workload, container, scope)))
    for name, value in workload.variables.items():
        out.tokens[name] = Token(value, not value.startswith("$("))
    for source in items(container.get("envFrom")):
        _from(workload, source, scope, out)
    for entry in items(container.get("env")):
        if entry.get("name") is not None:
            _entry(workload, str(entry["name"]), entry, scope, out)
    return out


def _from(workload: Workload, source: JsonObject, scope: Scope, out: Environment) -> None:
    prefix = str(source.get("prefix") or "")
    if "secretRef" in source:
        out.open = True
        out.shown[f"{prefix}*"] = f"secretRef:{mapping(source['secretRef']).get('name')}"
        return
    reference = mapping(source.get("configMapRef"))
    name = str(reference.get("name"))
    found = scope.configmap(workload.namespace, name)
    if found is None:
        out.open = True
        out.shown[f"{prefix}*"] = f"configMapRef:{name}"
        if not reference.get("optional"):
            out.problems.append(("missing-configmap", f"ConfigMap `{name}` (envFrom) is not in the input; add it"))
        return
    for key, value in mapping(found.get("data")).items():
        _plain(prefix + key, value if isinstance(value, str) else str(value), out, "configmap")


def _entry(workload: Workload, name: str, entry: JsonObject, scope: Scope, out: Environment) -> None:
    out.lines[name] = getattr(entry.get("value"), "line", None) or getattr(entry.get("name"), "line", None)
    source = mapping(entry.get("valueFrom"))
    if not source:
        value = entry.get("value")
        if value is not None and not isinstance(value, str):
            out.problems.append(
                ("not-a-string", f"env `{name}` is the {type(value).__name__} {value!r}, no string; quote it")
            )
            value = "true" if value is True else "false" if value is False else str(getattr(value, "raw", value))
        text, known = kubernetes_expand(str(value or ""), out.tokens)
        if not known:
            out.unresolved.append((name, f"`{redact_text(text)}` is known only at run time"))
        _plain(name, text, out, "env", known)
        return
    _reference(workload, name, source, scope, out)


def _plain(name: str, value: str, out: Environment, origin: str, known: bool = True) -> None:
    out.tokens[name] = Token(value, known)
    out.origins[name] = origin
    secret = is_secret_env(name, value) and value != ""
    out.shown[name] = REDACTED if secret else redact_text(value)
    if secret:
        out.secrets[name] = value
        if known and not re.fullmatch(r"\$\{?\w+\}?|<[^>]*>", value):
            out.problems.append(("secret-in-env", f"env `{name}` holds its secret in the clear; read it from a Secret"))


def _reference(workload: Workload, name: str, source: JsonObject, scope: Scope, out: Environment) -> None:
    kind, reference = next(((key, mapping(value)) for key, value in source.items()), ("unknown", {}))
    if kind == "configMapKeyRef":
        found = scope.configmap(workload.namespace, str(reference.get("name")))
        data = mapping(found.get("data")) if found is not None else {}
        key = str(reference.get("key"))
        if key in data:
            _plain(name, str(data[key]), out, "configmap")
            return
        if not reference.get("optional"):
            out.problems.append(
                (
                    "missing-configmap",
                    f"ConfigMap `{reference.get('name')}` key `{key}` (env {name}) is not in the input; add it",
                )
            )
    if kind == "fieldRef":
        known = _field(workload, str(reference.get("fieldPath")))
        if known is not None:
            _plain(name, known, out, "env")
            return
    where = "/".join(str(reference[key]) for key in ("name", "key", "fieldPath", "resource") if reference.get(key))
    out.tokens[name] = Token(f"$({name})", False)
    out.origins[name] = "env"
    out.shown[name] = REDACTED if is_secret_env(name) else f"{kind}:{where}"
    if is_secret_env(name):
        out.secrets[name] = f"<{kind}:{where}>"
    if kind != "secretKeyRef":
        out.unresolved.append((name, f"taken from {kind} {where} when the pod starts"))


def _field(workload: Workload, path: str) -> str | None:
    match = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if match:
        if match[2] == "leaderworkerset.sigs.k8s.io/size":
            return str(workload.pods)
        table = workload.labels if match[1] == "labels" else workload.annotations
        value = table.get(match[2])
        return None if value is None else str(value)
    if path == "metadata.namespace":
        return workload.namespace
    return None


def mounted_files(workload: Workload, container: JsonObject, scope: Scope) -> dict[str, str]:
    """Path in the container -> text, for every ConfigMap volume whose ConfigMap is in the input."""
    out: dict[str, str] = {}
    for mount, volume in _mounts(workload, container):
        base = str(mount.get("mountPath") or "").rstrip("/")
        sub_path = mount.get("subPath")
        for source in [volume, *items(mapping(volume.get("projected")).get("sources"))]:
            reference = mapping(source.get("configMap"))
            found = scope.configmap(workload.namespace, str(reference.get("name"))) if reference.get("name") else None
            if found is None:
                continue
            data = {str(key): value for key, value in mapping(found.get("data")).items() if isinstance(value, str)}
            chosen = {str(item.get("path")): str(item.get("key")) for item in items(reference.get("items"))} or {
                key: key for key in data
            }
            for path, key in chosen.items():
                if key in data and (not sub_path or path == sub_path):
                    out[base if sub_path else f"{base}/{path}"] = data[key]
    return out


def missing_configmaps(workload: Workload, container: JsonObject, scope: Scope) -> Iterator[tuple[str, str]]:
    """``(mount path, name)`` of ConfigMap volumes that the input does not hold (optional ones left out)."""
    for mount, volume in _mounts(workload, container):
        for source in [volume, *items(mapping(volume.get("projected")).get("sources"))]:
            reference = mapping(source.get("configMap"))
            if (
                reference.get("name")
                and not reference.get("optional")
                and scope.configmap(workload.namespace, str(reference["name"])) is None
            ):
                yield str(mount.get("mountPath") or ""), str(reference["name"])


def _mounts(workload: Workload, container: JsonObject) -> Iterator[tuple[JsonObject, JsonObject]]:
    volumes = {str(volume.get("name")): volume for volume in items(workload.pod.get("volumes"))}
    for mount in items(container.get("volumeMounts")):
        volume = volumes.get(str(mount.get("name")))
        if volume is not None:
            yield mount, volume


def accelerators(container: JsonObject) -> dict[str, int]:
    """Accelerator resource -> number that a container asks for (limits win, as in Kubernetes)."""
    resources = mapping(container.get("resources"))
    wanted = {**mapping(resources.get("requests")), **mapping(resources.get("limits"))}
    out = {}
    for name, value in wanted.items():
        number = count(value)
        if _ACCELERATOR.match(name) and number:
            out[name] = number
    return out


def resources(workload: Workload, container: JsonObject, scope: Scope) -> dict[str, Any]:
    """The ``resources`` shape: gpu per pod, accelerator, pods of a replica group, product, cpu and memory of the
    container."""
    out: dict[str, Any] = {}
    totals: dict[str, int] = {}
    for spec in items(workload.pod.get("containers")):
        for name, number in accelerators(spec).items():
            totals[name] = totals.get(name, 0) + number
    claimed = _claimed(workload, container, scope)
    if totals:
        name = max(totals, key=lambda key: totals[key])
        out.update(gpu=sum(totals.values()), accelerator=workload.accelerator or name)
    elif workload.gpu is not None and workload.gpu < 0:
        pass
    elif workload.gpu is not None:
        out.update(gpu=workload.gpu, **({"accelerator": workload.accelerator} if workload.accelerator else {}))
    elif claimed is not None:
        out.update(gpu=claimed[1], accelerator=claimed[0])
    elif not missing_claims(workload, container, scope):
        out["gpu"] = 0
    out["pods"] = workload.pods
    product = workload.product or _product(workload.pod)
    if product:
        out["product"] = product
    limits, requests = (
        mapping(mapping(container.get("resources")).get("limits")),
        mapping(mapping(container.get("resources")).get("requests")),
    )
    for name in ("cpu", "memory", "ephemeral-storage"):
        for label, table in (("limits", limits), ("requests", requests)):
            if name in table:
                out[f"{label}.{name}"] = canonical_quantity(table[name]) or str(table[name])
    for name, value in {**requests, **limits}.items():
        if "/" in str(name) and not _ACCELERATOR.match(str(name)):
            out[f"limits.{name}"] = canonical_quantity(value) or str(value)
    return out


def missing_claims(workload: Workload, container: JsonObject, scope: Scope) -> list[str]:
    """Resource claims of a container whose template the input does not hold, where nothing else says how many
    accelerators it gets."""
    asked = any(accelerators(spec) for spec in items(workload.pod.get("containers")))
    if asked or _claimed(workload, container, scope) is not None:
        return []
    named = {str(claim.get("name")): claim for claim in items(workload.pod.get("resourceClaims"))}
    out = []
    for claim in items(mapping(container.get("resources")).get("claims")):
        source = mapping(named.get(str(claim.get("name"))))
        template = str(source.get("resourceClaimTemplateName") or source.get("resourceClaimName") or claim.get("name"))
        if template not in scope.claims:
            out.append(template)
    return out


def _claimed(workload: Workload, container: JsonObject, scope: Scope) -> tuple[str, int] | None:
    named = {
        str(claim.get("name")): str(claim.get("resourceClaimTemplateName") or "")
        for claim in items(workload.pod.get("resourceClaims"))
    }
    total, device = 0, ""
    for claim in items(mapping(container.get("resources")).get("claims")):
        template = scope.claims.get(named.get(str(claim.get("name")), ""))
        devices = mapping(mapping(mapping(mapping(template or {}).get("spec")).get("spec")).get("devices"))
        for request in items(devices.get("requests")):
            exact = mapping(request.get("exactly")) or request
            total += whole_number(exact.get("count")) or 1
            device = device or str(exact.get("deviceClassName") or "")
    return (device, total) if total else None


def _product(pod: JsonObject) -> str | None:
    selector = mapping(pod.get("nodeSelector"))
    for key in _PRODUCT_KEYS:
        if key in selector:
            return str(selector[key])
    terms = items(
        mapping(
            mapping(mapping(pod.get("affinity")).get("nodeAffinity")).get(
                "requiredDuringSchedulingIgnoredDuringExecution"
            )
        ).get("nodeSelectorTerms")
    )
    for term in terms:
        for expression in items(term.get("matchExpressions")):
            found = expression.get("values")
            if (
                expression.get("key") in _PRODUCT_KEYS
                and isinstance(found, list)
                and found
                and expression.get("operator") == "In"
            ):
                return str(found[0])
    return None
