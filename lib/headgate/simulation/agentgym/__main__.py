"""Serves a game like an AgentGym server; prints its address on the first line."""

from __future__ import annotations

import argparse
import asyncio

from aiohttp import web

from headgate.simulation.agentgym.server import GAMES, SimulatedServer


async def _serve(game: str, port: int) -> None:
    runner = web.AppRunner(SimulatedServer(game).app, access_log=None, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m headgate.simulation.agentgym", description=__doc__)
    parser.add_argument("game", choices=sorted(GAMES))
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    arguments = parser.parse_args()
    asyncio.run(_serve(arguments.game, arguments.port))


if __name__ == "__main__":
    main()
