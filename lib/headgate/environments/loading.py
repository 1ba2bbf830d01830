"""From entry points to environments and collections, with a sentence for everything that a plugin may get wrong."""

from __future__ import annotations

import importlib.metadata
import re
from typing import Any, Final

from headgate.core import errors
from headgate.environments.protocol import COLLECTION_GROUP, Collection, Environment, JudgedEnvironment

GROUP: Final = "headgate.environments"
"""Entry-point group; a value is a callable without arguments that returns an `Environment`."""

_REQUIRED: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

EXTRA: Final = "environments"
"""The optional extra that carries what our own environments need."""


def loaded_environment(entry_point: importlib.metadata.EntryPoint) -> Environment:
    """Return the environment that an entry point makes.

    Raises:
        MissingExtraError: if it is one of ours and lacks its optional package.
        EnvironmentFailedError: if it cannot be made, or breaks a rule of the registry.
    """
    what = f"environment {entry_point.name!r}"
    return checked_environment(entry_point.name, _made(what, entry_point))


def loaded_collection(entry_point: importlib.metadata.EntryPoint) -> Collection:
    """Return the collection that an entry point makes; cheap by the collections' contract.

    Raises:
        EnvironmentFailedError: if it cannot be made, or is none.
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
            f"{what} says that its prefix is {made.prefix!r}",
            next_step="The name of the entry point and the prefix must be equal.",
        )
    return made


def environment_at(value: str) -> object:
    """Return what the entry point's value makes, in a process that serves it alone."""
    return importlib.metadata.EntryPoint("", value, GROUP).load()()


def collection_at(prefix: str, value: str) -> Collection:
    """Return the collection of an entry point's value, in a process that serves it alone."""
    return loaded_collection(importlib.metadata.EntryPoint(prefix, value, COLLECTION_GROUP))


def checked_environment(name: str, made: object) -> Environment:
    """Return `made` when it can stand in the registry as `name`.

    Raises:
        EnvironmentFailedError: if it cannot; says what to do.
    """
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


def judges_in_process(name: str) -> errors.EnvironmentFailedError:
    """Return the error for an environment that is to run apart and needs a judge.

    `judgement` and `verdict` are called between a campaign's awaits; a call to another process there would stop it.
    """
    return errors.EnvironmentFailedError(
        f"environment {name!r} needs a judge and is to run apart; judges' replies are read in the campaign's process",
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
    except Exception as error:
        raise _broken(what, error) from error


def _broken(what: str, error: Exception) -> errors.EnvironmentFailedError:
    return errors.EnvironmentFailedError(
        f"{what} cannot be loaded: {type(error).__name__}: {error}",
        next_step="Fix or uninstall the package that registers it.",
    )


def missing_extra(
    collection: Collection, entry_point: importlib.metadata.EntryPoint
) -> errors.MissingExtraError | None:
    """Return the error for a collection whose extra is not installed, None when it is or nobody can tell.

    Only the metadata of installed packages is read: importing one may take seconds.
    """
    distribution = entry_point.dist
    for line in (distribution.requires or []) if distribution is not None else []:
        name = _REQUIRED.match(line)
        if name is not None and re.search(rf"extra\s*==\s*['\"]{re.escape(collection.extra)}['\"]", line):
            try:
                importlib.metadata.distribution(name[0])
            except importlib.metadata.PackageNotFoundError:
                return errors.MissingExtraError(f"collection {collection.prefix!r}", collection.extra)
    return None
