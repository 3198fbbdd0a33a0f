"""Who is signed in: the token stays in this process, the browser holds a random name for it.

Used by `app.py`. A restart signs everybody out. Nothing here is written anywhere.
"""

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_IDLE_SECONDS = 3600.0
_LIFE_SECONDS = 8 * 3600.0
_MOST_SESSIONS = 2000
_MOST_FORMS = 64


@dataclass(slots=True)
class Session:
    """One signed-in browser. `csrf` is the secret of its forms; `forms` are the confirmations it may send once."""

    key: str
    token: str = field(repr=False)
    user: str
    began_s: float
    seen_s: float
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    forms: dict[str, None] = field(default_factory=dict, repr=False)
    rights: dict[tuple[str, str], tuple[float, dict[str, bool]]] = field(default_factory=dict, repr=False)
    flash: str = ""

    def new_form(self) -> str:
        """A name for one confirmation page; sending it twice does nothing the second time."""
        name = secrets.token_urlsafe(12)
        self.forms[name] = None
        while len(self.forms) > _MOST_FORMS:
            del self.forms[next(iter(self.forms))]
        return name

    def take_form(self, name: str) -> bool:
        """Whether this confirmation was not sent before."""
        return self.forms.pop(name, False) is None

    def has_csrf(self, value: str) -> bool:
        """Whether a form carries this session's secret."""
        return hmac.compare_digest(self.csrf.encode(), value.encode())

    def take_flash(self) -> str:
        """A message for the next page, once."""
        text, self.flash = self.flash, ""
        return text


class Sessions:
    """All sessions of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def begin(self, token: str, user: str) -> Session:
        """A new session under a new random name."""
        self._drop_old()
        now = self._clock()
        session = Session(secrets.token_urlsafe(32), token, user, now, now)
        self._sessions[session.key] = session
        return session

    def get(self, key: str | None) -> Session | None:
        """The session of a cookie, None when there is none or it is over."""
        session = self._sessions.get(key or "")
        if session is None:
            return None
        if self._is_over(session):
            self.end(session)
            return None
        session.seen_s = self._clock()
        return session

    def end(self, session: Session) -> None:
        """Forget the token."""
        self._sessions.pop(session.key, None)

    def _is_over(self, session: Session) -> bool:
        now = self._clock()
        return now - session.seen_s > _IDLE_SECONDS or now - session.began_s > _LIFE_SECONDS

    def _drop_old(self) -> None:
        for session in [s for s in self._sessions.values() if self._is_over(s)]:
            self.end(session)
        while len(self._sessions) >= _MOST_SESSIONS:
            self.end(min(self._sessions.values(), key=lambda s: s.seen_s))
