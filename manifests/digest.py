"""Canonical form and digests: what counts as the same, byte for byte, after normalisation.

Called by the operator (revision of an attempt, equality after a rollback, drift) and by the diff. Quantities become
one spelling, defaults that the API server fills in are removed, empty blocks vanish, order that means nothing is
sorted away. Replicas, status and injected annotations never enter a revision; secrets enter only as salted hashes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Any

from manifests.model import Manifest, canonical_json
from manifests.quantities import canonical_quantity
from manifests.secrets import is_secret_env, redact_text, salted_hash

# path suffix (last keys) -> default that the API server fills in
_DEFAULTS: dict[tuple[str, ...], Any] = {
    ("terminationGracePeriodSeconds",): 30,
    ("dnsPolicy",): "ClusterFirst",
    ("schedulerName",): "default-scheduler",
    ("terminationMessagePath",): "/dev/termination-log",
    ("terminationMessagePolicy",): "File",
    ("protocol",): "TCP",
    ("securityContext",): {},
    ("readinessProbe", "timeoutSeconds"): 1,
    ("readinessProbe", "periodSeconds"): 10,
    ("readinessProbe", "successThreshold"): 1,
    ("readinessProbe", "failureThreshold"): 3,
    ("livenessProbe", "timeoutSeconds"): 1,
    ("livenessProbe", "periodSeconds"): 10,
    ("livenessProbe", "successThreshold"): 1,
    ("livenessProbe", "failureThreshold"): 3,
    ("startupProbe", "timeoutSeconds"): 1,
    ("startupProbe", "periodSeconds"): 10,
    ("startupProbe", "successThreshold"): 1,
    ("startupProbe", "failureThreshold"): 3,
    ("httpGet", "scheme"): "HTTP",
    ("configMap", "defaultMode"): 420,
    ("secret", "defaultMode"): 420,
    ("projected", "defaultMode"): 420,
    ("downwardAPI", "defaultMode"): 420,
    ("fieldRef", "apiVersion"): "v1",
    ("hostPath", "type"): "",
    ("enableServiceLinks",): True,
    ("preemptionPolicy",): "PreemptLowerPriority",
    ("priority",): 0,
}
_ZERO_PROBE = frozenset({"initialDelaySeconds"})
_QUANTITIES = frozenset({"limits", "requests", "capacity", "overhead"})
_QUANTITY_KEYS = frozenset({"sizeLimit", "storage"})
_INJECTED = re.compile(
    r"^(?:sidecar\.istio\.io/|istio\.io/|linkerd\.io/|kubectl\.kubernetes\.io/|cni\.projectcalico\.org/|k8s\.v1\.cni\.cncf\.io/|k8s\.ovn\.org/"
    r"|kubernetes\.io/(?:config|limit-ranger|psp)|consul\.hashicorp\.com/|instrumentation\.opentelemetry\.io/|vault\.hashicorp\.com/agent-inject-status"
    r"|deployment\.kubernetes\.io/|pod-template-hash$|controller-revision-hash|autoscaling\.k8s\.io/|vpaUpdates|vpaObservedContainers|weighlock\.dev/)"
)
_OURS = frozenset({("app.kubernetes.io/managed-by", "weighlock")})
_SORTED_BY_NAME = frozenset({"volumes", "imagePullSecrets"})
_SORTED_LISTS: dict[str, tuple[str, ...]] = {
    "volumeMounts": ("mountPath", "name"),
    "ports": ("containerPort", "protocol", "name"),
}
_SORTED_ANY = frozenset({"tolerations", "add", "drop", "claims", "resourceClaims"})
_POD_KEYS = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "hostNetwork",
    "hostIPC",
    "runtimeClassName",
    "priorityClassName",
    "schedulerName",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "securityContext",
    "restartPolicy",
    "resourceClaims",
)
_CONTAINER_KEYS = ("securityContext", "lifecycle", "workingDir", "ports")


def normalise(value: Any, path: tuple[str, ...] = ()) -> Any:
    """The canonical form of a Kubernetes object or a part of it (``path``: keys above, for rules that depend on the
    place).

    Equal results mean: the API server would treat both alike. Pure; the input is not changed.
    """
    if isinstance(value, Mapping):
        return _mapping(value, path)
    if isinstance(value, list | tuple):
        return _list(value, path)
    if isinstance(value, str):
        return _scalar(str(value), path)
    if isinstance(value, bool) or value is None:
        return value
    if path and (path[-1] in _QUANTITY_KEYS or (len(path) > 1 and path[-2] in _QUANTITIES)):
        return canonical_quantity(value) or str(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _scalar(text: str, path: tuple[str, ...]) -> Any:
    if path and (path[-1] in _QUANTITY_KEYS or (len(path) > 1 and path[-2] in _QUANTITIES)):
        return canonical_quantity(text) or text
    return text


def _mapping(value: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any] | None:
    out: dict[str, Any] = {}
    for key, item in value.items():
        here = (*path, str(key))
        if _dropped(here, item, value):
            continue
        result = normalise(item, here)
        if result is None or (result in ({}, []) and key not in ("emptyDir",)):
            continue
        if _is_default(here, result):
            continue
        out[str(key)] = result
    limits, requests = out.get("limits"), out.get("requests")
    if path and path[-1] == "resources" and isinstance(limits, dict) and isinstance(requests, dict):
        left = {name: amount for name, amount in requests.items() if limits.get(name) != amount}
        out = {**{k: v for k, v in out.items() if k != "requests"}, **({"requests": left} if left else {})}
    return out


def _dropped(path: tuple[str, ...], item: Any, owner: Mapping[str, Any]) -> bool:
    key = path[-1]
    if key == "status" and len(path) == 1:
        return True
    if (
        len(path) >= 2
        and path[-2] == "metadata"
        and key
        in (
            "managedFields",
            "resourceVersion",
            "uid",
            "generation",
            "creationTimestamp",
            "selfLink",
            "deletionTimestamp",
        )
    ):
        return True
    if len(path) >= 2 and path[-2] in ("annotations", "labels") and (_INJECTED.match(key) or (key, item) in _OURS):
        return True
    if key == "imagePullPolicy":
        image = str(owner.get("image") or "")
        tag = image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[2]
        return bool(item == ("Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"))
    if key == "serviceAccount" and owner.get("serviceAccountName") == item:
        return True
    if key == "restartPolicy" and item == "Always" and "containers" in owner:
        return True
    return key in _ZERO_PROBE and item == 0


def _is_default(path: tuple[str, ...], value: Any) -> bool:
    for size in (2, 1):
        default = _DEFAULTS.get(path[-size:], _MISSING)
        if default is not _MISSING and value == default:
            return True
    return False


_MISSING = object()


def _list(value: list[Any] | tuple[Any, ...], path: tuple[str, ...]) -> list[Any]:
    out = [normalise(item, path) for item in value]
    key = path[-1] if path else ""
    if key in _SORTED_BY_NAME:
        return sorted(out, key=lambda item: str(item.get("name")) if isinstance(item, dict) else str(item))
    if key in _SORTED_LISTS:
        fields = _SORTED_LISTS[key]
        return sorted(
            out,
            key=lambda item: tuple(str(item.get(name)) for name in fields) if isinstance(item, dict) else (str(item),),
        )
    if key in _SORTED_ANY:
        return sorted(out, key=canonical_json)
    return out


def revision_digest(
    roles_templates: Mapping[str, Any],
    spec_manifest: Mapping[str, Any] | None,
    configmap_contents: Mapping[str, Mapping[str, str]] | None,
    salt: bytes = b"",
) -> str:
    """Hex SHA-256 of what starts an attempt: templates of all roles, ``spec.manifest``, contents of referenced
    ConfigMaps.

    Args:
        roles_templates: role -> pod template (or leaderWorkerTemplate); replicas beside a template do not enter.
        spec_manifest: ``spec.manifest``, None for none.
        configmap_contents: name -> data. A hashed name does not matter: contents enter under the name without its
        hash suffix.
        salt: salts literal secrets of environment variables; without it they enter as "secret" only.
    """
    names = {name: f"configmap-{index}" for index, name in enumerate(sorted(configmap_contents or {}, key=_stem))}
    content = {
        "roles": {
            role: _hide_secrets(_rename(normalise(template), names), salt) for role, template in roles_templates.items()
        },
        "manifest": normalise(spec_manifest or {}),
        "configmaps": {
            names[name]: _hide_secrets({"data": dict(data)}, salt) for name, data in (configmap_contents or {}).items()
        },
    }
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def _stem(name: str) -> str:
    return re.sub(r"-[0-9a-z]{5,12}$|-[0-9a-f]{2,}$", "", name) + "\0" + name


def _rename(value: Any, names: Mapping[str, str], owner: str = "") -> Any:
    if isinstance(value, dict):
        return {
            key: names.get(item, item)
            if isinstance(item, str) and key == "name" and owner in ("configMap", "configMapRef", "configMapKeyRef")
            else _rename(item, names, key)
            for key, item in value.items()
        }
    return [_rename(item, names, owner) for item in value] if isinstance(value, list) else value


def _hide_secrets(value: Any, salt: bytes) -> Any:
    if isinstance(value, dict):
        name = value.get("name")
        plain = value.get("value")
        if isinstance(name, str) and isinstance(plain, str) and is_secret_env(name, plain):
            return {**value, "value": salted_hash(plain, salt) if salt else "secret"}
        return {key: _hide_secrets(item, salt) for key, item in value.items()}
    if isinstance(value, list):
        return [_hide_secrets(item, salt) for item in value]
    if isinstance(value, str):
        redacted = redact_text(value)
        return value if redacted == value else redacted + (salted_hash(value, salt) if salt else "")
    return value


def record_digest(run_manifest: Mapping[str, Any] | Manifest) -> str:
    """Hex SHA-256 of a whole RunManifest (audit only): everything in it except status and server-side metadata."""
    body = run_manifest.to_json() if isinstance(run_manifest, Manifest) else run_manifest
    return hashlib.sha256(canonical_json(normalise(body)).encode()).hexdigest()


def revision10(digest: str) -> str:
    """The first ten characters of a digest: what names variants."""
    return digest[:10]


def equal_after_normalisation(stored: Any, live: Any) -> list[str]:
    """Paths at which a stored and a live template differ after normalisation; empty means that they are the same."""
    return list(_differences(normalise(stored), normalise(live), ""))


def _differences(stored: Any, live: Any, path: str) -> list[str]:
    if isinstance(stored, dict) and isinstance(live, dict):
        out: list[str] = []
        for key in sorted({*stored, *live}):
            here = f"{path}.{key}" if path else key
            if key not in stored or key not in live:
                out.append(here)
            else:
                out += _differences(stored[key], live[key], here)
        return out
    if isinstance(stored, list) and isinstance(live, list):
        if len(stored) != len(live):
            return [path]
        return [
            found
            for index, pair in enumerate(zip(stored, live, strict=True))
            for found in _differences(*pair, f"{path}[{index}]")
        ]
    return [] if canonical_json(stored) == canonical_json(live) else [path or "."]


def pod_facts(pod: Mapping[str, Any], container: Mapping[str, Any], serving: Collection[str] = ()) -> dict[str, Any]:
    """What of a pod template matters for a comparison besides the command line: probes, placement, volumes, shared
    memory, and the init containers (``serving`` names those that are manifests of their own)."""
    whole = _as_mapping(normalise({"spec": dict(pod)}))
    spec = _as_mapping(whole.get("spec"))
    own = _as_mapping(normalise(dict(container)))
    out: dict[str, Any] = {key: spec[key] for key in _POD_KEYS if key in spec}
    out |= {f"container.{key}": own[key] for key in _CONTAINER_KEYS if key in own}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if probe in own:
            out[f"probe.{probe.removesuffix('Probe')}"] = own[probe]
    volumes = {
        str(volume.get("name")): {k: v for k, v in volume.items() if k != "name"}
        for volume in _as_list(spec.get("volumes"))
        if isinstance(volume, dict)
    }
    for mount in _as_list(own.get("volumeMounts")):
        source = dict(volumes.get(str(mount.get("name")), {})) if isinstance(mount, dict) else {}
        if source and "configMap" not in source:
            out[f"mount:{mount.get('mountPath')}"] = {
                **source,
                **{k: v for k, v in mount.items() if k not in ("name", "mountPath")},
            }
    return out | _prepared(spec, serving)


def _prepared(spec: Mapping[str, Any], serving: Collection[str]) -> dict[str, Any]:
    """Image, command and variables of what runs before the engine (it fetches weights, writes files); what a mesh
    injects is none of it."""
    out = {}
    for other in _as_list(spec.get("initContainers")):
        name = str(other.get("name")) if isinstance(other, dict) else ""
        if name and other.get("restartPolicy") != "Always" and name not in serving and not _MESH.match(name):
            kept = ("image", "command", "args", "env", "envFrom")
            out[f"initContainers.{name}"] = {key: other[key] for key in kept if key in other}
    return out


_MESH = re.compile(r"^(?:istio|linkerd|vault-agent|consul|dapr|kuma|aws-appmesh|proxyinit)")


def _as_mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
