"""Numbers and times as people read them. Used by templates (as filters), by plots and by `weighlock status`. Pure."""

import math
from datetime import UTC, datetime

UNKNOWN = "–"
_HUGE = 1e300


def seconds(value: float | None) -> str:
    """A latency: 3 significant digits, in µs, ms or s."""
    if value is None:
        return UNKNOWN
    if value >= 1.0:
        return f"{_digits(value)} s"
    if value >= 1e-3:
        return f"{_digits(value * 1e3)} ms"
    return f"{_digits(value * 1e6)} µs" if value > 0 else "0 s"


def share(value: float | None) -> str:
    """A fraction as percent."""
    if value is None:
        return UNKNOWN
    percent = 100.0 * value
    if 0 < abs(percent) < 0.01:
        return "<0.01 %"
    return f"{_trim(f'{percent:.2f}' if abs(percent) < 10 else f'{percent:.1f}')} %"


def metric_value(metric: str, value: float | None) -> str:
    """A value of a metric: a time for latencies, else a share of requests."""
    return share(value) if metric in ("success", "goodFraction", "goodput") else seconds(value)


def ratio(value: float | None) -> str:
    """A ratio against stable."""
    return UNKNOWN if value is None else f"{value:.3f}×" if value < 10 else f"{_digits(value)}×"


def count(value: float | None) -> str:
    """A whole number with thin spaces."""
    return UNKNOWN if value is None else f"{round(value):,}".replace(",", "\u202f")


def rate(value: float | None) -> str:
    """Requests per second."""
    return UNKNOWN if value is None else f"{_digits(value)}/s"


def evidence(value: float | None) -> str:
    """An e-value: plain while small, a power of ten when large."""
    if value is None:
        return UNKNOWN
    if value >= _HUGE:
        return "∞"
    if value < 1e-3:
        return "<0.001"
    if value < 10_000:
        return _digits(value)
    return f"10^{math.floor(math.log10(value))}"


def duration(value: float | None) -> str:
    """A span of time, two units at most: 45 s, 12 min, 3 h 5 min, 2 d 4 h."""
    if value is None:
        return UNKNOWN
    whole = max(0, round(value))
    if whole < 90:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def clock(unix_s: float | None) -> str:
    """A moment as people read it: 2026-11-29 18:02:11 UTC."""
    return UNKNOWN if unix_s is None else datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(unix_s: float | None) -> str:
    """A moment as machines read it."""
    return "" if unix_s is None else datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str | None) -> float | None:
    """Unix seconds of an RFC 3339 time; None where there is none or it is not one."""
    if not text:
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


METRIC_WORDS = {
    "ttft": "Time to first token",
    "tpot": "Time per output token",
    "maxGap": "Longest gap",
    "e2e": "Whole request",
    "success": "Success",
    "goodFraction": "Good requests",
    "goodput": "Goodput",
}


def gate_name(metric: str, gate: str) -> str:
    """A gate in words: `P99 time to first token, against stable`."""
    percentile, _, side = gate.rpartition("-")
    name = METRIC_WORDS.get(metric, metric)
    text = f"{percentile.upper()} {name[0].lower()}{name[1:]}" if percentile else name
    return f"{text} {'vs stable' if side == 'margin' else 'vs limit'}"


def short_gate(metric: str, gate: str) -> str:
    """A gate in few letters: `ttft p99 · margin`."""
    percentile, _, side = gate.rpartition("-")
    return f"{metric} {percentile} · {side}" if percentile else f"{metric} · {side}"


def _digits(value: float) -> str:
    """Three significant digits, no exponent."""
    if value == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return _trim(f"{value:.{places}f}")


def _trim(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
