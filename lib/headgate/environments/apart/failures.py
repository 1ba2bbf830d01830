"""Errors of an environment on their way out of its process: what was raised there is raised here."""

from __future__ import annotations

from typing import Final

from headgate.core import errors
from headgate.environments.apart.frames import Frame

ERROR_CHARS: Final = 2_000
"""Of a message; an exception may carry a whole dataset in its text."""

_KNOWN: Final = {
    kind.__name__: kind
    for kind in (
        errors.EnvironmentFailedError,
        errors.MissingExtraError,
        errors.SandboxUnavailableError,
        errors.UnknownEnvironmentError,
    )
}


def failure_frame(error: BaseException) -> Frame:
    """Return what `error` says in the form that crosses; works for every exception."""
    if isinstance(error, errors.HeadgateError):
        return {"raised": type(error).__name__, "message": _cut(error.message), "next_step": _cut(error.next_step)}
    return {"raised": type(error).__name__, "message": _text(error)}


def failure_of(frame: Frame, label: str, call: str) -> errors.HeadgateError:
    """Return the error to raise for a frame that `failure_frame` made, in the words of who called."""
    raised, message, next_step = frame["raised"], frame["message"], frame.get("next_step")
    if next_step is not None:
        kind = _KNOWN.get(raised, errors.EnvironmentFailedError)
        error = kind.__new__(kind, message)
        errors.HeadgateError.__init__(error, message, next_step=next_step)
        return error
    return errors.EnvironmentFailedError(f"{label} failed in {call}: {raised}: {message}")


def _text(error: BaseException) -> str:
    try:
        return _cut(str(error))
    except Exception as worse:  # noqa: BLE001 - an exception whose text cannot be made still has a name
        return f"(its text cannot be made: {type(worse).__name__})"


def _cut(text: str) -> str:
    return text if len(text) <= ERROR_CHARS else f"{text[:ERROR_CHARS]}… ({len(text):,} characters)"
