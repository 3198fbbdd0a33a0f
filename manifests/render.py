"""A diff as a screen for an on-call engineer: plain text or ANSI colour.

Called by the CLI; the dashboard shows the same parts from :class:`manifests.diff.Diff`. What matters first: does
anything change, on what it acts, what must be proven; then errors, what cannot be known, the lines that the authors
wrote, and the lines that nobody wrote, grouped when they are many.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from manifests.diff import Diff, by_importance
from manifests.lines import Change, show
from manifests.model import Finding, Manifest
from manifests.words import CLASSES, MECHANISMS, SHORT_CLASSES, ledger_words, mechanism_words

_MANY = 6
_TITLES = (
    ("written", "Written by the authors"),
    ("image", "Image, model, resources"),
    ("version-default", "Changed by the version, written by nobody"),
    ("derived", "Follows from the hardware or from other flags"),
    ("inert", "Changes nothing here"),
)
_CODES = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "dim": "2"}
_CLASS_COLOUR = {
    "contract-change": "red",
    "approximate": "red",
    "distribution-exact": "yellow",
    "semantic-exact": "cyan",
    "none": "dim",
}


@dataclass(frozen=True, slots=True)
class Paint:
    """Colours on or off, and the width in which texts are set."""

    colour: bool
    width: int

    def __call__(self, text: str, name: str) -> str:
        return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if self.colour else text

    def wrapped(self, text: str, indent: str, first: str | None = None) -> list[str]:
        """A sentence in lines of the width."""
        start = indent if first is None else first
        lines = textwrap.wrap(text, self.width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False)
        return lines or [indent]


def render_text(diff: Diff, colour: bool = False, width: int = 80) -> str:
    """The screen of a diff, ``width`` columns wide; ``colour`` adds ANSI codes, the words are the same."""
    paint = Paint(colour, width)
    out = [*_head(diff, paint), ""]
    out += _findings(diff, "error", "Errors: put right before traffic", paint)
    out += _unknowns(diff, paint)
    for title, lines in _sections(diff):
        out.append(paint(f"{title} ({len(lines)})", "bold"))
        many = len(lines) > _MANY and lines[0].is_effective and lines[0].origin not in ("written", "image")
        out += _grouped(lines, paint) if many else [text for line in lines for text in _line(line, paint)]
        out.append("")
    out += _findings(diff, "warning", "To be looked at", paint)
    out += _steps(diff, paint)
    if any(line.is_effective and None in (line.old, line.new) for line in diff.changes):
        note = "unset: nobody writes a value and the engine decides at start."
        out += [paint(text, "dim") for text in paint.wrapped(note, "  ", "")]
    notes = sum(finding.level == "info" for finding in _own_findings(diff))
    if notes:
        out.append(paint(f"Further notes: {notes}; `-o json` lists them.", "dim"))
    return "\n".join(out).rstrip() + "\n"


def _title(manifests: Iterable[Manifest]) -> str:
    parts = []
    for manifest in manifests:
        version = f" {manifest.engine.version}" if manifest.engine.version else ""
        parts.append(f"{manifest.name} ({manifest.engine.name}{version}, {manifest.role})")
    return ", ".join(parts)


def _head(diff: Diff, paint: Paint) -> list[str]:
    out = paint.wrapped(_title(diff.old), "     ", "old  ") + paint.wrapped(_title(diff.new), "     ", "new  ")
    if not diff.effective:
        return [*out, paint("No effective change: the engine gets the same on both sides.", "green")]
    names = diff.mechanisms
    if len(names) > 1:
        sentence = f"A bundle: {len(names)} things change at once, so no result can be put down to one of them."
        out += [paint(text, "bold") for text in paint.wrapped(sentence, "  ", "")]
        if len(names) <= _MANY:
            out += [line for name in names for line in paint.wrapped(mechanism_words(name), "    ", "  - ")]
        else:
            out += paint.wrapped(", ".join(names), "     ", "  -> ")
    elif names:
        out.append(paint(f"One thing changes: {mechanism_words(names[0])}.", "bold"))
    else:
        out.append(paint("What changes cannot be told from the input.", "bold"))
    worst = diff.correctness
    if names:
        first, *rest = paint.wrapped(f"{CLASSES[worst]}.", "  ", f"Answers: {worst}, ")
        out += [first.replace(worst, paint(worst, _CLASS_COLOUR[worst]), 1), *rest]
    return out


def _sections(diff: Diff) -> list[tuple[str, list[Change]]]:
    groups: dict[str, list[Change]] = {key: [] for key, _ in _TITLES}
    for line in by_importance(diff.changes):
        if not line.is_effective:
            groups["inert"].append(line)
        elif line.origin in ("version-default", "written"):
            groups[line.origin].append(line)
        elif line.origin in ("derived", "hardware-default"):
            groups["derived"].append(line)
        else:
            groups["image"].append(line)
    return [(title, groups[key]) for key, title in _TITLES if groups[key]]


def _first(line: Change, paint: Paint, indent: str) -> list[str]:
    """What changes: on one line where it fits, else each value on a line of its own."""
    where = f"{line.manifest}: " if line.manifest else ""
    marker = "~" if line.is_effective else "="
    old, new = show(line.old), show(line.new)
    name = f"{indent}{marker} {where}{paint(line.setting, 'bold')}  "
    if len(f"{indent}{marker} {where}{line.setting}  {old} -> {new}") <= paint.width:
        return [f"{name}{paint(old, 'red')} -> {paint(new, 'green')}"]
    room = paint.width - len(indent) - 9
    before, after = (value if len(value) <= room else value[: room - 3] + "..." for value in (old, new))
    if len(f"{indent}{marker} {where}{line.setting}  {before} ->") <= paint.width:
        return [f"{name}{paint(before, 'red')} ->", f"{indent}      {paint(after, 'green')}"]
    return [f"{name}from", f"{indent}      {paint(before, 'red')}", f"{indent}   to {paint(after, 'green')}"]


def _line(line: Change, paint: Paint) -> list[str]:
    out = _first(line, paint, "  ")
    if line.is_effective:
        out += paint.wrapped(f"acts on {mechanism_words(line.mechanism)}; moves {ledger_words(line.ledgers)}", "      ")
        answer = paint(line.correctness, _CLASS_COLOUR[line.correctness])
        out.append(f"      answers: {answer}, {SHORT_CLASSES[line.correctness]}")
    if line.reason():
        out += paint.wrapped(line.reason(), "      ")
    if line.witness and line.is_effective and line.origin == "written":
        out += paint.wrapped(f"see that it is on: {line.witness}", "      ")
    return out


def _grouped(lines: list[Change], paint: Paint) -> list[str]:
    """Many lines: one each, under the thing that they act on, the group that changes answers most first."""
    groups: dict[tuple[str, str], list[Change]] = {}
    for line in lines:
        groups.setdefault((line.correctness, line.mechanism), []).append(line)
    out = []
    for (correctness, mechanism), members in groups.items():
        words = MECHANISMS.get(mechanism, mechanism)
        answer = paint(SHORT_CLASSES[correctness], _CLASS_COLOUR[correctness])
        title = paint.wrapped(f"{mechanism}: {words}; answers: {SHORT_CLASSES[correctness]}", "    ", "  ")
        title[0] = title[0].replace(mechanism, paint(mechanism, "bold"), 1)
        title[-1] = title[-1].replace(SHORT_CLASSES[correctness], answer)
        out += title
        out += [text for line in members for text in _first(line, paint, "    ")]
    return out


def _unknowns(diff: Diff, paint: Paint) -> list[str]:
    if not diff.unresolved:
        return []
    out = [paint("Not known from the input, never taken as equal", "bold")]
    for unknown in diff.unresolved:
        where = f"{unknown.manifest}: " if unknown.manifest else ""
        out += paint.wrapped(f"? {where}{unknown.what}: {unknown.why}", "    ", "  ")
    return [*out, ""]


def _own_findings(diff: Diff) -> list[Finding]:
    """Findings of the containers that are compared, each once: both sides often have the same."""
    paths = {manifest.source.path for manifest in (*diff.old, *diff.new)}
    own = [
        finding
        for finding in diff.warnings
        if "containers[" not in finding.path or any(finding.path.startswith(path) for path in paths)
    ]
    return list({(finding.code, finding.message): finding for finding in own}.values())


def _findings(diff: Diff, level: str, title: str, paint: Paint) -> list[str]:
    shown = [finding for finding in _own_findings(diff) if finding.level == level]
    if not shown:
        return []
    out = [paint(title, "red" if level == "error" else "yellow")]
    for finding in shown:
        out += paint.wrapped(f"! {finding.message} [{finding.code}]", "    ", "  ")
    return [*out, ""]


def _steps(diff: Diff, paint: Paint) -> list[str]:
    if not diff.split_order:
        return []
    out = [paint("To know what helped, go in these steps", "bold")]
    short = len(diff.split_order) > _MANY
    for number, step in enumerate(diff.split_order, 1):
        settings = ", ".join(step.settings[:6]) + (" ..." if len(step.settings) > 6 else "")
        out += paint.wrapped(f"{number}. {step.mechanism}: {settings}", "     ", "  ")
        if not short or number == 1:
            out += paint.wrapped(step.advice, "     ")
    if short:
        out += paint.wrapped(
            "The later steps release one group each from its old value (values: -o json).", "     ", "  "
        )
    return [*out, ""]
