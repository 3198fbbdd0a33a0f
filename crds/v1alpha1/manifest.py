"""RunManifest: the complete frozen manifest of a revision. Immutable, written by the controller only."""

from typing import Any

from pydantic import Field

from crds.v1alpha1.common import ApiModel


class FrozenRole(ApiModel):
    """A role as it was applied."""

    name: str = Field(description="Role name.")
    replicas: int = Field(description="Replicas when the attempt started (informative).")
    entrypoint: bool = Field(description="Receives the requests.")
    template: dict[str, Any] = Field(description="PodTemplateSpec, or leaderWorkerTemplate where leaderWorker is set.")
    leader_worker: bool = Field(False, description="Template is a LeaderWorkerSet's leaderWorkerTemplate.")


class RunManifestSpec(ApiModel):
    """What a diff reads and a rollback applies."""

    rollout: str = Field(description="InferenceRollout that it belongs to.")
    revision: str = Field(description="Digest of roles' templates, spec.manifest and ConfigMap contents (hex).")
    record: str = Field(description="Digest of everything here: audit only.")
    attempt: int = Field(description="Attempt for which it was written first.")
    created_at: str = Field(description="RFC 3339.")
    roles: tuple[FrozenRole, ...] = Field(description="Templates of all roles.")
    config_maps: dict[str, dict[str, str]] = Field({}, description="Contents of referenced ConfigMaps by name.")
    secrets: dict[str, str] = Field({}, description="Referenced Secrets: salted hash by name.")
    manifest: dict[str, Any] = Field({}, description="spec.manifest as written.")
    resolved: tuple[dict[str, Any], ...] = Field(
        (), description="Imported engine configuration per container; files refer to configMaps."
    )
    policy: dict[str, Any] = Field({}, description="Policy snapshot.")
    traffic: dict[str, Any] = Field({}, description="spec.traffic as written.")
    steps: tuple[dict[str, Any], ...] = Field((), description="spec.steps as written.")
    hardware: dict[str, Any] = Field({}, description="Node labels and accelerators seen.")
