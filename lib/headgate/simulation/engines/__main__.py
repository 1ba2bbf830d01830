"""`python -m headgate.simulation.engines`: one fake engine as a process."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import get_args

from headgate.core.errors import HeadgateError
from headgate.simulation.engines.plan import Api, EnginePlan, FaultScript
from headgate.simulation.engines.process import run_engine


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
