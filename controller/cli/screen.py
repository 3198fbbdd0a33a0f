"""What `weighlock status` shows, as rich renderables. Pure: a page in, a screen out."""

from collections.abc import Iterable, Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from controller.dashboard import words
from controller.dashboard.matrix import SIGNS, WORDS, Cell, State
from controller.dashboard.page import Line, Page

_STYLES = {
    State.FAIL: "bold red",
    State.HOLD: "bold magenta",
    State.INCONCLUSIVE: "yellow",
    State.PASS: "green",
    State.NO_TRAFFIC: "dim",
}
_TONES = {"good": "green", "wait": "yellow", "act": "cyan", "bad": "red"}
_BAR_CELLS = 36
_WIDE_COLUMNS = 110


class Listing:
    """All rollouts as a table; on a narrow screen without revisions, and each message below its rollout."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = tuple(lines)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Drawn for the width that there is."""
        if not self._lines:
            yield Text("No InferenceRollout here.")
        elif options.max_width >= _WIDE_COLUMNS:
            yield self._table()
        else:
            yield from self._stack()

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for title in ("NAMESPACE", "NAME", "PHASE", "STEP", "WEIGHT", "STABLE", "CANDIDATE", "MESSAGE"):
            table.add_column(title, overflow="fold" if title == "MESSAGE" else "ellipsis", no_wrap=title != "MESSAGE")
        for line in self._lines:
            row = (line.namespace, line.name, line.phase, line.step_name, f"{line.weight} %")
            table.add_row(*(Text(text) for text in (*row, line.stable, line.candidate, _told(line))))
        return table

    def _stack(self) -> Iterator[Text]:
        for line in self._lines:
            facts = " · ".join(filter(None, (line.phase, line.step_name, f"{line.weight} %")))
            yield Text.assemble((f"{line.namespace}/{line.name}", "bold"), f"  {facts}")
            if told := _told(line):
                yield Text(f"  {told}")


def _told(line: Line) -> str:
    marks = f"[{', '.join(line.marks)}] " if line.marks else ""
    return marks + line.message


def rollout(page: Page, who: str) -> RenderableType:
    """One rollout: phase, weight, steps, matrix, what is missing, who must act."""
    parts: list[RenderableType] = [_headline(page), _bar(page), _steps(page), Text()]
    parts += [_matrix(page)] if page.matrix.cells else [Text("No verdict yet.", style="dim")]
    parts += [Text(), *_missing(page), *_notices(page), Text()]
    parts.append(Text.assemble(("Who must act: ", "bold"), (who, "cyan")))
    if page.evidence_problem:
        parts.append(Text(page.evidence_problem, style="dim"))
    title = Text(f"{page.namespace}/{page.name}", style="bold")
    return Panel(Group(*parts), title=title, title_align="left", padding=(1, 2))


def _headline(page: Page) -> Text:
    verdict = f" · {page.result}" if page.result else ""
    text = Text.assemble((page.phase, "bold cyan"), f" · attempt {page.attempt}", (verdict, "bold"))
    if page.message:
        text.append(f"\n{page.message}")
    return text


def _bar(page: Page) -> Text:
    filled = round(_BAR_CELLS * page.weight / 100)
    return Text.assemble(
        (f"{page.candidate or 'no candidate'} {page.weight} % ", "cyan"),
        ("█" * filled, "cyan"),
        ("░" * (_BAR_CELLS - filled), "dim"),
        f" {100 - page.weight} % {page.stable or 'no stable'}",
    )


def _steps(page: Page) -> Text:
    signs = {"done": ("✓ ", "green"), "now": ("▶ ", "bold cyan"), "next": ("· ", "dim"), "failed": ("✕ ", "bold red")}
    text = Text()
    for stop in page.stops:
        sign, style = signs[stop.state]
        text.append(f"{sign}{stop.name}{' (approval)' if stop.approval else ''}   ", style=style)
    return text


def _matrix(page: Page) -> Table:
    table = Table(title=None, header_style="dim", show_lines=False)
    table.add_column("tenant", style="bold")
    for bucket in page.matrix.buckets:
        table.add_column(bucket)
    for tenant in page.matrix.tenants:
        cells = [page.matrix.cell(tenant, bucket) for bucket in page.matrix.buckets]
        table.add_row(Text(tenant), *(_cell(cell) for cell in cells if cell is not None))
    return table


def _cell(cell: Cell) -> Text:
    text = Text(f"{SIGNS[cell.state]} {WORDS[cell.state]}", style=_STYLES[cell.state])
    if cell.worst is None or cell.state is State.PASS:
        return text
    text.append(f"\n{words.short_gate(cell.worst['metric'], cell.worst['gate'])}", style="default")
    if cell.needed is not None:
        eta = f", {words.duration(cell.eta_s)}" if cell.eta_s is not None else ""
        text.append(f"\n{words.count(cell.needed)} more{eta}", style="dim")
    return text


def _missing(page: Page) -> list[Text]:
    lines = []
    status = (page.rollout.get("status") or {}).get("verdict") or {}
    needed = page.verdict.get("requests_needed", status.get("requestsNeeded"))
    worst = page.verdict.get("worst") or status.get("worst") or {}
    if needed is not None:
        eta = page.verdict.get("eta_s")
        place = "/".join(str(worst[key]) for key in ("tenant", "bucket", "metric") if worst.get(key))
        where = f" ({place} is farthest from passing)" if place else ""
        about = f", about {words.duration(eta)}" if eta is not None else ""
        lines.append(Text(f"Missing: {words.count(needed)} more candidate requests{about}{where}"))
    for hold in page.verdict.get("holds") or ():
        where = "/".join(str(hold[key]) for key in ("tenant", "bucket") if hold.get(key))
        lines.append(Text(f"‖ {hold['reason']}{' ' + where if where else ''}: {hold['message']}", style="magenta"))
    return lines


def _notices(page: Page) -> list[Text]:
    return [
        Text.assemble((notice.title, _TONES[notice.tone]), f" {notice.reason}: {notice.message}")
        for notice in page.notices
        if notice.tone in ("act", "bad")
    ]
