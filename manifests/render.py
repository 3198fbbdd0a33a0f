"""A diff as a screen for an on-call engineer: plain text or ANSI colour.

Called by the CLI; the dashboard shows the same parts from :class:`manifests.diff.Diff`. What matters first: does
anything change, by which mechanism, what must be proven; then the lines the authors wrote, then the lines that
nobody wrote.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable

from manifests.diff import Diff
from manifests.lines import Change, show
from manifests.model import Manifest

Paint = Callable[[str, str], str]
_WIDTH = 100
_PROOF = {
    "semantic-exact": "answers must agree within floating-point reordering",
    "distribution-exact": "the distribution of sampled answers must not change",
    "approximate": "task quality, long context and structured output must be proven",
    "contract-change": "old and new are not comparable by latency alone",
    "none": "answers cannot change",
}
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


def render_text(diff: Diff, colour: bool = False) -> str:
    """The screen of a diff; ``colour`` adds ANSI codes, the words are the same."""
    paint = _painter(colour)
    out = [*_head(diff, paint), ""]
    for title, lines in _sections(diff):
        out.append(paint(title, "bold"))
        for line in lines:
            out += _line(line, paint)
        out.append("")
    if diff.unresolved:
        out.append(paint("Not known from the input, never taken as equal", "bold"))
        for unknown in diff.unresolved:
            where = f"{unknown.manifest}: " if unknown.manifest else ""
            out += _wrapped(f"? {where}{unknown.what}: {unknown.why}", "    ", "  ")
        out.append("")
    out += _findings(diff, paint)
    out += _steps(diff, paint)
    return "\n".join(out).rstrip() + "\n"


def _painter(colour: bool) -> Paint:
    def paint(text: str, name: str) -> str:
        return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if colour else text

    return paint


def _title(manifests: Iterable[Manifest]) -> str:
    parts = []
    for manifest in manifests:
        version = f" {manifest.engine.version}" if manifest.engine.version else ""
        parts.append(f"{manifest.name} ({manifest.engine.name}{version}, {manifest.role})")
    return ", ".join(parts)


def _head(diff: Diff, paint: Paint) -> list[str]:
    old, new = _title(diff.old), _title(diff.new)
    out = [f"old  {old}", f"new  {new}"]
    if not diff.effective:
        return [*out, paint("No effective change: the engine gets the same on both sides.", "green")]
    names = ", ".join(diff.mechanisms) or "none"
    bundle = f"a bundle of {len(diff.mechanisms)} mechanisms" if len(diff.mechanisms) > 1 else "one mechanism"
    out.append(paint(f"Changes {bundle}: {names}.", "bold"))
    worst = diff.correctness
    out.append(f"To be proven: {paint(worst, _CLASS_COLOUR[worst])}, {_PROOF[worst]}.")
    return out


def _sections(diff: Diff) -> list[tuple[str, list[Change]]]:
    groups: dict[str, list[Change]] = {key: [] for key, _ in _TITLES}
    for line in diff.changes:
        if not line.is_effective:
            groups["inert"].append(line)
        elif line.origin in ("version-default", "written"):
            groups[line.origin].append(line)
        elif line.origin in ("derived", "hardware-default"):
            groups["derived"].append(line)
        else:
            groups["image"].append(line)
    return [(title, groups[key]) for key, title in _TITLES if groups[key]]


def _line(line: Change, paint: Paint) -> list[str]:
    where = f"{line.manifest}: " if line.manifest else ""
    marker = "~" if line.is_effective else "="
    value = f"{paint(show(line.old), 'red')} -> {paint(show(line.new), 'green')}"
    out = [f"  {marker} {where}{paint(line.setting, 'bold')}  {value}"]
    if line.is_effective:
        ledgers = " ".join(line.ledgers) or "-"
        out.append(
            f"      {line.mechanism} | ledgers {ledgers} | {paint(line.correctness, _CLASS_COLOUR[line.correctness])}"
        )
    out += _wrapped(line.why, "      ")
    if line.witness and line.is_effective and line.origin == "written":
        out += _wrapped(f"on when: {line.witness}", "      ")
    return out


def _wrapped(text: str, indent: str, first: str | None = None) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first if first is not None else indent, subsequent_indent=indent
    ) or [indent]


def _findings(diff: Diff, paint: Paint) -> list[str]:
    shown = [finding for finding in diff.warnings if finding.level in ("error", "warning")]
    if not shown:
        return []
    out = [paint("To be looked at", "bold")]
    for finding in sorted(shown, key=lambda entry: entry.level != "error"):
        colour = "red" if finding.level == "error" else "yellow"
        out.append(f"  {paint(finding.level, colour)} {finding.code}")
        out += _wrapped(finding.message, "      ")
    return [*out, ""]


def _steps(diff: Diff, paint: Paint) -> list[str]:
    if not diff.split_order:
        return []
    out = [paint("To know what helped, split it in this order", "bold")]
    for number, step in enumerate(diff.split_order, 1):
        settings = ", ".join(step.settings[:6]) + (" ..." if len(step.settings) > 6 else "")
        out += _wrapped(f"{number}. {step.mechanism} ({step.correctness}): {settings}", "     ", "  ")
        out += _wrapped(step.advice, "     ")
    return [*out, ""]
