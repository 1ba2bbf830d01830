"""What all adapters share: import their package, read an answer in tags, suggest the name that was meant."""

from __future__ import annotations

import abc
import contextlib
import importlib
import random
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final

from headgate.core.errors import MissingExtraError, UnknownEnvironmentError, nearest_name
from headgate.environments import Environment
from headgate.environments.answers import last_tagged, without_thinking

_GLOBAL_DICE: Final = threading.Lock()
"""Protects Python's and numpy's global generators while a block has set its own state there."""


class OwnDice:
    """One user's own state of the global generators of Python and numpy, unaffected by other users' draws.

    A copy continues independently from the same state.
    """

    def __init__(self, seed: int) -> None:
        self._state: tuple[Any, Any] = (
            random.Random(seed).getstate(),
            _numpy_random().RandomState(seed).get_state(),
        )

    @contextlib.contextmanager
    def thrown(self) -> Iterator[None]:
        """Let the block draw from this state; afterwards the global generators have their previous state.

        The block must not await anything: it holds a lock that all other users wait for.
        """
        numpy_random = _numpy_random()
        with _GLOBAL_DICE:
            others = random.getstate(), numpy_random.get_state()
            random.setstate(self._state[0])
            numpy_random.set_state(self._state[1])
            try:
                yield
            finally:
                self._state = random.getstate(), numpy_random.get_state()
                random.setstate(others[0])
                numpy_random.set_state(others[1])


def _numpy_random() -> Any:
    return importlib.import_module("numpy.random")  # not at the top: describing a collection must be cheap


def required(module: str, feature: str, extra: str) -> Any:
    """Return `module` of an optional package.

    Raises:
        MissingExtraError: if the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == module.partition(".")[0]:
            raise MissingExtraError(feature, extra) from error
        raise


def member_of(name: str, prefix: str) -> str:
    """Return the part of `name` after the colon.

    Raises:
        UnknownEnvironmentError: if `name` does not belong to the collection `prefix`.
    """
    found, colon, member = name.partition(":")
    if found != prefix or not colon or not member:
        raise UnknownEnvironmentError(f"{name!r} must have the form {prefix}:<name> in the collection {prefix!r}")
    return member


def unknown(name: str, known: Iterable[str], why: str = "") -> UnknownEnvironmentError:
    """Return the error for an environment that a collection does not have; it suggests the nearest name."""
    members = {one.partition(":")[2]: one for one in known}  # the common prefix would make any two look alike
    near = nearest_name(name.partition(":")[2], members)
    hint = f"; did you mean {members[near]!r}?" if near else ""
    reason = f": {why}" if why else ""
    return UnknownEnvironmentError(
        f"environment {name!r} is not in its collection{reason}{hint}",
        next_step=f"`headgate environments --collection {name.partition(':')[0]}` lists its environments.",
    )


class ListedCollection(abc.ABC):
    """A collection with a complete list of its members; implements `Collection`."""

    prefix: str
    summary: str
    extra: str

    def names(self) -> tuple[str, ...]:
        """Return the names of its environments, sorted; see `Collection`."""
        return tuple(sorted(f"{self.prefix}:{member}" for member in self._members()))

    def environment(self, name: str) -> Environment:
        """Make the environment `name`; see `Collection`."""
        member, known = member_of(name, self.prefix), self.names()
        if name not in known:
            raise self._refused(name, known)
        return self._made(member)

    @abc.abstractmethod
    def _members(self) -> Iterable[str]:
        """Return the members without the prefix; raises if the package cannot be used."""

    @abc.abstractmethod
    def _made(self, member: str) -> Environment:
        """Make the environment of a member."""

    def _refused(self, name: str, known: Iterable[str]) -> UnknownEnvironmentError:
        return unknown(name, known)


def tagged_answer(reply: str) -> str | None:
    """Return the content of the last closed `<answer>…</answer>` in `reply`, ignoring thoughts, or None."""
    answer = last_tagged(without_thinking(reply), "answer")
    return None if answer is None else answer.strip()
