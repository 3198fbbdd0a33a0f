"""The demo's acts as a test, with the operator killed again and again while they run.

One run gives both: that every act ends as it should, and that thirty SIGKILLs change neither an end state nor, at any
sampled instant, let a gate hold more than the stored step allows.
"""

from pathlib import Path

import pytest
from rich.console import Console

from tests.e2e.chaos import OperatorKiller, WeightSampler, operator_pid
from tools.demo import acts
from tools.demo.screen import Screen
from tools.demo.story import Story
from tools.demo.world import go_first, make_world

KILLS = 30
MEAN_GAP_SECONDS = 18.0
LEAST_SAMPLES = 1000

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(2400)]


def test_four_acts_survive_thirty_kills_of_the_operator(tmp_path: Path) -> None:
    go_first()
    narration = (tmp_path / "narration.txt").open("w", buffering=1)
    with make_world(tmp_path / "demo", keep=False) as world, Screen(Console(file=narration, width=200)) as screen:
        story = Story(world, screen, manual=False)
        world.cluster.up()
        world.install()
        acts.install(story)
        xds = str(world.values["operator"]["xdsBind"])
        sampler = WeightSampler(world.rollout, world.gate_pods)
        with sampler, OperatorKiller(lambda: operator_pid(xds), KILLS, MEAN_GAP_SECONDS) as killer:
            acts.good_change(story)
            acts.bundle(story)
            acts.late_break(story)
        acts.epilogue(story)
    assert story.failures == [], (tmp_path / "narration.txt").read_text()
    assert len(killer.kills) == KILLS
    assert sampler.samples > LEAST_SAMPLES
    assert sampler.violations == []
