"""Accepted is not active: the candidate pods' metrics pages, read every ten seconds while an attempt runs.

Implements `controller.live.Witnesses`; made by the operator's start-up. One thread for all rollouts; nobody waits for
it, and what it sees decides nothing: people see it.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

from controller.adapters.rounds import Rounds
from controller.evidence.views import WitnessView
from manifests.engines.metrics import NotExposition, parse_metrics
from manifests.model import Manifest
from manifests.witness import ACTIVE, CANNOT_TELL, INACTIVE, Judgement, mechanisms_on, witnesses

EVERY_SECONDS = 10.0
LARGEST_PAGE_BYTES = 8 * 2**20
_STATES = {ACTIVE: "active", INACTIVE: "inactive", CANNOT_TELL: "unknown"}
_WORST_FIRST = ("inactive", "unknown", "active")


@dataclass(frozen=True, slots=True)
class _Watched:
    manifest: Manifest
    targets: Mapping[str, str]
    views: tuple[WitnessView, ...] = field(default=())


class WitnessScraper:
    """Reads what it is told to watch."""

    def __init__(self, every_s: float = EVERY_SECONDS) -> None:
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._http = httpx.Client(timeout=3.0, trust_env=False)
        self._rounds = Rounds("witnesses", self._round, every_s)

    def watch(self, rollout: str, manifest: Manifest | None, targets: Mapping[str, str]) -> None:
        """Read exactly these pages of a rollout (pod -> URL); without a manifest none."""
        with self._lock:
            known = self._watched.get(rollout)
            if manifest is None:
                self._watched.pop(rollout, None)
                return
            if known is not None and known.targets == targets and known.manifest == manifest:
                return
            kept = known.views if known is not None and known.manifest == manifest else unseen(manifest)
            self._watched[rollout] = _Watched(manifest, dict(targets), kept)
        self._rounds.wake()

    def views(self, rollout: str) -> tuple[WitnessView, ...]:
        """One entry per mechanism that the manifest turns on."""
        with self._lock:
            found = self._watched.get(rollout)
        return found.views if found is not None else ()

    def stop(self) -> None:
        """End the thread."""
        self._rounds.stop()

    def _round(self) -> None:
        with self._lock:
            todo = dict(self._watched)
        for rollout, watched in todo.items():
            views = self._look(watched)
            with self._lock:
                if self._watched.get(rollout) is watched:
                    self._watched[rollout] = _Watched(watched.manifest, watched.targets, views)

    def _look(self, watched: _Watched) -> tuple[WitnessView, ...]:
        seen = [self._page(watched.manifest, pod, url) for pod, url in watched.targets.items()]
        return combine([views for views in seen if views]) or unseen(watched.manifest)

    def _page(self, manifest: Manifest, pod: str, url: str) -> tuple[WitnessView, ...]:
        try:
            answer = self._http.get(url)
            answer.raise_for_status()
            if len(answer.content) > LARGEST_PAGE_BYTES:
                return unseen(manifest, f"the page has {len(answer.content)} bytes", pod)
            page = parse_metrics(answer.text)
        except (httpx.HTTPError, NotExposition, ValueError) as error:
            return unseen(manifest, f"/metrics cannot be read ({type(error).__name__})", pod)
        return tuple(_view(judgement, pod) for judgement in witnesses(manifest, page))


def unseen(
    manifest: Manifest, why: str = "no metrics page has been read yet", pod: str = ""
) -> tuple[WitnessView, ...]:
    """Every mechanism as unknown, with the reason."""
    return tuple(WitnessView(mechanism=name, witness=why, source=pod) for name in mechanisms_on(manifest))


def combine(pods: list[tuple[WitnessView, ...]]) -> tuple[WitnessView, ...]:
    """The worst of all pods per mechanism: one pod on which it is off is what a person must see."""
    worst: dict[str, WitnessView] = {}
    for views in pods:
        for view in views:
            known = worst.get(view.mechanism)
            if known is None or _WORST_FIRST.index(view.state) < _WORST_FIRST.index(known.state):
                worst[view.mechanism] = view
    return tuple(worst.values())


def _view(judgement: Judgement, pod: str) -> WitnessView:
    return WitnessView(
        mechanism=judgement.mechanism,
        witness=judgement.evidence or "/metrics",
        expected="active",
        observed=judgement.reason,
        state=_STATES[judgement.state],
        source=pod,
    )
