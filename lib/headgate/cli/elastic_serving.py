"""`headgate elastic serve`: the pool of a file behind one OpenAI-compatible gateway."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import orjson
from cyclopts import Parameter

from headgate.cli.elastic_asking import say
from headgate.cli.elastic_checking import Checked, checked, looked_at, told
from headgate.cli.elastic_following import announce, followed, logged
from headgate.cli.output import AsJson
from headgate.cli.placement_joining import find_actor, require_ray
from headgate.core.errors import InvalidInputError
from headgate.elastic import EngineError, NotAnEngineError
from headgate.elastic.engines import Engine
from headgate.elastic.gateway import (
    Gateway,
    PoolFile,
    check_before,
    check_port,
    load_pool_file,
    running_pool,
    serve_opened,
)
from headgate.elastic.service import WorkerLeases

_LAST_PORT: Final = 65_535
_START_FIRST: Final = "Start the engine first or correct its address; one whose `kind` is given may also come later."


def serve(
    file: Annotated[Path, Parameter(help="YAML file of the pool: its engines, how it follows its load, the gateway.")],
    *,
    host: Annotated[str | None, Parameter(help="Address to listen on; beyond loopback tokens are needed.")] = None,
    port: Annotated[int | None, Parameter(help="Port to listen on; 0 takes a free one.")] = None,
    check: Annotated[bool, Parameter(negative="", help="Ask every engine what it is, say it, and end.")] = False,
    as_json: AsJson = False,
) -> int:
    """Serve the engines of a file as one OpenAI-compatible endpoint; they wake and sleep with the load.

    Runs until Ctrl-C or SIGTERM; then requests in flight are answered first, and engines stay as they are. A second
    signal ends it at once. Log lines and a live table go to standard error; with --json, log lines are JSON.
    """
    pool_file = _listening(load_pool_file(file), host, port)
    if check:
        return told(asyncio.run(_checked(pool_file)), as_json=as_json)

    def listens(gateway: Gateway) -> None:
        name, url = pool_file.pool.name, gateway.url
        if as_json:
            announce(orjson.dumps({"pool": name, "url": url, "base_url": gateway.base_url}).decode())
        else:
            announce(f"Pool {name} at {gateway.base_url}  (page: {url}/)")

    serve_opened(lambda: _opened(pool_file, as_json=as_json), listens)
    return 0


@asynccontextmanager
async def _opened(pool_file: PoolFile, *, as_json: bool) -> AsyncIterator[Gateway]:
    check_port(pool_file.gateway)  # before a cluster is started for engines that nobody could reach
    async with AsyncExitStack() as exits:
        engines, leases = await exits.enter_async_context(_placed(pool_file))
        running = running_pool(pool_file, engines=engines, leases=leases, find_actor=find_actor, emit=logged())
        try:
            gateway = await exits.enter_async_context(running)
        except EngineError as error:
            raise EngineError(error.message, next_step=_START_FIRST) from None
        await exits.enter_async_context(followed(gateway.status, as_json=as_json))
        yield gateway


@asynccontextmanager
async def _placed(pool_file: PoolFile) -> AsyncIterator[tuple[Sequence[Engine], WorkerLeases | None]]:
    """Give the engines that run in places of a Ray cluster, and what workers stand on; nothing where no file asks."""
    if pool_file.placement is None and not pool_file.actors:
        yield (), None
        return
    require_ray()
    from headgate.orchestration import placed_engines  # noqa: PLC0415 - Ray takes half a second, and may not be there

    async with placed_engines(pool_file.elastic_config, pool_file.placement or {}, pool_file.actors) as placed:
        say(placed.says, stderr=True)
        yield placed.engines, placed.leases


async def _checked(pool_file: PoolFile) -> list[Checked]:
    """Return what all engines of a file tell of themselves."""
    async with _placed(pool_file) as (actors, _):
        check_before(pool_file, os.environ, further_engines=len(actors))
        found = await checked(pool_file.specs(os.environ), pool_file.elastic_config)
        found += [await looked_at(engine) for engine in actors]
    return [_serving(each, pool_file.pool.model) for each in found]


def _serving(each: Checked, model: str | None) -> Checked:
    """Return it with an error where it does not serve the model of its pool."""
    if model is None or each.facts is None or not each.facts.models or model in each.facts.models:
        return each
    serves = ", ".join(each.facts.models)
    return replace(
        each,
        error=NotAnEngineError(
            f"{each.engine} serves {serves}, and the pool's model is {model!r}",
            next_step="Correct `model` of the pool, or take the engine out of the file.",
        ),
    )


def _listening(pool_file: PoolFile, host: str | None, port: int | None) -> PoolFile:
    """Return a pool's file with an address in place of its own."""
    if port is not None and not 0 <= port <= _LAST_PORT:
        raise InvalidInputError(f"--port must be between 0 and {_LAST_PORT} (got {port})")
    changed = {name: value for name, value in {"host": host, "port": port}.items() if value is not None}
    return pool_file.model_copy(update={"gateway": pool_file.gateway.model_copy(update=changed)})
