"""What a decision asks the shell to do. Values only; controller/act.py carries them out, repeating one is harmless."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from controller.core.snapshot import Frozen
from crds.v1alpha1.conditions import Phase, Reason
from crds.v1alpha1.rollout import InferenceRolloutStatus
from shadow.plan import TrafficPlan


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Hold the object until our own objects are cleaned up."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Let the object go."""


@dataclass(frozen=True, slots=True)
class StoreRunManifest:
    """Write the complete manifest of a revision, for an attempt."""

    frozen: Frozen
    attempt: int


@dataclass(frozen=True, slots=True)
class LabelStable:
    """Mark the RunManifest of the stable revision, unmark all others."""

    rev10: str


@dataclass(frozen=True, slots=True)
class PruneRunManifests:
    """Delete RunManifests that history no longer names."""

    rev10s: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ApplyVariant:
    """Create the workloads of a revision (and its ConfigMap copies) with these replicas by role.

    `restore`: they exist and differ from the stored manifest: put the stored templates back whole.
    """

    frozen: Frozen
    replicas: Mapping[str, int]
    restore: bool = False


@dataclass(frozen=True, slots=True)
class TryVariant:
    """Ask the API server, by a dry run, whether it would take the workloads and ConfigMap copies of a revision."""

    frozen: Frozen
    attempt: int


@dataclass(frozen=True, slots=True)
class ScaleVariant:
    """Set replicas of a revision's workloads; templates stay untouched."""

    rev10: str
    replicas: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DeleteVariant:
    """Remove a revision's workloads and the ConfigMap copies that nothing else uses."""

    rev10: str


@dataclass(frozen=True, slots=True)
class ApplyGate:
    """Make the gate's objects as spec.traffic wants them."""


@dataclass(frozen=True, slots=True)
class TakeOverService:
    """Point the user's Service to the gate, keeping what it had."""

    name: str


@dataclass(frozen=True, slots=True)
class ReleaseGate:
    """Point the gate's Service (and a taken-over one) at the serving pods, then remove the gate."""

    rev10: str  # revision that serves; "" removes the Service as well


@dataclass(frozen=True, slots=True)
class DeleteRunManifests:
    """Remove all RunManifests of the rollout."""


@dataclass(frozen=True, slots=True)
class PutSetup:
    """Make the judge's setup of an attempt from history and hand it to the recorder and the store."""

    attempt: int


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """A Kubernetes event on the rollout."""

    reason: Reason
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """Something for the store: kind `decision`, `action` or `audit`."""

    kind: str
    content: Mapping[str, Any] = field(default_factory=dict)


Action: TypeAlias = (
    AddFinalizer
    | RemoveFinalizer
    | StoreRunManifest
    | LabelStable
    | PruneRunManifests
    | ApplyVariant
    | TryVariant
    | ScaleVariant
    | DeleteVariant
    | ApplyGate
    | TakeOverService
    | ReleaseGate
    | DeleteRunManifests
    | PutSetup
    | EmitEvent
    | Record
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What `decide()` answers.

    status: the whole new status; plan: what the gates shall do (None: leave them alone); requeue_after_s: look again
    after this many seconds even if nothing is reported.
    """

    phase: Phase
    reason: Reason
    message: str
    status: InferenceRolloutStatus
    plan: TrafficPlan | None
    actions: tuple[Action, ...]
    requeue_after_s: float
