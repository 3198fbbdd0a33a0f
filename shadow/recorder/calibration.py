"""Size of a request body per prompt token by model, learnt from usage; the controller puts it into the next GateConfig.

A body is its prompt and an envelope (model name, options, roles), so size is a straight line over tokens: bytes per
token and an overhead. Only later requests are affected: a request's bucket is fixed when it arrives.
"""

from dataclasses import dataclass

_MIN_SAMPLES = 50
_WEIGHT = 0.005  # of a new sample once there are many
_MAX_MODELS = 200
_LEAST_SPREAD = 0.05  # of the mean length: below it a slope cannot be told from the overhead


@dataclass
class _Line:
    """Running moments of (tokens, bytes), old samples fading."""

    samples: int = 0
    tokens: float = 0.0
    size: float = 0.0
    variance: float = 0.0
    covariance: float = 0.0

    def add(self, tokens: float, size: float) -> None:
        self.samples += 1
        weight = max(1.0 / self.samples, _WEIGHT)
        off_tokens, off_size = tokens - self.tokens, size - self.size
        self.tokens += weight * off_tokens
        self.size += weight * off_size
        self.variance = (1 - weight) * (self.variance + weight * off_tokens * off_tokens)
        self.covariance = (1 - weight) * (self.covariance + weight * off_tokens * off_size)

    def fit(self) -> tuple[float, float]:
        """(bytes per token, overhead bytes); the plain ratio where lengths hardly differ or the line is absurd."""
        if self.variance > (_LEAST_SPREAD * self.tokens) ** 2:
            slope = self.covariance / self.variance
            overhead = self.size - slope * self.tokens
            if slope > 0 and overhead >= 0:
                return slope, overhead
        return self.size / self.tokens, 0.0


class Calibration:
    """A line per model."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def add(self, model: str | None, body_bytes: float | None, prompt_tokens: int | None) -> None:
        """One finished request whose usage is known."""
        if not body_bytes or not prompt_tokens:
            return
        name = model or ""
        if name not in self._lines and len(self._lines) >= _MAX_MODELS:
            return
        self._lines.setdefault(name, _Line()).add(prompt_tokens, body_bytes)

    def view(self) -> dict[str, float]:
        """Bytes per token of every model with enough samples."""
        return {name: round(line.fit()[0], 4) for name, line in self._known()}

    def overheads(self) -> dict[str, float]:
        """Overhead bytes of the same models."""
        return {name: round(line.fit()[1], 1) for name, line in self._known()}

    def _known(self) -> list[tuple[str, _Line]]:
        return [(name, line) for name, line in sorted(self._lines.items()) if line.samples >= _MIN_SAMPLES]
