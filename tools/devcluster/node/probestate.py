"""Results of one probe over time, by the kubelet's rules. Pure; timing and input/output are in ``probes``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ProbeTiming:
    """The timing fields of a probe with Kubernetes' defaults, in seconds and counts."""

    initial_delay_seconds: float
    period_seconds: float
    timeout_seconds: float
    success_threshold: int
    failure_threshold: int

    @classmethod
    def of(cls, probe: Mapping[str, Any]) -> ProbeTiming:
        return cls(
            initial_delay_seconds=probe.get("initialDelaySeconds") or 0,
            period_seconds=probe.get("periodSeconds") or 10,
            timeout_seconds=probe.get("timeoutSeconds") or 1,
            success_threshold=probe.get("successThreshold") or 1,
            failure_threshold=probe.get("failureThreshold") or 3,
        )


class ProbeState:
    """The standing result of a probe: it flips after as many equal outcomes in a row as the threshold asks for."""

    def __init__(self, timing: ProbeTiming, initial: bool) -> None:
        self.timing = timing
        self.result = initial
        self.decided = False  # whether a threshold was ever reached
        self.last: bool | None = None
        self.run = 0

    def observe(self, success: bool) -> bool:
        """Take one outcome; returns whether a threshold was reached, so that `result` is now this outcome."""
        self.run = self.run + 1 if success == self.last else 1
        self.last = success
        needed = self.timing.success_threshold if success else self.timing.failure_threshold
        if self.run < needed:
            return False
        self.result = success
        self.decided = True
        return True
