"""Serves the pool of a file, from the checks before any engine is asked to the last answer."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final

from headgate.core.errors import HeadgateError
from headgate.core.events import Emit
from headgate.core.tasks import first_ended
from headgate.elastic.engines import Engine, EngineSpec, FindActor, open_engine, same_for_all
from headgate.elastic.errors import EngineError, InvalidElasticError
from headgate.elastic.gateway.access import Callers
from headgate.elastic.gateway.pool_file import PoolFile
from headgate.elastic.gateway.server import Gateway, running_gateway
from headgate.elastic.gateway.settings import GatewaySettings
from headgate.elastic.service import ElasticService, WorkerLeases
from headgate.elastic.service.startup import together
from headgate.elastic.settings import ElasticConfig
from headgate.net import event_loop
from headgate.net.listener import allow_many_connections, bound


def check_before(pool_file: PoolFile, environ: Mapping[str, str], *, further_engines: int = 0) -> None:
    """Refuse a pool that could not be served whatever its engines say.

    Args:
        pool_file: of the pool.
        environ: where keys and tokens come from.
        further_engines: workers that it has beside those of the file that have an address.

    Raises:
        InvalidElasticError: an engine is named twice, there are fewer workers than are to be awake, or a variable
            is not set.
        InvalidSettingError: other machines could reach the gateway, and it asks nobody for a token.
    """
    spellings: dict[str, list[str]] = defaultdict(list)
    for spec in pool_file.specs(environ):
        spellings[same_for_all(spec.url)].append(spec.url)
    twice = [" and ".join(urls) for urls in spellings.values() if len(urls) > 1]
    if twice:
        raise InvalidElasticError(f"an engine is in a pool once (got {'; '.join(twice)})")
    workers, lowest = sum(map(len, spellings.values())) + further_engines, pool_file.elastic_config.min_workers
    if lowest > workers:
        raise InvalidElasticError(f"min_workers must be <= the workers of the pool (got {lowest} > {workers})")
    Callers.of(pool_file.gateway, environ).close()


def check_port(settings: GatewaySettings) -> None:
    """Refuse an address that something else listens on; it may still be taken in between.

    Raises:
        InvalidSettingError: it cannot be listened on.
    """
    bound(settings.host, settings.port).close()


_log = logging.getLogger("headgate.elastic")

_SERVERS: Final = frozenset({"sglang", "vllm"})
"""Kinds of engines that have an address."""


@asynccontextmanager
async def running_pool(
    pool_file: PoolFile,
    *,
    environ: Mapping[str, str] = os.environ,
    engines: Sequence[Engine] = (),
    leases: WorkerLeases | None = None,
    find_actor: FindActor | None = None,
    emit: Emit | None = None,
) -> AsyncIterator[Gateway]:
    """Give the gateway of a pool, in the running event loop; pool and gateway stop when the context ends.

    Leaving it takes no time for requests in flight; `Gateway.drain` before does.

    Args:
        pool_file: what `load_pool_file` read.
        environ: where keys and tokens come from.
        engines: further ones, beside those of the file that have an address.
        leases: what has to be held for a worker to be awake.
        find_actor: returns the handle of a Ray actor, for engines that are `ray://name`.
        emit: gets every event.

    Raises:
        HeadgateError: an engine, the pool or the gateway could not be opened; the sentence says which and why.
    """
    config = pool_file.elastic_config
    check_before(pool_file, environ, further_engines=len(engines))
    check_port(pool_file.gateway)
    async with AsyncExitStack() as exits:
        opened = await _opened(pool_file.specs(environ), config, exits, find_actor)
        service = ElasticService(pool_file.pool.name, config, [*opened, *engines], leases=leases, emit=emit)
        await exits.enter_async_context(service)
        gateway = await exits.enter_async_context(
            running_gateway(service, config, pool_file.gateway, model=pool_file.pool.model, environ=environ, emit=emit)
        )
        yield gateway


async def _opened(
    specs: Sequence[EngineSpec], config: ElasticConfig, exits: AsyncExitStack, find_actor: FindActor | None
) -> list[Engine]:
    """Return the adapters of engines, which are asked side by side what they are, and are closed with `exits`.

    One that does not answer and whose kind is not said is taken for one like the others, when these are all of one
    kind: a pool begins without it, and asks it again when it is needed.

    Raises:
        HeadgateError: what is wrong with any of them, all in one sentence.
    """

    async def opened(spec: EngineSpec) -> Engine | HeadgateError:
        try:
            engine = await open_engine(spec, config, find_actor=find_actor)
        except HeadgateError as error:
            return error
        exits.push_async_callback(engine.close)
        return engine

    found = await asyncio.gather(*map(opened, specs))
    kinds = {each.kind for each in found if not isinstance(each, HeadgateError)} & _SERVERS
    if len(kinds) == 1:
        alike = {"kind": kinds.pop()}
        for at, (spec, each) in enumerate(zip(specs, found, strict=True)):
            if isinstance(each, EngineError) and not each.is_final:
                found[at] = await opened(spec.model_copy(update=alike))
    if faults := [each for each in found if isinstance(each, HeadgateError)]:
        raise together(faults)
    return [each for each in found if not isinstance(each, HeadgateError)]


Opened = Callable[[], AbstractAsyncContextManager[Gateway]]


def serve_pool(opened: Opened, announce: Callable[[Gateway], None]) -> None:
    """Serve a pool until SIGTERM or SIGINT; then requests in flight are answered first. A second signal ends at once.

    Args:
        opened: gives the gateway, as `running_pool` does; left once its requests are answered.
        announce: called once the gateway listens.

    Raises:
        HeadgateError: it could not be opened.
        KeyboardInterrupt: a signal came before it listened.
    """
    allow_many_connections()
    try:
        event_loop.run(_until_told(opened, announce))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _until_told(opened: Opened, announce: Callable[[Gateway], None]) -> None:
    told = asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()
    opening = asyncio.current_task()
    assert opening is not None, "a coroutine runs in a task"
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, opening.cancel)
    async with opened() as gateway:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told.release)
        announce(gateway)
        await told.acquire()
        _log.info("Stopping: what is in flight is answered first")
        async with first_ended(gateway.drain(), told.acquire()) as (drained, _):
            if drained.done():
                drained.result()
