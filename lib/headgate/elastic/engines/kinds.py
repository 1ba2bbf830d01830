"""Turning what an address answered into the sentence that a user can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headgate.elastic.engines.replies import KeyRefusedError
from headgate.elastic.errors import EngineError, NotAnEngineError


@contextmanager
def no_engine_of_its_kind(kind: str, address: str) -> Iterator[None]:
    """Raise NotAnEngineError for a final refusal within; failures that may pass stay what they are."""
    try:
        yield
    except KeyRefusedError as error:
        raise NotAnEngineError(
            error.message, next_step="Give the engine's api_key, and its admin_key where it has one."
        ) from None
    except EngineError as error:
        if not error.is_final:
            raise
        raise NotAnEngineError(f"what answers at {address} is no {kind} engine: {error.message}") from None
