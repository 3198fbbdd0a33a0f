"""A user's Prometheus, read for what it is worth: counters and histograms (classic and native) over a time range.

Used by the operator when `--prometheus-url` is given: a cross-check of stable's latency and the provider's health, for
people. No decision depends on it. Nothing is interpolated and nothing extrapolated: increases are differences of raw
samples, quantiles are bucket edges. Whatever goes wrong is a `Hold` with a reason, never an exception.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from controller.adapters.rounds import Rounds
from controller.evidence.views import ProviderView
from controller.ports import Clock
from policies.provider import (
    ClassicHistogram,
    Histogram,
    NativeHistogram,
    Sample,
    compare_quantile,
    one_per_pod,
    read_histograms,
    read_vector,
)
from policies.verdict import Hold, HoldReason

T = TypeVar("T")
TIMEOUT_SECONDS = 5
EVERY_SECONDS = 15.0
WINDOW_SECONDS = 300.0
QUANTILE = 0.99
MARGIN = 0.25  # of the comparison in words; gates have their own
Series = tuple[tuple[str, str], ...]


class PrometheusReader:
    """Reads one server."""

    def __init__(self, url: str, timeout_seconds: int = TIMEOUT_SECONDS) -> None:
        self._answers = threading.local()
        session = requests.Session()
        session.trust_env = False
        session.hooks["response"].append(self._keep)
        retry = Retry(total=0)
        self._client = PrometheusConnect(url=url.rstrip("/"), retry=retry, session=session, timeout=timeout_seconds)

    def vector(
        self, query: str, at_s: float, is_error_count: bool = False, ledger_requests: int = 0
    ) -> list[Sample] | Hold:
        """Samples of an instant query; see `policies.provider.read_vector` for what an empty answer means."""
        body = self._ask(query, at_s)
        return body if isinstance(body, Hold) else read_vector(body, is_error_count, ledger_requests)

    def _ask(self, query: str, at_s: float) -> Any:
        """The whole body of an instant query's answer, or a Hold."""
        try:
            self._client.custom_query(query, params={"time": f"{at_s:.3f}"})
            return self._answers.last.json()  # the client gives the result alone: warnings and type would be lost
        except requests.RequestException as error:
            return _unavailable(f"it does not answer ({type(error).__name__})")
        except PrometheusApiClientException as error:
            return _unavailable(f"it refuses the query: {str(error)[:200]}")
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return _unavailable("the answer is no query result")

    def increase(
        self, metric: str, selector: str, since_s: float, until_s: float, ledger_requests: int = 0
    ) -> float | Hold:
        """How much a counter grew between two times, added over its series.

        Args:
            selector: label matchers without braces.
            ledger_requests: requests that the recorder saw in that time: with some, a counter of errors that does not
            exist yet is zero; without, it is unknown.
        """
        found = self._pair(f"{metric}{{{selector}}}", since_s, until_s, ledger_requests)
        if isinstance(found, Hold):
            return found
        before, after = found
        if not any(after):
            return 0.0  # an error counter that nobody has touched yet
        grown = [after[s] - before[s] if before[s] <= after[s] else after[s] for s in after if s in before]
        return sum(grown) if grown else _no_data(metric)

    def histogram(self, metric: str, selector: str, since_s: float, until_s: float) -> ClassicHistogram | Hold:
        """A classic histogram over a time range, added over its series; they must have the same edges.

        A series that was reset in between counts from its reset; one that was not there at the beginning is left out.
        """
        found = self._pair(f"{metric}_bucket{{{selector}}}", since_s, until_s)
        if isinstance(found, Hold):
            return found
        before, after = (_by_series(samples) for samples in found)
        if before is None or after is None:
            return _unavailable(f"{metric} has a bucket without a readable edge")
        grown = [_grown(before[series], after[series]) for series in after if series in before]
        return _added(metric, grown) if grown else _no_data(metric)

    def native(self, metric: str, selector: str, since_s: float, until_s: float) -> NativeHistogram | Hold:
        """A native histogram over a time range, its series side by side: their resolutions may differ.

        A series that was reset in between counts from its reset; one that was not there at the beginning is left out;
        one whose buckets became finer in between refuses the whole.
        """
        ends = []
        for at_s in (since_s, until_s):
            body = self._ask(f"{metric}{{{selector}}}", at_s)
            found = body if isinstance(body, Hold) else read_histograms(body)
            if isinstance(found, Hold):
                return found
            ends.append(_one_per_series(found))
        before, after = ends
        parts: list[tuple[float, float, float]] = []
        for series in after.keys() & before.keys():
            grown = after[series].since(before[series])
            if grown is None:
                return Hold(HoldReason.TOO_COARSE, f"{metric} changed its buckets within the time")
            parts += grown.buckets
        return NativeHistogram(tuple(sorted(parts))) if parts else _no_data(metric)

    def either(self, metric: str, selector: str, since_s: float, until_s: float) -> Histogram | Hold:
        """The native histogram where the server has one, else the classic one."""
        found = self.native(metric, selector, since_s, until_s)
        if not isinstance(found, Hold) or found.reason is HoldReason.TOO_COARSE:
            return found
        return self.histogram(metric, selector, since_s, until_s)

    def _pair(
        self, query: str, since_s: float, until_s: float, ledger_requests: int = 0
    ) -> tuple[dict[Series, float], dict[Series, float]] | Hold:
        """Samples at both ends, doubles of one pod left out."""
        ends = []
        for at_s in (since_s, until_s):
            samples = self.vector(query, at_s, ledger_requests > 0, ledger_requests)
            if isinstance(samples, Hold):
                return samples
            kept, _ = one_per_pod(samples)
            ends.append({tuple(sorted(sample.labels.items())): sample.value for sample in kept})
        return ends[0], ends[1]

    def _keep(self, answer: requests.Response, *_: Any, **__: Any) -> None:
        self._answers.last = answer


def _unavailable(why: str) -> Hold:
    return Hold(HoldReason.PROVIDER_UNAVAILABLE, f"the metrics provider cannot be used: {why}")


def _no_data(metric: str) -> Hold:
    return Hold(HoldReason.NO_FRESH_DATA, f"{metric} has no series that covers the time: missing data is not good data")


def _one_per_series(
    found: Sequence[tuple[Mapping[str, str], NativeHistogram]],
) -> dict[Series, NativeHistogram]:
    """Histograms by their labels, doubles of one pod left out."""
    kept, _ = one_per_pod([Sample(labels, float(i)) for i, (labels, _) in enumerate(found)])
    return {tuple(sorted(s.labels.items())): found[int(s.value)][1] for s in kept}


def _by_series(samples: Mapping[Series, float]) -> dict[Series, dict[float, float]] | None:
    """Cumulative counts by edge, per series without its edge; None where an edge cannot be read."""
    found: dict[Series, dict[float, float]] = {}
    for labels, value in samples.items():
        try:
            edge = float(dict(labels)["le"])
        except (KeyError, ValueError):
            return None
        found.setdefault(tuple(pair for pair in labels if pair[0] != "le"), {})[edge] = value
    return found


def _grown(before: Mapping[float, float], after: Mapping[float, float]) -> dict[float, float]:
    if any(after[edge] < before.get(edge, 0.0) for edge in after):
        return dict(after)  # a reset: everything since then happened within the range
    return {edge: after[edge] - before.get(edge, 0.0) for edge in after}


def _added(metric: str, parts: Sequence[Mapping[float, float]]) -> ClassicHistogram | Hold:
    edges = tuple(sorted(parts[0]))
    if any(tuple(sorted(part)) != edges for part in parts):
        return Hold(HoldReason.TOO_COARSE, f"the pods' {metric} have different bucket edges and cannot be added")
    counts = tuple(sum(part[edge] for part in parts) for edge in edges)
    if not math.isinf(edges[-1]) or any(a > b for a, b in pairwise(counts)):
        return _unavailable(f"{metric} is no histogram: no +Inf bucket, or counts that fall")
    if counts[-1] <= 0:
        return _no_data(metric)
    return ClassicHistogram(edges, counts)


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """What to read of a rollout: a histogram in seconds, label matchers of stable's and of the candidate's pods."""

    metric: str
    selector: str
    candidate: str = ""


class ProviderWatch:
    """Reads stable's latency every few seconds for people; implements `controller.live.Provider`."""

    def __init__(self, reader: PrometheusReader, clock: Clock, every_s: float = EVERY_SECONDS) -> None:
        self._reader, self._clock = reader, clock
        self._lock = threading.Lock()
        self._checks: dict[str, CrossCheck] = {}
        self._views: dict[str, ProviderView] = {}
        self._rounds = Rounds("provider", self._round, every_s)

    def watch(self, rollout: str, metric: str, selector: str, candidate: str = "") -> None:
        """Read this from now on; `candidate`: label matchers of its pods, "" while it has none."""
        check = CrossCheck(metric, selector, candidate)
        with self._lock:
            if self._checks.get(rollout) == check:
                return
            self._checks[rollout] = check
            self._views.pop(rollout, None)
        self._rounds.wake()

    def view(self, rollout: str) -> ProviderView:
        """What was read last."""
        with self._lock:
            return self._views.get(rollout, ProviderView(configured=True, message="not read yet"))

    def forget(self, rollout: str) -> None:
        """A rollout is gone."""
        with self._lock:
            self._checks.pop(rollout, None)
            self._views.pop(rollout, None)

    def stop(self) -> None:
        """End the thread."""
        self._rounds.stop()

    def _round(self) -> None:
        with self._lock:
            checks = dict(self._checks)
        for rollout, check in checks.items():
            view = look(self._reader, check, self._clock.now)
            with self._lock:
                if self._checks.get(rollout) == check:
                    self._views[rollout] = view


def look(reader: PrometheusReader, check: CrossCheck, now: Callable[[], float]) -> ProviderView:
    """One reading: the edges between which stable's P99 lies, or why there is none."""
    until_s = now()
    since_s = until_s - WINDOW_SECONDS
    found = reader.either(check.metric, check.selector, since_s, until_s)
    if isinstance(found, Hold):
        is_up = found.reason is not HoldReason.PROVIDER_UNAVAILABLE
        return ProviderView(configured=True, healthy=is_up, message=found.message, metric=check.metric, at_s=until_s)
    bounds = found.quantile_bounds(QUANTILE)
    low, high = bounds if bounds is not None else (None, None)
    is_over = high is not None and math.isinf(high)
    return ProviderView(
        configured=True,
        healthy=True,
        message="P99 lies in the overflow bucket" if is_over else _beside(reader, check, found, since_s, until_s),
        metric=check.metric,
        quantile=QUANTILE,
        low_s=low,
        high_s=None if is_over else high,
        requests=found.total,
        window_s=WINDOW_SECONDS,
        at_s=until_s,
    )


def _beside(reader: PrometheusReader, check: CrossCheck, stable: Histogram, since_s: float, until_s: float) -> str:
    """What the provider says of the candidate beside stable, in words for people; empty where there is none."""
    if not check.candidate:
        return ""
    candidate = reader.either(check.metric, check.candidate, since_s, until_s)
    if isinstance(candidate, Hold):
        return f"candidate: {candidate.message}"
    refused = compare_quantile(stable, candidate, QUANTILE, MARGIN)
    if refused is not None:
        return f"candidate: {refused.message}"
    (_, top), (low, high) = (h.quantile_bounds(QUANTILE) or (0.0, 0.0) for h in (stable, candidate))
    beyond = "beyond" if low > top * (1 + MARGIN) else "within"
    return f"candidate's P99 lies in ({low:g}, {high:g}] s, {beyond} {1 + MARGIN:g}x stable's"
