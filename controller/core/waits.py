"""What an attempt waits for. Each `await_` function answers an Outcome while it waits and None when the wait is over.

Called by guards.py and phases/. Pure: time is an input.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controller.core import plans, times
from controller.core.actions import Action, ApplyVariant, ScaleVariant
from controller.core.load import load_mismatch
from controller.core.outcome import AT_ONCE_SECONDS, STEADY_SECONDS, WAIT_SECONDS, Outcome, hold, is_held_too_long, stay
from controller.core.people import approval_rules
from controller.core.snapshot import PersonAction, Pod, Snapshot
from controller.core.status import Mark, make_verdict
from crds.v1alpha1.common import parse_duration_seconds
from crds.v1alpha1.conditions import ConditionType, Reason
from policies.records import CANDIDATE
from policies.verdict import HoldReason, Result

DRAIN_SECONDS = 600.0
LEAST_DRAIN_SECONDS = 3.0  # the recorder knows of a request a second after it began
BLIND_DRAIN_SECONDS = 120.0
SETTLED_SECONDS = 3.0  # a request is known two seconds after its start, in whole seconds
UNSEEN_SECONDS = 15.0

_PLAIN_WAITING = frozenset({HoldReason.TOO_FEW_REQUESTS, HoldReason.MIN_STEP})
"""Holds that only mean that the evidence grows; they are Gated, not Holding."""


def await_pods(s: Snapshot, weight: int) -> Outcome | None:
    """Until the candidate has servable pods for a weight."""
    candidate = s.status.candidate
    wanted = plans.grown_replicas(s, candidate, weight)
    missing = plans.missing_pods(s, candidate, wanted)
    step = s.status.step
    if not missing:
        if step.waiting_since is None:
            return None
        calm = step.model_copy(update={"waiting_since": None})
        text = "All candidate pods that the step needs are servable."
        return stay(s, Reason.WAITING_FOR_PODS, text, changes={"step": calm}, requeue_after_s=AT_ONCE_SECONDS)
    frozen = s.frozen(candidate)
    actions: tuple[Action, ...] = ()
    if frozen is not None and s.variant(candidate).replicas != wanted:
        exists = set(s.variant(candidate).replicas) == set(wanted)
        actions = (ScaleVariant(candidate, wanted) if exists else ApplyVariant(frozen, wanted),)
    waiting = step.waiting_since or times.to_text(s.now_s)
    marks, reason, text = {}, Reason.WAITING_FOR_PODS, f"Waiting for candidate pods: {pod_words(s, missing)}"
    blocked = unschedulable(s)
    if blocked:
        reason, text = Reason.CAPACITY, f"No place for the candidate; users are not affected: {blocked}"
        marks = {ConditionType.CAPACITY_BLOCKED: Mark(reason, text)}
        waiting = times.to_text(s.now_s)  # the deadline counts loading, not the queue for a GPU
        if times.since(step.waiting_since, s.now_s) < STEADY_SECONDS and step.waiting_since:
            waiting = step.waiting_since
    changes = {"step": step.model_copy(update={"waiting_since": waiting}), "held_since": None}
    return stay(s, reason, text, changes=changes, marks=marks, actions=actions, requeue_after_s=WAIT_SECONDS)


def await_start(s: Snapshot) -> Outcome | None:
    """Until every gate holds the step; its clock starts then."""
    step = s.status.step
    if step.started_at is not None:
        return None
    if not s.data_plane.is_in_force or not is_published(s):
        return await_data_plane(s)
    started = step.model_copy(update={"started_at": times.to_text(s.now_s)})
    changes = {"step": started, "held_since": times.to_text(s.now_s)}
    text = f"Step {step.name} is in force on every gate."
    return stay(s, Reason.STEP_STARTED, text, changes=changes, requeue_after_s=AT_ONCE_SECONDS)


def is_published(s: Snapshot) -> bool:
    """Whether what the gates acknowledged is the step in force (its pods may come and go)."""
    sent, wanted = s.data_plane.published, plans.make_plan(s, s.status)
    return sent is not None and all(
        getattr(sent, name) == getattr(wanted, name) for name in ("attempt", "step", "stage", "weight", "candidate")
    )


def await_data_plane(s: Snapshot) -> Outcome:
    plane = s.data_plane
    text = f"{plane.connected} of {len(plane.gates)} gates are connected; not all have acknowledged the step."
    return stay(s, Reason.WAITING_FOR_DATA_PLANE, text, requeue_after_s=0.5)


def await_pause(s: Snapshot) -> Outcome | None:
    """Until a timed pause is over, or a person ends it."""
    step = plans.current_step(s)
    if step is None or step.pause is None or s.status.step.resumed:
        return None
    if step.pause.duration is None:
        text = "An open pause: it ends when a person resumes."
        mark = {ConditionType.HOLDING: Mark(Reason.WAITING_FOR_RESUME, text)}
        return stay(s, Reason.WAITING_FOR_RESUME, text, changes={"held_since": None}, marks=mark)
    left_s = parse_duration_seconds(step.pause.duration) - times.since(s.status.step.started_at, s.now_s)
    if left_s <= 0:
        return None
    text = f"A pause of {step.pause.duration}: {times.span_text(left_s)} left."
    changes = {"held_since": None}
    return stay(s, Reason.PAUSED, text, changes=changes, requeue_after_s=min(left_s, STEADY_SECONDS))


def await_pass(s: Snapshot) -> Outcome | None:
    """Until the judge passes the step in force with fresh data."""
    problem = hold_of(s)
    if problem is not None:
        return hold(s, problem.reason, problem.message)
    uneven = load_mismatch(s)
    if uneven is not None:
        return hold(s, uneven.reason, uneven.message)
    verdict = s.judge.verdict
    wanted = plans.judged_step(s.status, plans.attempt_steps(s))
    if verdict is not None and verdict.step == wanted and verdict.result is Result.PASS:
        return None
    text = "The judge has seen no block of this step yet."
    if verdict is not None and verdict.step == wanted:
        shown = make_verdict(s, s.status)  # as throttled as status: a condition must not be written at every block
        text = (shown.message if shown else "") or "The evidence is not enough yet."
    marks = {ConditionType.GATED: Mark(Reason.WAITING_FOR_EVIDENCE, text)}
    if is_held_too_long(s):
        text = f"Not passed within maxHold: {text}"
        marks[ConditionType.HOLDING] = Mark(Reason.MAX_HOLD_EXCEEDED, text)
    changes = {"held_since": s.status.held_since or times.to_text(s.now_s)}
    return stay(s, Reason.WAITING_FOR_EVIDENCE, text, changes=changes, marks=marks, requeue_after_s=5.0)


def await_approval(s: Snapshot, approvals: tuple[PersonAction, ...], name: str) -> Outcome | None:
    """Until enough different people approved exactly this evidence."""
    people = {act.user for act in approvals}
    rules = approval_rules(s)
    if len(people) >= rules.people:
        return None
    text = f"{name} waits for approval ({len(people)} of {rules.people} people): weighlock approve {s.name}"
    marks = {ConditionType.AWAITING_APPROVAL: Mark(Reason.WAITING_FOR_APPROVAL, text)}
    return stay(s, Reason.WAITING_FOR_APPROVAL, text, changes={"held_since": None}, marks=marks, requeue_after_s=5.0)


def blind_of(s: Snapshot) -> Mark | None:
    """Why nobody watches now; None while evidence arrives (whatever it says)."""
    if s.judge.other_release:
        return Mark(Reason.RECORDER_INCOMPATIBLE, s.judge.other_release)
    if not s.judge.rebuilt:
        return Mark(Reason.JUDGE_NOT_REBUILT, "The attempt's evidence has not been read back from the recorder yet.")
    if not s.judge.reachable:
        return Mark(Reason.RECORDER_UNREACHABLE, "No blocks arrive from the recorder; nothing passes without them.")
    return None


def hold_of(s: Snapshot) -> Mark | None:
    """Why the evidence cannot be used now; None while it can (even when it is not enough yet)."""
    judge, blind = s.judge, blind_of(s)
    if blind is not None:
        return blind
    if judge.verdict is None or judge.verdict.result is not Result.INCONCLUSIVE:
        return None
    serious = [h for h in judge.verdict.holds if h.reason not in _PLAIN_WAITING]
    if not serious:
        return None
    return Mark(Reason.HELD, f"{serious[0].reason.value}: {serious[0].message}")


@dataclass(frozen=True, slots=True)
class Flip:
    """Whether traffic has really left the candidate, and what that rests on, as a sentence."""

    is_verified: bool
    message: str


def verify_flip(s: Snapshot) -> Flip:
    """Whether no new live request reaches the candidate since every gate acknowledged that it gets none.

    The recorder's window is settled (every request that started in it is known), and by its own clock; it is asked for
    a reading that is young enough to lie wholly after the acknowledgement.
    """
    if not s.data_plane.gates:
        return Flip(True, "No gate runs, so no request can reach the candidate.")
    traffic = s.traffic
    waited_s = times.since(s.status.step.started_at, s.now_s)
    if traffic is None:
        if s.judge.reachable and waited_s < UNSEEN_SECONDS:
            return Flip(False, "All gates acknowledged the flip; the recorder has not been asked yet what arrives.")
        text = "The recorder is unreachable, so the acknowledgement of all gates counts: new requests go to stable."
        return Flip(True, text)
    read_after_s = waited_s - (s.now_s - traffic.read_s)
    if read_after_s < SETTLED_SECONDS:
        return Flip(False, "All gates acknowledged the flip; the recorder is being asked what still arrives.")
    last_s = traffic.last_live_s.get(CANDIDATE)
    if last_s is not None and last_s >= traffic.until_s:
        return Flip(
            False, "All gates acknowledged the flip, yet the recorder still sees new requests on the candidate."
        )
    return Flip(True, "The recorder sees no new live request on the candidate: all of them go to stable.")


def is_drained(s: Snapshot, rev10: str) -> bool:
    """Whether a revision answers nothing any more; unknown counts as drained only after a while."""
    waited_s = times.since(s.status.phase_started_at, s.now_s)
    if waited_s > DRAIN_SECONDS or not s.data_plane.gates:
        return True
    if waited_s < LEAST_DRAIN_SECONDS:
        return False
    if s.data_plane.open_requests is None:
        return waited_s > BLIND_DRAIN_SECONDS
    return s.data_plane.open_requests.get(rev10, 0) == 0


def unschedulable(s: Snapshot) -> str:
    return next((pod.unschedulable for pod in s.variant(s.status.candidate).pods if pod.unschedulable), "")


def pod_words(s: Snapshot, missing: Mapping[str, int] | None = None) -> str:
    pods = s.variant(s.status.candidate).pods
    told = [_pod_state(pod) for pod in pods if not (pod.ready and pod.servable)][:3]
    counted = ", ".join(f"{count} {role}" for role, count in (missing or {}).items())
    return "; ".join(filter(None, (f"{counted} missing" if counted else "", *told))) or "no pod exists."


def _pod_state(pod: Pod) -> str:
    if pod.unschedulable:
        return f"{pod.name} has no place"
    if not pod.ready:
        why = pod.crash or pod.waiting
        return f"{pod.name} is not ready" + (f" ({why})" if why else "")
    return f"{pod.name} is ready but answered no completion" + (f" ({pod.probe_error})" if pod.probe_error else "")
