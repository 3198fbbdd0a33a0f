"""The demo's screen: a live view on a terminal, plain lines elsewhere.

Called by `acts.py` with what the cluster says; it holds no opinion and asks nothing itself.
"""

import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from tools.demo.checks import Felt
    from tools.demo.story import Act

_VERDICT_STYLE = {"PASS": "bold green", "FAIL": "bold red", "INCONCLUSIVE": "yellow", "HOLD": "magenta"}
_VERDICT_SIGN = {"PASS": "✓", "FAIL": "✗", "INCONCLUSIVE": "…", "HOLD": "‖"}
_WORSE_FIRST = ("FAIL", "HOLD", "INCONCLUSIVE", "PASS")
PLAIN_INTERVAL_SECONDS = 15.0
MESSAGE_LENGTH = 150


@dataclass
class Screen:
    """Narration above, the state of the rollout below.

    Attributes:
        console: where to write.
        title: the act that is running.
    """

    console: Console = field(default_factory=lambda: Console(highlight=False, soft_wrap=not sys.stdout.isatty()))
    title: str = ""
    _live: Live | None = None
    _last_plain: tuple[str, float] = ("", 0.0)
    _started: float = field(default_factory=time.monotonic)

    def __enter__(self) -> "Screen":
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def act(self, title: str, about: str) -> None:
        """Start an act."""
        self.title = title
        self.console.print()
        self.console.rule(f"[bold]{title}", align="left")
        self.console.print(Text(about, style="dim"))

    def say(self, text: str, style: str = "") -> None:
        """One line of narration with the time since the start."""
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        self.console.print(Text(f"{minutes:02d}:{seconds:02d}  ", style="dim") + Text(text, style=style))

    def good(self, text: str) -> None:
        """A thing that is as it should be."""
        self.say(f"✓ {text}", "green")

    def bad(self, text: str) -> None:
        """A thing that is not."""
        self.say(f"✗ {text}", "bold red")

    def show(self, rollout: dict[str, Any], rows: list[dict[str, Any]], felt: dict[str, Any]) -> None:
        """Redraw the live part; on a plain console a line when the message changes or every 15 seconds."""
        status = rollout.get("status", {})
        if self._live:
            self._live.update(_view(self.title, status, rows, felt))
            return
        if not status.get("phase"):
            return
        message = f"{_where(status)}: {_short(str(status.get('message', '')))}"
        what = re.sub(r"\d[\d.]*", "", message)  # numbers alone that move are no news
        if what != self._last_plain[0] or time.monotonic() - self._last_plain[1] > PLAIN_INTERVAL_SECONDS:
            self._last_plain = (what, time.monotonic())
            self.say(" · ".join(part for part in (message, _counts(rows), felt_sentence(felt)) if part))

    def summary(self, acts: Sequence["Act"], total: "Felt | None" = None) -> None:
        """One line per act: how it ended, and what users felt; with `total` what ended between acts, and the sum."""
        table = Table(box=None, padding=(0, 3, 0, 0))
        for name in ("act", "ended", "live requests", "failed", "TTFT P50", "TTFT P99", "served by the candidate"):
            table.add_column(name, justify="left" if name in ("act", "ended") else "right")
        for act in acts:
            felt = act.felt
            if felt is None:
                continue
            served = "–" if act.candidate_requests is None else f"{act.candidate_requests:,}"
            latencies = ("–" if s is None else f"{1000 * s:,.0f} ms" for s in (felt.ttft_p50, felt.ttft_p99))
            table.add_row(act.title, act.end, f"{felt.requests:,}", f"{felt.failed:,}", *latencies, served)
        if total is not None:
            told = [act.felt for act in acts if act.felt is not None]
            between = total.requests - sum(felt.requests for felt in told)
            failed = total.failed - sum(felt.failed for felt in told)
            table.add_row("between and after", "", f"{between:,}", f"{failed:,}")
            table.add_row("all", "", f"{total.requests:,}", f"{total.failed:,}")
        self.console.print(table)


def felt_sentence(felt: dict[str, Any]) -> str:
    """What users felt in the last seconds, in one sentence, from the load generator's own line."""
    if not felt:
        return ""
    rate = sum(tenant["rate"] for tenant in felt["tenants"].values())
    failed = sum(count for outcome, count in felt["outcomes"].items() if outcome != "ok")
    ttft = felt["all"].get("ttft") or {}
    latency = f"TTFT P50 {1000 * ttft['p50']:.0f} ms, P99 {1000 * ttft['p99']:.0f} ms, " if ttft else ""
    return f"users: {rate:.0f} requests/s, {latency}{failed} failed since the start"


def _where(status: dict[str, Any]) -> str:
    """Phase and, where it says more, the weight."""
    phase, weight = str(status.get("phase", "")), int(status.get("step", {}).get("weight") or 0)
    return f"{phase} {weight} %" if phase in ("Canary", "Ramp") else phase


def _short(message: str) -> str:
    return message if len(message) <= MESSAGE_LENGTH else message[: MESSAGE_LENGTH - 1].rsplit(" ", 1)[0] + " …"


def _counts(rows: list[dict[str, Any]]) -> str:
    """How many checks are decided; empty before there is any."""
    counted = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in _WORSE_FIRST}
    if not rows:
        return ""
    breached = f", {counted['FAIL']} breached" if counted["FAIL"] else ""
    return f"{counted['PASS']} of {len(rows)} checks proven{breached}"


def _view(title: str, status: dict[str, Any], rows: list[dict[str, Any]], felt: dict[str, Any]) -> RenderableType:
    head = Table.grid(padding=(0, 2))
    step = status.get("step", {})
    head.add_row("phase", Text(str(status.get("phase", "")), style="bold"), "step", str(step.get("name", "")))
    head.add_row("stable", str(status.get("stable", "")), "candidate", str(status.get("candidate", "")))
    weight = int(step.get("weight") or 0)
    bar = ProgressBar(total=100, completed=weight, width=40)
    parts: list[RenderableType] = [
        head,
        Table.grid(padding=(0, 1)) if not weight else _weight_row(bar, weight),
        Text(str(status.get("message", "")), style="italic"),
        _matrix(rows),
        Text(felt_sentence(felt), style="cyan"),
    ]
    return Panel(Group(*parts), title=title, title_align="left", border_style="blue")


def _weight_row(bar: ProgressBar, weight: int) -> Table:
    row = Table.grid(padding=(0, 1))
    row.add_row("candidate's live share", bar, f"{weight} %")
    return row


def _matrix(rows: list[dict[str, Any]]) -> RenderableType:
    if not rows:
        return Text("no verdicts yet", style="dim")
    buckets = sorted({row["bucket"] for row in rows}, key=_bucket_start)
    table = Table(box=None, padding=(0, 2))
    table.add_column("tenant", style="bold")
    for bucket in buckets:
        table.add_column(f"{bucket} tokens")
    for tenant in sorted({row["tenant"] for row in rows}):
        table.add_row(
            tenant, *(_cell([r for r in rows if r["tenant"] == tenant and r["bucket"] == b]) for b in buckets)
        )
    return table


def _bucket_start(name: str) -> int:
    digits = name.split("-")[0].rstrip("+")
    return int(digits) if digits.isdigit() else 1 << 30


def _cell(rows: list[dict[str, Any]]) -> Text:
    if not rows:
        return Text("–", style="dim")
    worst = min(rows, key=lambda row: _WORSE_FIRST.index(row["verdict"]) if row["verdict"] in _WORSE_FIRST else 9)
    passed = sum(row["verdict"] == "PASS" for row in rows)
    name = worst["verdict"]
    label = f"{_VERDICT_SIGN.get(name, '?')} {passed}/{len(rows)}"
    if name != "PASS":
        label += f" {worst['metric']}"
    return Text(label, style=_VERDICT_STYLE.get(name, ""))
