"""Lines of settings: written on both sides, written on one side against the other's default, not known.

Called by :mod:`manifests.diff`. A value that is known only at run time never counts as equal, except to the identical
expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from manifests import compare, diff_defaults
from manifests.compare import Meaning
from manifests.lines import Change, Unknown, change
from manifests.model import REDACTED, Manifest, Setting

_TWINS = {"free-gpu-memory-fraction": "llm_args.kv_cache_config.free_gpu_memory_fraction"}


_TRTLLM_TWINS = {**_TWINS, "kv-cache-dtype": "llm_args.kv_cache_config.dtype"}


def _aligned(manifest: Manifest) -> dict[str, Setting]:
    """Settings with the two spellings of one TensorRT-LLM value under one name."""
    if manifest.engine.family != "trtllm":
        return dict(manifest.settings)
    return {_TRTLLM_TWINS.get(name, name): setting for name, setting in manifest.settings.items()}


def setting_lines(
    old: Manifest,
    new: Manifest,
    catalogs: Sequence[Any],
    lines: list[Change],
    unknown: list[Unknown],
    same_engine: bool,
) -> None:
    left, right = _aligned(old), _aligned(new)
    for name in [*left, *(name for name in right if name not in left)]:
        first, second = left.get(name), right.get(name)
        if name in ("model", "model-path", "model-id", "hf-repo") and (old.model.id or new.model.id):
            continue
        if first is not None and second is not None:
            if not compare.same_setting(name, first, second):
                _changed(name, first, second, old, new, catalogs, lines, unknown)
            elif _secret_changed(old, new, name):
                lines.append(
                    change(
                        name,
                        REDACTED,
                        REDACTED,
                        "written",
                        Meaning("credentials", (), "none", note="the secret changed (its salted hash differs)"),
                    )
                )
            continue
        _one_sided(name, first, second, old, new, catalogs, lines, unknown, same_engine)


def _secret_changed(old: Manifest, new: Manifest, name: str) -> bool:
    return old.secrets.get(name) is not None and old.secrets.get(name) != new.secrets.get(name)


def _changed(
    name: str,
    first: Setting,
    second: Setting,
    old: Manifest,
    new: Manifest,
    catalogs: Sequence[Any],
    lines: list[Change],
    unknown: list[Unknown],
) -> None:
    if first.expression is not None or second.expression is not None:
        unknown.append(
            Unknown(name, _shown(first), _shown(second), "a value that is known only at run time never counts as equal")
        )
        lines.append(
            change(
                name,
                _shown(first),
                _shown(second),
                "written",
                compare.meaning_of(name, catalogs),
                "one side is known only at run time",
            )
        )
        return
    if isinstance(first.value, dict) and isinstance(second.value, dict):
        before, after = compare.leaves(first.value, name), compare.leaves(second.value, name)
        for leaf in dict.fromkeys([*before, *after]):
            if not compare.same(leaf, before.get(leaf), after.get(leaf)):
                lines.append(
                    change(
                        leaf,
                        before.get(leaf),
                        after.get(leaf),
                        "written",
                        compare.meaning_of(leaf, catalogs),
                        _typed(before.get(leaf), after.get(leaf)),
                    )
                )
        return
    lines.append(
        change(
            name,
            first.value,
            second.value,
            "written",
            compare.meaning_of(name, catalogs),
            _ignored_revision(name, new) or _typed(first.value, second.value),
        )
    )


def _ignored_revision(name: str, manifest: Manifest) -> str | None:
    local = bool(manifest.model.id) and str(manifest.model.id).startswith(("/", "./", "~"))
    return "ignored: a local path has no revision" if name == "revision" and local else None


def _typed(old: Any, new: Any) -> str | None:
    """A note when two values look alike but are of different types."""
    alike = old is not None and new is not None and (str(old).strip("[]") == str(new).strip("[]") or old == new)
    if alike and type(old) is not type(new):
        return f"the type changes from {type(old).__name__} to {type(new).__name__}"
    if isinstance(old, list) != isinstance(new, list) and old is not None and new is not None:
        return (
            f"the type changes from {'a list' if isinstance(old, list) else type(old).__name__} to "
            f"{'a list' if isinstance(new, list) else type(new).__name__}"
        )
    return None


def _shown(setting: Setting | None) -> Any:
    return None if setting is None else setting.expression if setting.expression is not None else setting.value


def _one_sided(
    name: str,
    first: Setting | None,
    second: Setting | None,
    old: Manifest,
    new: Manifest,
    catalogs: Sequence[Any],
    lines: list[Change],
    unknown: list[Unknown],
    same_engine: bool,
) -> None:
    """Written on one side: the other has its default; equal to it means that nothing changes."""
    written = first if first is not None else second
    assert written is not None
    other = new if first is not None else old
    default = diff_defaults.default_of(name, other, catalogs) if same_engine else diff_defaults.UNKNOWN
    if (
        written.expression is None
        and default.status == "known"
        and compare.same(name, written.value, default.value)
        and default.value is not None
    ):
        return
    if written.expression is None and written.value is None and default.status == "known" and default.value is None:
        return
    meaning = compare.meaning_of(name, catalogs)
    if _ignored_revision(name, new):
        meaning = replace(meaning, correctness="none", ledgers=(), note="ignored: a local path has no revision")
    shown = default.value if default.status == "known" else None
    value = _shown(written)
    why = {
        "known": "written on one side only; the other side has the engine's default",
        "bracketed": f"written on one side only; the default of that version lies between {default.between}",
    }.get(default.status, "written on one side only; the default of the other side is not known")
    if default.status == "bracketed":
        unknown.append(
            Unknown(
                name,
                value if first else None,
                None if first else value,
                f"the default flipped around this version: {default.between}",
            )
        )
    if written.expression is not None:
        unknown.append(Unknown(name, value if first else shown, shown if first else value, "known only at run time"))
    lines.append(
        change(
            name, value if first is not None else shown, shown if first is not None else value, "written", meaning, why
        )
    )


def unresolved_parts(old: Manifest, new: Manifest, unknown: list[Unknown]) -> None:
    """Parts that neither side's input can tell: equal only when both say the identical thing of the identical image."""
    left = {(u.what, u.why) for u in old.unresolved}
    right = {(u.what, u.why) for u in new.unresolved}
    known = {entry.what for entry in unknown}
    covered = set(old.settings) | set(new.settings) | {f"env:{name}" for name in (*old.environment, *new.environment)}
    for what, why in sorted(left ^ right):
        if what not in known and what not in covered:
            unknown.append(
                Unknown(what, why if (what, why) in left else None, why if (what, why) in right else None, why)
            )
    if old.argv != new.argv and _unread(old) and _unread(new):
        unknown.append(
            Unknown(
                "command",
                " ".join(old.argv),
                " ".join(new.argv),
                "the two sides start the container differently, and what its command makes of that cannot be read",
            )
        )
        return
    opaque = [entry.what for entry in old.unresolved if entry.what in ("command",)]
    if opaque and (old.engine.image != new.engine.image):
        unknown.append(
            Unknown(
                "command",
                old.engine.image,
                new.engine.image,
                "the image starts a script of its own, and the image changes: what the engine gets is not known",
            )
        )


def _unread(manifest: Manifest) -> bool:
    """Whether the command line says nothing: a script of the image, or a program that is no known engine."""
    return not any(setting.origin in ("args", "command", "image") for setting in manifest.settings.values())
