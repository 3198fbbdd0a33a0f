"""Lines about everything but flags: engine, model, image, replicas, accelerators, environment, mounted files,
probes, placement.

Called by :mod:`manifests.diff`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from manifests import compare
from manifests.catalog import Catalog
from manifests.compare import Meaning
from manifests.engines.profiles import profile_of
from manifests.engines.sources import twin_of
from manifests.images import image_facts, split_image
from manifests.lines import Change, change
from manifests.model import REDACTED, Manifest
from manifests.yamlsafe import YamlRefused, load_all

_MODEL = Meaning("model_identity", ("W", "A", "KV"), "contract-change", note="other weights give other answers")
_IMAGE = Meaning("engine_version", ("A", "SCHED"), "semantic-exact", True)
_HARDWARE = Meaning(
    "hardware", ("W", "A", "KV", "COMM"), "semantic-exact", True, note="kernels, memory and bandwidth differ"
)
_GPU_COUNT = Meaning("parallelism", ("W", "KV", "COMM"), "semantic-exact", True, note="memory and ranks per pod")
_REPLICAS = Meaning("capacity", ("SCHED",), "none", note="changes the load per replica, not a revision")
_CPU = Meaning("capacity", ("SCHED",), "none", note="host CPU feeds the scheduler")
_MEMORY = Meaning("capacity", (), "none", note="host memory is a limit, not a speed")
_GENERATION = Meaning("generation", (), "contract-change", note="generation semantics differ")
_TRAFFIC = Meaning("traffic", ("SCHED",), "contract-change", note="the load that the verdict is about differs")
_OFFLOAD = Meaning("kv_offload", ("KV", "COMM"), "semantic-exact", True, note="configures where KV blocks are kept")
_CHART = Meaning(
    "chart_values", ("SCHED",), "semantic-exact", True, note="the chart turns this value into something not read here"
)
_ADAPTERS = Meaning(
    "lora", ("A",), "contract-change", note="the chart's controller loads adapters into the running engine"
)
_RESOURCE_FIELD = Meaning(
    "custom_resource",
    ("SCHED",),
    "semantic-exact",
    True,
    note="the operator turns this field into something not read here",
)
_EXTRA = {
    "modelSpec": _CHART,
    "servingEngineSpec": _CHART,
    "routerSpec": _CHART,
    "cacheserverSpec": _OFFLOAD,
    "loraAdapters": _ADAPTERS,
    "loraController": _ADAPTERS,
    "spec": _RESOURCE_FIELD,
    "inference": _RESOURCE_FIELD,
    "resource": _HARDWARE,
    "annotations": _RESOURCE_FIELD,
    "generation": _GENERATION,
    "traffic": _TRAFFIC,
    "experience": _TRAFFIC,
}
_NOT_WRITTEN = frozenset({"generation", "traffic", "experience", "resources"})
_CACHES = re.compile(r"^(?:modelSpec|spec)\.(?:lmcacheConfig|lmCacheConfig|kvCacheOffloading)\.")
_REFERENCE = re.compile(r"^(?:fieldRef|resourceFieldRef|secretKeyRef|configMapKeyRef|fileKeyRef):")
_SCALING = re.compile(r"(?:max|min)Replicas$|[aA]utoscal|scaleDown|targetRequests|keda", re.IGNORECASE)
_EXTENDED = Meaning("topology", ("COMM",), "semantic-exact", note="another device for the container")


def identity_lines(old: Manifest, new: Manifest) -> list[Change]:
    """Engine, image, model, revision."""
    out: list[Change] = []
    if old.engine.name != new.engine.name:
        out.append(
            change(
                "engine",
                old.engine.name,
                new.engine.name,
                "image",
                Meaning(
                    "engine",
                    ("W", "A", "KV", "SCHED"),
                    "contract-change",
                    True,
                    note="another engine: nothing may be assumed equal",
                ),
            )
        )
    if _image(old.engine.image) != _image(new.engine.image):
        out.append(_image_line(old, new))
    elif old.engine.version != new.engine.version:
        out.append(change("engine.version", old.engine.version, new.engine.version, "image", _IMAGE))
    if old.role != new.role:
        out.append(
            change(
                "role", old.role, new.role, "resources", Meaning("topology", ("SCHED", "COMM"), "semantic-exact", True)
            )
        )
    if old.model.id != new.model.id:
        out.append(change("model", old.model.id, new.model.id, "model", _MODEL))
    elif old.model.revision != new.model.revision and "revision" not in old.settings and "revision" not in new.settings:
        out.append(
            change(
                "model.revision",
                old.model.revision,
                new.model.revision,
                "model",
                _MODEL,
                "unpinned" if None in (old.model.revision, new.model.revision) else None,
            )
        )
    return out


def _image(image: str | None) -> str | None:
    if image is None:
        return None
    for prefix in ("docker.io/library/", "docker.io/", "index.docker.io/"):
        image = image.removeprefix(prefix)
    name = split_image(image)
    tag = name.tag or (None if name.digest else "latest")
    return f"{name.repository}{':' + tag if tag else ''}{'@' + name.digest if name.digest else ''}"


def _image_line(old: Manifest, new: Manifest) -> Change:
    first, second = image_facts(old.engine.image), image_facts(new.engine.image)
    if old.engine.version is not None and old.engine.version == new.engine.version:
        why = "the engine's version is the same; what else the image holds is not known"
    elif old.engine.version is None or new.engine.version is None:
        why = "the engine's version cannot be read from the image"
    else:
        why = f"{new.engine.name} {old.engine.version} to {new.engine.version}"
    if first.digest and second.digest and first.digest == second.digest:
        return change(
            "image",
            old.engine.image,
            new.engine.image,
            "image",
            Meaning("engine_version", (), "none"),
            "the digest is the same: the same image by another name",
        )
    return change("image", old.engine.image, new.engine.image, "image", _IMAGE, why)


_SECRET = Meaning("credentials", (), "none", note="a secret inside changed (its salted hash differs)")


def environment_lines(old: Manifest, new: Manifest, catalogs: Sequence[Catalog], lines: list[Change]) -> None:
    """Variables that are no settings (those have lines of their own)."""
    opaque = any(u.what == "command" for u in (*old.unresolved, *new.unresolved)) or new.engine.name == "unknown"
    for name in dict.fromkeys([*old.environment, *new.environment]):
        before, after = old.environment.get(name), new.environment.get(name)
        if before == after and not _hash_differs(old, new, f"env:{name}"):
            continue
        if _is_setting(name, old, new, catalogs) and not (_is_reference(before) and _is_reference(after)):
            continue
        twin = twin_of(name, new.engine.name, list(catalogs))
        if twin is not None and twin[1].has_at(twin[0], new.engine.family_version) is False:
            lines.append(
                change(
                    f"env:{name}",
                    before,
                    after,
                    "written",
                    Meaning(twin[0].mechanism, (), "none"),
                    f"not read by {new.engine.name} {new.engine.family_version}",
                )
            )
            continue
        if _used_by_arguments(name, old, new):
            continue
        unread = None if opaque else _unread_variable(name, old, new, catalogs)
        meaning = Meaning("environment", (), "none") if unread else compare.meaning_of_env(name, catalogs, opaque)
        why = "the secret changed" if before == after else unread
        lines.append(change(f"env:{name}", before, after, "written", meaning, why))


def _unread_variable(name: str, old: Manifest, new: Manifest, catalogs: Sequence[Catalog]) -> str | None:
    """What to say of a variable that neither side's engine reads; None where that is not certain."""
    if not (compare.surveyed(old, catalogs) and compare.surveyed(new, catalogs)):
        return None
    said = compare.unread_by_engine(name, profile_of(new.engine.family), catalogs)
    return said and f"{said}, and {compare.UNUSED}"


def _hash_differs(old: Manifest, new: Manifest, key: str) -> bool:
    return key in old.secrets and key in new.secrets and old.secrets[key] != new.secrets[key]


def _is_reference(value: Any) -> bool:
    """Whether a variable is taken from somewhere when the pod starts (its setting says only that it is unknown)."""
    return isinstance(value, str) and bool(_REFERENCE.match(value))


def _is_setting(name: str, old: Manifest, new: Manifest, catalogs: Sequence[Catalog]) -> bool:
    for manifest in (old, new):
        for key, setting in manifest.settings.items():
            if key == f"env:{name}" or (setting.origin == "env" and setting.written.split("=", 1)[0] == name):
                return True
    return name == "VLLM_ADDITIONAL_ARGS"


def _used_by_arguments(name: str, old: Manifest, new: Manifest) -> bool:
    """A variable whose values stand in the two command lines was compared there."""
    before, after = old.environment.get(name), new.environment.get(name)
    if not isinstance(before, str) or not isinstance(after, str) or not before or not after:
        return False
    first, second = " ".join(old.argv), " ".join(new.argv)
    known = any(pattern.match(name) for pattern, *_ in compare._RUNTIME_ENV)
    return not known and before in first and after in second and len(before) > 1 and len(after) > 1


def file_lines(old: Manifest, new: Manifest, catalogs: Sequence[Catalog], lines: list[Change]) -> None:
    """Mounted files by content; the engine's own config file was read into settings, a launch script into the
    command line."""
    for path in dict.fromkeys([*old.files, *new.files]):
        before, after = old.files.get(path), new.files.get(path)
        if _already_read(path, old) or _already_read(path, new):
            continue
        if before == after:
            if _hash_differs(old, new, f"file:{path}"):
                lines.append(change(f"file:{path}", REDACTED, REDACTED, "written", _SECRET))
            continue
        flag = next(
            (
                name
                for m in (new, old)
                for name, s in m.settings.items()
                if isinstance(s.value, str) and s.value == path
            ),
            None,
        )
        meaning = (
            compare.meaning_of(flag, catalogs)
            if flag
            else Meaning(
                "mounted_file", ("A",), "semantic-exact", note="a mounted file that the engine or its script may read"
            )
        )
        first, second = _parsed(before), _parsed(after)
        if isinstance(first, dict) and isinstance(second, dict):
            left, right = compare.leaves(first, ""), compare.leaves(second, "")
            for leaf in dict.fromkeys([*left, *right]):
                if not compare.same(leaf, left.get(leaf), right.get(leaf)):
                    lines.append(
                        change(
                            f"file:{path}#{leaf.lstrip('.')}",
                            left.get(leaf),
                            right.get(leaf),
                            "written",
                            meaning,
                            f"content of the file that `--{flag}` names" if flag else None,
                        )
                    )
        else:
            lines.append(
                change(
                    f"file:{path}",
                    _brief(before),
                    _brief(after),
                    "written",
                    meaning,
                    f"content of the file that `--{flag}` names" if flag else None,
                )
            )


def _already_read(path: str, manifest: Manifest) -> bool:
    for name in ("config", "extra-engine-args"):
        setting = manifest.settings.get(name)
        if setting is not None and setting.value == path:
            return True
    return any(path == word for word in manifest.argv[:1]) or (
        path.endswith(".sh") and bool(manifest.argv) and not any(u.what == "command" for u in manifest.unresolved)
    )


def _parsed(text: str | None) -> Any:
    if text is None or len(text) > 50_000:
        return None
    try:
        documents = load_all(text)
    except YamlRefused:
        return None
    return (
        json.loads(json.dumps(documents[0].value, default=str))
        if len(documents) == 1 and isinstance(documents[0].value, dict)
        else None
    )


def _brief(text: str | None) -> str | None:
    return None if text is None else text if len(text) <= 200 else f"{text[:160]}... ({len(text)} characters)"


def resource_lines(old: Manifest, new: Manifest, lines: list[Change]) -> None:
    """Replicas, accelerators, host resources. What a whole pod or group has is said once: by its leader, by the
    container that serves."""
    beside = old.role == new.role == "sidecar"
    shared = beside or old.rank == new.rank == "worker"
    if not shared and old.replicas != new.replicas and old.replicas is not None and new.replicas is not None:
        lines.append(change("replicas", old.replicas, new.replicas, "resources", _REPLICAS))
    meanings: tuple[tuple[str, Meaning], ...] = (
        ("gpu", _GPU_COUNT),
        ("accelerator", _HARDWARE),
        ("product", _HARDWARE),
        ("pods", _GPU_COUNT),
        ("limits.cpu", _CPU),
        ("requests.cpu", _CPU),
        ("limits.memory", _MEMORY),
        ("requests.memory", _MEMORY),
        ("limits.ephemeral-storage", _MEMORY),
        ("requests.ephemeral-storage", _MEMORY),
    )
    names = {name for name, _ in meanings}
    extended = dict.fromkeys(name for name in (*old.resources, *new.resources) if "/" in name and name not in names)
    for name, meaning in (*meanings, *((name, _EXTENDED) for name in extended)):
        if (shared and name == "pods") or (beside and name in ("gpu", "accelerator", "product")):
            continue
        if name.startswith("requests.") and name not in old.resources and name not in new.resources:
            continue
        before, after = _request(old.resources, name), _request(new.resources, name)
        if before != after:
            lines.append(change(f"resources.{name}", before, after, "resources", meaning, counts=name != "accelerator"))


def _request(resources: Mapping[str, Any], name: str) -> Any:
    """A request that is not written is the limit, as in Kubernetes."""
    value = resources.get(name)
    if value is None and name.startswith("requests."):
        return resources.get("limits." + name.removeprefix("requests."))
    return value


def pod_lines(old: Manifest, new: Manifest, lines: list[Change]) -> None:
    """Probes, mounts, placement, security context."""
    beside = old.role == new.role == "sidecar"
    for name in dict.fromkeys([*old.pod, *new.pod]):
        if beside and not name.startswith(("probe.", "mount:", "container.")):
            continue
        before, after = old.pod.get(name), new.pod.get(name)
        if name == "nodeSelector" and isinstance(before, dict | None) and isinstance(after, dict | None):
            before, after = _without_product(before, old), _without_product(after, new)
        if compare.same(name, before, after):
            continue
        shown = name if name.startswith(("probe.", "mount:", "container.")) else f"pod.{name}"
        lines.append(change(shown, before, after, "resources", compare.meaning_of_pod(shown)))


def _without_product(selector: Any, manifest: Manifest) -> Any:
    product = manifest.resources.get("product")
    return {key: value for key, value in (selector or {}).items() if value != product} or None


def extra_lines(old: Manifest, new: Manifest, lines: list[Change]) -> None:
    """What a pod template cannot say: generation semantics, traffic contract, hardware of a run manifest."""
    before, after = (
        compare.leaves(dict(old.extra), "") if old.extra else {},
        compare.leaves(dict(new.extra), "") if new.extra else {},
    )
    for leaf in dict.fromkeys([*before, *after]):
        name = leaf.lstrip(".")
        if compare.same(leaf, before.get(leaf), after.get(leaf)):
            if _hash_differs(old, new, f"extra:{leaf}"):
                lines.append(change(name, REDACTED, REDACTED, "written", _SECRET))
            continue
        group = name.partition(".")[0]
        tail = name.rpartition(".")[2].lower()
        if tail in ("modelrevision", "revision") and group != "traffic":
            lines.append(
                change(
                    "model.revision",
                    before.get(leaf),
                    after.get(leaf),
                    "model",
                    _MODEL,
                    "unpinned in the manifest: what the pods loaded differs",
                )
            )
            continue
        origin = "traffic" if group == "experience" else group if group in _NOT_WRITTEN else "generation"
        if group in _EXTRA and group not in _NOT_WRITTEN:
            origin = "written"
        lines.append(change(name, before.get(leaf), after.get(leaf), origin, _extra_meaning(name, group)))


def _extra_meaning(name: str, group: str) -> Meaning:
    if _CACHES.match(name):
        return _OFFLOAD
    if group == "spec" and _SCALING.search(name):
        return _REPLICAS
    return _EXTRA.get(group, _HARDWARE if group == "resources" else _GENERATION)
