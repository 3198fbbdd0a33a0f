"""InferenceRollout: one long-lived object per served workload; like a Deployment whose updates are weighed."""

from enum import StrEnum
from typing import Any, Self

from pydantic import Field, model_validator

from crds.v1alpha1.common import ApiModel, Duration, parse_duration_seconds
from crds.v1alpha1.conditions import Phase
from crds.v1alpha1.policy import RolloutPolicySpec


class DeletionPolicy(StrEnum):
    """What becomes of the serving pods when the rollout object is deleted."""

    ORPHAN = "Orphan"  # what serves goes on serving, without an owner
    DELETE = "Delete"  # everything that we made is removed


class CapacityStrategy(StrEnum):
    """Where the candidate's accelerators come from."""

    SURGE = "surge"  # stable keeps every replica through Bake: a rollback is a pure flip
    SWAP = "swap"  # stable gives up replicas as the weight moves
    WAIT = "wait"  # wait until accelerators are free
    REFUSE = "refuse"  # say no when they are not free


class Provider(StrEnum):
    """Who moves traffic."""

    ENVOY = "envoy"  # the rollout's own gate
    GATEWAY_API = "gatewayAPI"  # HTTPRoute weights and RequestMirror of the user's gateway


class Role(ApiModel):
    """One group of pods of the workload: server, prefill, decode, router..."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$", description="Name of the role.")
    replicas: int = Field(1, ge=0, le=10000, description="Pods (or groups) of this role.")
    entrypoint: bool = Field(False, description="This role receives the requests; exactly one does.")
    template: dict[str, Any] | None = Field(None, description="PodTemplateSpec.")
    leader_worker_template: dict[str, Any] | None = Field(None, description="LeaderWorkerSet's leaderWorkerTemplate.")

    @model_validator(mode="after")
    def _one_template(self) -> Self:
        if (self.template is None) == (self.leader_worker_template is None):
            raise ValueError("set exactly one of template and leaderWorkerTemplate")
        return self


class WorkloadRef(ApiModel):
    """A running workload that is adopted without a restart."""

    api_version: str = Field(min_length=1, description="For example apps/v1.")
    kind: str = Field(min_length=1, description="Deployment, StatefulSet or LeaderWorkerSet.")
    name: str = Field(min_length=1, description="Its name in this namespace.")


class ManifestSpec(ApiModel):
    """What a pod template cannot say about a run."""

    engine: str | None = Field(None, description="Engine name where the image does not tell (vllm, sglang...).")
    engine_version: str | None = Field(None, description="Engine version where the image's tag does not tell.")
    model: str | None = Field(None, description="Model id where the arguments do not tell.")
    model_revision: str | None = Field(None, description="Pinned model revision.")
    tokenizer: str | None = Field(None, description="Tokenizer id and revision.")
    chat_template: str | None = Field(None, description="Chat template, by name or content hash.")
    adapters: tuple[str, ...] = Field((), description="LoRA adapters with revisions.")
    sampling: dict[str, Any] | None = Field(None, description="Sampling defaults of the service.")
    hardware: dict[str, Any] | None = Field(None, description="Accelerator model, driver, power mode...")
    traffic: dict[str, Any] | None = Field(None, description="Traffic contract: lengths, rate, burstiness, trace.")
    quality: dict[str, Any] | None = Field(None, description="Quality checks by correctness class.")


class Traffic(ApiModel):
    """How requests reach the workload."""

    provider: Provider = Field(Provider.ENVOY, description="Who moves traffic.")
    port: int = Field(8000, ge=1, le=65535, description="Port of the serving container and of the gate's Service.")
    include_usage: bool = Field(True, description="Ask engines for usage and hide it from clients who did not.")
    take_over_service: str | None = Field(None, description="Existing Service whose selector is repointed to the gate.")
    http_route: str | None = Field(None, description="HTTPRoute of the gatewayAPI provider.")
    gate_replicas: int = Field(2, ge=1, le=64, description="Envoy replicas of the gate.")


class Capacity(ApiModel):
    """Where the candidate's accelerators come from."""

    strategy: CapacityStrategy = Field(CapacityStrategy.SURGE, description="surge, swap, wait or refuse.")
    ready_deadline: Duration = Field("30m", description="Candidate pods must be servable within this time.")
    max_restarts: int = Field(3, ge=0, le=100, description="Restarts of a candidate container that end the attempt.")


class ShadowStep(ApiModel):
    """Copies only."""

    percent: str = Field("auto", pattern=r"^(auto|100|[0-9]{1,2})$", description="Share of live requests to copy.")
    capacity: int = Field(
        0, ge=0, le=100, description="Percent of all replicas to bring up, at least one; more copies prove faster."
    )


class WeightStep(ApiModel):
    """A live share."""

    weight: int = Field(ge=1, le=100, description="Percent of live requests that go to the candidate.")
    approval: bool = Field(False, description="A person must approve before this weight is set.")


class PauseStep(ApiModel):
    """A timed pause, or one that waits for a resume."""

    duration: Duration | None = Field(None, description="Absent: until a person resumes.")


class Step(ApiModel):
    """One step; exactly one field."""

    shadow: ShadowStep | None = Field(None, description="Mirror live requests to the candidate.")
    canary: WeightStep | None = Field(None, description="First live share.")
    ramp: WeightStep | None = Field(None, description="Further live share.")
    pause: PauseStep | None = Field(None, description="Wait.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(value is not None for value in (self.shadow, self.canary, self.ramp, self.pause)) != 1:
            raise ValueError("set exactly one of shadow, canary, ramp, pause")
        return self

    @property
    def weight(self) -> int | None:
        """Live percent that this step sets; None for shadow (0) and pause (unchanged)."""
        target = self.canary or self.ramp
        return target.weight if target else None

    @property
    def name(self) -> str:
        """Short name for people: `shadow`, `canary 5`, `ramp 50`, `pause`."""
        if self.shadow:
            return "shadow"
        if self.pause:
            return "pause"
        return f"canary {self.weight}" if self.canary else f"ramp {self.weight}"

    @property
    def needs_approval(self) -> bool:
        """Whether a person must approve before the weight of this step is set."""
        target = self.canary or self.ramp
        return bool(target and target.approval)


DEFAULT_STEPS = (
    Step(shadow=ShadowStep()),
    Step(canary=WeightStep(weight=5)),
    Step(ramp=WeightStep(weight=25, approval=True)),
    Step(ramp=WeightStep(weight=50)),
)


class PolicyRef(ApiModel):
    """A RolloutPolicy of the same namespace."""

    name: str = Field(min_length=1, description="Its name.")


class InferenceRolloutSpec(ApiModel):
    """What should serve, and how an update is weighed."""

    replicas: int = Field(1, ge=0, le=10000, description="Pods of the single role.")
    selector: dict[str, Any] | None = Field(None, description="Label selector; informative, for scale.")
    template: dict[str, Any] | None = Field(None, description="PodTemplateSpec of the single role.")
    roles: tuple[Role, ...] | None = Field(
        None, min_length=1, max_length=8, description="Roles of a disaggregated workload."
    )
    workload_ref: WorkloadRef | None = Field(None, description="Adopt a running workload.")
    manifest: ManifestSpec = Field(ManifestSpec(), description="What a pod template cannot say.")
    policy_ref: PolicyRef | None = Field(None, description="RolloutPolicy of this namespace.")
    policy: RolloutPolicySpec | None = Field(None, description="Policy written in place.")
    traffic: Traffic = Field(Traffic(), description="How requests reach the workload.")
    capacity: Capacity = Field(Capacity(), description="Where accelerators come from.")
    steps: tuple[Step, ...] = Field(DEFAULT_STEPS, min_length=1, max_length=20, description="Steps of an attempt.")
    bake: Duration = Field("30m", description="The old variant stays warm this long after promotion.")
    paused: bool = Field(False, description="Nothing moves forward; rollbacks still work.")
    deletion_policy: DeletionPolicy = Field(DeletionPolicy.ORPHAN, description="What a deletion removes.")
    revision_history_limit: int = Field(10, ge=1, le=100, description="RunManifests kept.")

    @model_validator(mode="after")
    def _one_workload(self) -> Self:
        if sum(value is not None for value in (self.template, self.roles, self.workload_ref)) != 1:
            raise ValueError("set exactly one of template, roles, workloadRef")
        if (self.policy is None) == (self.policy_ref is None):
            raise ValueError("set exactly one of policy and policyRef")
        if self.roles and len(self.roles) > 1 and sum(role.entrypoint for role in self.roles) != 1:
            raise ValueError("exactly one of several roles must be the entrypoint")
        return self

    @model_validator(mode="after")
    def _weights_rise(self) -> Self:
        weights = [step.weight for step in self.steps if step.weight is not None]
        if weights != sorted(set(weights)):
            raise ValueError("steps: weights must rise from step to step")
        if any(step.shadow for step in self.steps[1:]):
            raise ValueError("steps: shadow can only be the first step")
        if any(step.canary for step in self.steps) and weights and not _canary_first(self.steps):
            raise ValueError("steps: canary can only be the first live share")
        return self

    def effective_roles(self) -> tuple[Role, ...]:
        """Roles; `template` + `replicas` count as one entrypoint role named `server`."""
        if self.roles is not None:
            return self.roles
        if self.template is None:
            return ()
        return (Role(name="server", replicas=self.replicas, entrypoint=True, template=self.template),)

    @property
    def bake_seconds(self) -> float:
        """Length of Bake in seconds."""
        return parse_duration_seconds(self.bake)


def _canary_first(steps: tuple[Step, ...]) -> bool:
    live = [step for step in steps if step.weight is not None]
    return all(step.canary is None for step in live[1:])


class StepStatus(ApiModel):
    """The step in force."""

    index: int = Field(0, description="Index in spec.steps; equal to their number after the last one.")
    name: str = Field("", description="For people: canary 5, ramp 50, bake.")
    weight: int = Field(0, description="Percent of live requests that this step allows to the candidate.")
    started_at: str | None = Field(None, description="RFC 3339 time at which its weight was in force everywhere.")
    waiting_since: str | None = Field(None, description="RFC 3339 time since when pods of the next weight are awaited.")
    resumed: bool = Field(False, description="A person ended this pause step.")


class WorstStratum(ApiModel):
    """The stratum farthest from passing."""

    tenant: str = Field("", description="Tenant.")
    bucket: str = Field("", description="Length bucket.")
    metric: str = Field("", description="Metric.")
    label: str = Field("", description="tenant/bucket/metric, for the printer column.")


class VerdictStatus(ApiModel):
    """The judge's last word."""

    result: str = Field("INCONCLUSIVE", description="PASS, FAIL or INCONCLUSIVE.")
    worst: WorstStratum | None = Field(None, description="Stratum farthest from passing.")
    requests_needed: int | None = Field(None, description="Requests that the worst stratum still needs.")
    message: str = Field("", description="One sentence.")
    evidence: str | None = Field(None, description="Hash that an approval binds.")
    updated_at: str | None = Field(None, description="RFC 3339 time at which this was written.")


class HistoryEntry(ApiModel):
    """One finished attempt."""

    attempt: int = Field(description="Number of the attempt.")
    revision: str = Field(description="Candidate revision.")
    result: Phase = Field(description="Completed or RolledBack.")
    reason: str = Field("", description="Why.")
    finished_at: str = Field("", description="RFC 3339.")


class Condition(ApiModel):
    """A Kubernetes condition."""

    type: str = Field(description="Condition type.")
    status: str = Field(pattern="^(True|False|Unknown)$", description="True, False or Unknown.")
    reason: str = Field(description="CamelCase reason.")
    message: str = Field("", description="A whole sentence.")
    last_transition_time: str = Field(description="Moves only when status flips.")
    observed_generation: int | None = Field(None, description="Generation of spec that it speaks of.")


class InferenceRolloutStatus(ApiModel):
    """Where an attempt is. Written by the controller only."""

    observed_generation: int = Field(0, description="Generation of spec that status speaks of.")
    phase: Phase = Field(Phase.IDLE, description="Where we are.")
    attempt: int = Field(0, description="Number of the running or last attempt.")
    step: StepStatus = Field(StepStatus(), description="The step in force.")
    stable: str = Field("", description="Stable revision (10 characters of its digest).")
    candidate: str = Field("", description="Candidate revision.")
    rejected: tuple[str, ...] = Field((), description="Revisions that were rolled back.")
    verdict: VerdictStatus | None = Field(None, description="The judge's last word.")
    replicas: int = Field(0, description="Pods that exist.")
    ready_replicas: int = Field(0, description="Pods that are ready.")
    selector: str = Field("", description="Label selector of the serving pods, for scale.")
    message: str = Field("", description="One sentence for people.")
    phase_started_at: str | None = Field(None, description="RFC 3339 time at which the phase began.")
    reason: str = Field("", description="Reason of the last phase change.")
    applied_actions: tuple[str, ...] = Field(
        (), max_length=64, description="uids of the actions of this attempt already applied."
    )
    held_since: str | None = Field(None, description="RFC 3339 time since when the step holds.")
    attempt_started_at: str | None = Field(None, description="RFC 3339 time at which the attempt began.")
    baseline: str = Field(
        "", pattern="^(|FirstInstall|Forced)$", description="Set where nothing is compared: only hard guards decide."
    )
    equivalent: str = Field("", description="Revision of spec whose effective diff to stable is empty.")
    paused_by_action: bool = Field(False, description="A person paused; undone by resume.")
    conditions: tuple[Condition, ...] = Field((), description="Conditions, map by type.")
    history: tuple[HistoryEntry, ...] = Field((), max_length=10, description="Last attempts, newest first.")
