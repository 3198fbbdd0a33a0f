"""The live view: what the last snapshot, the recorder and the metrics pages say, in the readers' shape."""

from collections.abc import Mapping

from controller.adapters.recorder import duration_plan
from controller.core.machine import decide
from controller.evidence.views import WitnessView
from controller.live import LiveRollouts
from crds.v1alpha1.conditions import Phase
from manifests.model import Manifest
from policies.contract import contract_from_mapping
from policies.history import prepare
from tests.unit.controller.shell.fakes import FakeGates, FakeJudgement
from tests.unit.controller.world import POLICY, installed, weighing

CONTRACT = contract_from_mapping(POLICY.model_dump(by_alias=True, mode="json", exclude_none=True))


class Pages:
    """Remembers what it was told to read."""

    def __init__(self) -> None:
        self.targets: Mapping[str, str] = {}

    def watch(self, rollout: str, manifest: Manifest | None, targets: Mapping[str, str]) -> None:
        self.targets = targets

    def views(self, rollout: str) -> tuple[WitnessView, ...]:
        return (WitnessView(mechanism="prefix_cache", witness="cache_config", state="active"),)


class NoDiff:
    """An observer that compares nothing."""

    def diff_between(self, old: object, new: object) -> None:
        return None


def test_a_running_attempt_shows_load_plan_and_witnesses() -> None:
    world = weighing(Phase.CANARY)
    world.now += 60.0
    world.counts = {("stable", "live", "acme"): 1900, ("candidate", "live", "acme"): 100}
    judgement, pages = FakeJudgement(), Pages()
    setup = prepare(CONTRACT, [])
    judgement.setup = (setup, duration_plan(setup, []))
    live = LiveRollouts(NoDiff(), FakeGates([]), judgement, pages)  # type: ignore[arg-type]
    snapshot = world.snapshot()
    live.note(snapshot, decide(snapshot))
    view = live.live("ns/chat")
    assert view is not None
    assert view.load.matched is False and view.load.candidate_share_live == 0.05
    assert view.load.candidate.rps == 10.0 and view.load.target_rps_per_replica == 50.0
    assert view.duration_plan is not None and view.duration_plan["sentence"]
    assert view.witnesses[0].state == "active"
    assert view.capacity.rollback_s == 0.0
    assert view.model_validate_json(view.model_dump_json()) == view


def test_at_rest_nothing_of_an_attempt_is_shown() -> None:
    world = installed()
    judgement, pages = FakeJudgement(), Pages()
    judgement.setup = (prepare(CONTRACT, []), None)
    live = LiveRollouts(NoDiff(), FakeGates([]), judgement, pages)  # type: ignore[arg-type]
    snapshot = world.snapshot()
    live.note(snapshot, decide(snapshot))
    view = live.live("ns/chat")
    assert view is not None
    assert view.witnesses == () and view.thresholds == () and view.duration_plan is None
    assert pages.targets == {}


def test_a_change_of_load_alone_wakes_readers() -> None:
    world = weighing(Phase.CANARY)
    world.now += 60.0
    live = LiveRollouts(NoDiff(), FakeGates([]), FakeJudgement(), Pages())  # type: ignore[arg-type]

    def version(requests: int) -> int:
        world.counts = {("stable", "live", "acme"): 190, ("candidate", "live", "acme"): requests}  # too few to judge
        snapshot = world.snapshot()
        live.note(snapshot, decide(snapshot))
        return live.version("ns/chat")

    first = version(10)
    assert version(10) == first
    assert version(12) > first
