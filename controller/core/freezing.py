"""From a spec to a frozen revision, from a RunManifest object back to one, and what differs between two.

Pure; called by reads/revisions.py. The revision holds roles' templates, `spec.manifest` and ConfigMap contents and
nothing else: replicas, policy, steps and hardware never start an attempt.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from controller.core import variants
from controller.core.sizes import size_of
from controller.core.snapshot import DiffSummary, Frozen
from crds.v1alpha1.common import API_VERSION
from crds.v1alpha1.manifest import FrozenRole, RunManifestSpec
from crds.v1alpha1.policy import RolloutPolicySpec
from crds.v1alpha1.rollout import InferenceRolloutSpec
from manifests.diff import Diff, PairingError, diff
from manifests.digest import equal_after_normalisation, record_digest, revision10, revision_digest
from manifests.importing import import_objects
from manifests.lint import lint
from manifests.model import ImportResult, Manifest
from manifests.stored import read_stored
from manifests.stored_files import refer

STABLE_LABEL = "weighlock.dev/stable"


def frozen_roles(spec: InferenceRolloutSpec) -> tuple[FrozenRole, ...]:
    """Roles as they are stored."""
    roles = spec.effective_roles()
    return tuple(
        FrozenRole(
            name=role.name,
            replicas=role.replicas,
            entrypoint=role.entrypoint or len(roles) == 1,
            template=role.template or role.leader_worker_template or {},
            leader_worker=role.leader_worker_template is not None,
        )
        for role in roles
    )


def needed_config_maps(roles: tuple[FrozenRole, ...]) -> dict[str, bool]:
    """ConfigMaps that the roles mount -> whether they must exist."""
    found: dict[str, bool] = {}
    for role in roles:
        for name, needed in variants.referenced_config_maps(role.template, role.leader_worker).items():
            found[name] = found.get(name, False) or needed
    return found


def freeze(
    namespace: str,
    rollout: str,
    spec: InferenceRolloutSpec,
    policy: RolloutPolicySpec | None,
    contents: Mapping[str, Mapping[str, str] | None],
    created_at: str,
) -> Frozen:
    """The complete manifest that a spec asks for.

    Args:
        contents: data of the ConfigMaps that the roles mount; None for one that does not exist.
        created_at: RFC 3339.
    """
    roles = frozen_roles(spec)
    present = {name: dict(data) for name, data in contents.items() if data is not None}
    manifest = spec.manifest.model_dump(by_alias=True, mode="json", exclude_none=True)
    salt = f"{namespace}/{rollout}".encode()
    revision = revision_digest({role.name: role.template for role in roles}, manifest, present, salt)
    imported = _resolve(namespace, rollout, roles, manifest, present, salt)
    resolved = tuple(_stored_part(m, present) for m in imported.manifests)
    body = RunManifestSpec(
        rollout=rollout,
        revision=revision,
        record="",
        attempt=0,
        created_at=created_at,
        roles=roles,
        config_maps=present,
        manifest=manifest,
        resolved=resolved,
        policy=dump(policy),
        traffic=dump(spec.traffic),
        steps=tuple(dump(step) for step in spec.steps),
    )
    dumped = dump(body)
    body = body.model_copy(update={"record": record_digest({**dumped, "createdAt": ""})})
    return Frozen(
        revision10(revision),
        body,
        size=size_of(dump(body)),
        config_maps={name: variants.copy_name(name, data) for name, data in present.items()},
        problems=_missing(namespace, roles, present),
        findings=_errors(imported),
    )


def _stored_part(resolved: Manifest, contents: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """What was resolved of a container: ConfigMap contents by reference (the object holds them once), and the salted
    hashes of its secrets, by which a changed one is seen."""
    part = resolved.to_json()
    if part.get("files"):
        part["files"] = refer(part["files"], contents)
    return part | ({"secrets": dict(resolved.secrets)} if resolved.secrets else {})


def _missing(namespace: str, roles: tuple[FrozenRole, ...], present: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(
        f"ConfigMap {name} is mounted and does not exist in {namespace}; create it or drop the reference."
        for name, must_exist in sorted(needed_config_maps(roles).items())
        if must_exist and name not in present
    )


def _errors(manifests: ImportResult | Iterable[Manifest]) -> tuple[str, ...]:
    return tuple(f"{found.code}: {found.message}" for found in lint(manifests) if found.level == "error")


def _resolve(
    namespace: str,
    rollout: str,
    roles: tuple[FrozenRole, ...],
    manifest: Mapping[str, Any],
    contents: Mapping[str, Mapping[str, str]],
    salt: bytes,
) -> ImportResult:
    """Engine configuration of every container, by the importer that the CLI uses as well."""
    objects = []
    for role in roles:
        metadata = {"name": f"{rollout}-{role.name}" if len(roles) > 1 else rollout, "namespace": namespace}
        if role.leader_worker:
            spec: dict[str, Any] = {"leaderWorkerTemplate": role.template, "manifest": dict(manifest)}
            api = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
        else:
            spec = {"template": role.template, "manifest": dict(manifest)}
            api = {"apiVersion": "apps/v1", "kind": "Deployment"}
        objects.append({**api, "metadata": metadata, "spec": spec})
    version = manifest.get("engineVersion")
    return import_objects(objects, contents, version, salt)


def dump(model: Any) -> dict[str, Any]:
    """A model as it stands in an object; {} for None."""
    return dict(model.model_dump(by_alias=True, mode="json", exclude_none=True)) if model is not None else {}


def manifest_object(namespace: str, rollout: str, frozen: Frozen, attempt: int) -> dict[str, Any]:
    """The RunManifest object of a revision."""
    spec = dump(frozen.manifest.model_copy(update={"attempt": attempt}))
    return {
        "apiVersion": API_VERSION,
        "kind": "RunManifest",
        "metadata": {
            "name": f"{rollout}-{frozen.rev10}",
            "namespace": namespace,
            "labels": {**variants.OWNED, variants.ROLLOUT: rollout, variants.REVISION: frozen.rev10},
        },
        "spec": spec,
    }


def from_object(obj: Mapping[str, Any]) -> Frozen:
    """A stored revision; ValueError (pydantic) for one that this release cannot read."""
    body = RunManifestSpec.model_validate(obj["spec"])
    labels = obj["metadata"].get("labels") or {}
    copies = {name: variants.copy_name(name, data) for name, data in body.config_maps.items()}
    parts = _manifests_in(body, revision10(body.revision))
    return Frozen(
        rev10=revision10(body.revision),
        manifest=body,
        stored=True,
        stored_attempt=body.attempt,
        labelled_stable=labels.get(STABLE_LABEL) == "true",
        size=size_of(obj["spec"]),
        config_maps=copies,
        findings=_errors(parts),
    )


def spec_from(frozen: Frozen, replicas: Mapping[str, int] | None = None) -> InferenceRolloutSpec:
    """A usable spec from a stored manifest, for the time in which the object's own cannot be read."""
    body = frozen.manifest
    roles = []
    for role in body.roles:
        kind = "leaderWorkerTemplate" if role.leader_worker else "template"
        count = (replicas or {}).get(role.name, role.replicas)
        roles.append({"name": role.name, "replicas": count, "entrypoint": role.entrypoint, kind: role.template})
    raw = {"roles": roles, "policy": body.policy, "traffic": body.traffic, "manifest": body.manifest}
    return InferenceRolloutSpec.model_validate(raw | ({"steps": list(body.steps)} if body.steps else {}))


def effective_diff(old: Frozen, new: Frozen) -> Diff | None:
    """The comparison of effective values; None where an engine cannot be read or parts cannot be paired."""
    before, after = manifests_of(old), manifests_of(new)
    if not before or not after or any(m.engine.name == "unknown" for m in (*before, *after) if m.role != "sidecar"):
        return None
    try:
        found = diff(before, after)
    except PairingError:
        return None
    told = [*_imported(old).warnings, *lint(_imported(new)), *found.warnings]
    shown = {(one.code, one.message): one for one in told if one.level != "info"}
    return replace(found, warnings=tuple(shown.values()))


def _imported(frozen: Frozen) -> ImportResult:
    """What was written, read again for what is to be said of it; the stored form keeps values only."""
    body = frozen.manifest
    return _resolve("", body.rollout, body.roles, body.manifest, body.config_maps, frozen.rev10.encode())


def summarise(old: Frozen, new: Frozen, found: Diff | None) -> DiffSummary:
    """What the state machine needs of a comparison; as written where the effective one is not possible.

    A changed credential computes nothing else, so it is no effective change of a diff; but who may ask changes with
    it, and would not if it were not rolled.
    """
    if found is not None:
        is_effective = found.effective or any(change.mechanism == "credentials" for change in found.changes)
        return DiffSummary(is_effective, tuple(found.sentences()), found.mechanisms, (found.correctness,))
    paths = equal_after_normalisation(_written(old), _written(new))
    return DiffSummary(bool(paths), tuple(f"{path} changed" for path in paths))


def manifests_of(frozen: Frozen) -> list[Manifest]:
    """The engine configurations of a revision, one per container."""
    return _manifests_in(frozen.manifest, frozen.rev10)


def _manifests_in(body: RunManifestSpec, rev10: str) -> list[Manifest]:
    """The hashes of secrets are comparable within a rollout alone, by its salt; so only here they are read back."""
    found = []
    for part in body.resolved:
        spec = {"resolved": [part], "configMaps": body.config_maps}
        secrets = {str(name): str(digest) for name, digest in (part.get("secrets") or {}).items()}
        found += [
            replace(m, secrets=secrets) for m in read_stored({"kind": "RunManifest", "spec": spec}, rev10, 0) or ()
        ]
    return found


def _written(frozen: Frozen) -> dict[str, Any]:
    body = frozen.manifest
    roles = {role.name: role.template for role in body.roles}
    return {"roles": roles, "manifest": body.manifest, "configMaps": body.config_maps}
