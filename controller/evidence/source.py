"""What the evidence API asks of the operator. Implemented by the operator (live part) and by `StoredEvidence`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from sqlalchemy.exc import SQLAlchemyError

from controller.evidence.views import LiveView
from controller.store.rejudge import Judging, rejudge
from controller.store.sink import EvidenceStore
from policies.blocks import Block


class EvidenceUnavailable(Exception):
    """The evidence exists, but cannot be read now (database away); the message says so in words."""


class LiveSource(Protocol):
    """The operator's knowledge of now. Methods are called from worker threads and must not wait for the network."""

    def live(self, rollout: str) -> LiveView | None:
        """What is known of `namespace/name` now; None when the operator does not know such a rollout."""

    def version(self, rollout: str) -> int:
        """A number that moves whenever `live(rollout)` would answer something else."""


class EvidenceSource(LiveSource, Protocol):
    """Everything that the API serves; the stored part raises EvidenceUnavailable while the database is away."""

    def history(self, rollout: str, attempt: int | None) -> dict[str, Any]:
        """Attempts, decisions, verdicts, actions, audit."""

    def blocks(self, rollout: str, attempt: int) -> Iterator[Block]:
        """Blocks of an attempt in order of time."""

    def setup(self, rollout: str, attempt: int) -> dict[str, Any] | None:
        """The judge's setup of an attempt."""

    def rejudge(self, rollout: str, attempt: int) -> dict[str, Any]:
        """Every stored verdict of an attempt beside the one that follows from stored counts alone."""

    def audit(self, rollout: str, who: str, what: str, content: Mapping[str, Any]) -> None:
        """Keep what a person tried; `who` is verified."""


class StoredEvidence:
    """The stored half of an EvidenceSource, read from SQL; the operator adds the live half.

    Args:
        store: the operator's store.
        live: the live half.
        make_judge: a fresh judge from a stored setup.
        born_s: when the rollout's object was made; what is older belongs to a deleted namesake. 0 where there is no
            object (any more): then everything is told.
    """

    def __init__(
        self,
        store: EvidenceStore,
        live: LiveSource,
        make_judge: Callable[[Mapping[str, Any]], Judging],
        born_s: Callable[[str], float] = lambda _rollout: 0.0,
    ) -> None:
        self._store = store
        self._live = live
        self._make_judge = make_judge
        self._born_s = born_s

    def live(self, rollout: str) -> LiveView | None:
        """See EvidenceSource."""
        return self._live.live(rollout)

    def version(self, rollout: str) -> int:
        """See EvidenceSource."""
        return self._live.version(rollout)

    def history(self, rollout: str, attempt: int | None) -> dict[str, Any]:
        """See EvidenceSource."""
        with _words():
            return self._store.reader.history(rollout, attempt, self._born_s(rollout))

    def blocks(self, rollout: str, attempt: int) -> Iterator[Block]:
        """See EvidenceSource."""
        with _words():
            yield from self._store.reader.blocks(rollout, attempt, self._born_s(rollout))

    def setup(self, rollout: str, attempt: int) -> dict[str, Any] | None:
        """See EvidenceSource."""
        with _words():
            return self._store.reader.setup(rollout, attempt, self._born_s(rollout))

    def rejudge(self, rollout: str, attempt: int) -> dict[str, Any]:
        """See EvidenceSource."""
        with _words():
            return rejudge(self._store.reader, rollout, attempt, self._make_judge, self._born_s(rollout))

    def audit(self, rollout: str, who: str, what: str, content: Mapping[str, Any]) -> None:
        """See EvidenceSource."""
        self._store.put_audit(rollout, who, what, content)


@contextmanager
def _words() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise EvidenceUnavailable(
            "the database does not answer; decisions go on, history comes back with it"
        ) from error
