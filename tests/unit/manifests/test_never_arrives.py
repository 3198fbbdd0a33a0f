"""What is written and never reaches the engine: no effective change, and an error before traffic."""

import pytest

from manifests.diff import Diff, diff
from tests.unit.manifests.builders import build_import

SERVE = "vllm serve org/m"


def shell(text: str, *behind: str, env: dict[str, str] | None = None) -> object:
    return build_import(command=["sh", "-c"], args=[text, *behind], env=env)


def codes(result: Diff) -> set[str]:
    return {finding.code for finding in result.warnings if finding.level == "error"}


@pytest.mark.parametrize(
    ("text", "behind", "env"),
    [
        (SERVE, ["--max-num-seqs=64"], None),
        (SERVE + " \n--max-num-seqs 64", [], None),
        (SERVE + " \\ \n --max-num-seqs 64", [], None),
        (SERVE + " '$EXTRA'", [], {"EXTRA": "--max-num-seqs 64"}),
        (SERVE, [], {"MAX_NUM_SEQS": "64"}),
        (SERVE + " -- --max-num-seqs=64", [], None),
        (SERVE, [], {"VLLM_MAX_NUM_SEQS": "64"}),
    ],
)
def test_a_flag_that_never_arrives_is_an_error(text: str, behind: list[str], env: dict[str, str] | None) -> None:
    result = diff(shell(SERVE), shell(text, *behind, env=env))  # type: ignore[arg-type]
    assert not result.effective and "no-effective-change" in codes(result)


def test_a_variable_that_no_version_reads_names_the_flag_to_write() -> None:
    (line,) = diff(build_import(args=["m"]), build_import(args=["m"], env={"VLLM_MAX_NUM_SEQS": "64"})).changes
    assert (line.correctness, line.ledgers) == ("none", ()) and "`--max-num-seqs`" in line.why


@pytest.mark.parametrize(
    ("image", "variable"),
    [
        ("vllm/vllm-openai:v0.11.0", "VLLM_ASCEND_ENABLE_NZ"),  # a plugin's
        ("vllm/vllm-openai:v0.4.2", "VLLM_MAX_NUM_SEQS"),  # before the survey
        ("vllm/vllm-openai:nightly", "VLLM_MAX_NUM_SEQS"),  # of no known version
    ],
)
def test_a_variable_that_something_unsurveyed_may_read_stays_a_change(image: str, variable: str) -> None:
    assert diff(build_import(image, args=["m"]), build_import(image, args=["m"], env={variable: "1"})).effective


def test_the_first_word_behind_a_shell_text_is_its_name() -> None:
    lost = shell(SERVE + ' "$@"', "--max-num-seqs=64")
    result = diff(shell(SERVE), lost)  # type: ignore[arg-type]
    assert not result.effective and codes(result) >= {"unused-argument", "no-effective-change"}
    kept = shell(SERVE + ' "$@"', "sh", "--max-num-seqs=64")
    result = diff(shell(SERVE), kept)  # type: ignore[arg-type]
    assert [line.setting for line in result.changes] == ["max-num-seqs"] and not codes(result)


def test_a_changed_value_that_a_later_one_overrides_is_an_error() -> None:
    old = build_import(args=["--model", "m", "--max-num-seqs", "128", "--max-num-seqs", "64"])
    new = build_import(args=["--model", "m", "--max-num-seqs", "256", "--max-num-seqs", "64"])
    result = diff(old, new)
    assert not result.effective and "no-effective-change" in codes(result)


def test_another_spelling_of_the_same_command_line_is_no_error() -> None:
    old = build_import(command=["vllm"], args=["serve", "org/m", "--max-num-seqs", "64"])
    result = diff(old, shell(SERVE + " --max_num_seqs=64"))  # type: ignore[arg-type]
    assert not result.effective and not result.changes and not codes(result)


def test_arguments_of_a_script_inside_the_image_are_never_equal_when_they_differ() -> None:
    sides = [build_import(command=["/entry.sh"], args=[f"--batch={size}"]) for size in (1, 2)]
    result = diff(*sides)
    assert result.effective and [entry.what for entry in result.unresolved] == ["command"]
    assert not diff(sides[0], sides[0]).effective
