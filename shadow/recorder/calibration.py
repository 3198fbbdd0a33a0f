"""Request-body bytes per prompt token by model, learnt from usage; the controller puts it into the next GateConfig.

Only later requests are affected: a request's bucket is fixed when it arrives.
"""

_MIN_SAMPLES = 50
_WEIGHT = 0.005  # of a new sample once there are many
_MAX_MODELS = 200


class Calibration:
    """Running ratio of sums per model, old samples fading."""

    def __init__(self) -> None:
        self._bytes: dict[str, float] = {}
        self._tokens: dict[str, float] = {}
        self._samples: dict[str, int] = {}

    def add(self, model: str | None, body_bytes: float | None, prompt_tokens: int | None) -> None:
        """One finished request whose usage is known."""
        if not body_bytes or not prompt_tokens:
            return
        name = model or ""
        if name not in self._samples and len(self._samples) >= _MAX_MODELS:
            return
        n = self._samples.get(name, 0) + 1
        self._samples[name] = n
        weight = max(1.0 / n, _WEIGHT)
        self._bytes[name] = self._bytes.get(name, 0.0) * (1 - weight) + body_bytes * weight
        self._tokens[name] = self._tokens.get(name, 0.0) * (1 - weight) + prompt_tokens * weight

    def view(self) -> dict[str, float]:
        """Bytes per token of every model with enough samples."""
        return {
            name: round(self._bytes[name] / self._tokens[name], 3)
            for name, n in sorted(self._samples.items())
            if n >= _MIN_SAMPLES and self._tokens[name] > 0
        }
