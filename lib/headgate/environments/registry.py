"""Which environments are installed, and the one instance of each that this process uses."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

from headgate.core import entry_points_of, errors
from headgate.core.errors import did_you_mean
from headgate.environments.apart import (
    HOSTS,
    ApartLimits,
    HostedEnvironment,
    Source,
    hosted_environment,
    members_of,
    specs_of,
)
from headgate.environments.episode import text_of
from headgate.environments.protocol import COLLECTION_GROUP, Collection, Environment, EnvironmentSpec, JudgedEnvironment

GROUP: Final = "headgate.environments"
"""Entry-point group; a value is a callable without arguments that returns an `Environment`."""

_REQUIRED: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

EXTRA: Final = "environments"
"""The optional extra that installs what Headgate's own environments need."""


def loaded_collection(entry_point: importlib.metadata.EntryPoint) -> Collection:
    """Return the collection that an entry point creates; cheap by the `Collection` contract.

    Raises:
        EnvironmentFailedError: if it cannot be created, or is not a collection.
    """
    what = f"collection {entry_point.name!r}"
    made = _made(what, entry_point)
    if not isinstance(made, Collection):
        raise errors.EnvironmentFailedError(
            f"{what} is a {type(made).__name__} without prefix, summary, extra, names and environment",
            next_step="Its entry point must name a callable that returns a Collection.",
        )
    if made.prefix != entry_point.name:
        raise errors.EnvironmentFailedError(
            f"{what} has the prefix {made.prefix!r}",
            next_step="The name of the entry point and the prefix must be equal.",
        )
    return made


def environment_at(value: str) -> object:
    """Return what an entry point's value creates, in the process that serves only this environment."""
    return importlib.metadata.EntryPoint("", value, GROUP).load()()


def collection_at(prefix: str, value: str) -> Collection:
    """Return the collection of an entry point's value, in the process that serves only this collection."""
    return loaded_collection(importlib.metadata.EntryPoint(prefix, value, COLLECTION_GROUP))


def checked_environment(name: str, made: object) -> Environment:
    """Return `made` if it is a valid environment named `name`.

    Raises:
        EnvironmentFailedError: if it is not; the error says what to do.
    """
    if isinstance(made, type):
        raise errors.EnvironmentFailedError(
            f"environment {name!r} is the class {made.__name__}, not an instance of it",
            next_step=f"Write {made.__name__}() where an instance is needed; an entry point names the class.",
        )
    if not isinstance(made, Environment):
        missing = ", ".join(one for one in ("spec", "open", "baseline") if not hasattr(made, one))
        raise errors.EnvironmentFailedError(
            f"environment {name!r} is a {type(made).__name__} without {missing}",
            next_step="Add it as headgate.Environment describes; an entry point names the class, or a factory.",
        )
    registered = made.spec.name
    if registered != name:
        raise errors.EnvironmentFailedError(
            f"environment {name!r} calls itself {registered!r} in its spec",
            next_step="The name of the entry point and the name in the spec must be equal.",
        )
    if made.spec.needs_judge and not isinstance(made, JudgedEnvironment):
        raise errors.EnvironmentFailedError(
            f"environment {name!r} needs a judge but cannot read a judge's replies",
            next_step="Give it the methods judgement and verdict of headgate.environments.JudgedEnvironment.",
        )
    return made


def judges_in_process(name: str) -> errors.EnvironmentFailedError:
    """Return the error for an environment that has `runs_apart` and needs a judge.

    A campaign calls `judgement` and `verdict` synchronously; a call to another process there would block it.
    """
    return errors.EnvironmentFailedError(
        f"environment {name!r} has runs_apart and needs a judge, whose replies are read in the campaign's process",
        next_step="Leave out runs_apart, or let it score answers itself.",
    )


def _made(what: str, entry_point: importlib.metadata.EntryPoint) -> Any:
    try:
        return entry_point.load()()
    except errors.HeadgateError:
        raise
    except ModuleNotFoundError as error:
        if entry_point.module.split(".")[0] == "headgate" and (error.name or "").split(".")[0] != "headgate":
            raise errors.MissingExtraError(what, EXTRA) from error
        raise _broken(what, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(what, error) from error


def _broken(what: str, error: BaseException) -> errors.EnvironmentFailedError:
    return errors.EnvironmentFailedError(
        f"{what} cannot be loaded: {type(error).__name__}: {text_of(error)}",
        next_step="Fix or uninstall the package that registers it.",
    )


def missing_extra(
    collection: Collection, entry_point: importlib.metadata.EntryPoint
) -> errors.MissingExtraError | None:
    """Return the error for a collection whose extra is not installed, None if it is or that is unknown.

    Reads only the metadata of installed packages: importing one may take seconds.
    """
    for name in _required(entry_point, collection.extra):
        try:
            importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            return errors.MissingExtraError(f"collection {collection.prefix!r}", collection.extra)
    return None


def _required(entry_point: importlib.metadata.EntryPoint, extra: str) -> Iterator[str]:
    """Return the distributions that an extra of the entry point's distribution requires."""
    distribution = entry_point.dist
    for line in (distribution.requires or []) if distribution is not None else []:
        name = _REQUIRED.match(line)
        if name is not None and re.search(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]", line):
            yield name[0]


def _packages(entry_point: importlib.metadata.EntryPoint) -> tuple[tuple[str, str], ...]:
    """Return names and versions of an entry point's packages: Headgate, its distribution and those of its extra."""
    own = entry_point.dist
    names = {"headgate", *([own.name] if own is not None else ()), *_required(entry_point, entry_point.name)}
    found = []
    for name in sorted(names):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append((name, importlib.metadata.version(name)))
    return tuple(found)


EntryPoints = Iterable[importlib.metadata.EntryPoint]
_ASKED_AT_ONCE: Final = 25
"""Specs per call to a collection's process, which has a deadline: creating an environment may take a second."""

Registered = dict[str, list[importlib.metadata.EntryPoint]]


@dataclass(frozen=True, slots=True)
class Available:
    """One registered name: its spec, or why it cannot be used. Exactly one of `spec` and `problem` is set."""

    name: str
    spec: EnvironmentSpec | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class AvailableCollection:
    """One registered collection, and the problem that keeps it from being used, None if there is none."""

    prefix: str
    summary: str
    extra: str
    problem: str | None


class Registry:
    """The environments that installed packages register, loaded on first use, and `further` ones.

    Thread-safe. A broken plugin affects only callers that ask for it. A further environment hides a registered one with
    the same name, and a single environment hides a collection's member. Environments that run apart share their child
    processes with every registry of this process that has the same limits.
    """

    def __init__(
        self,
        entry_points: Callable[[], EntryPoints],
        further: Iterable[Environment] = (),
        *,
        collections: Callable[[], EntryPoints] = tuple,
        apart: ApartLimits | None = None,
        all_apart: bool = False,
    ) -> None:
        self._entry_points = entry_points
        self._collection_points = collections
        self._limits = apart or ApartLimits()
        self._all_apart = all_apart
        self._loaded: dict[str, Environment] = {one.spec.name: one for one in further}
        self._further = frozenset(self._loaded)
        self._lock = threading.RLock()  # protects the maps, and ensures that each factory runs once

    def names(self) -> tuple[str, ...]:
        """Return every registered name, sorted, without those in collections; loads nothing."""
        with self._lock:
            return tuple(sorted({*self._scanned, *self._further}))

    def environment(self, name: str) -> Environment:
        """Return the environment or collection member with this name; the same instance for every caller.

        A collection's member is created in another process, which may take seconds.

        Raises:
            UnknownEnvironmentError: if no package registers `name`.
            MissingExtraError: if one of Headgate's own environments lacks its optional package.
            EnvironmentFailedError: if it cannot be loaded, or two packages register the name.
        """
        with self._lock:
            if name in self._loaded:
                return self._loaded[name]
            prefix = name.partition(":")[0]
            if name in self._scanned or prefix not in self._scanned_collections:
                return self._loaded.setdefault(name, self._single(name))
            source = self._source(prefix)
        member = hosted_environment(name, HOSTS.of(source, self._limits))  # slow, so outside the lock
        with self._lock:
            return self._loaded.setdefault(name, member)

    def made_by(self, name: str) -> str:
        """Return the packages that create and score the tasks of an environment, with their versions."""
        with self._lock:
            points = self._scanned.get(name) or self._scanned_collections.get(name.partition(":")[0]) or []
        packages = _packages(points[0]) if points else (("headgate", importlib.metadata.version("headgate")),)
        return ", ".join(f"{package} {version}" for package, version in packages)

    def available(self) -> tuple[Available, ...]:
        """Return every registered name with its spec or, if it cannot be loaded, its problem."""
        return tuple(self._availability(name) for name in self.names())

    def collections(self) -> tuple[AvailableCollection, ...]:
        """Return the collections, by prefix; starts no process and loads none of their packages."""
        with self._lock:
            return tuple(self._described(prefix) for prefix in sorted(self._scanned_collections))

    def members(self, prefix: str) -> tuple[str, ...]:
        """Return the names of a collection's environments, as far as it can list them; asks its process.

        Raises:
            UnknownEnvironmentError: if there is no such collection.
            MissingExtraError: if its package is not installed.
            EnvironmentFailedError: if it cannot be used on this machine.
        """
        with self._lock:
            source = self._source(prefix)
        return members_of(HOSTS.of(source, self._limits))

    def available_in(self, prefix: str) -> tuple[Available, ...]:
        """Return the members of a collection, as `members` does, each with its spec or its problem.

        Raises:
            HeadgateError: as `members` does.
        """
        names = self.members(prefix)
        batches = (names[start : start + _ASKED_AT_ONCE] for start in range(0, len(names), _ASKED_AT_ONCE))
        return tuple(entry for batch in batches for entry in self._availabilities(prefix, batch))

    def _availabilities(self, prefix: str, names: Sequence[str]) -> tuple[Available, ...]:
        with self._lock:
            source = self._source(prefix)
        try:
            specs = specs_of(names, HOSTS.of(source, self._limits))
        except errors.EnvironmentFailedError:  # one of them crashed the process, or is slow: ask for each separately
            return tuple(self._availability(name) for name in names)
        return tuple(
            Available(name, None, str(spec)) if isinstance(spec, errors.HeadgateError) else Available(name, spec, None)
            for name, spec in zip(names, specs, strict=True)
        )

    def _availability(self, name: str) -> Available:
        try:
            return Available(name, self.environment(name).spec, None)
        except errors.HeadgateError as error:
            return Available(name, None, str(error))

    def _described(self, prefix: str) -> AvailableCollection:
        try:
            point = self._only(prefix, self._scanned_collections[prefix], "collection")
            made = loaded_collection(point)
        except errors.HeadgateError as error:
            return AvailableCollection(prefix, "", "", str(error))
        missing = missing_extra(made, point)
        return AvailableCollection(prefix, made.summary, made.extra, str(missing) if missing else None)

    def _single(self, name: str) -> Environment:
        point = self._entry_point(name)
        made = checked_environment(name, _made(f"environment {name!r}", point))
        if made.spec.needs_judge and made.spec.runs_apart:
            raise judges_in_process(name)
        if made.spec.needs_judge or not (made.spec.runs_apart or self._all_apart):
            return made
        source = Source("environment", name, point.value, _packages(point))
        return HostedEnvironment(made.spec, HOSTS.of(source, self._limits))

    def _source(self, prefix: str) -> Source:
        points = self._scanned_collections.get(prefix)
        if points is None:
            raise _unknown("collection", prefix, self._scanned_collections)
        point = self._only(prefix, points, "collection")
        return Source("collection", prefix, point.value, _packages(point))

    @cached_property
    def _scanned(self) -> Registered:
        return _by_name(self._entry_points())

    @cached_property
    def _scanned_collections(self) -> Registered:
        return _by_name(self._collection_points())

    def _entry_point(self, name: str) -> importlib.metadata.EntryPoint:
        candidates = self._scanned.get(name)
        if candidates is None:
            prefixes = [f"{prefix}:{name.partition(':')[2]}" for prefix in self._scanned_collections]
            raise _unknown("environment", name, (*self.names(), *prefixes))
        return self._only(name, candidates, "environment")

    def _only(self, name: str, points: list[importlib.metadata.EntryPoint], what: str) -> importlib.metadata.EntryPoint:
        if len(points) > 1:
            values = " and ".join(sorted(point.value for point in points))
            raise errors.EnvironmentFailedError(
                f"{what} {name!r} is registered more than once: by {values}",
                next_step="Uninstall all but one of the packages that register it.",
            )
        return points[0]


def registry_with(
    further: Iterable[Environment], apart: ApartLimits | None = None, *, all_apart: bool = False
) -> Registry:
    """Return all installed environments together with `further` ones, such as those of servers.

    Args:
        further: environments in addition to the installed ones.
        apart: limits of the processes of environments that run apart.
        all_apart: whether every installed environment runs apart, except those that need a judge.
    """
    more, limits = tuple(further), apart or ApartLimits()
    if not more and limits == ApartLimits() and not all_apart:
        return _INSTALLED
    return Registry(_SINGLE, more, collections=_COLLECTIONS, apart=limits, all_apart=all_apart)


def _by_name(points: EntryPoints) -> Registered:
    found: Registered = defaultdict(list)
    for point in points:
        # A distribution that is on the path twice (an editable install and a wheel) is not a conflict.
        if all(point.value != other.value for other in found[point.name]):
            found[point.name].append(point)
    return dict(found)


def _unknown(what: str, name: str, known: Iterable[str]) -> errors.UnknownEnvironmentError:
    return errors.UnknownEnvironmentError(f"{what} {name!r} is not registered{did_you_mean(name, known, cutoff=0.5)}")


_SINGLE: Final = partial(entry_points_of, GROUP)
_COLLECTIONS: Final = partial(entry_points_of, COLLECTION_GROUP)
_INSTALLED: Final = Registry(_SINGLE, collections=_COLLECTIONS)

environment = _INSTALLED.environment
environments = _INSTALLED.names
available = _INSTALLED.available
