"""Entry point of the process node: ``python -m tools.devcluster.node --state DIR``, started by the cluster."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys

import structlog

from tools.devcluster import binaries, identities
from tools.devcluster.node import handlers
from tools.devcluster.node.agent import Agent
from tools.devcluster.node.api import Api
from tools.devcluster.node.config import NodeConfig
from tools.devcluster.node.context import NodeContext
from tools.devcluster.node.store import ObjectStore
from tools.devcluster.paths import State
from tools.devcluster.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", required=True, help="folder of the cluster")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    asyncio.run(run(State.at(parser.parse_args().state)))
    return 0


async def run(state: State) -> None:
    """Run all nodes until SIGTERM or SIGINT, then end all containers."""
    settings = Settings.load(state.settings)
    if settings is None:
        raise SystemExit(f"no cluster at {state.root}")
    config = NodeConfig.load(state.nodes_in_force)
    token = identities.ensure_tokens(state)["node"]
    async with Api(settings.server, token, state.pki / "ca.crt") as api, handlers.make_session() as session:
        store = ObjectStore(api)
        context = NodeContext(state, settings, config.backoff, api, session, store)
        agent = Agent(context, config, f"v{binaries.version()}")
        store.listener = agent.on_object_changed
        await run_until_signal(agent)


async def run_until_signal(agent: Agent) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    work = loop.create_task(agent.run())
    stopping = loop.create_task(stop.wait())
    await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
    await agent.shut_down()
    work.cancel()
    stopping.cancel()
    results = await asyncio.gather(work, stopping, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


if __name__ == "__main__":
    sys.exit(main())
