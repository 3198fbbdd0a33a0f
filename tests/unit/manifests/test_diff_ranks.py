"""Switches between collectives: nothing to talk to with one rank, and never taken as nothing where that is not sure."""

from typing import Any

import pytest

from manifests.diff import Diff, diff
from manifests.diff_ranks import NO_COLLECTIVES
from tests.unit.manifests.builders import build_import

ENV = "VLLM_ALLREDUCE_USE_FLASHINFER"


def of_variables(args: list[str], **more: Any) -> Diff:
    """A Deployment before and after two variables of collectives are set."""
    given = {"args": ["--model", "org/m", *args], **more}
    env = given.pop("env", {})
    changed = {**env, ENV: "1", "VLLM_FLASHINFER_ALLREDUCE_BACKEND": "mnnvl"}
    image = "vllm/vllm-openai:v0.19.0"
    return diff(build_import(image, env=env or None, **given), build_import(image, env=changed, **given))


def test_one_rank_has_no_collectives() -> None:
    result = of_variables([])
    assert {line.setting for line in result.changes} == {f"env:{ENV}", "env:VLLM_FLASHINFER_ALLREDUCE_BACKEND"}
    assert not result.effective and result.mechanisms == () and result.correctness == "none"
    assert all(line.why == NO_COLLECTIVES and not line.fp_reorder for line in result.changes)
    assert result.sentences()[0].endswith(f"and changes nothing ({NO_COLLECTIVES}).")


@pytest.mark.parametrize(
    ("args", "more"),
    [
        (["-tp", "2"], {"gpu": 2}),
        (["--pipeline-parallel-size", "2"], {"gpu": 2}),
        (["--data-parallel-size", "8", "--data-parallel-size-local", "1"], {}),
        (["--data-parallel-rank", "0"], {}),
        (["-tp", "$(RANKS)"], {}),
        ([], {"env": {"VLLM_DP_SIZE": "2"}}),
        ([], {"command": ["/opt/start.sh"]}),
    ],
)
def test_several_ranks_or_nobody_knows_how_many(args: list[str], more: dict[str, Any]) -> None:
    result = of_variables(args, **more)
    assert result.effective
    assert not any(NO_COLLECTIVES in line.why for line in result.changes)


def test_defaults_of_collectives_that_flip_move_nothing_on_one_rank() -> None:
    before, after = (
        build_import(f"vllm/vllm-openai:v{version}", args=["--model", "org/m"]) for version in ("0.19.0", "0.32.0")
    )
    lines = {line.setting: line for line in diff(before, after).changes}
    assert (lines[f"env:{ENV}"].correctness, lines[f"env:{ENV}"].why) == ("none", NO_COLLECTIVES)
    assert lines["image"].is_effective


def test_the_layout_itself_is_no_collective_switch() -> None:
    before, after = (
        build_import("vllm/vllm-openai:v0.19.0", args=["--model", "org/m", *more], gpu=2) for more in ([], ["-tp", "2"])
    )
    assert diff(before, after).mechanisms == ("parallelism",)
