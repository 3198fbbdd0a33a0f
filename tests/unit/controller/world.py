"""A small world around the state machine: applies decisions the way act.py does, with pods, gates and a judge at hand.

Scenarios read like a script: `world.apply("v2")`, `world.run_to(Phase.SHADOW)`, `world.say("PASS")`.
"""

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

from controller.core import actions as a
from controller.core.evidence import evidence_hash
from controller.core.machine import decide
from controller.core.snapshot import (
    DataPlane,
    DiffSummary,
    Frozen,
    JudgeView,
    PersonAction,
    Pod,
    Snapshot,
    Traffic,
    Trial,
    Variant,
)
from crds.v1alpha1.action import ActionKind
from crds.v1alpha1.conditions import Phase
from crds.v1alpha1.manifest import FrozenRole, RunManifestSpec
from crds.v1alpha1.policy import RolloutPolicySpec
from crds.v1alpha1.rollout import InferenceRolloutSpec, InferenceRolloutStatus
from policies.verdict import GateRow, Hold, HoldReason, Result, Rollback, Verdict
from shadow.plan import TrafficPlan

POLICY = RolloutPolicySpec.model_validate(
    {"gates": [{"metric": "ttft", "percentile": "99", "margin": "25%"}], "evidence": {"minStep": "1m"}}
)
STEPS = (
    {"shadow": {}},
    {"canary": {"weight": 5}},
    {"ramp": {"weight": 25, "approval": True}},
    {"ramp": {"weight": 50}},
)


def rev_of(image: str) -> str:
    """Revision (10 characters) that an image gives in this world."""
    return hashlib.sha256(image.encode()).hexdigest()[:10]


def make_verdict(result: str, step: int, holds: tuple[Hold, ...] = ()) -> Verdict:
    row = GateRow(
        "acme", "0-512", "ttft", "p99-margin", Result(result), 900, 900, 9, 9, 1.0, 1.0, 0.9, 1.1, 0.9, 1.1, 1.25,
        20.0, 0.1, 1.2, None, None, "told by the test",
    )  # fmt: skip
    return Verdict(
        Result(result), 0.0, step, None, holds, (row,), Rollback(0.1, 100.0), None, 12, 30.0, (f"{result}.",)
    )


@dataclass
class World:
    """One rollout; everything is a plain attribute that a test may bend."""

    image: str = "v1"
    replicas: int = 4
    steps: tuple[dict[str, Any], ...] = STEPS
    spec_extra: dict[str, Any] = field(default_factory=dict)
    now: float = 1_000_000.0
    status: InferenceRolloutStatus = field(default_factory=InferenceRolloutStatus)
    generation: int = 1
    policy: RolloutPolicySpec = POLICY
    stored: dict[str, Frozen] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)  # overrides of a revision's pods
    published: TrafficPlan | None = None
    is_synced: bool = True
    gates: tuple[str, ...] = ("gate-0", "gate-1")
    gate_applied: bool = False
    result: str | None = None
    holds: tuple[Hold, ...] = ()
    setup_attempt: int | None = None
    trials: dict[tuple[str, int], Trial] = field(default_factory=dict)
    admission: Trial = field(default_factory=lambda: Trial(0.0))  # what the API server says to the next dry run
    recorder_up: bool = True
    other_release: str = ""
    rebuilt: bool = True
    open_requests: dict[str, int] | None = field(default_factory=dict)
    counts: dict[tuple[str, str, str], int] = field(default_factory=dict)  # (variant, kind, tenant) in 10 s
    is_candidate_reached: bool = False
    people: list[PersonAction] = field(default_factory=list)
    finalizer: bool = False
    deleted_s: float | None = None
    gone: bool = False
    diff: DiffSummary | None = field(default_factory=lambda: DiffSummary(True, ("max-num-seqs 64 -> 96",)))
    overrides: dict[str, Any] = field(default_factory=dict)
    events: list[a.EmitEvent] = field(default_factory=list)
    records: list[a.Record] = field(default_factory=list)
    log: list[a.Action] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    released: str | None = None

    # --- what the test does ---

    def apply(self, image: str, **extra: Any) -> "World":
        """A user applies another image (and other fields of spec)."""
        self.image, self.generation = image, self.generation + 1
        self.spec_extra |= extra
        return self

    def say(self, result: str | None, *reasons: HoldReason) -> "World":
        """The judge says this from now on."""
        self.result = result
        self.holds = tuple(Hold(reason, "told by the test") for reason in reasons)
        return self

    def act(self, kind: str, user: str = "ann", **binding: Any) -> PersonAction:
        """A person creates a RolloutAction, signing what status shows."""
        verdict = self.status.verdict
        values: dict[str, Any] = {
            "attempt": self.status.attempt,
            "revision": self.status.candidate,
            "step": self.status.step.index,
            "evidence": (verdict.evidence or "") if verdict and kind in ("approve", "reject") else "",
            "reason": "looks right",
            "created_s": self.now,
        }
        if kind == "rollback":
            values["revision"] = ""
        if kind == "retry":
            values["revision"] = rev_of(self.image)
        uid = f"uid-{len(self.people)}"
        action = PersonAction(uid=uid, name=uid, kind=ActionKind(kind), user=user, **(values | binding))
        self.people.append(action)
        return action

    # --- what happens ---

    def spec(self) -> InferenceRolloutSpec:
        raw = {
            "template": {"spec": {"containers": [{"name": "server", "image": self.image}]}},
            "replicas": self.replicas,
            "policy": self.policy.model_dump(by_alias=True, exclude_none=True),
            "steps": list(self.steps),
            "bake": "5m",
        }
        return InferenceRolloutSpec.model_validate(raw | self.spec_extra)

    def frozen(self) -> Frozen:
        spec = self.spec()
        roles = tuple(
            FrozenRole(name=r.name, replicas=r.replicas, entrypoint=r.entrypoint, template=r.template or {})
            for r in spec.effective_roles()
        )
        manifest = RunManifestSpec(
            rollout="chat",
            revision=rev_of(self.image) + "0" * 54,
            record="r",
            attempt=0,
            created_at="",
            roles=roles,
            steps=tuple(s.model_dump(by_alias=True, exclude_none=True) for s in spec.steps),
        )
        return Frozen(rev_of(self.image), manifest)

    def variant(self, rev: str) -> Variant:
        given = self.pods.get(rev, {})
        count = given.get("count", self.running[rev])
        keep = {k: v for k, v in given.items() if k not in ("count", "drift")}
        base = Pod("", rev, "server", ip="127.1.0.1", created_s=self.now - 600, ready=True, servable=True)
        base = replace(base, ready_since_s=1000.0)
        pods = tuple(replace(base, name=f"chat-{rev}-{i}", **keep) for i in range(count))
        return Variant(rev, {"server": self.running[rev]}, pods, drift=given.get("drift", ""))

    def snapshot(self) -> Snapshot:
        status = self.status
        judged = status.step.index
        steps = list(self.steps)
        while 0 < judged < len(steps) and "pause" in steps[judged]:
            judged -= 1
        verdict = make_verdict(self.result, judged, self.holds) if self.result and status.candidate else None
        plane = DataPlane(
            applied=self.gate_applied,
            gates=self.gates,
            connected=len(self.gates),
            synced=self.is_synced,
            published=self.published,
            open_requests=self.open_requests,
        )
        view = JudgeView(
            reachable=self.recorder_up and not self.other_release,
            other_release=self.other_release,
            rebuilt=self.rebuilt,
            setup_attempt=self.setup_attempt,
            verdict=verdict,
            evidence=evidence_hash(status.candidate, status.attempt, judged, verdict) if verdict else "",
        )
        target = self.frozen()
        if target.rev10 in self.stored:
            kept = self.stored[target.rev10]
            target = replace(target, stored=True, stored_attempt=kept.stored_attempt)
        running = self.stored.get(status.candidate)
        values: dict[str, Any] = {
            "namespace": "ns",
            "name": "chat",
            "uid": "u",
            "generation": self.generation,
            "now_s": self.now,
            "status": status,
            "spec": self.spec(),
            "has_finalizer": self.finalizer,
            "deleted_s": self.deleted_s,
            "target": target,
            "stored": dict(self.stored),
            "diff": self.diff,
            "variants": {rev: self.variant(rev) for rev in self.running},
            "data_plane": plane,
            "judge": view,
            "traffic": self.traffic(),
            "trial": self.trials.get((status.candidate, status.attempt)),
            "actions": tuple(self.people),
            "policy": self.policy,
            "attempt_policy": POLICY if running else None,
        }
        return Snapshot(**(values | self.overrides))

    def traffic(self) -> Traffic | None:
        """The recorder's last seconds: fresh while it is up; none live on the candidate unless a test says so."""
        if not self.recorder_up:
            return None
        until_s = self.now - 2.0
        last = {"candidate": until_s + 1.0} if self.is_candidate_reached else {}
        return Traffic(self.now, 10.0, until_s, self.status.attempt, dict(self.counts), {"stable": self.now, **last})

    def step(self) -> a.Decision:
        """One decision, carried out whole."""
        decision = decide(self.snapshot())
        self.carry_out(decision)
        return decision

    def carry_out(self, decision: a.Decision) -> None:
        if decision.plan is not None:
            self.published = decision.plan
        self.status = decision.status
        self.weights.append(self.status.step.weight)
        for action in decision.actions:
            self.log.append(action)
            self._do(action)

    def _do(self, action: a.Action) -> None:
        match action:
            case a.AddFinalizer():
                self.finalizer = True
            case a.RemoveFinalizer():
                self.finalizer, self.gone = False, True
            case a.StoreRunManifest(frozen, attempt):
                self.stored[frozen.rev10] = replace(frozen, stored=True, stored_attempt=attempt)
            case a.LabelStable(rev):
                self.stored = {k: replace(f, labelled_stable=k == rev) for k, f in self.stored.items()}
            case a.ApplyVariant(frozen, replicas, restore):
                self.running[frozen.rev10] = sum(replicas.values())
                if restore:
                    self.pods.pop(frozen.rev10, None)
            case a.TryVariant(frozen, attempt):
                self.trials[frozen.rev10, attempt] = replace(self.admission, at_s=self.now)
            case a.ScaleVariant(rev, replicas):
                self.running[rev] = sum(replicas.values())
            case a.DeleteVariant(rev):
                self.running.pop(rev, None)
                self.pods.pop(rev, None)
            case a.ApplyGate():
                self.gate_applied = True
            case a.ReleaseGate(rev):
                self.released = rev
            case a.DeleteRunManifests():
                self.stored = {}
            case a.PruneRunManifests(revs):
                self.stored = {k: f for k, f in self.stored.items() if k not in revs}
            case a.PutSetup(attempt):
                self.setup_attempt = attempt
            case a.EmitEvent():
                self.events.append(action)
            case a.Record():
                self.records.append(action)

    def settle(self, limit: int = 60) -> a.Decision:
        """Decide again and again until nothing changes any more."""
        for _ in range(limit):
            before = (self.status, dict(self.running), self.published, self.finalizer)
            decision = self.step()
            if before == (self.status, dict(self.running), self.published, self.finalizer):
                return decision
        raise AssertionError(f"no rest after {limit} decisions: {self.status.phase} {self.status.message}")

    def run_to(self, phase: Phase, limit: int = 80) -> a.Decision:
        """Decide until the phase is reached."""
        for _ in range(limit):
            decision = self.step()
            self.now += 1.0
            if decision.phase is phase:
                return decision
        raise AssertionError(f"{phase} was not reached: {self.status.phase}: {self.status.message}")

    def condition(self, kind: str) -> tuple[str, str]:
        """(status, reason) of a condition."""
        found = next(c for c in self.status.conditions if c.type == kind)
        return found.status, found.reason

    def told(self, reason: str) -> bool:
        """Whether an event with this reason was emitted."""
        return any(event.reason.value == reason for event in self.events)


def installed(**values: Any) -> World:
    """A world in which v1 is stable."""
    world = World(**values)
    world.run_to(Phase.COMPLETED)
    world.settle()
    return world


def weighing(phase: Phase, **values: Any) -> World:
    """A world whose attempt from v1 to v2 has reached a phase and waits there for the judge."""
    world = installed(**values).apply("v2")
    world.run_to(Phase.SHADOW)
    for _ in range(20):
        world.say(None).settle()
        if world.status.phase is phase:
            return world
        pass_step(world)
    raise AssertionError(f"{phase} was not reached: {world.status.phase}: {world.status.message}")


def pass_step(world: World) -> None:
    """The judge passes the step in force, a person approves where that is asked for; the next step begins."""
    index = (world.status.step.index, world.status.phase)
    world.say("PASS")
    for _ in range(20):
        world.step()
        if (world.status.step.index, world.status.phase) != index:
            return
        if world.condition("AwaitingApproval")[0] == "True" and not world.people:
            world.act("approve")
    raise AssertionError(f"the step did not pass: {world.status.message}")
