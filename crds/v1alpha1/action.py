"""RolloutAction: one immutable act of a person, created with that person's own credentials."""

from enum import StrEnum

from pydantic import Field

from crds.v1alpha1.common import ApiModel


class ActionKind(StrEnum):
    """What a person may do; also the RBAC verb that the admission policy demands."""

    APPROVE = "approve"  # let the next guarded step set its weight
    REJECT = "reject"  # refuse it: the attempt rolls back
    PAUSE = "pause"  # nothing moves forward
    RESUME = "resume"  # undo a pause, end an open pause step
    ABORT = "abort"  # end the attempt: roll back
    ROLLBACK = "rollback"  # put a stored manifest back, also after completion
    RETRY = "retry"  # weigh a rejected revision again
    SKIP = "skip"  # end a pause step early


class RolloutActionSpec(ApiModel):
    """What it binds. All of it is immutable."""

    rollout: str = Field(min_length=1, description="InferenceRollout in this namespace.")
    action: ActionKind = Field(description="What to do; the creator needs this verb on that rollout.")
    revision: str = Field("", description="Candidate revision that it speaks of (for rollback: the target).")
    attempt: int = Field(0, ge=0, description="Attempt that it speaks of.")
    step: int = Field(0, ge=0, description="Index of the step that it speaks of.")
    evidence: str = Field("", description="Hash of the evidence that was seen.")
    user: str = Field(min_length=1, description="Must be the requesting user's name.")
    reason: str = Field("", max_length=2000, description="Why.")
