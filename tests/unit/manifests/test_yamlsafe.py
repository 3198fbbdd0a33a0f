"""YAML as Kubernetes reads it, and the ways in which it can hurt."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from manifests.yamlsafe import Text, YamlRefused, decode, load_all

ROOT = Path(__file__).resolve().parents[3]
# in a process of its own, whose peak is nobody else's; prints processor seconds and KiB above what it had before
REFUSE = """
import json, resource, sys, time
from manifests.yamlsafe import YamlRefused, load_all
text = sys.stdin.read()
before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
try:
    load_all(text)
except YamlRefused:
    spent, peak = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps([spent, peak - before]))
"""
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "a: yes\nb: 'yes'\nc: 010\nd: 0x10\ne: 1_000\nf: ~\ng: 1:30\nh: 2024-01-01",
            {"a": True, "b": "yes", "c": 8, "d": 16, "e": 1000, "f": None, "g": "1:30", "h": "2024-01-01"},
        ),
        ("a: &x {k: 1}\nb: *x\nc: {<<: *x, l: 2}", {"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 1, "l": 2}}),
        ("a: !!str 5\nb: !!int '5'", {"a": "5", "b": 5}),
        ("1: a\ntrue: b", {"1": "a", "true": "b"}),
    ],
)
def test_values(text: str, expected: object) -> None:
    assert load_all(text)[0].value == expected


def test_lines_of_scalars_and_blocks() -> None:
    value = load_all("a: x\nb: |\n  one\n  two\nc: >-\n  f\n")[0].value
    assert [(value[key].line, value[key].literal) for key in "abc"] == [(1, False), (3, True), (6, True)]
    assert isinstance(value["a"], Text)


def test_comment_only_documents_are_not_counted() -> None:
    assert [document.value for document in load_all("# c\n---\n---\na: 1\n---\n# d\n---\nb: 2\n")] == [
        {"a": 1},
        {"b": 2},
    ]


def test_doubled_keys_are_reported_and_the_last_counts() -> None:
    document = load_all("a: 1\nb: 2\na: 3\n")[0]
    assert document.value == {"a": 3, "b": 2} and document.duplicates == [("a", 3)]


def test_a_long_number_is_text() -> None:
    assert load_all("a: " + "9" * 5000)[0].value["a"] == "9" * 5000


@pytest.mark.parametrize(
    ("text", "where", "word"),
    [
        ("a:\n\tb: 1", "2:1", "tab"),
        ("a: 1\t\nb: 2", "1:5", "tab"),
        ("a: [1", "", "invalid YAML"),
        ("a: *x", "1:4", "no anchor"),
        ("a: &x\n  b: *x", "2:6", "contains itself"),
        ("? [a]\n: b", "1:3", "key"),
        ("a: \x00", "1:1", "control character"),
        ("a: {{ .Values.x }}\nb: {{- if .Values.y }}", "1:4", "Helm template"),
    ],
)
def test_a_bad_text_is_refused_in_one_line_that_says_where(text: str, where: str, word: str) -> None:
    with pytest.raises(YamlRefused) as caught:
        load_all(text)
    assert word in str(caught.value) and "\n" not in str(caught.value)
    assert not where or caught.value.where == where


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "[" * 2_000_000,
        "{a: " * 100_000,
        "- a\n" * 1_000_000,
        "k: '" + "x" * 3_900_000 + "'",
        "&a " * 300_000,
        "a: " * 1_000_000,
        "? " * 200_000,
        "x" * 5_000_000,
        "- - " * 500_000,
    ],
    ids=[
        "aliases",
        "flow depth",
        "mapping depth",
        "nodes",
        "scalar",
        "anchors",
        "colons",
        "question marks",
        "five megabytes",
        "block depth",
    ],
)
def test_hostile_texts_are_refused_quickly_in_bounded_memory(text: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", REFUSE], input=text, capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert found.stdout, found.stderr
    seconds, kibibytes = json.loads(found.stdout)
    assert seconds < 1.5, "one second of processor time on a quiet machine"
    assert kibibytes < 50 * 1024, "beside the text itself"


def test_encodings() -> None:
    assert decode("a: ü".encode("utf-16")) == "a: ü"
    assert decode(b"\xef\xbb\xbfa: 1") == "a: 1"
    with pytest.raises(YamlRefused, match="UTF-8"):
        decode(b"a: \xff\xfe\xfa")
    with pytest.raises(YamlRefused, match="MiB"):
        decode(b"x" * (4 * 2**20 + 1))
