"""Everything that the page of one rollout shows, as one value. Pure: raw answers in, a page out.

Made by `gather.py` from the InferenceRollout, its RolloutActions and the evidence API; read by the templates. Without
evidence (operator away) the page still says what the API server knows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.dashboard import words
from controller.dashboard.matrix import Cell, Matrix, make_matrix
from controller.evidence.views import LiveView
from controller.person import condition
from crds.v1alpha1.conditions import Phase

_NOTABLE_WHEN_TRUE = (
    "Stalled", "RolledBack", "AwaitingApproval", "Holding", "CapacityBlocked", "BaselineChanged", "PolicyChanged",
    "EvidenceNotStored", "Gated", "Progressing", "Completed", "Reconciling", "Ready",
)  # fmt: skip
_NOTABLE_WHEN_FALSE = ("DataPlaneSynced", "InSync")


@dataclass(frozen=True, slots=True)
class Notice:
    """A condition that people should read. tone: good | wait | act | bad."""

    title: str
    reason: str
    message: str
    since_s: float | None
    tone: str


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop of the timeline. state: done | now | next | failed."""

    name: str
    kind: str
    weight: int | None
    approval: bool
    state: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the chronicle."""

    at_s: float | None
    kind: str  # decision | action | audit
    title: str
    who: str
    text: str
    detail: tuple[tuple[str, str], ...] = ()
    late: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """One rollout. `marks`: conditions that somebody should know of; `breach`: what a failing verdict names."""

    namespace: str
    name: str
    phase: str
    attempt: int
    step_index: int
    step_name: str
    weight: int
    stable: str
    candidate: str
    message: str
    since_s: float | None
    created_s: float | None
    result: str
    evidence: str
    notices: tuple[Notice, ...]
    stops: tuple[Stop, ...]
    matrix: Matrix
    cell: Cell | None
    chronicle: tuple[Entry, ...]
    live: LiveView | None
    evidence_problem: str
    rollout: Mapping[str, Any]
    verdict: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    marks: tuple[str, ...] = ()
    breach: str = ""

    @property
    def is_running(self) -> bool:
        """Whether an attempt is being weighed."""
        return self.phase not in (Phase.IDLE, Phase.COMPLETED, Phase.ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Line:
    """One rollout in the list. `marks`: conditions that somebody should know of."""

    namespace: str
    name: str
    phase: str
    weight: int
    step_name: str
    stable: str
    candidate: str
    result: str
    marks: tuple[str, ...]
    message: str


_MARKS = ("AwaitingApproval", "Holding", "Stalled", "CapacityBlocked", "RolledBack")


def make_line(rollout: Mapping[str, Any]) -> Line:
    """The line of an InferenceRollout object."""
    meta, status = rollout["metadata"], rollout.get("status") or {}
    step, verdict = status.get("step") or {}, status.get("verdict") or {}
    return Line(
        namespace=str(meta["namespace"]),
        name=str(meta["name"]),
        phase=str(status.get("phase") or Phase.IDLE),
        weight=int(step.get("weight") or 0),
        step_name=str(step.get("name") or ""),
        stable=str(status.get("stable") or ""),
        candidate=str(status.get("candidate") or ""),
        result=str(verdict.get("result") or ""),
        marks=_marks(status),
        message=str(status.get("message") or verdict.get("message") or ""),
    )


def _marks(status: Mapping[str, Any]) -> tuple[str, ...]:
    phase = str(status.get("phase") or "")
    return tuple(kind for kind in _MARKS if condition(status, kind) and kind != phase)


def make_page(
    rollout: Mapping[str, Any],
    actions: Iterable[Mapping[str, Any]],
    live: LiveView | None,
    history: Mapping[str, Any] | None,
    evidence_problem: str = "",
    selected: tuple[str, str] | None = None,
) -> Page:
    """The page of an InferenceRollout object; `selected`: tenant and bucket of the opened cell."""
    meta, status = rollout["metadata"], rollout.get("status") or {}
    step = status.get("step") or {}
    verdict = (live.verdict if live else None) or _last_verdict(history or {}, int(status.get("attempt") or 0))
    policy = live.policy if live else None
    rows = verdict.get("rows") or ()
    known = policy if rows else None  # without a verdict nobody can say that a stratum has no traffic
    matrix = make_matrix(rows, known.tenants if known else (), known.buckets if known else ())
    result = str(verdict.get("result") or (status.get("verdict") or {}).get("result") or "")
    return Page(
        namespace=str(meta["namespace"]),
        name=str(meta["name"]),
        phase=str(status.get("phase") or Phase.IDLE),
        attempt=int(status.get("attempt") or 0),
        step_index=int(step.get("index") or 0),
        step_name=str(step.get("name") or ""),
        weight=int(step.get("weight") or 0),
        stable=str(status.get("stable") or ""),
        candidate=str(status.get("candidate") or ""),
        message=str(status.get("message") or ""),
        since_s=words.moment(status.get("phaseStartedAt")),
        created_s=words.moment(meta.get("creationTimestamp")),
        result=result,
        evidence=str((status.get("verdict") or {}).get("evidence") or ""),
        notices=_notices(status),
        stops=_stops(rollout, live),
        matrix=matrix,
        cell=matrix.cell(*selected) if selected else None,
        chronicle=_chronicle(actions, history),
        live=live,
        evidence_problem=evidence_problem,
        rollout=rollout,
        verdict=verdict,
        history=tuple(status.get("history") or ()),
        marks=_marks(status),
        breach=str((status.get("verdict") or {}).get("message") or "") if result == "FAIL" else "",
    )


def _last_verdict(history: Mapping[str, Any], attempt: int) -> Mapping[str, Any]:
    """The last stored verdict of an attempt: what a finished attempt ended on."""
    found = [row for row in history.get("verdicts") or () if row.get("attempt") == attempt and row.get("verdict")]
    return dict(found[-1]["verdict"]) if found else {}


def _notices(status: Mapping[str, Any]) -> tuple[Notice, ...]:
    found: dict[str, Mapping[str, Any]] = {str(c.get("type")): c for c in status.get("conditions") or ()}
    notices = [_notice(found[kind]) for kind in _NOTABLE_WHEN_TRUE if condition(status, kind)]
    off = [found[kind] for kind in _NOTABLE_WHEN_FALSE if found.get(kind, {}).get("status") == "False"]
    return (*notices, *(_notice(entry, negated=True) for entry in off))


_TONES = {
    "Stalled": "bad", "RolledBack": "bad", "CapacityBlocked": "bad", "EvidenceNotStored": "bad",
    "AwaitingApproval": "act", "BaselineChanged": "act", "PolicyChanged": "act", "InSync": "act",
    "Holding": "wait", "Gated": "wait", "DataPlaneSynced": "wait", "Progressing": "wait", "Reconciling": "wait",
    "Completed": "good", "Ready": "good",
}  # fmt: skip


def _notice(entry: Mapping[str, Any], negated: bool = False) -> Notice:
    kind = str(entry["type"])
    title = "".join(f" {c.lower()}" if c.isupper() else c for c in kind).strip().capitalize()
    return Notice(
        title=f"Not {title.lower()}" if negated else title,
        reason=str(entry.get("reason") or ""),
        message=str(entry.get("message") or ""),
        since_s=words.moment(entry.get("lastTransitionTime")),
        tone=_TONES.get(kind, "wait"),
    )


def _stops(rollout: Mapping[str, Any], live: LiveView | None) -> tuple[Stop, ...]:
    """Steps of the spec (or of the attempt, where the operator says), then promotion and bake."""
    status = rollout.get("status") or {}
    phase = str(status.get("phase") or "")
    steps = [(s.name, s.kind, s.weight, s.approval) for s in live.steps] if live and live.steps else None
    steps = steps or [_spec_step(step) for step in (rollout.get("spec") or {}).get("steps") or ()]
    if not any(kind == "bake" for _, kind, _, _ in steps):
        steps = [*steps, ("promoted", "promoted", 100, False), ("bake", "bake", None, False)]
    current = _current_stop(phase, int((status.get("step") or {}).get("index") or 0), [kind for _, kind, _, _ in steps])
    failed = phase in (Phase.ROLLING_BACK, Phase.ROLLED_BACK)
    stops = []
    for index, (name, kind, weight, approval) in enumerate(steps):
        state = "done" if index < current else "next" if index > current else "failed" if failed else "now"
        stops.append(Stop(name, kind, weight, approval, state))
    return tuple(stops)


def _spec_step(step: Mapping[str, Any]) -> tuple[str, str, int | None, bool]:
    kind = next((key for key in ("shadow", "canary", "ramp", "pause") if key in step), "pause")
    content = step.get(kind) or {}
    weight = content.get("weight")
    name = f"{kind} {weight}" if weight is not None else kind
    return name, kind, weight, bool(content.get("approval"))


def _current_stop(phase: str, index: int, kinds: Sequence[str]) -> int:
    before = (Phase.PENDING, Phase.DIFFED, Phase.PREFLIGHT)
    if phase in before:
        return -1
    if phase == Phase.PROMOTED:
        return kinds.index("promoted") if "promoted" in kinds else len(kinds) - 1
    if phase == Phase.BAKE:
        return kinds.index("bake")
    if phase in (Phase.COMPLETED, Phase.IDLE):
        return len(kinds)
    return index


def _chronicle(actions: Iterable[Mapping[str, Any]], stored: Mapping[str, Any] | None) -> tuple[Entry, ...]:
    """Newest first: decisions, what people did (as the API server holds it), audit; `stored` is None where the
    operator does not say what became of them."""
    history = stored or {}
    pending = "waiting" if stored is not None else "outcome not known now"
    outcomes = {str(row["spec"].get("uid")): row for row in history.get("actions") or ()}
    entries = [_decision_entry(row) for row in history.get("decisions") or ()]
    seen = set()
    for action in actions:
        uid = str(action["metadata"].get("uid"))
        seen.add(uid)
        entries.append(_action_entry(action, outcomes.get(uid), pending))
    gone = [row for uid, row in outcomes.items() if uid not in seen]
    entries += [_action_entry({"metadata": {}, "spec": row["spec"]}, row, pending) for row in gone]
    entries += [_audit_entry(row) for row in history.get("audit") or ()]
    return tuple(sorted(entries, key=lambda entry: entry.at_s or 0.0, reverse=True))


def _decision_entry(row: Mapping[str, Any]) -> Entry:
    content = row.get("decision") or {}
    title = f"{row.get('phase', '')} · {row.get('reason', '')}"
    detail = (("attempt", str(row.get("attempt", ""))), ("weight", f"{row.get('weight', 0)} %"))
    return Entry(
        row.get("at_s"),
        "decision",
        title,
        "weighlock",
        str(content.get("message") or ""),
        detail,
        bool(row.get("late")),
    )


def _action_entry(action: Mapping[str, Any], outcome: Mapping[str, Any] | None, pending: str) -> Entry:
    spec = action["spec"]
    result = str(outcome["outcome"]) if outcome else pending
    bound = [("revision", spec.get("revision")), ("attempt", spec.get("attempt")), ("step", spec.get("step"))]
    detail = [
        (name, str(value)) for name, value in (*bound, ("evidence", spec.get("evidence"))) if value not in ("", None)
    ]
    at_s = words.moment(action["metadata"].get("creationTimestamp")) or (outcome or {}).get("at_s")
    title = f"{spec.get('action', '')} · {result}"
    why = str((outcome or {}).get("spec", {}).get("message") or "")
    text = " ".join(filter(None, (str(spec.get("reason") or ""), f"No effect: {why}" if why else "")))
    return Entry(at_s, "action", title, str(spec.get("user") or ""), text, tuple(detail))


def _audit_entry(row: Mapping[str, Any]) -> Entry:
    content = row.get("content") or {}
    detail = tuple((str(key), str(value)) for key, value in content.items() if key != "message")
    text = str(content.get("message") or "")
    return Entry(row.get("at_s"), "audit", str(row.get("what") or ""), str(row.get("who") or ""), text, detail)
