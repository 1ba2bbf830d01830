"""Serves the pool of a pool file, from the checks before any engine is contacted to the last answer."""

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
    """Refuse a pool that could not be served whatever its engines report.

    Args:
        pool_file: the pool file.
        environ: environment variables with keys and tokens.
        further_engines: number of workers besides the file's engines with an address.

    Raises:
        InvalidElasticError: an engine is named twice, there are fewer workers than `min_workers`, or a variable is not
            set.
        InvalidSettingError: other machines could reach the gateway, and it requires no token.
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
    """Refuse an address that is already in use; it may still be taken before the gateway binds it.

    Raises:
        InvalidSettingError: it cannot be bound.
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
    """Yield the gateway of a pool, in the running event loop; pool and gateway stop when the context ends.

    Leaving the context does not wait for requests in flight; call `Gateway.drain` before it for that.

    Args:
        pool_file: the result of `load_pool_file`.
        environ: environment variables with keys and tokens.
        engines: engines besides those of the file with an address.
        leases: source of the leases that workers need to be awake.
        find_actor: returns the handle of a Ray actor, for engines that are `ray://name`.
        emit: gets every event.

    Raises:
        HeadgateError: an engine, the pool or the gateway could not be opened; the message says which and why.
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
    """Return the adapters of engines, opened concurrently; `exits` closes them.

    An engine of kind `auto` that does not answer is assumed to be like the others, if these are all of one kind: the
    pool begins without it, and checks it when it is needed.

    Raises:
        HeadgateError: some could not be opened; the message has the reasons of all.
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
    """Serve a pool until SIGTERM or SIGINT, then answer the requests in flight. A second signal ends it at once.

    Args:
        opened: returns the context of a gateway, like `running_pool`; left once its requests are answered.
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
        _log.info("Stopping: requests in flight are answered first")
        async with first_ended(gateway.drain(), told.acquire()) as (drained, _):
            if drained.done():
                drained.result()
