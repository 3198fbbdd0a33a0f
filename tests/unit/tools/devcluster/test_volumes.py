"""Files of volumes, and their atomic change on disk."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from tools.devcluster.node.environment import ReferenceMissing
from tools.devcluster.node.files import File, make_files
from tools.devcluster.node.kubelet import tail_offset
from tools.devcluster.node.volumes import write_files

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"b": "2", "a": "1"}},
    "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]},
}


def look_up(kind: str, name: str) -> dict[str, Any] | None:
    secret = {"data": {"s": base64.b64encode(b"\x00\xff").decode()}}
    return {("ConfigMap", "cfg"): {"data": {"a": "1", "b": "2"}}, ("Secret", "key"): secret}.get((kind, name))


def contents(volume: dict[str, Any]) -> dict[str, bytes]:
    files = make_files(volume, POD, look_up, lambda projection: f"token-{projection['audience']}")
    return {name: file.content for name, file in files.items()}


def test_items_choose_and_rename_keys() -> None:
    assert contents({"configMap": {"name": "cfg"}}) == {"a": b"1", "b": b"2"}
    assert contents({"configMap": {"name": "cfg", "items": [{"key": "a", "path": "x/y"}]}}) == {"x/y": b"1"}


def test_a_projected_volume_joins_its_sources() -> None:
    sources = [
        {"serviceAccountToken": {"path": "token", "audience": "api"}},
        {"secret": {"name": "key"}},
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"configMap": {"name": "none", "optional": True}},
    ]
    expected = {"token": b"token-api", "s": b"\x00\xff", "labels": b'a="1"\nb="2"'}
    assert contents({"projected": {"sources": sources}}) == expected


@pytest.mark.parametrize(
    "volume", [{"configMap": {"name": "none"}}, {"configMap": {"name": "cfg", "items": [{"key": "z", "path": "z"}]}}]
)
def test_what_is_missing_and_not_optional_is_an_error(volume: dict[str, Any]) -> None:
    with pytest.raises(ReferenceMissing):
        contents(volume)


def test_modes_come_from_the_item_or_the_volume() -> None:
    items = [{"key": "a", "path": "a", "mode": 0o755}, {"key": "b", "path": "b"}]
    volume = {"configMap": {"name": "cfg", "defaultMode": 0o600, "items": items}}
    files = make_files(volume, POD, look_up, lambda projection: "")
    assert {name: file.mode for name, file in files.items()} == {"a": 0o755, "b": 0o600}


def test_a_reader_that_holds_the_data_folder_never_sees_a_mixture(tmp_path: Path) -> None:
    assert write_files(tmp_path, {"a": File(b"1"), "d/b": File(b"1")})
    before = (tmp_path / "..data").resolve()
    assert not write_files(tmp_path, {"a": File(b"1"), "d/b": File(b"1")})
    assert write_files(tmp_path, {"a": File(b"2"), "c": File(b"2", 0o755)})
    assert not before.exists()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "c").read_bytes() == b"2"
    assert not (tmp_path / "d").exists()
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "a").readlink() == Path("..data/a")


@pytest.mark.parametrize(
    ("text", "lines", "expected"),
    [
        ("1\n2\n3\n", 2, "2\n3\n"),
        ("1\n2\n3", 2, "2\n3"),
        ("1\n2\n", 5, "1\n2\n"),
        ("1\n", 0, ""),
        ("", 3, ""),
        ("x" * 70_000 + "\nlast\n", 1, "last\n"),
        ("first\n" + "y" * 140_000 + "\n", 2, "first\n" + "y" * 140_000 + "\n"),
        ("first\nsecond\n" + "y" * 140_000 + "\n", 2, "second\n" + "y" * 140_000 + "\n"),
    ],
)
def test_tail_of_a_log(tmp_path: Path, text: str, lines: int, expected: str) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    assert log.read_bytes()[tail_offset(log, lines) :].decode() == expected
