"""Helpers of the simulator's tests: settings from a command line, a batcher on a made clock, requests."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tools.enginesim.batcher import Batcher
from tools.enginesim.metrics import Metrics
from tools.enginesim.sequence import Sequence
from tools.enginesim.settings import Settings, resolve
from tools.enginesim.text import block_hashes

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def settings(*flags: str, **environment: str) -> Settings:
    """``settings("--max-num-seqs", "4", ENGINESIM_SEED="1")`` for Llama 8B on an H100."""
    return resolve(["serve", MODEL, "--max-model-len", "16384", *flags], environment)


def batcher(*flags: str, **environment: str) -> Batcher:
    """An engine core with its own metrics."""
    chosen = settings(*flags, **environment)
    return Batcher(chosen, Metrics(chosen.max_model_len, chosen.speculation.tokens if chosen.speculation else 0))


@dataclass
class Probe:
    """A request that remembers when its tokens came."""

    arrival: float
    prompt_tokens: int
    output_tokens: int
    prefix: str = ""
    interval: int = 1
    acceptance: float = 0.5
    times: list[tuple[float, int]] = field(default_factory=list)
    finish_reason: str | None = None
    sequence: Sequence | None = None

    @property
    def ttft(self) -> float:
        """First token after arrival."""
        return self.times[0][0] - self.arrival

    @property
    def tpot(self) -> float:
        """Mean progress after the first token."""
        return (self.times[-1][0] - self.times[0][0]) / (self.times[-1][1] - 1)

    @property
    def max_gap(self) -> float:
        """Longest wait between two chunks."""
        return max(after[0] - before[0] for before, after in zip(self.times, self.times[1:], strict=False))


class Simulation:
    """Runs a batcher over arrivals without real time."""

    def __init__(self, core: Batcher) -> None:
        self.core = core
        self.now = 0.0

    def run(self, probes: Iterable[Probe], until: float = 1e9) -> None:
        """To the end of all work, or to ``until``."""
        waiting = sorted(probes, key=lambda probe: probe.arrival)
        while self.now < until:
            while waiting and waiting[0].arrival <= self.now:
                self._submit(waiting.pop(0))
            seconds = self.core.begin_step(self.now)
            if seconds is None:
                if not waiting:
                    return
                self.now = waiting[0].arrival
                continue
            self.now += seconds
            self.core.end_step(self.now)

    def _submit(self, probe: Probe) -> None:
        text = (probe.prefix + f"{id(probe):x}".ljust(64 * 1024, "x"))[: probe.prompt_tokens * 4].encode()

        def emit(sequence: Sequence, finish_reason: str | None) -> None:
            probe.times.append((self.now, sequence.generated))
            probe.finish_reason = finish_reason

        probe.sequence = Sequence(
            f"{id(probe)}",
            probe.prompt_tokens,
            block_hashes(text, "", self.core.settings.block_size) if self.core.settings.prefix_caching else [],
            probe.output_tokens,
            emit,
            interval=probe.interval,
            acceptance=probe.acceptance,
            arrival=probe.arrival,
        )
        self.core.submit(probe.sequence)
