"""Resolves settings to a registry of environments, and names and patterns to environments."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from headgate.config import Settings, value_for
from headgate.core.errors import EnvironmentFailedError, HeadgateError, UnknownEnvironmentError, some_of
from headgate.environments.agentgym.served import served_environments
from headgate.environments.apart import ApartLimits
from headgate.environments.protocol import Environment, EnvironmentSpec
from headgate.environments.registry import Registry, registry_with
from headgate.environments.sandbox import SANDBOX

_SHOWN = 8
"""Maximum names that an error lists."""

_OUTSIDE_DAILY_RATE: Final = 100.0
_OUTSIDE_DATA_LENGTH: Final = 1_000_000
"""Not the real number of tasks, which only the worker knows."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected environments that can be used, and those left out because they cannot, each with its error."""

    environments: dict[str, Environment]
    left_out: dict[str, HeadgateError]


def selected(names: Sequence[str], registry: Registry) -> Selection:
    """Return the environments that `names` select; without names, all single ones and no collections.

    A name selects that environment. A pattern (`reasoning-gym:*`, `textworld-express:c*`) selects all matches; one that
    starts with a collection's prefix and a colon also searches the collection's members. Environments that are not
    named individually and cannot be used on this machine are left out.

    Raises:
        HeadgateError: if a named environment cannot be used, or none of a pattern's matches can.
    """
    found = Selection({}, {})
    for name in names:
        if _is_pattern(name):
            matched = matching(name, registry)
            _take(found, matched, registry)
            if not any(one in found.environments for one in matched):
                raise found.left_out[matched[0]]
        elif name not in found.environments:
            found.environments[name] = registry.environment(name)
    if not names:
        _take(found, registry.names(), registry)
    return found


def matching(pattern: str, registry: Registry) -> tuple[str, ...]:
    """Return the names that match a pattern, sorted.

    Raises:
        HeadgateError: if none does, or the collection that it names cannot list its members.
    """
    names = set(registry.names())
    prefix, colon, _ = pattern.partition(":")
    if colon and not _is_pattern(prefix) and prefix in {one.prefix for one in registry.collections()}:
        names |= set(registry.members(prefix))
    matched = tuple(sorted(fnmatch.filter(names, pattern)))
    if not matched:
        raise _nothing(pattern, sorted(name for name in names if name.partition(":")[0] == prefix), registry)
    return matched


def _take(found: Selection, names: Sequence[str], registry: Registry) -> None:
    for name in names:
        try:
            found.environments[name] = registry.environment(name)
        except HeadgateError as error:
            found.left_out[name] = error


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def _nothing(pattern: str, siblings: Sequence[str], registry: Registry) -> UnknownEnvironmentError:
    there = siblings or [*registry.names(), *(f"{one.prefix}:*" for one in registry.collections())]
    return UnknownEnvironmentError(
        f"no environment matches {pattern!r}",
        next_step=f"There are {some_of(there, _SHOWN)}; `headgate environments` lists all.",
    )


_AT_HAND: ContextVar[tuple[Environment, ...]] = ContextVar("environments_at_hand", default=())


@contextmanager
def environments_at_hand(environments: Iterable[Environment]) -> Iterator[None]:
    """Let campaigns of this context name environments that no package registers."""
    token = _AT_HAND.set((*_AT_HAND.get(), *environments))
    try:
        yield
    finally:
        _AT_HAND.reset(token)


def registry_of(settings: Settings) -> Registry:
    """Return the environments that a campaign with `settings` can name, without loading any.

    Side effect: from now on programs run behind the locks that the settings require.

    Raises:
        InvalidSettingError: if a server is set for a name that is not an AgentGym environment.
    """
    SANDBOX.require(settings.sandbox_locks)
    further = (*served_environments(settings), *_AT_HAND.get())
    limits, all_apart = ApartLimits.of(settings), settings.episodes_apart == "all"
    registry = registry_with(further, limits, all_apart=all_apart)
    outside = _outside_only(settings, registry) if settings.executors else ()
    return registry_with((*further, *outside), limits, all_apart=all_apart) if outside else registry


def _outside_only(settings: Settings, registry: Registry) -> tuple[OutsideEnvironment, ...]:
    """Return environments that are named in the settings, run on outside workers, and are not installed here."""
    prefixes, names = {one.prefix for one in registry.collections()}, registry.names()
    return tuple(
        OutsideEnvironment(name)
        for name in settings.environments
        if (value_for(settings.executors, name) or "").startswith("jobqueue")
        and name not in names
        and name.partition(":")[0] not in prefixes
        and not _is_pattern(name)
    )


class OutsideEnvironment:
    """An environment that is not installed here, played by a job queue's workers. Implements `Environment`."""

    def __init__(self, name: str) -> None:
        self.spec = EnvironmentSpec(
            name,
            "Played by the workers of a job queue.",
            _OUTSIDE_DAILY_RATE,
            _OUTSIDE_DATA_LENGTH,
            executor="jobqueue",
            replays=False,
        )

    async def open(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to play: always raises `EnvironmentFailedError`."""
        raise EnvironmentFailedError(
            f"environment {self.spec.name!r} is not installed here; only outside workers play it",
            next_step="Start workers that have it, or install the package that registers it.",
        )

    async def baseline(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to play: always raises `EnvironmentFailedError`."""
        await self.open()
