"""The gates behind `controller.ports.DataPlane`: the xDS server, and what of a plan is in force.

Made by the operator's start-up. Remembers the last configuration sent per rollout; everything else is the server's.
"""

import concurrent.futures
import threading
from collections.abc import Sequence

from controller.core.snapshot import DataPlane as DataPlaneView
from controller.ports import Retryable
from shadow.envoy.xds import XdsServer
from shadow.plan import GateConfig, TrafficPlan

_PUBLISH_SECONDS = 2.0


class EnvoyDataPlane:
    """See the protocol."""

    def __init__(self, server: XdsServer) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._sent: dict[str, GateConfig] = {}

    def publish(self, config: GateConfig) -> None:
        """See the protocol; Retryable where the server's loop does not take it."""
        rollout = config.plan.rollout
        if self._sent.get(rollout) == config:
            return
        try:
            self._server.publish_threadsafe(config).result(timeout=_PUBLISH_SECONDS)
        except (concurrent.futures.TimeoutError, RuntimeError) as error:
            raise Retryable(f"the xDS server did not take a plan: {error}", 0.5) from error
        with self._lock:
            self._sent[rollout] = config

    def forget(self, rollout: str) -> None:
        """See the protocol."""
        with self._lock:
            self._sent.pop(rollout, None)
        self._server.remove(rollout)

    def plan(self, rollout: str) -> TrafficPlan | None:
        """The last plan that was sent."""
        sent = self._sent.get(rollout)
        return sent.plan if sent else None

    def view(self, rollout: str, gates: Sequence[str]) -> DataPlaneView:
        """See the protocol."""
        acks = self._server.acks(rollout)
        version = self._server.published(rollout)
        return DataPlaneView(
            gates=tuple(gates),
            connected=len(acks),
            synced=bool(acks) and version is not None and all(ack == version for ack in acks.values()),
            published=self.plan(rollout),
        )
