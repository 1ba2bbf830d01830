"""What is submitted to run: a class, taken out of Ray's wrapper, with handlers of its state where it has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]

from headgate.placement.amounts import MEBIBYTE
from headgate.placement.errors import InvalidPlacementError

LARGEST_PAYLOAD_BYTES: Final = 16 * MEBIBYTE

Save = Callable[[Any], Any]
Restore = Callable[[Any, Any], None]


def plain_class(work: object) -> type:
    """Return the class that a caller means: itself, or the one inside a `@ray.remote` class.

    Raises:
        InvalidPlacementError: it is neither.
    """
    if isinstance(work, type):
        return work
    metadata = getattr(work, "__ray_metadata__", None)
    inner = getattr(metadata, "modified_class", None)
    if isinstance(inner, type):
        return getattr(inner, "__ray_actor_class__", inner)
    raise InvalidPlacementError(
        f"Work is a class or a @ray.remote class (got {work!r})",
        next_step="Put the function into a class with a method `run`, and submit the class and not an instance.",
    )


def with_handlers(work: type, save: Save | None, restore: Restore | None) -> type:
    """Return a subclass whose state is saved and restored by functions, where the class does not do it itself."""
    members: dict[str, Any] = {"__module__": work.__module__, "__doc__": work.__doc__}
    if save is not None and not hasattr(work, "checkpoint"):
        members["checkpoint"] = save
    if restore is not None and not hasattr(work, "restore"):
        members["restore"] = restore
    return work if len(members) == 2 else type(work.__name__, (work,), members)


def packed_work(
    work: type, args: tuple[Any, ...], kwargs: Mapping[str, Any], method: str | None, options: Mapping[str, Any]
) -> bytes:
    """Return work as it is journalled and sent.

    Raises:
        InvalidPlacementError: the class has no such method, or it all cannot be pickled or is too large.
    """
    if method is not None and not callable(getattr(work, method, None)):
        raise InvalidPlacementError(
            f"{work.__name__} has no method {method!r} to run",
            next_step="Name another one with method=, or method=None to keep it for calls until it is completed.",
        )
    try:
        payload: bytes = cloudpickle.dumps((work, args, dict(kwargs), method, dict(options)))
    except Exception as error:
        raise InvalidPlacementError(f"{work.__name__} cannot be sent with these arguments: {error}") from error
    if len(payload) > LARGEST_PAYLOAD_BYTES:
        raise InvalidPlacementError(
            f"{work.__name__} takes {len(payload) / MEBIBYTE:.1f} MiB with its arguments, and at most "
            f"{LARGEST_PAYLOAD_BYTES // MEBIBYTE} MiB are journalled",
            next_step="Pass the name of a file or an object of a store.",
        )
    return payload
