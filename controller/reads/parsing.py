"""Objects of the API as values, and what is wrong with those that cannot be read.

Pure; called by observe.py and revisions.py.
"""

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from controller.core import freezing, times
from controller.core.snapshot import Frozen, PersonAction
from crds.v1alpha1.action import ActionKind
from crds.v1alpha1.manifest import RunManifestSpec
from crds.v1alpha1.rollout import InferenceRolloutSpec, InferenceRolloutStatus


def parse_spec(raw: Mapping[str, Any]) -> InferenceRolloutSpec | str:
    """The spec, or a sentence about its first wrong field."""
    try:
        return InferenceRolloutSpec.model_validate(raw)
    except ValidationError as error:
        within = "." if error.errors(include_url=False)[0]["loc"] else ": "
        return f"spec{within}{first_error(error)} Correct it; nothing moves until then."


def first_error(error: ValidationError) -> str:
    """Field and problem of a pydantic error, as a sentence; a contradiction between fields names them itself."""
    first = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"])
    return (f"{path}: " if path else "") + f"{str(first['msg']).removeprefix('Value error, ')}."


def known_status(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Status without fields of a newer release, at any depth: a downgrade must read it too."""
    return _known_fields(InferenceRolloutStatus, raw)


def _known_fields(model: type[BaseModel], raw: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    return {key: _known_part(names[key], value) for key, value in raw.items() if key in names}


def _known_part(annotation: Any, value: Any) -> Any:
    models = [t for t in (annotation, *get_args(annotation)) if isinstance(t, type) and issubclass(t, BaseModel)]
    if not models:
        return value
    if isinstance(value, list):
        return [_known_part(models[0], item) for item in value]
    return _known_fields(models[0], value) if isinstance(value, Mapping) else value


def read_stored(obj: Mapping[str, Any]) -> Frozen | None:
    """A stored revision, without fields of a newer release; None for one that this release cannot read."""
    try:
        return freezing.from_object({**obj, "spec": _known_fields(RunManifestSpec, obj["spec"])})
    except ValidationError:
        return None


def person_action(obj: Mapping[str, Any]) -> PersonAction:
    """A RolloutAction object."""
    spec, meta = obj["spec"], obj["metadata"]
    return PersonAction(
        uid=meta["uid"],
        name=meta["name"],
        kind=ActionKind(spec["action"]),
        user=spec.get("user", ""),
        created_s=times.from_text(meta.get("creationTimestamp")) or 0.0,
        revision=spec.get("revision", ""),
        attempt=int(spec.get("attempt", 0)),
        step=int(spec.get("step", 0)),
        evidence=spec.get("evidence", ""),
        reason=spec.get("reason", ""),
    )


def claims(spec: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Services, routes and workloads that a spec wants for itself."""
    traffic, ref = spec.get("traffic") or {}, spec.get("workloadRef") or {}
    claims = {
        ("service", traffic.get("takeOverService")),
        ("route", traffic.get("httpRoute")),
        ("workload", f"{ref.get('kind')}/{ref.get('name')}" if ref else None),
    }
    return {(kind, str(name)) for kind, name in claims if name}
