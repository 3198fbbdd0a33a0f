"""Lines that nobody wrote: defaults that flip with the version, values derived from hardware or other flags.

Called by :mod:`manifests.diff`. A flip is listed when the switch is unset on both sides, exists in the new version,
and its default changed on the way (a change of wording in the source is none). A version that was not sampled is
bracketed by its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from manifests.catalog import ABSENT, Catalog, Default, Switch
from manifests.codes import make_finding
from manifests.compare import Meaning, meaning_of, same
from manifests.engines.derived import derive
from manifests.engines.grammar import catalogs_of, find_switch
from manifests.lines import Change, Unknown, change
from manifests.model import Finding, Manifest
from manifests.versions import bracket, version_key

UNKNOWN = Default("unknown")


def default_of(name: str, manifest: Manifest, catalogs: Sequence[Catalog]) -> Default:
    """The default of a setting for a manifest: derived values win over the catalogue's."""
    derived = derive(manifest).get(name)
    if derived is not None:
        return Default("known", derived.value)
    found = find_switch(catalogs, name)
    if found is None or found[0].name != name:
        return UNKNOWN
    switch, part = found
    if name.startswith("env:") and "*" in switch.name:
        return UNKNOWN
    if not part.sampled:
        return part.default_at(switch, None)
    return part.default_at(switch, _version(manifest, part))


def _version(manifest: Manifest, part: Catalog) -> str | None:
    return manifest.engine.version if part.engine == manifest.engine.name else manifest.engine.family_version


def version_flips(
    old: Manifest, new: Manifest, lines: list[Change], unknown: list[Unknown], findings: list[Finding]
) -> None:
    """One line per default that flips between two versions of the engine."""
    if old.patch or new.patch or new.role in ("router", "frontend", "sidecar"):
        return
    for part in catalogs_of(new.engine.name):
        before, after = _version(old, part), _version(new, part)
        if before == after and (before is not None or old.engine.image == new.engine.image):
            continue
        if not part.sampled or len(part.sampled) < 3:
            continue
        if before is None or after is None:
            unknown.append(
                Unknown(
                    "engine.version",
                    before,
                    after,
                    f"the {part.engine} version of one side is not known, so its defaults are not either",
                )
            )
            continue
        outside = [v for v in (before, after) if None in bracket(v, part.sampled)]
        if outside:
            low, high = part.sampled[0], part.sampled[-1]
            text = (
                f"{part.engine} {', '.join(outside)}: defaults were surveyed from {low} to {high} only; values "
                "that are not set cannot be compared"
            )
            findings.append(make_finding("version-unsampled", text, new.source.file, new.source.path))
            unknown.append(
                Unknown(
                    f"defaults of {part.engine} {', '.join(outside)}",
                    before,
                    after,
                    f"surveyed from {low} to {high} only",
                )
            )
            continue
        _flips(part, before, after, old, new, lines, unknown, findings)


def _flips(
    part: Catalog,
    before: str,
    after: str,
    old: Manifest,
    new: Manifest,
    lines: list[Change],
    unknown: list[Unknown],
    findings: list[Finding],
) -> None:
    derived = {*derive(old), *derive(new)}
    arrived: list[str] = []
    for switch in part.switches.values():
        if switch.name in old.settings or switch.name in new.settings or not switch.history or switch.name in derived:
            continue
        if switch.surveyed or _covered(switch.name, old) or _covered(switch.name, new):
            continue
        first, second = part.default_at(switch, before), part.default_at(switch, after)
        if "bracketed" in (first.status, second.status):
            _bracketed(switch, first, second, before, after, unknown)
            continue
        line = _flip(switch, part, first, second, before, after)
        if line is not None:
            lines.append(line)
        elif first.status == "absent" and second.status == "known" and second.value is True:
            arrived.append(switch.name)
    if arrived:
        text = (
            f"switches that {part.engine} {before} does not have and that are on by default in {after}: "
            f"{', '.join(arrived)}"
        )
        findings.append(make_finding("new-switch-on", text, new.source.file, new.source.path))
    flipped = _surveyed_flips(part, before, after, old, new)
    if flipped:
        text = f"variables whose default differs between {part.engine} {before} and {after}: {', '.join(flipped)}"
        findings.append(make_finding("variable-defaults", text, new.source.file, new.source.path))


def _flip(switch: Switch, part: Catalog, first: Default, second: Default, before: str, after: str) -> Change | None:
    """The line of a default that differs for certain, in a switch that the new version certainly has; else None."""
    if second.status != "known":
        return None
    if first.status in ("known", "arriving"):
        if same(switch.name, first.value, second.value):
            return None
        if first.status == "known":
            return _flip_line(switch, first.value, second.value, _flip_steps(switch, part, before, after))
        above = bracket(before, part.sampled)[1] or before  # the sampled version that has the switch
        steps = f"{_flip_steps(switch, part, above, after)} ({before} may not have the switch yet)"
        return _flip_line(switch, first.value, second.value, steps)
    if first.status == "absent" and _later_flip(switch, part, before, after):
        return _arrived_line(switch, part, second.value, before, after, _flip_steps(switch, part, before, after))
    return None


def _surveyed_flips(part: Catalog, before: str, after: str, old: Manifest, new: Manifest) -> list[str]:
    """Variables of the wide survey that nobody sets and whose default is known to differ."""
    out = []
    for switch in part.switches.values():
        if not switch.surveyed or len(switch.history) < 2 or switch.name in old.settings or switch.name in new.settings:
            continue
        first, second = part.default_at(switch, before), part.default_at(switch, after)
        if first.status == second.status == "known" and not same(switch.name, first.value, second.value):
            out.append(switch.name.removeprefix("env:"))
    return out


def _covered(name: str, manifest: Manifest) -> bool:
    parent, dot, _ = name.partition(".")
    return bool(dot) and parent in manifest.settings


def _path(switch: Switch, before: str, after: str) -> list[tuple[str, str]]:
    low, high = sorted((before, after), key=lambda v: version_key(v) or ((0,), 0, 0))
    start, end = version_key(low), version_key(high)
    return [
        (v, d)
        for v, d in switch.history
        if start is not None and end is not None and (key := version_key(v)) is not None and start < key <= end
    ]


def _later_flip(switch: Switch, part: Catalog, before: str, after: str) -> bool:
    """A switch that arrived after the old version and then flipped: the flip is a change even though the old version
    had no switch."""
    return len([default for _, default in _path(switch, before, after) if default != ABSENT]) > 1


def _flip_steps(switch: Switch, part: Catalog, before: str, after: str) -> str:
    path = _path(switch, before, after)
    out = []
    for version, _ in path:
        index = part.sampled.index(version) if version in part.sampled else 0
        out.append(f"between {part.sampled[index - 1]} and {version}" if index else f"in {version}")
    return ", ".join(out)


def _flip_line(switch: Switch, old: Any, new: Any, steps: str) -> Change:
    meaning = Meaning(
        switch.mechanism, switch.ledgers, switch.correctness, switch.fp_reorder, switch.witness, switch.note
    )
    return change(switch.name, old, new, "version-default", meaning, f"the default flips {steps} and nobody sets it")


def _arrived_line(switch: Switch, part: Catalog, new: Any, before: str, after: str, steps: str) -> Change:
    """A switch that arrived on the way and flipped afterwards; it is shown from the default that it arrived with."""
    meaning = Meaning(
        switch.mechanism, switch.ledgers, switch.correctness, switch.fp_reorder, switch.witness, switch.note
    )
    arrival = next(version for version, default in _path(switch, before, after) if default != ABSENT)
    first = part.default_at(switch, arrival)
    return change(
        switch.name,
        first.value,
        new,
        "version-default",
        meaning,
        f"{before} has no such switch; it arrived with the old value and its default flipped: {steps}; nobody sets it",
    )


def _bracketed(
    switch: Switch, first: Default, second: Default, before: str, after: str, unknown: list[Unknown]
) -> None:
    """A default that flipped around an unsampled version: unresolved, except that both sides sit in the same gap."""
    if first.status == second.status == "bracketed" and before == after:
        return
    side, version, found = ("old", before, first) if first.status == "bracketed" else ("new", after, second)
    other = second if side == "old" else first
    if found.between is None or other.status == "absent" or all(value in (None, {}, []) for value in found.between):
        return
    text = (
        f"the default of {version} lies between {found.between[0] if found.between else None!r} and "
        f"{found.between[1] if found.between else None!r}: it flipped between the surveyed versions around it"
    )
    unknown.append(
        Unknown(switch.name, None if side == "old" else other.value, other.value if side == "old" else None, text)
    )


def derived_lines(
    old: Manifest, new: Manifest, hardware: str | None, catalogs: Sequence[Catalog], lines: list[Change]
) -> None:
    """Values that the engine computes and that come out differently on the two sides."""
    before, after = derive(old, hardware), derive(new, hardware)
    listed = {line.setting for line in lines}
    for name in [*before, *(n for n in after if n not in before)]:
        first, second = before.get(name), after.get(name)
        if name in listed or name in old.settings or name in new.settings:
            continue
        if first is None or second is None:
            known = first or second
            other = default_of(name, new if first is not None else old, catalogs)
            if known is None or other.status != "known" or other.value is None or same(name, other.value, known.value):
                continue
            pair = (known.value, other.value) if first is not None else (other.value, known.value)
            lines.append(
                change(
                    name,
                    *pair,
                    "hardware-default" if known.from_hardware else "derived",
                    meaning_of(name, catalogs),
                    f"derived: {known.rule}",
                )
            )
        elif not same(name, first.value, second.value):
            origin = (
                "hardware-default"
                if first.from_hardware and first.rule != second.rule and "raised" not in second.rule + first.rule
                else "derived"
            )
            rule = f"derived: {second.rule}" if first.rule == second.rule else f"derived: {first.rule} -> {second.rule}"
            lines.append(change(name, first.value, second.value, origin, meaning_of(name, catalogs), rule))
