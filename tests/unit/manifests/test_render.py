"""The screen of a diff: short, sorted, in words; the same in colour and in plain text."""

import re

from manifests.catalog import load
from manifests.diff import Diff, diff
from manifests.render import render_text
from manifests.words import CLASSES, LEDGERS, MECHANISMS
from tests.unit.manifests.builders import build_import


def change_of(*args: str, old: str = "0.10.2", new: str = "0.10.2") -> Diff:
    base = ["--model", "meta-llama/Llama-3.1-8B-Instruct"]
    return diff(
        build_import(f"vllm/vllm-openai:v{old}", args=base),
        build_import(f"vllm/vllm-openai:v{new}", args=[*base, *args]),
    )


def test_colour_adds_codes_only() -> None:
    result = change_of("--kv-cache-dtype", "fp8", "--max-num-seqs", "64")
    coloured = render_text(result, colour=True)
    assert "\x1b[" in coloured and re.sub(r"\x1b\[\d+m", "", coloured) == render_text(result)


def test_what_changes_answers_most_comes_first() -> None:
    text = render_text(change_of("--max-num-seqs", "64", "--kv-cache-dtype", "fp8"))
    assert text.index("kv-cache-dtype  ") < text.index("max-num-seqs  ")
    assert text.index("A bundle: 2 things") < text.index("Written by the authors (2)")


def test_a_long_upgrade_fits_two_screens_and_shows_every_line() -> None:
    result = change_of(new="0.32.0")
    text = render_text(result, width=100)
    assert len(result.changes) > 20 and len(text.splitlines()) < 85
    assert all(f"{line.setting}  " in text for line in result.changes)
    assert max(map(len, text.splitlines())) <= 120


def test_an_error_stands_before_the_lines() -> None:
    text = render_text(change_of("--max-num-seqs", "64", "--quantization fp8"))
    assert text.index("Errors: put right before traffic") < text.index("Written by the authors")


def test_no_code_stands_without_a_word() -> None:
    text = " ".join(render_text(change_of("--max-num-seqs", "64")).split())
    assert "which requests run together, and when (scheduler)" in text and "queueing and batching" in text
    assert "SCHED" not in text
    for name in ("vllm", "sglang", "trtllm", "tgi", "llamacpp"):
        catalog = load(name)
        assert catalog is not None
        for switch in catalog.switches.values():
            assert switch.mechanism in MECHANISMS and switch.correctness in CLASSES
            assert set(switch.ledgers) <= set(LEDGERS)


def test_sentences_say_what_the_screen_says() -> None:
    result = change_of("--max-num-seqs", "64", "--kv-cache-dtype", "fp8")
    first, second = result.sentences()
    assert first.startswith("kv-cache-dtype goes from auto to fp8") and "quality has to be tested" in first
    assert "which requests run together, and when (scheduler)" in second


def test_a_finding_of_both_sides_is_said_once() -> None:
    sides = [build_import(args=["--model", "m", "--quantization fp8", "--max-num-seqs", size]) for size in ("1", "2")]
    assert render_text(diff(*sides)).count("flag-and-value-in-one-token") == 1


def test_an_unset_default_is_never_something_to_pin() -> None:
    advice = " ".join(step.advice for step in change_of(new="0.32.0").split_order)
    assert "None" not in advice and "= unset" not in advice


def test_no_line_is_wider_than_asked_for() -> None:
    probes = {"livenessProbe": {"httpGet": {"path": "/health/of/the/engine/that/serves", "port": 8000}}}
    old = build_import("vllm/vllm-openai:v0.10.2", args=["--model", "org/a-model-with-a-rather-long-name-indeed"])
    new = build_import(
        "registry.example.org/some/where/deep/vllm-openai:v0.32.0",
        args=["--model", "org/another-model-with-a-name-that-is-even-longer", "--quantization fp8", "--api-key", "k"],
        container=probes,
    )
    for width in (60, 80, 120):
        text = render_text(diff(old, new), width=width)
        assert max(map(len, text.splitlines())) <= width
        assert "org/another-model-with-a-name-that-is-even-longer"[: width - 20] in text
