"""How the work on a job ended, by what came out of it, and what the server is told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeAlias

from headgate.core import redacted
from headgate.jobqueue.errors import StaleLeaseError
from headgate.jobqueue.worker.errors import LeaseLost, NoServerError

_ERROR_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class Said:
    """The server knows, or it is no concern of this worker's any more."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The work is to blame: the attempt is charged."""

    error: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The worker stops: the job goes back without blame."""

    reason: str


Ending: TypeAlias = Said | Failed | Stopped


def ending_of(error: BaseException | None, *, is_settled: bool) -> Ending:
    """Return what to tell the server.

    Args:
        error: what the work raised, or None when it came to its end.
        is_settled: whether the server was told already, or has told that the lease is over.
    """
    if is_settled or isinstance(error, StaleLeaseError | LeaseLost):
        return Said()
    match error:
        case None:
            return Failed("the work came to its end without complete(), fail() or give_back()")
        case asyncio.CancelledError() | KeyboardInterrupt() | SystemExit() | GeneratorExit():
            return Stopped(f"the worker was stopped ({type(error).__name__})")
        case NoServerError():
            return Stopped(error.message)
        case _:
            return Failed(error_text(error))


def error_text(error: BaseException) -> str:
    """Return the type and message of an error, without secrets; the first of a group stands for it."""
    first = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    message = plain(redacted(str(first), limit_chars=_ERROR_CHARS))
    name = type(first).__qualname__
    return f"{name}: {message}" if message else name


def plain(text: str) -> str:
    """Return a text that every database and encoding takes: without NUL and half characters."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def may_pass(error: BaseException | None) -> bool:
    """Return whether an error ends its job alone: the worker goes on with the next one."""
    return isinstance(error, Exception | LeaseLost)
