"""Everything that `decide()` may know, as frozen values.

Made by controller/observe.py (the only reader of the world), read by controller/core. Times are Unix seconds. None
means unknown, never zero. Knows no client and no clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.core.sizes import Size
from crds.v1alpha1.action import ActionKind
from crds.v1alpha1.manifest import RunManifestSpec
from crds.v1alpha1.policy import RolloutPolicySpec
from crds.v1alpha1.rollout import InferenceRolloutSpec, InferenceRolloutStatus
from policies.verdict import Verdict
from shadow.plan import TrafficPlan


@dataclass(frozen=True, slots=True)
class Frozen:
    """One revision as a complete manifest.

    rev10: first 10 characters of the revision; stored: its RunManifest object exists; stored_attempt: the attempt it
    was written for; labelled_stable: the object carries the stable label; size: of the object; config_maps:
    copies by source name (`source` -> name of our copy); problems: what makes it unusable, in whole sentences;
    findings: lints of level error, `code: message`.
    """

    rev10: str
    manifest: RunManifestSpec
    stored: bool = False
    stored_attempt: int = 0
    labelled_stable: bool = False
    size: Size = field(default_factory=Size)
    config_maps: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DiffSummary:
    """What really changes between stable and the revision of spec.

    effective: something changes, or an unresolved part differs; sentences: one per change, for people; mechanisms:
    primary mechanisms; classes: correctness classes that occur.
    """

    effective: bool
    sentences: tuple[str, ...] = ()
    mechanisms: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of a variant.

    servable: a one-token completion was answered since the pod is ready; probe_failures: failures in a row since it
    was servable last; restarts: of all its containers; crash: reason and last words of the last crash; unschedulable:
    the scheduler's sentence ("" where it is placed).
    """

    name: str
    revision: str
    role: str
    ip: str = ""
    created_s: float = 0.0
    ready: bool = False
    ready_since_s: float | None = None
    terminating: bool = False
    servable: bool = False
    probe_failures: int = 0
    probe_error: str = ""
    restarts: int = 0
    oom_killed: bool = False
    crash: str = ""
    waiting: str = ""  # why a container cannot start, as the kubelet says it
    unschedulable: str = ""
    product: str = ""


@dataclass(frozen=True, slots=True)
class Variant:
    """What runs of one revision.

    replicas: wanted replicas by role, as its workloads say now; drift: why its templates differ from the stored ones
    ("" where they are equal, None where nobody could compare).
    """

    revision: str
    replicas: Mapping[str, int] = field(default_factory=dict)
    pods: tuple[Pod, ...] = ()
    drift: str | None = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """What the API server said to a dry run of a revision's objects, before any of them exists.

    at_s: when; refused: its words where it would not take one of them; unproven: why it could not try them all.
    """

    at_s: float
    refused: str = ""
    unproven: str = ""


@dataclass(frozen=True, slots=True)
class DataPlane:
    """The rollout's gates.

    applied: the gate's objects exist as wanted; service_taken: the Service of traffic.takeOverService points to the
    gate (True where none is named); gates: names of ready gate pods; connected: number of gates whose
    xDS stream is open; synced: every connected gate acknowledged `published`; published: last plan that this process
    sent; open_requests: unfinished requests by revision (None: the recorder did not say).
    """

    applied: bool = False
    service_taken: bool = True
    gates: tuple[str, ...] = ()
    connected: int = 0
    synced: bool = False
    published: TrafficPlan | None = None
    open_requests: Mapping[str, int] | None = None

    @property
    def is_in_force(self) -> bool:
        """Whether every ready gate is connected and acknowledged what was published."""
        return self.published is not None and self.synced and self.connected >= max(1, len(self.gates))


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the recorder saw start in a window of whole seconds that ended shortly ago.

    read_s: when it was read, by the controller's clock; window_s: length; until_s: end, by the recorder's clock;
    attempt: of the newest request; counts: requests by (variant, kind, tenant); last_live_s: start of the newest live
    request by variant, by the gates' clocks.
    """

    read_s: float
    window_s: float
    until_s: float
    attempt: int | None = None
    counts: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    last_live_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JudgeView:
    """What the judge of the running attempt says.

    reachable: blocks arrive; other_release: why the recorder's blocks cannot be used and what to do ("": they can);
    rebuilt: the judge has read all blocks of the attempt (True where there is none to read); setup_attempt: attempt of
    the setup that the recorder keeps; evidence: hash that an approval binds.
    """

    reachable: bool = False
    other_release: str = ""
    rebuilt: bool = False
    setup_attempt: int | None = None
    verdict: Verdict | None = None
    evidence: str = ""
    stored: bool = True


@dataclass(frozen=True, slots=True)
class PersonAction:
    """A RolloutAction of this rollout."""

    uid: str
    name: str
    kind: ActionKind
    user: str
    created_s: float
    revision: str = ""
    attempt: int = 0
    step: int = 0
    evidence: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One rollout and its world at one moment.

    spec: the parsed spec, or the last usable one where `spec_error` names a wrong field; None where there never was
    one. target: the revision that spec asks for; stored: revisions with a RunManifest by rev10. conflict: name of the
    rollout that owns the same workload or route. schema_missing: fields that the API server would drop. policy: the
    policy as it stands now; attempt_policy: the snapshot of the running attempt. trial: of the candidate in this
    attempt (None: this process made none yet). traffic: the recorder's last seconds (None: not known now).
    """

    namespace: str
    name: str
    uid: str
    generation: int
    now_s: float
    status: InferenceRolloutStatus
    spec: InferenceRolloutSpec | None
    spec_error: str = ""
    deleted_s: float | None = None
    has_finalizer: bool = True
    target: Frozen | None = None
    stored: Mapping[str, Frozen] = field(default_factory=dict)
    diff: DiffSummary | None = None
    variants: Mapping[str, Variant] = field(default_factory=dict)
    data_plane: DataPlane = DataPlane()
    judge: JudgeView = JudgeView()
    traffic: Traffic | None = None
    trial: Trial | None = None
    actions: tuple[PersonAction, ...] = ()
    policy: RolloutPolicySpec | None = None
    policy_error: str = ""
    attempt_policy: RolloutPolicySpec | None = None
    conflict: str = ""
    schema_missing: tuple[str, ...] = ()
    store_ok: bool = True
    lease_held: bool = True

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def frozen(self, rev10: str) -> Frozen | None:
        """The manifest of a revision: stored, or the one that spec asks for."""
        if self.target is not None and self.target.rev10 == rev10 and rev10 not in self.stored:
            return self.target
        return self.stored.get(rev10)

    def variant(self, rev10: str) -> Variant:
        """What runs of a revision (an empty variant where nothing does)."""
        return self.variants.get(rev10, Variant(rev10))
