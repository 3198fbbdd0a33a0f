"""The image table and what it makes of a container's command."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools.devcluster.node.images import Image, ImageUnknown, Reference, find, load_table, make_argv, write_shims
from tools.devcluster.paths import PACKAGE

TABLE = load_table(PACKAGE / "images.yaml")


@pytest.mark.parametrize(
    ("image", "name", "tag"),
    [
        ("vllm/vllm-openai", "vllm/vllm-openai", "latest"),
        ("docker.io/vllm/vllm-openai:v0.11.0", "vllm/vllm-openai", "v0.11.0"),
        ("registry.local:5000/a/b", "registry.local:5000/a/b", "latest"),
        ("registry.local:5000/a/b:1@sha256:00", "registry.local:5000/a/b", "1"),
        ("a/b@sha256:00", "a/b", "latest"),
        ("docker.io/library/busybox:1", "busybox", "1"),
    ],
)
def test_references(image: str, name: str, tag: str) -> None:
    assert Reference.parse(image) == Reference(name, tag)


@pytest.mark.parametrize(
    ("tag", "program", "version"),
    [
        ("v0.10.2", "python3", "0.10.2"),
        ("v0.9.1.post1", "python3", "0.9.1.post1"),
        ("v0.11.0", "vllm", "0.11.0"),
        ("v0.32.0-x86_64", "vllm", "0.32.0-x86_64"),
        ("latest", "vllm", None),
        ("nightly", "vllm", None),
    ],
)
def test_the_entrypoint_of_vllm_follows_the_tag(tag: str, program: str, version: str | None) -> None:
    image = find(TABLE, f"vllm/vllm-openai:{tag}")
    assert image.entrypoint[0] == program
    assert image.env.get("ENGINESIM_VERSION") == version


@pytest.mark.parametrize("image", ["weighlock/operator:dev", "example.com/weighlock/gate:1", "weighlock/load:x"])
def test_own_images_are_known_under_any_registry(image: str) -> None:
    assert find(TABLE, image).entrypoint


def test_other_images_are_unknown() -> None:
    with pytest.raises(ImageUnknown):
        find(TABLE, "busybox:1")


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, ["entry", "default"]),
        ({"args": ["a"]}, ["entry", "a"]),
        ({"command": ["c"]}, ["c"]),
        ({"command": ["c"], "args": ["a"]}, ["c", "a"]),
    ],
)
def test_command_replaces_entrypoint_and_args_replace_cmd(container: dict[str, list[str]], expected: list[str]) -> None:
    assert make_argv(container, Image("x:*", entrypoint=["entry"], cmd=["default"])) == expected


def test_shims_are_programs_and_are_written_once(tmp_path: Path) -> None:
    image = Image("x:*", bin={"hello": 'echo "hello $1"'})
    folder = write_shims(image, tmp_path)
    assert write_shims(image, tmp_path) == folder
    path = f"{folder}:{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", "hello you"], env={"PATH": path}, capture_output=True, text=True, check=True)
    assert done.stdout == "hello you\n"


def test_an_unknown_field_of_the_table_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "images.yaml"
    table.write_text("images: [{match: 'x:*', entripoint: [a]}]")
    with pytest.raises(ValueError, match="entripoint"):
        load_table(table)
