"""The image table: which local commands stand for a container image.

Called when a container starts. An image's executables are small shell scripts in a folder of their own that comes
first on the container's PATH, so that ``sh -c "vllm serve ..."`` finds them too.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tools.devcluster.paths import CHECKOUT


class ImageUnknown(LookupError):
    """No entry of the table matches the image."""


@dataclass(frozen=True)
class Reference:
    """An image reference, taken apart: ``docker.io/vllm/vllm-openai:v0.32.0@sha256:..``."""

    name: str
    tag: str

    @classmethod
    def parse(cls, image: str) -> Reference:
        """Without a tag it is ``latest``; Docker Hub's own host name and ``library/`` are dropped."""
        name = image.split("@", 1)[0]
        tag = "latest"
        if ":" in name.rsplit("/", 1)[-1]:
            name, tag = name.rsplit(":", 1)
        for prefix in ("docker.io/", "index.docker.io/", "library/"):
            name = name.removeprefix(prefix)
        return cls(name, tag)

    @property
    def version(self) -> tuple[int, ...] | None:
        """The tag's leading numbers, None for tags that are no versions (``latest``, ``nightly-..``)."""
        match = re.match(r"v?(\d+(?:\.\d+)+)", self.tag)
        return tuple(map(int, match.group(1).split("."))) if match else None

    @property
    def version_text(self) -> str:
        """The version without ``v``, suffixes included; empty for tags that are no versions."""
        return self.tag.removeprefix("v") if self.version else ""


@dataclass(frozen=True)
class Image:
    """What one entry of the table says: default command line, executables by name, and variables of the image."""

    match: str
    entrypoint: list[str] = field(default_factory=list)
    cmd: list[str] = field(default_factory=list)
    bin: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    below: str = ""  # only tags with a version below this one

    def matches(self, reference: Reference) -> bool:
        if not fnmatch.fnmatchcase(f"{reference.name}:{reference.tag}", self.match):
            return False
        if not self.below:
            return True
        limit = tuple(map(int, self.below.split(".")))
        return reference.version is not None and reference.version < limit


def load_table(path: Path) -> tuple[Image, ...]:
    """Read a table like ``images.yaml``.

    Raises:
        ValueError: an entry has an unknown field or no ``match``.
    """
    entries = (yaml.safe_load(path.read_text()) or {}).get("images") or []
    try:
        return tuple(Image(**entry) for entry in entries)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error


def find(table: tuple[Image, ...], image: str) -> Image:
    """The first entry that matches `image`, its placeholders filled in.

    Raises:
        ImageUnknown: there is none.
    """
    reference = Reference.parse(image)
    for entry in table:
        if entry.matches(reference):
            return fill(entry, reference)
    raise ImageUnknown(image)


def fill(entry: Image, reference: Reference) -> Image:
    values = {
        "{python}": sys.executable,
        "{venv}": str(Path(sys.executable).parent.parent),
        "{site_packages}": sysconfig.get_path("purelib"),
        "{checkout}": str(CHECKOUT),
        "{tag}": reference.tag,
        "{version}": reference.version_text,
    }

    def put(text: str) -> str:
        for name, value in values.items():
            text = text.replace(name, value)
        return text

    shims = {name: put(script) for name, script in entry.bin.items()}
    variables = {name: value for name, text in entry.env.items() if (value := put(text))}  # no version: no variable
    return Image(entry.match, list(entry.entrypoint), list(entry.cmd), shims, variables, entry.below)


def write_shims(image: Image, folder: Path) -> Path:
    """The folder of the image's executables below `folder`, written where it is not there yet."""
    content = {name: f"#!/bin/sh\n{script.strip()}\n" for name, script in image.bin.items()}
    digest = hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()[:12]
    target = folder / digest
    target.mkdir(parents=True, exist_ok=True)
    for name, script in content.items():
        file = target / name
        if not file.exists():
            scratch = target / f".{name}.new"
            scratch.write_text(script)
            scratch.chmod(0o755)
            scratch.rename(file)
    return target


def make_argv(container: Mapping[str, Any], image: Image) -> list[str]:
    """The command line by Kubernetes' rule: ``command`` replaces ENTRYPOINT and CMD, ``args`` only CMD."""
    command, args = container.get("command") or [], container.get("args") or []
    if command:
        return [*command, *args]
    return [*image.entrypoint, *(args or image.cmd)]
