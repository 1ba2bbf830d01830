"""Which environments are installed, and the one instance of each that this process uses."""

from __future__ import annotations

import difflib
import importlib.metadata
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from headgate.core import errors
from headgate.environments.protocol import Environment, EnvironmentSpec, JudgedEnvironment

GROUP: Final = "headgate.environments"
"""Entry-point group; a value is a callable without arguments that returns an `Environment`."""

EXTRA: Final = "environments"
"""The optional extra that carries what our own environments need."""

EntryPoints = Iterable[importlib.metadata.EntryPoint]


@dataclass(frozen=True, slots=True)
class Available:
    """One registered name: what it is, or why it cannot be used. Exactly one of `spec` and `problem` is set."""

    name: str
    spec: EnvironmentSpec | None
    problem: str | None


class Registry:
    """The environments that the installed packages register, loaded when first asked for, and `further` ones.

    Thread-safe. A broken plugin harms nobody who does not ask for it. A further one goes before what has its name.
    """

    def __init__(self, entry_points: Callable[[], EntryPoints], further: Iterable[Environment] = ()) -> None:
        self._entry_points = entry_points
        self._registered: dict[str, list[importlib.metadata.EntryPoint]] | None = None
        self._loaded: dict[str, Environment] = {one.spec.name: one for one in further}
        self._further = frozenset(self._loaded)
        self._lock = threading.RLock()  # protects both, and that each factory runs once

    def names(self) -> tuple[str, ...]:
        """Return every registered name, sorted; loads nothing."""
        with self._lock:
            return tuple(sorted({*self._scanned(), *self._further}))

    def environment(self, name: str) -> Environment:
        """Return the environment registered as `name`, the same instance for every caller.

        Raises:
            UnknownEnvironmentError: if nobody registers `name`.
            MissingExtraError: if one of ours lacks its optional package.
            EnvironmentFailedError: if it cannot be loaded, or two packages register the name.
        """
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = _loaded(self._entry_point(name))
            return self._loaded[name]

    def available(self) -> tuple[Available, ...]:
        """Return every registered name with its spec or, where it cannot be loaded, its problem."""
        return tuple(self._availability(name) for name in self.names())

    def _availability(self, name: str) -> Available:
        try:
            return Available(name, self.environment(name).spec, None)
        except errors.HeadgateError as error:
            return Available(name, None, str(error))

    def _scanned(self) -> dict[str, list[importlib.metadata.EntryPoint]]:
        if self._registered is None:
            found: dict[str, list[importlib.metadata.EntryPoint]] = defaultdict(list)
            for entry_point in self._entry_points():
                # One distribution seen twice on the path (an editable install and a wheel) is no conflict.
                if all(entry_point.value != other.value for other in found[entry_point.name]):
                    found[entry_point.name].append(entry_point)
            self._registered = dict(found)
        return self._registered

    def _entry_point(self, name: str) -> importlib.metadata.EntryPoint:
        candidates = self._scanned().get(name)
        if candidates is None:
            raise _unknown(name, self.names())
        if len(candidates) > 1:
            values = " and ".join(sorted(candidate.value for candidate in candidates))
            raise errors.EnvironmentFailedError(
                f"environment {name!r} is registered more than once: by {values}",
                next_step="Uninstall all but one of the packages that register it.",
            )
        return candidates[0]


def environment(name: str) -> Environment:
    """Return the installed environment `name`; see `Registry.environment`."""
    return _INSTALLED.environment(name)


def environments() -> tuple[str, ...]:
    """Return the names of all installed environments, sorted; loads none of them."""
    return _INSTALLED.names()


def available() -> tuple[Available, ...]:
    """Return all installed environments with their spec or their problem."""
    return _INSTALLED.available()


def registry_with(further: Iterable[Environment]) -> Registry:
    """Return all installed environments together with `further` ones, such as those of servers."""
    more = tuple(further)
    return Registry(_installed, more) if more else _INSTALLED


def _installed() -> EntryPoints:
    return importlib.metadata.entry_points(group=GROUP)


def _loaded(entry_point: importlib.metadata.EntryPoint) -> Environment:
    name = entry_point.name
    try:
        return _checked(name, entry_point.load()())
    except errors.HeadgateError:
        raise
    except ModuleNotFoundError as error:
        if entry_point.module.split(".")[0] == "headgate":
            raise errors.MissingExtraError(f"environment {name!r}", EXTRA) from error
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error


def _checked(name: str, made: object) -> Environment:
    if not isinstance(made, Environment):
        raise errors.EnvironmentFailedError(
            f"environment {name!r} is a {type(made).__name__} without spec, open and baseline",
            next_step="Its entry point must name a callable that returns an Environment.",
        )
    registered = made.spec.name
    if registered != name:
        raise errors.EnvironmentFailedError(
            f"environment {name!r} calls itself {registered!r} in its spec",
            next_step="The name of the entry point and the name in the spec must be equal.",
        )
    if made.spec.needs_judge and not isinstance(made, JudgedEnvironment):
        raise errors.EnvironmentFailedError(
            f"environment {name!r} needs a judge and cannot read one",
            next_step="Give it the methods judgement and verdict of headgate.environments.JudgedEnvironment.",
        )
    return made


def _broken(name: str, error: Exception) -> errors.EnvironmentFailedError:
    return errors.EnvironmentFailedError(
        f"environment {name!r} cannot be loaded: {type(error).__name__}: {error}",
        next_step="Mend or uninstall the package that registers it.",
    )


def _unknown(name: str, known: Iterable[str]) -> errors.UnknownEnvironmentError:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return errors.UnknownEnvironmentError(f"environment {name!r} is not registered{hint}")


_INSTALLED: Final = Registry(_installed)
