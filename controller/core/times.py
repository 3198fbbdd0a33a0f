"""RFC 3339 times of status <-> Unix seconds, and durations that never come out negative. Pure."""

from datetime import UTC, datetime


def to_text(seconds: float) -> str:
    """Milliseconds, for clocks that the machine computes with."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def to_short_text(seconds: float) -> str:
    """Whole seconds, as Kubernetes writes condition times."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_text(text: str | None) -> float | None:
    """Unix seconds of an RFC 3339 time; None for what is no time."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def since(start: str | None, now_s: float) -> float:
    """Seconds since a stored time: zero for one that is absent or lies in the future (clocks may have jumped)."""
    at_s = from_text(start)
    return 0.0 if at_s is None else max(0.0, now_s - at_s)


def span_text(seconds: float) -> str:
    """A duration for people: `45 s`, `12 min`, `3.0 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
