"""Two manifests, compared by what really takes effect, each line named by mechanism, ledgers, class and witness.

Called by the operator (what does this update change), the CLI and the dashboard. Theory of operation: pair the
manifests; for each pair collect lines from settings, version defaults, derived values, model, image, resources,
environment, files and pod; what cannot be known is unresolved and never equal, except to the identical expression;
group the lines by mechanism.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from manifests import compare, diff_defaults, diff_pod
from manifests.codes import make_finding
from manifests.compare import Meaning
from manifests.engines.grammar import catalogs_of
from manifests.lines import Change, Unknown, change, show
from manifests.lint import findings_of
from manifests.model import REDACTED, Finding, ImportResult, Manifest, Setting, canonical_json, plain

_CLASS_ORDER = {"semantic-exact": 0, "none": 0, "distribution-exact": 1, "approximate": 2, "contract-change": 3}
_CONSEQUENCE_ORIGINS = frozenset({"derived", "hardware-default"})
_TWINS = {"free-gpu-memory-fraction": "llm_args.kv_cache_config.free_gpu_memory_fraction"}
_TRTLLM_TWINS = {**_TWINS, "kv-cache-dtype": "llm_args.kv_cache_config.dtype"}


class PairingError(Exception):
    """Old and new cannot be paired; ``choices`` are the names that ``--select`` takes."""

    def __init__(self, message: str, choices: Sequence[str]) -> None:
        super().__init__(message)
        self.choices = tuple(choices)


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


Side = Manifest | ImportResult | Sequence[Manifest]


def diff(old: Side, new: Side, hardware: str | None = None, select: str | None = None) -> Diff:
    """Compares two sides.

    Args:
        old, new: a manifest, several, or the result of an import (its findings that are errors are carried over).
        hardware: accelerator for both sides where the pods do not say it.
        select: ``NAME`` or ``NAME/CONTAINER`` of the manifest to compare.

    Raises:
        PairingError: the sides hold several manifests that cannot be paired; its ``choices`` name them.
    """
    left, right = _side(old, select), _side(new, select)
    pairs, lonely = _pair(left, right)
    changes: list[Change] = []
    unresolved: list[Unknown] = []
    warnings: list[Finding] = []
    several = len(pairs) + len(lonely) > 1
    for first, second in pairs:
        lines, unknown, findings = _compare(first, second, hardware)
        mark = _mark(second) if several else None
        changes += [replace(line, manifest=mark) for line in lines]
        unresolved += [replace(entry, manifest=mark) for entry in unknown]
        warnings += findings
    changes += [_lonely_line(manifest, added) for manifest, added in lonely]
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


def _mark(manifest: Manifest) -> str:
    return (
        f"{manifest.name}/{manifest.container}"
        if manifest.container and manifest.container != manifest.name
        else manifest.name
    )


def _side(side: Side, select: str | None) -> list[Manifest]:
    found = (
        [side] if isinstance(side, Manifest) else list(side.manifests) if isinstance(side, ImportResult) else list(side)
    )
    if select is None:
        return _main(found)
    chosen = [m for m in found if select in (m.name, f"{m.name}/{m.container}", m.container)]
    if not chosen:
        raise PairingError(f"nothing is called `{select}`", [f"{m.name}/{m.container}" for m in found])
    return chosen


def _main(found: list[Manifest]) -> list[Manifest]:
    """All manifests; two containers of one pod that both look like servers must be told apart by the caller."""
    seen: dict[tuple[str, str, str], Manifest] = {}
    for manifest in found:
        if manifest.role in ("sidecar", "router", "frontend") or manifest.engine.name == "unknown":
            continue
        key = (manifest.source.file, str(manifest.source.index), manifest.source.path.rsplit(".containers", 1)[0])
        if key in seen:
            choices = [f"{m.name}/{m.container}" for m in found]
            raise PairingError(f"`{manifest.name}` has two containers that look like model servers", choices)
        seen[key] = manifest
    return found


def _pair(
    old: list[Manifest], new: list[Manifest]
) -> tuple[list[tuple[Manifest, Manifest]], list[tuple[Manifest, bool]]]:
    left, right = list(old), list(new)
    if not left or not right:
        side = "old" if not left else "new"
        raise PairingError(f"the {side} side has no manifest that serves", [])
    pairs: list[tuple[Manifest, Manifest]] = []
    keys = (
        lambda m: (m.name, m.container, m.role, m.rank),
        lambda m: (m.name, m.container, m.role, m.rank, m.source.index, m.source.path),
        lambda m: (m.name, m.container),
        lambda m: (m.name, m.role, m.rank),
        lambda m: (m.name, m.rank),
        lambda m: (m.role, m.rank, m.container),
        lambda m: (m.role, m.rank),
    )
    for key in keys:
        for first in list(left):
            found = [m for m in right if key(m) == key(first)]
            if len(found) == 1 and sum(key(m) == key(first) for m in left) == 1:
                pairs.append((first, found[0]))
                left.remove(first)
                right.remove(found[0])
    if len(left) == 1 and len(right) == 1:
        pairs.append((left.pop(), right.pop()))
    engines = [m for m in left + right if m.role not in ("sidecar", "router", "frontend")]
    if not pairs or (left and right and engines):
        raise PairingError("old and new cannot be paired by name or role", [_mark(m) for m in [*left, *right]])
    order = {id(m): index for index, m in enumerate(new)}
    pairs.sort(key=lambda pair: order.get(id(pair[1]), 0))
    return pairs, [(m, False) for m in left] + [(m, True) for m in right]


def _lonely_line(manifest: Manifest, added: bool) -> Change:
    meaning = Meaning(
        "topology", ("SCHED", "COMM"), "semantic-exact", True, note="the group of roles that serve is another one"
    )
    where = f"{manifest.engine.name} {manifest.role}"
    return replace(
        change(f"role.{manifest.name}", None if added else where, where if added else None, "resources", meaning),
        manifest=_mark(manifest),
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
    _settings(old, new, catalogs, lines, unknown, same_engine)
    if same_engine:
        diff_defaults.version_flips(old, new, lines, unknown, findings)
        diff_defaults.derived_lines(old, new, hardware, catalogs, lines)
    diff_pod.environment_lines(old, new, catalogs, lines)
    diff_pod.file_lines(old, new, catalogs, lines)
    diff_pod.resource_lines(old, new, lines)
    diff_pod.pod_lines(old, new, lines)
    diff_pod.extra_lines(old, new, lines)
    _unresolved(old, new, unknown)
    _limits(old, new, findings)
    findings += [finding for finding in findings_of(new) if finding.level == "error"]
    return lines, unknown, findings


def _aligned(manifest: Manifest) -> dict[str, Setting]:
    """Settings with the two spellings of one TensorRT-LLM value under one name."""
    if manifest.engine.family != "trtllm":
        return dict(manifest.settings)
    return {_TRTLLM_TWINS.get(name, name): setting for name, setting in manifest.settings.items()}


def _settings(
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


def _unresolved(old: Manifest, new: Manifest, unknown: list[Unknown]) -> None:
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
    if any(line.setting.startswith("env:") and line.why.endswith(compare.UNREAD) for line in lines):
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


def by_manifest(result: Diff) -> Mapping[str | None, list[Change]]:
    """Lines of a diff grouped by the manifest that they belong to, in order (for screens)."""
    out: dict[str | None, list[Change]] = {}
    for line in result.changes:
        out.setdefault(line.manifest, []).append(line)
    return out
