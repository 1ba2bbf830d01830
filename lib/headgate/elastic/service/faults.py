"""What counts as a fault of an engine, and not as one of ours."""

from __future__ import annotations

from typing import Final

from headgate.core.errors import HeadgateError
from headgate.elastic.errors import EngineError, InvalidElasticError

FAULTS: Final = (HeadgateError, OSError)
"""What a call of an engine or of its leases may raise; anything else is a mistake in a program and ends the service."""


def sentence(error: BaseException) -> str:
    """Return what went wrong in one sentence."""
    if isinstance(error, HeadgateError):
        return error.message
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def is_final(error: BaseException) -> bool:
    """Return whether asking again cannot help."""
    return isinstance(error, InvalidElasticError) or (isinstance(error, EngineError) and error.is_final)
