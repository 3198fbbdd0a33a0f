"""Properties over generated input, and a bounded mutation fuzzer over the real files: right, or refused in one line."""

import contextlib
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manifests.diff import PairingError, diff
from manifests.digest import equal_after_normalisation, normalise, revision_digest
from manifests.engines.metrics import NotExposition, parse_metrics
from manifests.importing import import_files, import_objects
from manifests.ledger import ledger
from manifests.lint import lint
from manifests.model import ImportResult
from manifests.quantities import canonical_quantity, parse_quantity
from manifests.render import render_text
from manifests.shell import Token, read_script
from tests.unit.manifests.builders import build_import, deployment

SECONDS = float(os.environ.get("WEIGHLOCK_FUZZ_SECONDS", "8"))  # more for a night: also WEIGHLOCK_FUZZ_SEED
QUIET = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# each example imports, lints, computes and compares: fewer of them
WHOLE = settings(QUIET, max_examples=25)

flags = st.sampled_from(
    [
        ("--max-num-seqs", st.integers(1, 4096)),
        ("--max-model-len", st.integers(1, 10**6)),
        ("--tensor-parallel-size", st.integers(1, 16)),
        ("--gpu-memory-utilization", st.floats(0.1, 0.99)),
        ("--dtype", st.sampled_from(["auto", "half", "bfloat16"])),
        ("--kv-cache-dtype", st.sampled_from(["auto", "fp8"])),
        ("--block-size", st.sampled_from([8, 16, 32])),
    ]
).flatmap(lambda pair: st.tuples(st.just(pair[0]), pair[1]))
command_lines = st.lists(flags, max_size=6, unique_by=lambda pair: pair[0])


def values(result: ImportResult) -> dict[str, Any]:
    return {name: setting.value for name, setting in result.manifests[0].settings.items()}


def check_everything(result: ImportResult) -> None:
    """Whatever was imported can be shown, linted, compared with itself and computed."""
    json.dumps(result.to_json(), allow_nan=False)
    lint(result)
    for refusal in result.refused:
        assert "\n" not in refusal.problem and refusal.remedy
    for manifest in result.manifests:
        json.dumps(ledger(manifest).to_json(), allow_nan=False)
    if result.manifests:
        try:
            found = diff(result, result)
        except PairingError:
            return
        assert not found.effective and found.changes == ()
        render_text(found)


@WHOLE
@given(command_lines, st.randoms(use_true_random=False))
def test_every_way_of_writing_a_command_line_means_the_same(
    pairs: list[tuple[str, Any]], chance: random.Random
) -> None:
    plain = build_import(args=["--model", "m", *[part for flag, value in pairs for part in (flag, str(value))]], gpu=16)
    shuffled = list(pairs)
    chance.shuffle(shuffled)
    joined = [f"{flag.replace('-', '_').replace('__', '--', 1)}={value}" for flag, value in shuffled]
    text = " ".join(
        ["python3 -m vllm.entrypoints.openai.api_server --model m", *(f"{flag} '{value}'" for flag, value in shuffled)]
    )
    script = build_import(command=["bash", "-c", text.replace(" --", " \\\n  --")], gpu=16)
    assert values(plain) == values(build_import(args=[*joined, "--model=m"], gpu=16)) == values(script)
    assert diff(plain, script).changes == ()


@WHOLE
@given(command_lines, command_lines)
def test_a_diff_mirrors_and_names_each_setting_once(
    first: list[tuple[str, Any]], second: list[tuple[str, Any]]
) -> None:
    def side(pairs: list[tuple[str, Any]]) -> ImportResult:
        return build_import(args=["--model", "m", *[f"{flag}={value}" for flag, value in pairs]], gpu=16)

    forth, back = diff(side(first), side(second)), diff(side(second), side(first))
    assert {(c.setting, str(c.old), str(c.new)) for c in forth.changes} == {
        (c.setting, str(c.new), str(c.old)) for c in back.changes
    }
    assert len({c.setting for c in forth.changes}) == len(forth.changes)
    assert forth.effective == back.effective == bool(forth.changes)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
objects = st.dictionaries(
    st.sampled_from(
        ["apiVersion", "kind", "metadata", "spec", "items", "objects", "data", "servingEngineSpec", "status"]
    ),
    json_values,
    max_size=6,
)
kinds = st.sampled_from(
    [
        "Deployment",
        "Pod",
        "LeaderWorkerSet",
        "InferenceService",
        "LLMInferenceService",
        "DynamoGraphDeployment",
        "StormService",
        "Model",
        "Workspace",
        "RayService",
        "Template",
        "List",
        "VLLMRuntime",
        "ServingRuntime",
        "ConfigMap",
    ]
)


@WHOLE
@given(objects, kinds)
def test_no_object_of_any_shape_breaks_an_import(obj: dict[str, Any], kind: str) -> None:
    check_everything(import_objects([{**obj, "kind": kind}]))


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [prefix] if prefix else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return found + [path for key, item in items for path in paths(item, (*prefix, key))]


@WHOLE
@given(st.data(), json_values)
def test_any_part_of_a_deployment_may_be_anything(data: st.DataObject, value: Any) -> None:
    document = deployment(
        args=["--model", "m"],
        env={"A": "b"},
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        volumes=[{"name": "v", "configMap": {"name": "c"}}],
    )[0]
    path = data.draw(st.sampled_from(paths(document)))
    target: Any = document
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    check_everything(import_objects([document]))


@QUIET
@given(st.text(max_size=300))
def test_no_shell_text_breaks_the_evaluation(text: str) -> None:
    script = read_script(text, {"A": Token("b")})
    assert script == read_script(text, {"A": Token("b")})


@WHOLE
@given(
    st.lists(
        st.sampled_from(
            [
                "'",
                '"',
                "$",
                "{",
                "}",
                "(",
                ")",
                "\\",
                "\n",
                " ",
                "A",
                "vllm serve",
                "<<E",
                "E",
                "if",
                "fi",
                "`",
                "[[",
                "]]",
                "=",
                "|",
                "&",
                ";",
                "#",
                "*",
                "${A:-",
                "$((",
            ]
        ),
        max_size=40,
    )
)
def test_no_mixture_of_shell_syntax_breaks_an_import(parts: list[str]) -> None:
    check_everything(build_import(command=["bash", "-c", "".join(parts)]))


@QUIET
@given(st.text(max_size=200))
def test_no_text_breaks_the_metrics_reader(text: str) -> None:
    with contextlib.suppress(NotExposition):
        answer = parse_metrics(text).to_json()
        assert json.loads(json.dumps(answer, allow_nan=False)) == answer


@QUIET
@given(st.decimals(min_value=0, max_value=10**6, places=3), st.sampled_from(["", "m", "k", "M", "Gi", "Ki"]))
def test_quantities_have_one_spelling_each(number: Any, suffix: str) -> None:
    text = canonical_quantity(f"{number}{suffix}")
    assert (
        text is not None
        and parse_quantity(text) == parse_quantity(f"{number}{suffix}")
        and canonical_quantity(text) == text
    )


@QUIET
@given(json_values)
def test_normalising_twice_changes_nothing(value: Any) -> None:
    once = normalise({"spec": value})
    assert normalise(once) == once
    assert equal_after_normalisation({"spec": value}, json.loads(json.dumps({"spec": value}))) == []


@QUIET
@given(
    st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8), max_size=4), st.randoms(use_true_random=False)
)
def test_the_order_of_keys_never_enters_a_digest(labels: dict[str, str], chance: random.Random) -> None:
    items = list(labels.items())
    chance.shuffle(items)
    first = revision_digest({"a": {"metadata": {"labels": labels}, "spec": {}}}, None, None)
    assert first == revision_digest({"a": {"spec": {}, "metadata": {"labels": dict(items)}}}, None, None)


ODD = [
    "\u200b",
    "\u202e",
    "\ufeff",
    "é",
    "\U0001f600",
    "\u2028",
    "'",
    '"',
    "{{",
    "}}",
    "&a ",
    "*a",
    "<<: ",
    "|",
    ">",
    "\t",
    "- ",
    ": ",
    "9" * 400,
    "$(",
    "${",
    "\\",
    "#",
    "%",
    "@",
    "`",
    "!!python/object:x ",
]


def mutate(text: str, chance: random.Random) -> str:
    """One of the ways in which people break YAML."""
    lines = text.split("\n")
    where = chance.randrange(len(lines))
    kind = chance.randrange(9)
    if kind == 0:
        return text[: chance.randrange(len(text) + 1)]
    if kind == 1:
        other = chance.randrange(len(lines))
        lines[where], lines[other] = lines[other], lines[where]
    elif kind == 2:
        lines[where] = lines[where].replace('"', "'") if chance.random() < 0.5 else lines[where].replace("'", '"')
    elif kind == 3:
        lines[where] = " " * chance.randrange(12) + lines[where].lstrip()
    elif kind == 4:
        lines.insert(where, lines[chance.randrange(len(lines))])
    elif kind == 5:
        del lines[where]
    elif kind == 6:
        at = chance.randrange(len(lines[where]) + 1)
        lines[where] = lines[where][:at] + chance.choice(ODD) + lines[where][at:]
    elif kind == 7:
        lines[where] = "".join(str(chance.randrange(10**9)) if c.isdigit() else c for c in lines[where])
    else:
        lines[where] = lines[where].replace("\\", "").rstrip("\\ ")
    return "\n".join(lines)


def test_mutated_real_files_are_right_or_refused_in_one_line(shared_data: Path) -> None:
    chance = random.Random(int(os.environ.get("WEIGHLOCK_FUZZ_SEED", "20261129")))
    files = [(p.name, p.read_text(encoding="utf-8")) for p in sorted((shared_data / "k8s").glob("*.yaml"))]
    end, runs = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        name, text = chance.choice(files)
        for _ in range(chance.randrange(1, 4)):
            text = mutate(text, chance)
        seen = time.process_time()
        try:
            check_everything(import_files([(name, text.encode("utf-8", "surrogatepass"))]))
        except Exception as error:
            raise AssertionError(f"run {runs} of {name} raised {error!r}:\n{text}") from error
        assert time.process_time() - seen < 5, f"run {runs} of {name} took too long"
        runs += 1
    assert runs > 20


def test_our_own_output_is_read_back_as_the_same_manifests(shared_data: Path) -> None:
    for path in sorted((shared_data / "k8s").glob("*.yaml")):
        result = import_files([(path.name, path.read_bytes())])
        again = import_files([("stored.yaml", yaml.safe_dump(json.loads(json.dumps(result.to_json()))).encode())])
        assert [m.digest for m in again.manifests] == [m.digest for m in result.manifests], path.name
        if result.manifests:
            assert not diff(result, again).effective, path.name
