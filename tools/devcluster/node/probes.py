"""The probes of one running container. Started by the container with each new process, cancelled with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from tools.devcluster.node.handlers import HandlerFailed
from tools.devcluster.node.probestate import ProbeState, ProbeTiming

Act = Callable[[Mapping[str, Any], float], Awaitable[None]]


class Probed(Protocol):
    """What the probes tell their container."""

    def set_started(self) -> None: ...
    def set_ready(self, ready: bool) -> None: ...
    def set_unhealthy(self, kind: str, message: str) -> None: ...
    def note_failure(self, kind: str, message: str) -> None: ...


async def run_probes(container: Mapping[str, Any], owner: Probed, act: Act) -> None:
    """Run until cancelled: the startup probe first, then readiness and liveness beside each other."""
    if "startupProbe" in container and not await run_startup(container["startupProbe"], owner, act):
        return
    owner.set_started()
    async with asyncio.TaskGroup() as group:
        if "readinessProbe" in container:
            group.create_task(run_readiness(container["readinessProbe"], owner, act))
        else:
            owner.set_ready(True)
        if "livenessProbe" in container:
            group.create_task(run_liveness(container["livenessProbe"], owner, act))


async def run_startup(probe: Mapping[str, Any], owner: Probed, act: Act) -> bool:
    """Whether the container started; False after its failure was reported."""
    state = ProbeState(ProbeTiming.of(probe), initial=False)
    async for _ in outcomes(probe, state, "Startup", owner, act):
        if not state.result:
            owner.set_unhealthy("Startup", f"failed startup probe {state.run} times")
        return state.result
    return False


async def run_readiness(probe: Mapping[str, Any], owner: Probed, act: Act) -> None:
    state = ProbeState(ProbeTiming.of(probe), initial=False)
    async for _ in outcomes(probe, state, "Readiness", owner, act):
        owner.set_ready(state.result)


async def run_liveness(probe: Mapping[str, Any], owner: Probed, act: Act) -> None:
    state = ProbeState(ProbeTiming.of(probe), initial=True)
    async for _ in outcomes(probe, state, "Liveness", owner, act):
        if not state.result:
            owner.set_unhealthy("Liveness", f"failed liveness probe {state.run} times")
            return


async def outcomes(
    probe: Mapping[str, Any], state: ProbeState, kind: str, owner: Probed, act: Act
) -> AsyncIterator[None]:
    """Probe for ever at the probe's period; yields each time a threshold is reached."""
    timing = state.timing
    await asyncio.sleep(timing.initial_delay_seconds)
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        try:
            await act(probe, timing.timeout_seconds)
            success = True
        except HandlerFailed as failure:
            success = False
            owner.note_failure(kind, str(failure))
        if state.observe(success):
            yield None
        due = max(due + timing.period_seconds, loop.time())
        await asyncio.sleep(due - loop.time())
