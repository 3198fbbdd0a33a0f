"""Defaults that flip with the version, checked against the facts that the catalogue was made from."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests.catalog import load, parse_default
from manifests.diff import Diff, diff
from manifests.versions import bracket, version_key
from tests.unit.manifests.builders import build_import


def between(old: str, new: str, **more: Any) -> Diff:
    def side(version: str) -> Any:
        return build_import(f"vllm/vllm-openai:v{version}", args=["--model", "org/m", *more.get("args", [])])

    return diff(side(old), side(new))


@pytest.fixture(scope="module")
def facts(shared_data: Path) -> list[dict[str, Any]]:
    path = shared_data.parent / "facts" / "mechanisms.yaml"
    return [
        entry
        for entry in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        if entry["engine"] == "vllm"
    ]


def expected_flips(facts: list[dict[str, Any]], old: str, new: str) -> set[str]:
    """Switches whose default changed on the way (wording aside) and that still exist: written anew, not with the
    product's code."""
    out = set()
    for entry in facts:
        history = [(str(v), str(d)) for v, d in entry.get("default_history") or []]
        skipped = {str(v) for v in entry.get("declaration_only") or []}
        steps = [(v, d) for v, d in history if version_key(old) < version_key(v) <= version_key(new)]  # type: ignore[operator]
        before = [d for v, d in history if version_key(v) <= version_key(old)]  # type: ignore[operator]
        if not steps or steps[-1][1] == "ABSENT" or all(v in skipped for v, _ in steps):
            continue
        values = [d for v, d in steps if v not in skipped and d != "ABSENT"]
        start = before[-1] if before else "ABSENT"
        present = values if start == "ABSENT" else [start, *values]
        if (
            len(set(present)) > 1
            and present[0] != present[-1]
            and "(declared elsewhere)" not in present
            and "factory:_get" not in present[0]
        ):
            out.add(entry["flag"].removeprefix("--"))
    return out


def test_an_upgrade_lists_every_default_that_flips_and_nothing_else(facts: list[dict[str, Any]]) -> None:
    found = {line.setting for line in between("0.10.2", "0.32.0").changes if line.origin == "version-default"}
    assert len(found) >= 20
    # declared by a function at first, which has no value to compare: the facts call it a flip, and so does the diff
    assert found == expected_flips(facts, "0.10.2", "0.32.0") | {"mm-hasher-algorithm"}


def test_a_change_of_wording_is_no_flip() -> None:
    found = {line.setting for line in between("0.10.2", "0.32.0").changes}
    assert not found & {
        "enable-prefix-caching",
        "seed",
        "enable-chunked-prefill",
        "max-num-seqs",
        "model-impl",
        "limit-mm-per-prompt",
        "hf-token",
        "logprobs-mode",
    }


def test_a_flip_names_the_versions_around_it_and_both_values() -> None:
    line = next(line for line in between("0.19.0", "0.20.0").changes if line.setting == "gpu-memory-utilization")
    assert (line.old, line.new, line.origin) == (0.9, 0.92, "version-default")
    assert "between 0.19.0 and 0.20.0" in line.why


def test_a_written_value_hides_the_flip() -> None:
    found = between("0.19.0", "0.20.0", args=["--gpu-memory-utilization", "0.9"])
    assert "gpu-memory-utilization" not in {line.setting for line in found.changes}


def test_a_value_that_equals_the_old_default_is_a_change_after_the_flip() -> None:
    old = build_import("vllm/vllm-openai:v0.20.0", args=["--model", "org/m"])
    new = build_import("vllm/vllm-openai:v0.20.0", args=["--model", "org/m", "--gpu-memory-utilization", "0.9"])
    assert [(line.setting, line.old, line.new) for line in diff(old, new).changes] == [
        ("gpu-memory-utilization", 0.92, 0.9)
    ]
    written = build_import("vllm/vllm-openai:v0.20.0", args=["--model", "org/m", "--gpu-memory-utilization", "0.92"])
    assert not diff(old, written).effective


def test_an_unsampled_version_is_bracketed_by_its_neighbours() -> None:
    result = between("0.10.1", "0.10.2")
    unresolved = {entry.what for entry in result.unresolved}
    assert "prefix-caching-hash-algo" in unresolved
    assert not unresolved & {"gpu-memory-utilization", "enable-prefix-caching"}
    assert result.effective and "prefix-caching-hash-algo" not in {line.setting for line in result.changes}


def test_a_default_that_the_engine_computed_is_bracketed_too() -> None:
    unresolved = {entry.what for entry in between("0.10.1", "0.10.2").unresolved}
    assert "guided-decoding-backend" in unresolved and "logprobs-mode" not in unresolved


def test_a_switch_that_arrived_around_an_unsampled_version_and_flipped_later_is_a_line() -> None:
    found = {line.setting: line for line in between("0.10.1", "0.32.0").changes}
    line = found["async-scheduling"]
    assert (line.old, line.new) == (False, None) and "0.10.1 may not have the switch yet" in line.why
    assert {"safetensors-load-strategy", "env:VLLM_ALLREDUCE_USE_SYMM_MEM"} <= set(found)
    for pair in (("0.10.1", "0.10.2"), ("0.32.0", "0.10.1")):  # no flip between; a switch that may be gone
        assert "async-scheduling" not in {line.setting for line in between(*pair).changes}


def test_a_model_name_is_no_member_of_an_enumeration() -> None:
    assert parse_default("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"
    assert parse_default("MambaBackendEnum.TRITON") == "triton"


def test_equal_unsampled_versions_are_equal() -> None:
    assert not between("0.10.1", "0.10.1").effective


def test_a_version_outside_the_survey_is_unresolved_in_one_line() -> None:
    result = between("0.4.2", "0.11.0")
    assert [entry.what for entry in result.unresolved] == ["defaults of vllm 0.4.2"]
    assert {warning.code for warning in result.warnings} >= {"version-unsampled"}


def test_a_removed_flag_is_an_error_of_its_version_only() -> None:
    def warnings(version: str) -> dict[str, str]:
        result = build_import(f"vllm/vllm-openai:v{version}", args=["--model", "m", "--swap-space", "4"])
        return {warning.code: warning.level for warning in result.warnings}

    assert "removed-flag" not in warnings("0.11.0")
    assert warnings("0.20.0")["removed-flag"] == "error"


def test_an_unread_variable_changes_nothing() -> None:
    old = build_import("vllm/vllm-openai:v0.20.0", args=["--model", "m"])
    new = build_import("vllm/vllm-openai:v0.20.0", args=["--model", "m"], env={"VLLM_ATTENTION_BACKEND": "FLASHINFER"})
    result = diff(old, new)
    assert [(line.setting, line.correctness, line.ledgers) for line in result.changes] == [
        ("env:VLLM_ATTENTION_BACKEND", "none", ())
    ]
    assert not result.effective and "not read" in result.changes[0].why
    older = [
        build_import("vllm/vllm-openai:v0.11.0", args=["--model", "m"], env=env)
        for env in ({}, {"VLLM_ATTENTION_BACKEND": "FLASHINFER"})
    ]
    assert diff(older[0], older[1]).effective


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.10.1", ("0.9.2", "0.10.2")),
        ("0.10.2", ("0.10.2", "0.10.2")),
        ("0.1", (None, "0.8.5.post2")),
        ("9.0", ("0.32.0", None)),
    ],
)
def test_brackets(version: str, expected: tuple[str | None, str | None]) -> None:
    catalog = load("vllm")
    assert catalog is not None
    assert bracket(version, catalog.sampled) == expected


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("0.8.5", "0.8.5.post2"),
        ("1.3.0rc1", "1.3.0"),
        ("0.9.2", "0.10.0"),
        ("0.5.2", "0.5.10"),
        ("1.2", "1.2.1"),
        ("0.11.0.dev3", "0.11.0rc1"),
    ],
)
def test_versions_are_ordered(low: str, high: str) -> None:
    assert version_key(low) < version_key(high)  # type: ignore[operator]


def test_trailing_zeros_mean_nothing() -> None:
    assert version_key("1.3") == version_key("v1.3.0")
    assert version_key("latest") is None and version_key(None) is None
