"""`headgate elastic serve|check`: serve the pool of a file behind one gateway, and check engines."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
from cyclopts import Parameter

from headgate.cli.elastic.status_table import announce, followed, logged
from headgate.cli.output import CHECK_FAILED, AsJson, print_json, print_table, say
from headgate.cli.placement.ledger import find_actor, require_ray
from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.elastic import ElasticConfig, EngineError, EngineLoad, NotAnEngineError
from headgate.elastic.engines import Engine, EngineFacts, EngineKind, EngineSpec, open_engine
from headgate.elastic.gateway import (
    Gateway,
    PoolFile,
    check_before,
    check_port,
    load_pool_file,
    running_pool,
    secret_of,
    serve_pool,
)
from headgate.elastic.service import WorkerLeases

_START_FIRST: Final = "Start the engine first or correct its address; one whose `kind` is given may also come later."


def serve(
    file: Annotated[Path, Parameter(help="YAML file of the pool: its engines, how it follows its load, the gateway.")],
    *,
    host: Annotated[str | None, Parameter(help="Address to listen on; beyond loopback, tokens are needed.")] = None,
    port: Annotated[int | None, Parameter(help="Port to listen on; 0 takes a free one.")] = None,
    check: Annotated[bool, Parameter(help="Check the engines, print what each one is, and end.")] = False,
    as_json: AsJson = False,
) -> int:
    """Serve the engines of a file as one OpenAI-compatible endpoint; they wake and sleep with the load.

    Ctrl-C or SIGTERM ends it once requests in flight are answered, and leaves engines as they are. A second signal ends
    it at once. Log lines and a live table go to standard error; with --json, log lines are JSON.
    """
    pool_file = _listening(load_pool_file(file), host, port)
    if check:
        return told(asyncio.run(_checked(pool_file)), as_json=as_json)

    def listens(gateway: Gateway) -> None:
        name, url = pool_file.pool.name, gateway.url
        if as_json:
            announce(orjson.dumps({"pool": name, "url": url, "base_url": gateway.base_url}).decode())
        else:
            announce(f"Pool {name} at {gateway.base_url}  (watch it: headgate console --elastic {url})")

    serve_pool(lambda: _opened(pool_file, as_json=as_json), listens)
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
    """Yield the engines placed on a Ray cluster, and the leases of workers there; nothing unless the file has any."""
    if pool_file.placement is None and not pool_file.actors:
        yield (), None
        return
    require_ray()
    from headgate.orchestration import placed_engines  # noqa: PLC0415 - Ray takes half a second, and may not be there

    async with placed_engines(pool_file.elastic_config, pool_file.placement or {}, pool_file.actors) as placed:
        say(placed.says, stderr=True)
        yield placed.engines, placed.leases


async def _checked(pool_file: PoolFile) -> list[Checked]:
    """Return the checks of all engines of a file."""
    async with _placed(pool_file) as (actors, _):
        check_before(pool_file, os.environ, further_engines=len(actors))
        found = await checked(pool_file.specs(os.environ), pool_file.elastic_config)
        found += [await looked_at(engine) for engine in actors]
    return [_serving(each, pool_file.pool.model) for each in found]


def _serving(each: Checked, model: str | None) -> Checked:
    """Return the check, with an error if the engine does not serve the model of its pool."""
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
    if port is not None and not 0 <= port <= 65_535:
        raise InvalidInputError(f"--port must be between 0 and 65535 (got {port})")
    changed = {name: value for name, value in {"host": host, "port": port}.items() if value is not None}
    return pool_file.model_copy(update={"gateway": pool_file.gateway.model_copy(update=changed)})


@dataclass(frozen=True, slots=True)
class Checked:
    """The check of one engine.

    Attributes:
        engine: its address or name.
        kind: whose API it speaks; empty if that is unknown.
        facts: what it reported; None if it did not answer.
        error: why it cannot be a worker; None if it can.
    """

    engine: str
    kind: str = ""
    facts: EngineFacts | None = None
    load: EngineLoad | None = None
    error: HeadgateError | None = None

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        error = None
        if self.error is not None:
            error = {"code": self.error.code, "message": self.error.message, "next_step": self.error.next_step}
        return {
            "engine": self.engine,
            "kind": self.kind,
            "is_usable": error is None,
            "facts": None if self.facts is None else asdict(self.facts),
            "load": None if self.load is None else asdict(self.load),
            "error": error,
        }


def check(
    *urls: Annotated[str, Parameter(help="Addresses of engines, http://host:port, or ray://name of actors.")],
    kind: Annotated[EngineKind, Parameter(help="Whose API they speak; `auto` asks them.")] = "auto",
    api_key_env: Annotated[str | None, Parameter(help="Variable that holds their API key.")] = None,
    admin_key_env: Annotated[str | None, Parameter(help="Variable with SGLang's admin key, where it has one.")] = None,
    router: Annotated[str | None, Parameter(help="SGLang gateway that they will serve behind.")] = None,
    as_json: AsJson = False,
) -> int:
    """Ask engines what they are and whether they can be put to sleep; change nothing.

    An engine that cannot join an elastic pool is shown with what it lacks. Exit status 4 if there is one.
    """
    if not urls:
        raise InvalidInputError("no engine is named", next_step="Name addresses, such as http://127.0.0.1:30000.")
    variables = {"api_key": api_key_env, "admin_key": admin_key_env}
    keys = {
        name: secret_of(variable, os.environ, f"--{name.replace('_', '-')}-env").reveal()
        for name, variable in variables.items()
        if variable is not None
    }
    specs = [EngineSpec(url=url, kind=kind, router=router, **keys) for url in urls]
    return told(asyncio.run(checked(specs, ElasticConfig())), as_json=as_json)


async def checked(specs: Sequence[EngineSpec], config: ElasticConfig) -> list[Checked]:
    """Return the checks of engines, in their order; they are asked concurrently."""
    return await asyncio.gather(*(_opened_engine(spec, config) for spec in specs))


async def looked_at(engine: Engine) -> Checked:
    """Check an engine, close it, and return the check."""
    try:
        facts = await engine.check()
        return Checked(engine.name, engine.kind, facts, await engine.load())
    except HeadgateError as error:
        return Checked(engine.name, engine.kind, error=_for_asker(error))
    finally:
        await engine.close()


def told(found: Sequence[Checked], *, as_json: bool) -> int:
    """Print checks of engines, and return the exit status."""
    usable = [each for each in found if each.error is None]
    if as_json:
        print_json({"engines": [each.document() for each in found]})
    else:
        if usable:
            columns = ("engine", "kind", "serves", "requests at once", "room for tokens", "state", "has")
            title = f"{len(usable)} of {len(found)} engines can be workers"
            print_table(title, columns, [_row(each) for each in usable], right=(3, 4))
        for each in found:
            if each.error is not None:
                what = f"{each.engine} ({each.kind})" if each.kind else each.engine
                say(f"{what} cannot be a worker: {each.error.message}. {each.error.next_step}")
    return 0 if len(usable) == len(found) else CHECK_FAILED


async def _opened_engine(spec: EngineSpec, config: ElasticConfig) -> Checked:
    try:
        engine = await open_engine(spec, config, find_actor=find_actor)
    except HeadgateError as error:
        return Checked(spec.url, error=_for_asker(error))
    return await looked_at(engine)


def _for_asker(error: HeadgateError) -> HeadgateError:
    """Return an error with a next step for an engine that belongs to no pool yet."""
    if isinstance(error, EngineError):
        return EngineError(error.message, is_final=error.is_final, next_step="Start it first, or correct its address.")
    return error


def _row(each: Checked) -> tuple[object, ...]:
    facts, load = each.facts, each.load
    assert facts is not None, "only engines that answered are shown here"
    has = f"{load.running} running, {load.waiting} waiting" if load is not None and not facts.is_asleep else None
    state = "asleep" if facts.is_asleep else "awake"
    tokens = None if facts.token_slots is None else f"{facts.token_slots:,}"
    return each.engine, each.kind, ", ".join(facts.models) or None, facts.slots, tokens, state, has
