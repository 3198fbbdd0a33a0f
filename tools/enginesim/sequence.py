"""One request inside the engine: what is asked, how far it is, when things happened. Written by ``batcher.py``."""

import enum
from collections.abc import Callable


class State(enum.Enum):
    """Where a sequence stands."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    DONE = "done"


class Sequence:
    """Mutable by design: the batcher's inner loop touches these fields some ten thousand times a second."""

    __slots__ = (
        "acceptance",
        "allocated",
        "arrival",
        "cached_tokens",
        "computed",
        "context",
        "due_step",
        "emit",
        "first_token_at",
        "generated",
        "growth",
        "hashes",
        "held",
        "interval",
        "last_token_at",
        "max_tokens",
        "natural_end",
        "output_tokens",
        "preemptions",
        "prompt_tokens",
        "published",
        "queued_at",
        "request_id",
        "scheduled_at",
        "segment_start",
        "segment_tokens",
        "state",
        "target",
        "work_scale",
    )

    def __init__(
        self,
        request_id: str,
        prompt_tokens: int,
        hashes: list[int],
        output_tokens: int,
        emit: Callable[["Sequence", str | None], None],
        *,
        natural_end: bool = False,
        interval: int = 1,
        acceptance: float = 0.0,
        arrival: float = 0.0,
        max_tokens: int | None = None,
    ) -> None:
        """``emit(sequence, finish_reason)`` is called whenever output is due; ``interval`` tokens make one chunk."""
        self.request_id = request_id
        self.prompt_tokens = prompt_tokens
        self.hashes = hashes
        self.output_tokens = output_tokens
        self.max_tokens = output_tokens if max_tokens is None else max_tokens
        self.natural_end = natural_end
        self.interval = interval
        self.acceptance = acceptance
        self.arrival = arrival
        self.emit = emit
        self.work_scale = 1.0
        self.queued_at = arrival
        self.scheduled_at = 0.0
        self.first_token_at = 0.0
        self.last_token_at = 0.0
        self.state = State.WAITING
        self.target = prompt_tokens
        self.computed = 0
        self.cached_tokens = 0
        self.published = 0
        self.held: list[int] = []
        self.allocated = 0
        self.context = 0
        self.generated = 0
        self.preemptions = 0
        self.growth = 0.0
        self.due_step = 0
        self.segment_start = 0
        self.segment_tokens = 0

    @property
    def private(self) -> int:
        """Blocks that only this sequence holds."""
        return self.allocated - len(self.held)
