"""Two manifests, compared by what really takes effect, each line named by mechanism, ledgers, class and witness.

Called by the operator (what does this update change), the CLI and the dashboard. Theory of operation: pair the
manifests; for each pair collect lines from settings, version defaults, derived values, model, image, resources,
environment, files and pod; what cannot be known is unresolved and never equal, except to the identical expression;
group the lines by mechanism.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from manifests import compare, diff_defaults, diff_pod, diff_ranks
from manifests.codes import make_finding
from manifests.compare import Meaning
from manifests.diff_pairing import PairingError, Side, mark_of, marks_of, pair, side_of
from manifests.diff_settings import setting_lines, unresolved_parts
from manifests.engines.grammar import catalogs_of
from manifests.lines import Change, Unknown, change, show
from manifests.lint import findings_of
from manifests.model import Finding, ImportResult, Manifest, canonical_json, plain

__all__ = ["Diff", "PairingError", "Side", "Step", "by_importance", "diff"]
_CLASS_ORDER = {"semantic-exact": 0, "none": 0, "distribution-exact": 1, "approximate": 2, "contract-change": 3}
_CONSEQUENCE_ORIGINS = frozenset({"derived", "hardware-default"})


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a proposed split: the mechanism and the settings that move with it."""

    mechanism: str
    correctness: str
    settings: tuple[str, ...]
    advice: str


@dataclass(frozen=True)
class Diff:
    """The comparison: lines, what is unresolved, findings; see :meth:`to_json` for the outside shape."""

    old: tuple[Manifest, ...]
    new: tuple[Manifest, ...]
    changes: tuple[Change, ...]
    unresolved: tuple[Unknown, ...] = ()
    warnings: tuple[Finding, ...] = ()
    split_order: tuple[Step, ...] = field(default=())

    @property
    def effective(self) -> bool:
        """Whether anything differs that the engine, its speed or its answers could show."""
        return bool(self.unresolved) or any(line.is_effective for line in self.changes)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Independent mechanisms that change, in the order of their first line."""
        counted = [
            c for c in self.changes if c.correctness != "none" and c.origin not in _CONSEQUENCE_ORIGINS and c.counts
        ]
        if not counted:
            counted = [c for c in self.changes if c.is_effective and c.origin not in _CONSEQUENCE_ORIGINS]
        return tuple(dict.fromkeys(c.mechanism for c in counted))

    @property
    def correctness(self) -> str:
        """The worst class of all lines: what must be proven about the answers."""
        return max((c.correctness for c in self.changes), key=lambda name: _CLASS_ORDER[name], default="none")

    @property
    def primary(self) -> dict[str, Any]:
        """``{"mechanisms": [..], "bundle": bool}``."""
        return {"mechanisms": list(self.mechanisms), "bundle": len(self.mechanisms) > 1}

    def sentences(self) -> list[str]:
        """The diff in words: one plain sentence per line, the most important first."""
        return [line.sentence() for line in by_importance(self.changes)] + [u.sentence() for u in self.unresolved]

    def to_json(self) -> dict[str, Any]:
        """The shape of ``weighlock diff -o json``."""
        out: dict[str, Any] = plain(
            {
                "old": _names(self.old),
                "new": _names(self.new),
                "effective": self.effective,
                "class": self.correctness,
                "changes": [line.to_json() for line in self.changes],
                "primary": self.primary,
                "split_order": [
                    {"mechanism": s.mechanism, "class": s.correctness, "settings": list(s.settings), "advice": s.advice}
                    for s in self.split_order
                ],
                "unresolved": [unknown.to_json() for unknown in self.unresolved],
                "warnings": [warning.to_json() for warning in self.warnings],
                "sentences": self.sentences(),
            }
        )
        return out


def _names(manifests: Iterable[Manifest]) -> Any:
    out = [
        {
            "name": m.name,
            "container": m.container,
            "role": m.role,
            "file": m.source.file,
            "engine": m.engine.to_json(),
            "digest": m.digest,
        }
        for m in manifests
    ]
    return out[0] if len(out) == 1 else out


def diff(old: Side, new: Side, hardware: str | None = None, select: str | None = None) -> Diff:
    """Compares two sides.

    Args:
        old, new: a manifest, several, or the result of an import (its findings that are errors are carried over).
        hardware: accelerator for both sides where the pods do not say it.
        select: ``NAME`` or ``NAME/CONTAINER`` of the manifest to compare.

    Raises:
        PairingError: the sides hold several manifests that cannot be paired; its ``choices`` name them.
    """
    left, right = side_of(old, select), side_of(new, select)
    pairs, lonely = pair(left, right)
    changes: list[Change] = []
    unresolved: list[Unknown] = []
    warnings: list[Finding] = []
    several = len(pairs) + len(lonely) > 1
    marks = {**marks_of(left), **marks_of(right)}
    for first, second in pairs:
        lines, unknown, findings = _compare(first, second, hardware)
        mark = marks[id(second)] if several else None
        changes += [replace(line, manifest=mark) for line in lines]
        unresolved += [replace(entry, manifest=mark) for entry in unknown]
        warnings += findings
    changes += [replace(_lonely_line(manifest, added), manifest=marks[id(manifest)]) for manifest, added in lonely]
    carried = _carried(old, new)
    result = Diff(
        tuple(left),
        tuple(right),
        tuple(changes),
        tuple({canonical_json(entry.to_json()): entry for entry in unresolved}.values()),
        tuple(dict.fromkeys([*carried, *warnings])),
    )
    if not result.effective and _written_differs(pairs, old, new, changes):
        text = "the two sides are written differently, but the engine gets the same: no effective change"
        result = replace(
            result,
            warnings=(
                *result.warnings,
                make_finding("no-effective-change", text, right[0].source.file if right else ""),
            ),
        )
    return replace(result, split_order=_split(result))


def _lonely_line(manifest: Manifest, added: bool) -> Change:
    meaning = Meaning(
        "topology", ("SCHED", "COMM"), "semantic-exact", True, note="the group of roles that serve is another one"
    )
    where = f"{manifest.engine.name} {manifest.role}"
    return replace(
        change(f"role.{manifest.name}", None if added else where, where if added else None, "resources", meaning),
        manifest=mark_of(manifest),
    )


def _compare(old: Manifest, new: Manifest, hardware: str | None) -> tuple[list[Change], list[Unknown], list[Finding]]:
    catalogs = catalogs_of(new.engine.name) or catalogs_of(old.engine.name)
    if new.role in ("frontend", "router") and new.engine.name.startswith("dynamo"):
        catalogs = catalogs_of(f"dynamo-{new.role}")
    lines: list[Change] = []
    unknown: list[Unknown] = []
    findings: list[Finding] = []
    lines += diff_pod.identity_lines(old, new)
    same_engine = old.engine.name == new.engine.name
    setting_lines(old, new, catalogs, lines, unknown, same_engine)
    if same_engine:
        diff_defaults.version_flips(old, new, lines, unknown, findings)
        diff_defaults.derived_lines(old, new, hardware, catalogs, lines)
    diff_pod.environment_lines(old, new, catalogs, lines)
    diff_pod.file_lines(old, new, catalogs, lines)
    diff_pod.resource_lines(old, new, lines)
    diff_pod.pod_lines(old, new, lines)
    diff_pod.extra_lines(old, new, lines)
    unresolved_parts(old, new, unknown)
    _limits(old, new, findings)
    findings += [finding for finding in findings_of(new) if finding.level == "error"]
    return diff_ranks.without_idle_collectives(old, new, lines), unknown, findings


def _limits(old: Manifest, new: Manifest, findings: list[Finding]) -> None:
    for name in ("max-model-len", "context-length", "max-seq-len", "max-input-tokens", "max-total-tokens", "ctx-size"):
        first, second = old.settings.get(name), new.settings.get(name)
        if (
            first
            and second
            and isinstance(first.value, int)
            and isinstance(second.value, int)
            and 0 < second.value < first.value
        ):
            text = (
                f"`{name}` falls from {first.value} to {second.value}: capability reduced, longer requests will be "
                "refused"
            )
            findings.append(make_finding("context-limit-lowered", text, new.source.file, new.source.path))


def _carried(*sides: Side) -> list[Finding]:
    out: list[Finding] = []
    for side in sides:
        if isinstance(side, ImportResult):
            out += side.warnings
    return out


_NEVER_ARRIVES = frozenset(
    {
        "flag-and-value-in-one-token",
        "suspicious-whitespace",
        "lost-continuation",
        "config-false-ignored",
        "config-overridden",
        "duplicate-flag",
        "env-ignored",
        "never-runs",
        "stray-argument",
        "unused-argument",
    }
)
_LINE = re.compile(r"^line \d+: ")


def _written_differs(pairs: Iterable[tuple[Manifest, Manifest]], old: Side, new: Side, lines: Sequence[Change]) -> bool:
    """Whether the authors wrote something of which nothing arrives: a finding of one side alone says so, or a variable
    that nobody reads. Another spelling of the same command line is no such thing."""
    found = [
        {(f.code, _LINE.sub("", f.message)) for f in _carried(side) if f.code in _NEVER_ARRIVES} for side in (old, new)
    ]
    if found[0] != found[1]:
        return True
    if any(line.setting.startswith("env:") and line.why.endswith(compare.UNUSED) for line in lines):
        return True
    suspicious = bool(found[0] or found[1])
    return suspicious and any(
        first.argv != second.argv or first.environment != second.environment or first.files != second.files
        for first, second in pairs
    )


def _split(result: Diff) -> tuple[Step, ...]:
    """An order for a bundle: the image first with its flipped defaults pinned, then exact mechanisms, then lossy
    ones."""
    if len(result.mechanisms) < 2:
        return ()
    groups: dict[str, list[Change]] = {}
    for line in result.changes:
        if line.correctness != "none" and line.origin not in _CONSEQUENCE_ORIGINS:
            groups.setdefault("engine_version" if line.origin == "image" else line.mechanism, []).append(line)
    steps = []
    for mechanism, lines in groups.items():
        worst = max((line.correctness for line in lines), key=lambda name: _CLASS_ORDER[name])
        steps.append(
            Step(mechanism, worst, tuple(dict.fromkeys(line.setting for line in lines)), _advice(mechanism, lines))
        )
    return tuple(
        sorted(
            steps, key=lambda step: (step.mechanism != "engine_version", _CLASS_ORDER[step.correctness], step.mechanism)
        )
    )


def _advice(mechanism: str, lines: list[Change]) -> str:
    flips = [line for line in lines if line.origin == "version-default"]
    if mechanism == "engine_version":
        return "change the image alone and pin every default that flips to its old value"
    if flips and len(flips) == len(lines):
        pinned = [f"{f.setting} = {show(f.old)}" for f in flips if f.old is not None]
        left = [f.setting for f in flips if f.old is None]
        out = []
        if pinned:
            out.append(
                f"pin the old default when the image changes; release it in a step of its own: {', '.join(pinned)}"
            )
        if left:
            out.append(f"no old value can be written for {', '.join(left)}: it moves with the image")
        return "; ".join(out)
    return "change this alone"


def by_importance(lines: Iterable[Change]) -> list[Change]:
    """Lines by what an operator must know first: what changes answers most, then what people wrote, then the rest."""
    origins = {"written": 0, "image": 1, "model": 1, "generation": 1, "traffic": 1, "resources": 2}
    return sorted(
        lines,
        key=lambda c: (
            not c.is_effective,
            c.correctness == "none",
            -_CLASS_ORDER[c.correctness],
            origins.get(c.origin, 3),
            not c.counts,
        ),
    )
