"""Reads everything that a page shows, with the person's own token, all at once.

Used by `app.py`. The API server's word is needed; the evidence API's is welcome: where it does not answer the page says
so and shows the rest.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller.adapters.evidence_client import EvidenceClient, EvidenceProblem
from controller.adapters.person_api import NotSignedIn, PersonApi, Refused, may_all
from controller.dashboard.page import Page, make_page
from controller.dashboard.sessions import Session
from crds.v1alpha1.action import ActionKind

_RIGHTS_SECONDS = 20.0
VERBS = [kind.value for kind in ActionKind]


@dataclass(frozen=True, slots=True)
class Listing:
    """Rollouts that a person may see. `refused`: namespaces that they may not look into."""

    rollouts: tuple[Mapping[str, Any], ...]
    namespaces: tuple[str, ...]
    refused: tuple[str, ...] = ()
    problem: str = ""


async def gather_page(
    api: PersonApi, evidence: EvidenceClient, token: str, where: tuple[str, str], selected: tuple[str, str] | None
) -> Page:
    """The page of a rollout; raises Refused or NotSignedIn where the API server says so."""
    namespace, name = where
    rollout, actions, live, history = await asyncio.gather(
        api.get("inferencerollouts", namespace, name),
        _or_problem(api.list("rolloutactions", namespace)),
        _or_problem(evidence.live(token, namespace, name)),
        _or_problem(evidence.history(token, namespace, name)),
    )
    own = [a for a in actions if a["spec"].get("rollout") == name] if isinstance(actions, list) else []
    problems = [str(answer) for answer in (live, history) if isinstance(answer, Exception)]
    return make_page(
        rollout,
        own,
        None if isinstance(live, Exception) else live,
        None if isinstance(history, Exception) else history,
        problems[0] if problems else "",
        selected,
    )


async def _or_problem(call: Any) -> Any:
    try:
        return await call
    except (EvidenceProblem, Refused) as error:
        return error


async def gather_rights(api: PersonApi, session: Session, where: tuple[str, str]) -> dict[str, bool]:
    """Verb -> allowed, and `create`: may RolloutActions be created; asked again after some seconds."""
    kept = session.rights.get(where)
    if kept is not None and time.monotonic() - kept[0] < _RIGHTS_SECONDS:
        return kept[1]
    try:
        rights = await may_all(api, VERBS, *where)
    except Refused:
        return dict.fromkeys([*VERBS, "create"], False)
    session.rights[where] = (time.monotonic(), rights)
    return rights


async def gather_listing(api: PersonApi, configured: tuple[str, ...], wanted: str) -> Listing:
    """All rollouts where they may list them everywhere, else those of the namespaces they may look into.

    Args:
        configured: namespaces that the dashboard was started for, for people who may not list namespaces.
        wanted: one namespace that was asked for ("" = all).
    """
    if not wanted:
        try:
            found = await api.list("inferencerollouts")
            return Listing(_sorted(found), tuple(sorted({r["metadata"]["namespace"] for r in found})))
        except Refused as error:
            if error.code != 403:
                return Listing((), (), problem=error.message)
    names = [wanted] if wanted else await _namespaces(api, configured)
    answers = await asyncio.gather(*(_or_problem(api.list("inferencerollouts", name)) for name in names))
    seen = [name for name, answer in zip(names, answers, strict=True) if isinstance(answer, list)]
    found = [rollout for answer in answers if isinstance(answer, list) for rollout in answer]
    return Listing(_sorted(found), tuple(seen), tuple(name for name in names if name not in seen))


async def _namespaces(api: PersonApi, configured: tuple[str, ...]) -> list[str]:
    try:
        return await api.namespaces()
    except Refused:
        return list(configured)


def _sorted(rollouts: list[dict[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    return tuple(sorted(rollouts, key=lambda r: (r["metadata"]["namespace"], r["metadata"]["name"])))


__all__ = ["Listing", "NotSignedIn", "gather_listing", "gather_page", "gather_rights"]
