"""Phases, condition types and reasons: the vocabulary of status, events and the dashboard.

`docs/conditions.md` is generated from here. A reason is CamelCase and never changes its meaning.
"""

from enum import StrEnum


class Phase(StrEnum):
    """Where an attempt is. Holding and waiting for a person are conditions, never phases."""

    IDLE = "Idle"  # nothing to weigh: what serves is the stable revision
    PENDING = "Pending"  # a new revision was seen; nothing has been done yet
    DIFFED = "Diffed"  # old and new manifests are frozen and compared
    PREFLIGHT = "Preflight"  # lints, capacity, policy and data plane are checked; no GPU touched
    SHADOW = "Shadow"  # the candidate runs and gets copies of live requests
    CANARY = "Canary"  # the first live share
    RAMP = "Ramp"  # further live shares
    PROMOTED = "Promoted"  # all live traffic moved; nothing removed yet
    BAKE = "Bake"  # the old variant stays warm and gets reversed copies
    COMPLETED = "Completed"  # the candidate is the new stable
    ROLLING_BACK = "RollingBack"  # traffic goes back, then the candidate goes away
    ROLLED_BACK = "RolledBack"  # the stored manifest serves; the rejected revision is not retried by itself


TERMINAL = frozenset({Phase.IDLE, Phase.COMPLETED, Phase.ROLLED_BACK})


class ConditionType(StrEnum):
    """Condition types of an InferenceRollout. All but the kstatus ones are reset when an attempt starts."""

    READY = "Ready"  # kstatus: what serves is what spec asks for, and it is healthy
    RECONCILING = "Reconciling"  # kstatus: work is going on
    STALLED = "Stalled"  # kstatus: a person must act
    PROGRESSING = "Progressing"  # an attempt is running and moves
    GATED = "Gated"  # the judge has not passed the step yet
    HOLDING = "Holding"  # data is missing or unusable: same weight, with reason and clock
    AWAITING_APPROVAL = "AwaitingApproval"  # a person must approve the next weight
    CAPACITY_BLOCKED = "CapacityBlocked"  # no free GPU for the candidate
    COMPLETED = "Completed"  # the attempt ended with the candidate as stable
    ROLLED_BACK = "RolledBack"  # the attempt ended with the stored manifest serving
    IN_SYNC = "InSync"  # spec equals what serves
    BASELINE_CHANGED = "BaselineChanged"  # stable's pods were edited or replaced by somebody else
    POLICY_CHANGED = "PolicyChanged"  # the policy was edited; it applies to the next attempt
    DATA_PLANE_SYNCED = "DataPlaneSynced"  # every gate acknowledged the weights of the step
    EVIDENCE_NOT_STORED = "EvidenceNotStored"  # the database refuses writes; decisions go on, marked


class Reason(StrEnum):
    """Reasons of conditions and events."""

    # attempt
    NEW_REVISION = "NewRevision"  # spec asks for another revision
    FIRST_INSTALL = "FirstInstall"  # nothing to compare with: readiness and hard guards only
    NO_EFFECTIVE_CHANGE = "NoEffectiveChange"  # the effective diff is empty: nothing is rolled
    SUPERSEDED = "Superseded"  # another revision was applied in mid-attempt
    STABLE_REAPPLIED = "StableReapplied"  # the stable revision was applied in mid-attempt: a rollback
    STEP_STARTED = "StepStarted"  # a step began
    ATTEMPT_COMPLETED = "AttemptCompleted"  # the candidate is stable now
    # preflight and input
    INVALID_SPEC = "InvalidSpec"  # the object cannot be used; the message names the field
    POLICY_MISSING = "PolicyMissing"  # policyRef names nothing in this namespace
    PREFLIGHT_FAILED = "PreflightFailed"  # an error was found before any traffic
    DRY_RUN_REFUSED = "DryRunRefused"  # the API server would not take the candidate's objects; its words are told
    DRY_RUN_UNPROVEN = "DryRunUnproven"  # a webhook takes no dry runs: admission of the candidate shows in Shadow only
    MANIFEST_TOO_LARGE = "ManifestTooLarge"  # the RunManifest exceeds 1 MiB, or what etcd takes
    SCHEMA_TOO_OLD = "SchemaTooOld"  # the API server's CRDs lack fields that this operator relies on
    MISSING_REFERENCE = "MissingReference"  # a ConfigMap named by the template does not exist
    ROUTE_CONFLICT = "RouteConflict"  # another rollout owns the same workload or route
    OPERATOR_DEFECT = "OperatorDefect"  # the operator met an error of its own; nothing moves, its log has it whole
    # waiting
    WAITING_FOR_PODS = "WaitingForPods"  # candidate pods are not servable yet
    WAITING_FOR_DATA_PLANE = "WaitingForDataPlane"  # not every gate acknowledged the configuration
    WAITING_FOR_EVIDENCE = "WaitingForEvidence"  # the judge needs more requests
    WAITING_FOR_APPROVAL = "WaitingForApproval"  # a person must approve
    WAITING_FOR_RESUME = "WaitingForResume"  # an open pause, or paused by a person
    PAUSED = "Paused"  # spec.paused or a pause action
    CAPACITY = "InsufficientCapacity"  # the scheduler found no place for the candidate
    NOT_LOAD_MATCHED = "NotLoadMatched"  # load per replica or tenant mix differ by more than 15 %: no verdict counts
    HELD = "Held"  # the judge holds the step; the message says why
    NO_BASELINE = "NoBaseline"  # stable serves nothing: there is nothing to compare with
    LEASE_LOST = "LeaseLost"  # the API server is out of reach: weights may only fall
    JUDGE_NOT_REBUILT = "JudgeNotRebuilt"  # a new leader has not read the attempt's evidence yet
    RECORDER_UNREACHABLE = "RecorderUnreachable"  # no blocks are coming: hold, never pass
    RECORDER_INCOMPATIBLE = "RecorderIncompatible"  # recorder and operator are of different releases: hold, never pass
    EVIDENCE_NOT_STORED = "EvidenceNotStored"  # the database refused writes; decisions go on, marked
    # rollback
    GATE_FAILED = "GateFailed"  # the judge proved a breach
    CANDIDATE_CRASHED = "CandidateCrashed"  # crash loop, OOM or lost readiness: a hard stop
    CANDIDATE_HUNG = "CandidateHung"  # candidate pods are ready and answer no request
    CANDIDATE_DEADLINE = "CandidateDeadline"  # candidate pods did not become servable in time
    MAX_HOLD_EXCEEDED = "MaxHoldExceeded"  # held longer than the policy allows
    ABORTED = "Aborted"  # a person aborted
    REJECTED = "Rejected"  # a person rejected the step
    ROLLED_BACK_BY_PERSON = "RolledBackByPerson"  # a person asked for the old manifest
    DELETED = "Deleted"  # the rollout object was deleted in mid-attempt
    ROLLED_BACK = "RolledBack"  # the stored manifest serves again
    DRAINING = "Draining"  # live streams end before the candidate goes away
    # actions
    ACTION_ACCEPTED = "ActionAccepted"  # an action took effect
    ACTION_STALE = "ActionStale"  # it binds another attempt, step, revision or evidence: no effect
    ACTION_EXPIRED = "ActionExpired"  # it is older than approval.expires: no effect
    ACTION_REFUSED = "ActionRefused"  # it cannot take effect now: no effect
    APPROVAL_WITHDRAWN = "ApprovalWithdrawn"  # the evidence turned after the approval
    # sync
    BASELINE_EDITED = "BaselineEdited"  # stable's workload differs from its stored manifest
    POLICY_EDITED = "PolicyEdited"  # the policy differs from the attempt's snapshot
    AS_EXPECTED = "AsExpected"  # nothing to report
    SYNCED = "Synced"  # all equal
    SPEC_REJECTED = "SpecRejected"  # spec asks for a revision that was rolled back
    ATTEMPT_RUNNING = "AttemptRunning"  # spec's revision is being weighed
