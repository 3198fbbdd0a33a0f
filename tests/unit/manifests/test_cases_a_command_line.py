"""The field cases about how a command line is written, one test each, named by the case."""

from typing import Any

import pytest

from manifests.diff import diff
from manifests.layout import layout_of
from manifests.model import ImportResult
from tests.unit.manifests.builders import Build, build_import, configmap, mounted
from tests.unit.manifests.readings import codes, lines, settings

SCRIPT = "vllm serve 'org/m' --tensor-parallel-size 4 \\\n  --max_model_len {}"


def test_c01_a_command_inside_one_shell_string_equals_the_list_form(build: Build) -> None:
    old = build(command=["sh", "-c", SCRIPT.format(8192)], gpu=4)
    new = build(command=["vllm"], args=["serve", "org/m", "--max-model-len", "8192", "--tensor-parallel-size=4"], gpu=4)
    result = diff(old, new)
    assert result.changes == () and not result.effective
    changed = diff(old, build(command=["sh", "-c", SCRIPT.format(4096)], gpu=4))
    assert lines(changed) == [("max-model-len", 8192, 4096)]


@pytest.mark.parametrize(
    ("written", "name", "value"),
    [
        *[
            (form, "data-parallel-size", 4)
            for form in ("-dp 4", "-dp=4", "--data-parallel-size 4", "--data-parallel-size=4")
        ],
        *[
            (form, "tensor-parallel-size", 2)
            for form in ("-tp 2", "-tp=2", "--tensor-parallel-size 2", "--tensor_parallel_size=2")
        ],
        *[(form, "pipeline-parallel-size", 2) for form in ("-pp 2", "-pp=2", "--pipeline-parallel-size 2")],
        *[(form, "quantization", "awq") for form in ("-q awq", "-q=awq", "--quantization awq", "--quantization=awq")],
    ],
)
def test_c03_every_spelling_of_a_flag_means_the_same_everywhere(written: str, name: str, value: Any) -> None:
    result = build_import(args=["--model", "m", *written.split()], gpu=4)
    assert settings(result)[name] == value
    layout = layout_of(result.manifests[0])
    sizes = {
        "data-parallel-size": layout.data,
        "tensor-parallel-size": layout.tensor,
        "pipeline-parallel-size": layout.pipeline,
    }
    assert sizes.get(name, value) == value


def test_c03_an_unknown_short_alias_is_reported_never_defaulted(build: Build) -> None:
    result = build(args=["--model", "m", "-zz", "4"])
    assert "unknown-short-flag" in codes(result)


def test_c05_trailing_blanks_and_folded_blocks() -> None:
    form = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: a}}\nspec:\n  template:\n    spec:\n      "
        "containers:\n"
    )
    form += (
        "      - name: v\n        image: vllm/vllm-openai:v0.11.0\n        args:\n        - --model\n        - m\n{}"
    )
    clean = build_import(text=form.format("        - --tool-call-parser\n        - hermes\n"))
    plain = build_import(text=form.format("        - --tool-call-parser   \n        - hermes\n"))
    assert diff(clean, plain).changes == ()
    quoted = build_import(text=form.format('        - "--tool-call-parser "\n        - hermes\n'))
    assert lines(diff(clean, quoted)) == [("tool-call-parser", "hermes", None)]
    assert "suspicious-whitespace" in codes(quoted)
    folded = build_import(
        text=form.format("        - >-\n          --tool-call-parser hermes\n          --enable-auto-tool-choice\n")
    )
    assert "flag-and-value-in-one-token" in codes(folded)
    assert "tool-call-parser" not in settings(folded)


@pytest.mark.parametrize("flag", ["--cudagraph-capture-sizes", "--capture-sizes"])
def test_c07_separate_values_a_comma_list_and_a_text_are_three_values(flag: str) -> None:
    image = "vllm/vllm-openai:v0.13.0"
    separate = build_import(image, args=["--model", "m", flag, "1", "2", "4", "--enforce-eager"])
    comma = build_import(image, args=["--model", "m", flag, "1,2,4", "--enforce-eager"])
    text = build_import(image, args=["--model", "m", flag, "1 2 4", "--enforce-eager"])
    name = flag[2:]
    found = [settings(result)[name] for result in (separate, comma, text)]
    assert found == [[1, 2, 4], "1,2,4", "1 2 4"]
    assert all(settings(result)["enforce-eager"] is True for result in (separate, comma, text))
    for first, second in ((separate, comma), (separate, text), (comma, text)):
        assert [line.setting for line in diff(first, second).changes] == [name]
    assert "type changes" in diff(separate, comma).changes[0].why


def trtllm(tag: str) -> ImportResult:
    command = ["trtllm-serve", "m", "--tensor_parallel_size", "4", "--config", "/c/c.yaml"]
    config = configmap("c", c__yaml="tensor_parallel_size: 8\n")
    return build_import(
        f"nvcr.io/nvidia/tensorrt-llm/release:{tag}", command=command, gpu=8, others=(config,), **mounted("c", "/c")
    )


def test_c09_precedence_of_file_and_command_line_flips_with_the_version() -> None:
    result = diff(trtllm("1.2.0"), trtllm("1.3.0"))
    assert [(line.setting, line.old, line.new) for line in result.changes if line.setting != "image"] == [
        ("tensor-parallel-size", 8, 4)
    ]
    assert "image" in {line.setting for line in result.changes}


def test_c09_an_unknown_precedence_is_ambiguous_never_picked() -> None:
    result = trtllm("latest")
    setting = result.manifests[0].settings["tensor-parallel-size"]
    assert setting.value is None and "4 or 8" in str(setting.expression)
    assert "ambiguous-precedence" in codes(result)
    assert diff(trtllm("1.2.0"), result).unresolved


def speculative(value: str, shell: bool = False) -> ImportResult:
    image = "vllm/vllm-openai:v0.22.0"
    if shell:
        text = f"python3 -m vllm.entrypoints.openai.api_server --model m --speculative-config '{value}'"
        return build_import(image, command=["sh", "-c", text])
    return build_import(image, args=["--model", "m", "--speculative-config", value])


def test_c11_json_is_compared_by_content() -> None:
    assert diff(speculative('{"a":1,"b":2}', shell=True), speculative('{"b": 2, "a": 1}')).changes == ()
    quoted = speculative("'{\"a\":1}'")
    assert diff(speculative('{"a":1}'), quoted).effective
    assert "quoted-value" in codes(quoted)
    dotted = build_import("vllm/vllm-openai:v0.22.0", args=["--model", "m", "--speculative-config.a", "1"])
    assert diff(dotted, speculative('{"a":1}')).changes == ()


@pytest.mark.parametrize("other", ['{"a":1.0}', '{"a":"1"}'])
def test_c11_types_inside_json_are_shown(other: str) -> None:
    result = diff(speculative('{"a":1}'), speculative(other))
    assert [line.setting for line in result.changes] == ["speculative-config.a"]
    assert "type changes" in result.changes[0].why
