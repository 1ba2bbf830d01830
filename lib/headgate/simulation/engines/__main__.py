"""`python -m headgate.simulation.engines`: one fake engine as a process."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import fields
from typing import Any, Final, get_args

from headgate.core.errors import HeadgateError
from headgate.simulation.engines.plan import Api, EnginePlan, FaultScript
from headgate.simulation.engines.serving import serve_engine

_DIED: Final = 128 + signal.SIGQUIT
"""Exit status of a real engine whose scheduler raised."""


async def run_engine(plan: EnginePlan, *, host: str = "127.0.0.1", port: int = 0) -> None:
    """Serve a fake engine until SIGTERM or SIGINT, and return when its requests are answered.

    Its address is printed once it listens. Where it dies, the process ends with it.

    Raises:
        InvalidInputError: the address cannot be listened on.
    """
    leaving = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leaving.set)
    async with serve_engine(plan, host=host, port=port) as engine:
        print(engine.url, flush=True)  # the address is what the command is asked for
        await _first(leaving.wait(), engine.until(lambda: engine.crashed))
        if not engine.crashed:
            await engine.drain()
        if engine.crashed:
            # A process that is killed runs no clean-up, either.
            os._exit(_DIED)


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of `waits` has come to its end."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the fake engine that `arguments` describe; return the exit status."""
    read = _parser().parse_args(arguments)
    try:
        faults = FaultScript(**{each.name: getattr(read, each.name) for each in fields(FaultScript)})
        written = {each.name: getattr(read, each.name) for each in fields(EnginePlan) if each.name != "faults"}
        asyncio.run(run_engine(EnginePlan(**written, faults=faults), host=read.host, port=read.port))
    except HeadgateError as error:
        print(f"error: {error}", file=sys.stderr)  # there is no log here
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    """Return a parser with one option for every attribute of the plan and of its fault script."""
    parser = argparse.ArgumentParser("python -m headgate.simulation.engines", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 for any free one; the address is printed")
    defaults = (EnginePlan(), FaultScript())
    for default in defaults:
        for each in fields(default):
            if each.name != "faults":
                _add_option(parser, each.name, getattr(default, each.name))
    return parser


def _add_option(parser: argparse.ArgumentParser, name: str, default: object) -> None:
    flag = f"--{name.replace('_', '-')}"
    if name == "api":
        parser.add_argument(flag, choices=get_args(Api), default=default)
    elif isinstance(default, bool):
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=default)
    elif default is None and name.endswith("_key"):
        parser.add_argument(flag)
    else:
        parser.add_argument(flag, type=int if default is None else type(default), default=default)


if __name__ == "__main__":
    sys.exit(main())
