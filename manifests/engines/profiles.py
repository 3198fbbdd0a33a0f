"""What the product knows of an engine beside its switches: how it is started, its images, names of its main settings.

Read from ``manifests/catalog/engines.json`` by the launcher, the grammar, layout, ledger, lint and metrics, so that an
engine is added in one place (``manifests/catalog/README.md``). Holds data; knows no manifest and parses no argument.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any


@dataclass(frozen=True, slots=True)
class Launcher:
    """One way to start an engine: ``words`` of the command (``*`` is any one word), or ``module`` after ``python -m``.

    ``engine`` is the manifest's ``engine.name``, ``catalog`` the switches that count (empty: none are known), ``kind``
    server, router, frontend or render, ``style`` how its arguments are read.
    """

    words: tuple[str, ...]
    module: str | None
    engine: str
    catalog: str
    kind: str
    style: str


@dataclass(frozen=True, slots=True)
class ImageRule:
    """Images of an engine: a pattern for the repository, the command line they start with, a pattern for the version in
    a tag (the usual one when None) and one for tags that move."""

    match: str
    entrypoint: tuple[str, ...] = ()
    version: str | None = None
    moving: str | None = None


@dataclass(frozen=True, slots=True)
class Twins:
    """Environment twins of flags: ``prefix`` + the flag in upper case; ``names``: tails that differ; ``variables``:
    whole names without the prefix; ``unread``: names that people write and nobody reads, with the right one."""

    prefix: str
    names: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Profile:
    """One engine; every field has a neutral value, so that an engine states only what it has.

    Args:
        style: argparse, click, clap, llamacpp or generic: how flags and values are told apart.
        underscores: whether ``_`` in a flag's name is ``-``.
        parts: catalogue name -> parts of the catalogue file that it holds (an engine with several programs).
        variables: prefixes of the engine's own environment variables, all of which the catalogue lists.
        plugin_variables: prefixes of variables that plugins and builds of others read, which it does not list.
        in_patches: whether a patch without image may be taken for this engine by its flags.
        parallel: names of tensor, pipeline, data and context sizes.
        context, sequences, step_tokens, memory_share: settings of the longest sequence, the most sequences, the tokens
        of a step, the share of memory for weights and cache.
        share_after_weights: the share is of what the weights leave.
        listens_locally: whether nothing outside the pod reaches it unless a host is written.
        metrics_switch: the setting without which there are no metrics, and the sentence that says so.
        resolved: where the engine says what it really runs with, for a mechanism that no metric shows.
        metric_prefixes, metrics: prefixes of its metric families, canonical name -> families (newest first).
    """

    name: str
    title: str = ""
    style: str = "argparse"
    underscores: bool = False
    positional_model: str | None = None
    config_flag: str | None = None
    entrypoint: tuple[str, ...] = ()
    launchers: tuple[Launcher, ...] = ()
    images: tuple[ImageRule, ...] = ()
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    twins: Twins | None = None
    in_patches: bool = False
    parallel: tuple[tuple[str, ...], ...] = ()
    context: tuple[str, ...] = ()
    sequences: tuple[str, ...] = ()
    step_tokens: tuple[str, ...] = ()
    memory_share: tuple[str, ...] = ()
    share_after_weights: bool = False
    listens_locally: bool = False
    metrics_switch: tuple[str, str] | None = None
    variables: tuple[str, ...] = ()
    plugin_variables: tuple[str, ...] = ()
    resolved: str | None = None
    metric_prefixes: tuple[str, ...] = ()
    metrics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def folder() -> Traversable:
    """Where the catalogue's files are."""
    return resources.files("manifests.catalog")


@cache
def profiles() -> Mapping[str, Profile]:
    """Every engine by name, in the order of the file."""
    data = json.loads(folder().joinpath("engines.json").read_text(encoding="utf-8"))
    return {row["name"]: _profile(row) for row in data["engines"]}


def profile_of(name: str) -> Profile:
    """The profile of an engine or of a program of it (``dynamo-vllm``); a neutral one for an unknown engine."""
    return profiles().get(name) or Profile(name, style="generic")


@cache
def commands() -> Mapping[str, tuple[Launcher, ...]]:
    """Launchers by the first word of their command, the longest first."""
    out: dict[str, list[Launcher]] = {}
    for profile in profiles().values():
        for launcher in profile.launchers:
            if launcher.module is None:
                out.setdefault(launcher.words[0], []).append(launcher)
    return {word: tuple(sorted(found, key=lambda entry: -len(entry.words))) for word, found in out.items()}


@cache
def modules() -> Mapping[str, tuple[Launcher, ...]]:
    """Launchers by the module that ``python -m`` runs, the one with most words first."""
    out: dict[str, list[Launcher]] = {}
    for profile in profiles().values():
        for launcher in profile.launchers:
            if launcher.module is not None:
                out.setdefault(launcher.module, []).append(launcher)
    return {name: tuple(sorted(found, key=lambda entry: -len(entry.words))) for name, found in out.items()}


@cache
def catalog_files() -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Catalogue name -> (file, parts of it that count; empty: all), for every engine that has a file of switches."""
    out: dict[str, tuple[str, tuple[str, ...]]] = {}
    for profile in profiles().values():
        if folder().joinpath(f"{profile.name}.json").is_file():
            out[profile.name] = (profile.name, ())
            out |= {name: (profile.name, parts) for name, parts in profile.parts.items()}
    return out


def _profile(row: Mapping[str, Any]) -> Profile:
    name, style = str(row["name"]), str(row.get("style", "argparse"))
    plain: dict[str, Any] = {key: row[key] for key in _PLAIN if key in row}
    plain |= {key: tuple(row[key]) for key in _LISTS if key in row}
    twins = row.get("env")
    return Profile(
        name,
        **plain,
        launchers=tuple(_launcher(entry, name, style) for entry in row.get("launchers", ())),
        images=tuple(_image(entry) for entry in row.get("images", ())),
        parts={key: tuple(value) for key, value in row.get("parts", {}).items()},
        twins=Twins(**twins) if twins is not None else None,
        parallel=tuple(tuple(names) for names in row.get("parallel", ())),
        metrics_switch=tuple(row["metrics_switch"]) if "metrics_switch" in row else None,
        metrics={key: tuple(value) for key, value in row.get("metrics", {}).items()},
    )


_PLAIN = (
    "title",
    "style",
    "underscores",
    "positional_model",
    "config_flag",
    "in_patches",
    "share_after_weights",
    "listens_locally",
    "resolved",
)
_LISTS = (
    "entrypoint",
    "context",
    "sequences",
    "step_tokens",
    "memory_share",
    "variables",
    "plugin_variables",
    "metric_prefixes",
)


def _launcher(entry: Mapping[str, Any], name: str, style: str) -> Launcher:
    catalog = entry.get("catalog", name)
    return Launcher(
        tuple(str(entry.get("command", "")).split()),
        entry.get("module"),
        entry.get("engine", name),
        catalog,
        entry.get("kind", "server"),
        entry.get("style", style if catalog else "generic"),
    )


def _image(entry: Mapping[str, Any]) -> ImageRule:
    return ImageRule(entry["match"], tuple(entry.get("entrypoint", ())), entry.get("version"), entry.get("moving"))
