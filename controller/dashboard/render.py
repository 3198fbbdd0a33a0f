"""Pages and fragments from templates. Every value is escaped; a template never marks anything as safe.

Used by `app.py`. Knows no client.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from controller.dashboard import changes, matrix, plots, words
from controller.dashboard.gather import Listing
from controller.dashboard.page import Page, make_line
from controller.dashboard.sessions import Session
from controller.jsonable import jsonable
from controller.person import BINDING_TO_EVIDENCE, WORDS, Signed, who_acts, why_not
from crds.v1alpha1.action import ActionKind
from manifests.secrets import redact_text

_FOLDER = Path(__file__).parent
FRAGMENTS = ("head", "act", "notices", "matrix", "cell", "distance", "load", "diff", "chronicle")


@cache
def _environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (
        "seconds",
        "share",
        "ratio",
        "count",
        "rate",
        "evidence",
        "duration",
        "clock",
        "iso",
        "gate_name",
        "short_gate",
    )
    env.filters.update({name: getattr(words, name) for name in filters})
    env.filters["metric_value"] = lambda value, metric: words.metric_value(metric, value)
    env.filters["plain"] = _plain
    env.globals.update(
        make_interval=plots.make_interval,
        make_distance=plots.make_distance,
        meter=plots.meter,
        row_state=matrix.row_state,
        state_words=matrix.WORDS,
        state_signs=matrix.SIGNS,
        states=tuple(matrix.State),
        gate_name=words.gate_name,
        plot_width=plots.WIDTH,
        limit_x=plots.LIMIT_X,
        asset=_asset,
        moment=words.moment,
        change_groups=changes.groups,
        who_acts=who_acts,
    )
    return env


def _plain(value: Any) -> str:
    """A value of somebody's manifest or log as text: JSON where it is none, nothing that looks like a secret."""
    text = value if isinstance(value, str) else words.UNKNOWN if value is None else json.dumps(jsonable(value))
    return redact_text(text)


@cache
def _asset(name: str) -> str:
    """Path of a static file, with its digest so that a browser never keeps an old one."""
    digest = hashlib.sha256((_FOLDER / "static" / name).read_bytes()).hexdigest()[:10]
    return f"/static/{name}?v={digest}"


def _html(template: str, status_code: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(_environment().get_template(template).render(**values), status_code=status_code)


def login(next_path: str, problem: str, status_code: int = 200) -> HTMLResponse:
    """The form that takes a token."""
    return _html("login.html", status_code, next_path=next_path, problem=problem, session=None)


def problem(status_code: int, message: str, session: Session | None) -> HTMLResponse:
    """A page that says what went wrong."""
    return _html("problem.html", status_code, message=message, code=status_code, session=session)


def listing(found: Listing, session: Session, namespace: str) -> HTMLResponse:
    """All rollouts that a person may see."""
    lines = [make_line(rollout) for rollout in found.rollouts]
    flash = session.take_flash()
    return _html("listing.html", listing=found, lines=lines, session=session, namespace=namespace, flash=flash)


def rollout(page: Page, rights: Mapping[str, bool], session: Session) -> HTMLResponse:
    """One rollout."""
    parts = fragments(page, rights, session)
    return _html("rollout.html", page=page, parts=_Parts(parts), session=session, flash=session.take_flash())


class _Parts:
    """Fragments that were rendered (and escaped) a moment ago, for the page around them."""

    def __init__(self, parts: Mapping[str, str]) -> None:
        from markupsafe import Markup

        self._parts = {name: Markup(html) for name, html in parts.items()}  # output of our own templates

    def __getitem__(self, name: str) -> str:
        return self._parts[name]


def fragments(page: Page, rights: Mapping[str, bool], session: Session) -> dict[str, str]:
    """Every live part of the page by id; the same page gives the same text."""
    env = _environment()
    values = {"page": page, "live": page.live, "acts": _acts(page.rollout, rights), "session": session}
    return {name: env.get_template(f"fragments/{name}.html").render(**values) for name in FRAGMENTS}


def confirm(
    page: Page,
    signed: Signed,
    rights: Mapping[str, bool],
    session: Session,
    problem_text: str = "",
    status_code: int = 200,
) -> HTMLResponse:
    """What will be signed, and the form that signs it (once)."""
    title, meaning = WORDS[signed.action]
    return _html(
        "confirm.html",
        status_code,
        page=page if signed.action in BINDING_TO_EVIDENCE else None,
        signed=signed,
        title=title,
        meaning=meaning,
        pointless=why_not(page.rollout, signed.action),
        allowed=bool(rights.get(signed.action.value) and rights.get("create")),
        problem=problem_text,
        form=session.new_form(),
        session=session,
    )


_VERBS = {ActionKind.ROLLBACK: "roll back", ActionKind.SKIP: "skip the pause of"}


def _acts(rollout_object: Mapping[str, Any], rights: Mapping[str, bool]) -> list[dict[str, Any]]:
    """Every action: whether the person may, and why it would have no effect now."""
    acts = []
    for kind, (title, meaning) in WORDS.items():
        pointless = why_not(rollout_object, kind)
        allowed = bool(rights.get(kind.value) and rights.get("create"))
        acts.append({"kind": kind.value, "title": title, "meaning": meaning, "why_not": pointless,
                     "allowed": allowed, "verb": _VERBS.get(kind, kind.value),
                     "main": not pointless and kind is ActionKind.APPROVE, "danger": kind in _DANGER})  # fmt: skip
    return acts


_DANGER = frozenset({ActionKind.ABORT, ActionKind.ROLLBACK, ActionKind.REJECT})
