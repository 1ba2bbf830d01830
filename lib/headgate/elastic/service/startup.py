"""Checks every engine before a pool takes requests, and reports everything that is wrong at once."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.core.errors import HeadgateError
from headgate.elastic.engines.engine import Engine, EngineFacts
from headgate.elastic.errors import FAULTS, EngineError, InvalidElasticError, NotAnEngineError, is_final, sentence
from headgate.elastic.settings import ElasticConfig

_log = logging.getLogger("headgate.elastic")


@dataclass(frozen=True, slots=True)
class Opening:
    """What the engines reported about themselves.

    Attributes:
        facts: worker -> what its engine reported; engines that did not answer are missing.
        slots: worker -> requests that it is given at once.
    """

    facts: Mapping[str, EngineFacts]
    slots: Mapping[str, int]

    @property
    def awake(self) -> tuple[str, ...]:
        """The workers that are awake."""
        return tuple(worker_id for worker_id, facts in self.facts.items() if not facts.is_asleep)

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that they serve, without duplicates."""
        return tuple(dict.fromkeys(model for facts in self.facts.values() for model in facts.models))


def check_names(engines: Sequence[Engine]) -> None:
    """Refuse a pool without engines, or with the same engine twice.

    Raises:
        InvalidElasticError: there are no engines, or one is named twice.
    """
    if not engines:
        raise InvalidElasticError("An elastic pool needs at least one engine (got none)")
    twice = [name for name, times in Counter(engine.name for engine in engines).items() if times > 1]
    if twice:
        raise InvalidElasticError(f"An engine is in a pool once (got {', '.join(twice)} more than once)")


async def open_engines(engines: Sequence[Engine], config: ElasticConfig) -> Opening:
    """Check all engines concurrently.

    An engine that does not answer may come up later: it counts as asleep, and is checked before it is used. If none of
    them answers, their addresses are probably wrong.

    Raises:
        NotAnEngineError: at least one is not an engine of its kind or cannot sleep; the message has all such reasons.
        InvalidElasticError: one does not report how many requests it takes.
        EngineError: none of them answers.
    """
    found = await asyncio.gather(*(_checked(engine, config.engine_timeout) for engine in engines))
    by_name = dict(zip((engine.name for engine in engines), found, strict=True))
    facts = {name: each for name, each in by_name.items() if isinstance(each, EngineFacts)}
    faults = {name: each for name, each in by_name.items() if not isinstance(each, EngineFacts)}
    final = [each for each in faults.values() if is_final(each)]
    if final:
        raise together(final)
    if not facts:
        raise EngineError(
            "; ".join(_about(name, each) for name, each in faults.items()),
            next_step="Start the engines first, or correct their addresses.",
        )
    for name, each in faults.items():
        _log.warning("Engine %s does not answer, the pool begins without it: %s", name, sentence(each))
    return Opening(facts, _slots(by_name, facts, config))


def together(errors: Sequence[Exception]) -> Exception:
    """Return one error with the messages of all."""
    if len(errors) == 1:
        return errors[0]
    kinds = {type(error) for error in errors}
    kind = kinds.pop() if len(kinds) == 1 else NotAnEngineError
    said = "; ".join(sentence(error) for error in errors)
    if issubclass(kind, HeadgateError):
        return kind(said, next_step=str(getattr(errors[0], "next_step", "")))
    return NotAnEngineError(said)


async def _checked(engine: Engine, timeout_s: float) -> EngineFacts | Exception:
    try:
        async with asyncio.timeout(timeout_s):
            return await engine.check()
    except TimeoutError:
        return EngineError(f"{engine.name} did not answer within {timeout_s:g} s")
    except FAULTS as error:
        return error


def _about(name: str, error: BaseException) -> str:
    said = sentence(error)
    return said if name in said else f"{name}: {said}"


def _slots(everyone: Mapping[str, object], facts: Mapping[str, EngineFacts], config: ElasticConfig) -> dict[str, int]:
    """Return how many requests each worker takes: as in the settings, or as its engine reports if that is less."""
    wanted = config.requests_per_worker_capacity
    told = {name: each.slots for name, each in facts.items() if each.slots}
    if wanted is None and (silent := [name for name in facts if name not in told]):
        raise InvalidElasticError(
            f"requests_per_worker_capacity must be given: {', '.join(silent)} does not report its capacity",
            next_step="Set requests_per_worker_capacity, for instance to the engine's max_running_requests.",
        )
    usual = min(told.values()) if wanted is None else wanted  # for engines that do not answer or do not report it
    return {name: min(wanted or told[name], told[name]) if name in told else usual for name in everyone}
