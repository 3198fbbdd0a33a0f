"""The command line is vLLM's: spellings that it takes, flags that it refuses."""

from pathlib import Path

import pytest

from tools.enginesim.argv import human_integer, known_flags, parse_argv

VERSION = "0.32.0"


def test_unknown_flag_is_refused_with_vllms_words_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse_argv(["serve", "m", "--foo"], VERSION)
    assert stopped.value.code == 2
    assert "vllm serve: error: unrecognized arguments: --foo" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--max-num-seqs", "64"],
        ["--max-num-seqs=64"],
        ["--max_num_seqs", "64"],
        ["--max_num_seqs=64"],
    ],
)
def test_spellings_of_one_flag(words: list[str]) -> None:
    assert parse_argv(["serve", "m", *words], VERSION)["max-num-seqs"] == 64


def test_short_forms_negation_and_levels() -> None:
    given = parse_argv(["serve", "m", "-tp", "2", "--no-enable-prefix-caching", "-O3"], VERSION)
    assert given["tensor-parallel-size"] == 2
    assert given["enable-prefix-caching"] is False
    assert given["optimization-level"] == "3"


def test_dotted_flags_merge_into_the_json_flag() -> None:
    words = ["--speculative-config", '{"method":"ngram"}', "--speculative-config.num_speculative_tokens=4"]
    given = parse_argv(["serve", "m", *words], VERSION)
    assert given["speculative-config"] == '{"method": "ngram", "num_speculative_tokens": 4}'


@pytest.mark.parametrize(
    "argv",
    [
        ["serve", "a/b", "--port=81"],
        ["vllm", "serve", "a/b", "--port=81"],
        ["a/b", "--port=81"],
        ["--model", "a/b", "--port=81"],
        ["vllm.entrypoints.openai.api_server", "--model=a/b", "--port", "81"],
    ],
)
def test_entrypoints_of_the_images(argv: list[str]) -> None:
    assert parse_argv(argv, VERSION) == {"model": "a/b", "port": 81}


def test_a_stray_string_is_swallowed_as_the_model() -> None:
    given = parse_argv(["serve", "--max-num-seqs", "4", "--quantization bitsandbytes"], VERSION)
    assert "quantization" not in given


def test_flags_come_and_go_with_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_argv(["serve", "m", "--swap-space", "4"], "0.12.0")["swap-space"] == 4.0
    with pytest.raises(SystemExit):
        parse_argv(["serve", "m", "--swap-space", "4"], VERSION)
    with pytest.raises(SystemExit):
        parse_argv(["serve", "m", "--stream-interval", "4"], "0.9.2")
    assert "unrecognized arguments" in capsys.readouterr().err
    assert len(known_flags(VERSION)) > 250


def test_wrong_value_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse_argv(["serve", "m", "--max-num-seqs", "many"], VERSION)
    assert stopped.value.code == 2
    assert "--max-num-seqs: invalid int value: 'many'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "value"), [("4096", 4096), ("4k", 4000), ("4K", 4096), ("1.5m", 1500000), ("auto", -1)]
)
def test_human_integers(text: str, value: int) -> None:
    assert human_integer(text) == value


def test_config_file_loses_against_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    file.write_text("max_num_seqs: 8\nport: 99\nenable-prefix-caching: false\n")
    given = parse_argv(["serve", "m", "--config", str(file), "--port", "81"], VERSION)
    assert (given["max-num-seqs"], given["port"], given["enable-prefix-caching"]) == (8, 81, False)
