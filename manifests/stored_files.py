"""Mounted files of a stored manifest, without their text a second time: the RunManifest holds the ConfigMaps already.

Written when a revision is frozen (`refer`), read back by :mod:`manifests.stored` (`resolve`). A file that is a key of a
ConfigMap is stored as ``{"configMap", "key"}``, with ``lines`` (number from 0 -> text) where a secret was hidden in it;
anything else, and what older releases stored, is the text itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ConfigMaps = Mapping[str, Mapping[str, str]]


def refer(files: Mapping[str, str], config_maps: ConfigMaps) -> dict[str, Any]:
    """Files by path, each as a reference where ``config_maps`` (name -> data) hold its text."""
    exact = {text: (name, key) for name, data in config_maps.items() for key, text in data.items()}
    return {path: _reference(text, exact) for path, text in files.items()}


def resolve(files: Mapping[str, Any], config_maps: Mapping[str, Any]) -> dict[str, str]:
    """Files by path as texts; a reference to a ConfigMap that is not there is an empty file."""
    return {str(path): _text(stored, config_maps) for path, stored in files.items()}


def _reference(text: str, exact: Mapping[str, tuple[str, str]]) -> str | dict[str, Any]:
    if text in exact:
        name, key = exact[text]
        return {"configMap": name, "key": key}
    lines = text.split("\n")
    best: dict[str, Any] | None = None
    for source, (name, key) in exact.items():
        written = source.split("\n")
        if len(written) != len(lines):
            continue
        hidden = {str(n): new for n, (old, new) in enumerate(zip(written, lines, strict=True)) if old != new}
        if best is None or len(hidden) < len(best["lines"]):
            best = {"configMap": name, "key": key, "lines": hidden}
    is_shorter = best is not None and sum(map(len, best["lines"].values())) < len(text) // 2
    return best if best is not None and is_shorter else text


def _text(stored: Any, config_maps: Mapping[str, Any]) -> str:
    if not isinstance(stored, Mapping):
        return str(stored)
    data = config_maps.get(str(stored.get("configMap")))
    text = str((data if isinstance(data, Mapping) else {}).get(str(stored.get("key")), ""))
    hidden = stored.get("lines")
    if not isinstance(hidden, Mapping):
        return text
    return "\n".join(str(hidden.get(str(n), line)) for n, line in enumerate(text.split("\n")))
