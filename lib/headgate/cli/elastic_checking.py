"""`headgate elastic check`: what engines tell of themselves, and whether they can be put to sleep."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from cyclopts import Parameter
from pydantic import SecretStr

from headgate.cli.elastic_asking import say
from headgate.cli.output import AsJson, print_json, print_table
from headgate.cli.placement_joining import find_actor
from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.elastic import ElasticConfig, EngineError, EngineLoad
from headgate.elastic.engines import Engine, EngineFacts, EngineKind, EngineSpec, open_engine

CANNOT_STATUS: Final = 4
"""Exit status where an engine cannot be a worker: a check did not hold."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of one engine.

    Attributes:
        engine: its address or name.
        kind: whose API it speaks; empty where that was not found out.
        facts: what it told; None where it did not.
        load: what it had to do.
        error: what stands against it as a worker; None for nothing.
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
    api_key_env: Annotated[str | None, Parameter(help="Variable with the key that they ask for.")] = None,
    admin_key_env: Annotated[str | None, Parameter(help="Variable with SGLang's admin key, where it has one.")] = None,
    router: Annotated[str | None, Parameter(help="SGLang gateway that they are to be workers of.")] = None,
    as_json: AsJson = False,
) -> int:
    """Ask engines what they are and whether they can be put to sleep; nothing is changed in them.

    An engine that cannot be a worker of an elastic pool is shown with what is missing. Exit status 4 for any such.
    """
    if not urls:
        raise InvalidInputError("no engine is named", next_step="Name addresses, such as http://127.0.0.1:30000.")
    keys = {"api_key": _secret(api_key_env), "admin_key": _secret(admin_key_env)}
    specs = [EngineSpec(url=url, kind=kind, router=router, **keys) for url in urls]
    return told(asyncio.run(checked(specs, ElasticConfig())), as_json=as_json)


async def checked(specs: Sequence[EngineSpec], config: ElasticConfig) -> list[Checked]:
    """Return what engines tell of themselves, in their order; they are asked side by side."""
    return await asyncio.gather(*(_opened(spec, config) for spec in specs))


async def looked_at(engine: Engine) -> Checked:
    """Return what an engine tells of itself, and close it."""
    try:
        facts = await engine.check()
        return Checked(engine.name, engine.kind, facts, await engine.load())
    except HeadgateError as error:
        return Checked(engine.name, engine.kind, error=_for_asker(error))
    finally:
        await engine.close()


def told(found: Sequence[Checked], *, as_json: bool) -> int:
    """Print what engines told, and return the exit status."""
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
    return 0 if len(usable) == len(found) else CANNOT_STATUS


async def _opened(spec: EngineSpec, config: ElasticConfig) -> Checked:
    try:
        engine = await open_engine(spec, config, find_actor=find_actor)
    except HeadgateError as error:
        return Checked(spec.url, error=_for_asker(error))
    return await looked_at(engine)


def _for_asker(error: HeadgateError) -> HeadgateError:
    """Return an error with a next step for somebody whose engine belongs to no pool yet."""
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


def _secret(variable: str | None) -> SecretStr:
    if variable is None:
        return SecretStr("")
    if not (value := os.environ.get(variable, "").strip()):
        raise InvalidInputError(
            f"the environment variable {variable}, which is to hold a key, is not set",
            next_step=f"Set {variable}, or leave the option out.",
        )
    return SecretStr(value)
