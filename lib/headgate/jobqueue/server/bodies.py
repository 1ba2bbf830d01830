"""Request bodies: checked against their models without delaying other requests.

A small body is checked on the event loop. A large one is checked in a separate thread, entry by entry, and only up to
the tenth flaw; nothing holds the interpreter for longer than it takes to parse `_MOST_VALUES`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from headgate.jobqueue.errors import BodyTooLargeError, TooManyOpenError
from headgate.net.request_flaws import MOST_FLAWS, Flaw, FlawedError, flaw, flaws_of, validated

T = TypeVar("T")
E = TypeVar("E")

SMALL_BYTES: Final = 64 * 1024
"""Bodies up to this are checked on the event loop, which takes a few milliseconds at most."""

ORDINARY_BYTES: Final = 1024**2
"""Enough for a result of 256 KiB or an error's 64 000 characters, however written: an escape takes six bytes."""

_MOST_VALUES: Final = 600_000
"""Keys, lists and objects of one body: 60 for each job of the largest batch. This many take half a second to parse."""

_AT_ONCE: Final = 4
"""How many larger bodies of one token are in memory at once; its others wait to be read."""

_FEW: Final = 100
"""Up to this many flaws are listed at once; with more, the body is checked again up to the tenth."""


class LargeBodies:
    """Rations large bodies: each token may have a few of them in memory, and one thread checks them all.

    Owned by one server's `Service`; lives on its event loop.
    """

    def __init__(self) -> None:
        self._turns: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_AT_ONCE))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headgate-bodies")

    @asynccontextmanager
    async def turn(self, token_id: str, wait_s: float) -> AsyncIterator[None]:
        """Wait for a token's turn to send a large body, and hold it while the context is open.

        Raises:
            TooManyOpenError: it does not come within `wait_s`.
        """
        turns = self._turns[token_id]
        try:
            async with asyncio.timeout(wait_s):
                await turns.acquire()
        except TimeoutError:
            raise TooManyOpenError(
                f"the token is sending {_AT_ONCE} bodies of more than {SMALL_BYTES} bytes already",
                next_step="Send large bodies one after another.",
            ) from None
        try:
            yield
        finally:
            turns.release()

    async def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, run in the thread of large bodies."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def each(self, entries: Sequence[E], make: Callable[[E], T]) -> list[T]:
        """Return `make` of each entry of a batch; a large batch runs in the thread of large bodies."""
        if len(entries) <= MOST_FLAWS:
            return [make(entry) for entry in entries]
        return await self.run(lambda: [make(entry) for entry in entries])

    def close(self) -> None:
        """Release the thread; may be called twice."""
        self._thread.shutdown(wait=False)


def checked(model: type[BaseModel], raw: bytes) -> BaseModel:
    """Return a body as its model.

    Raises:
        FlawedError: it breaks rules.
        BodyTooLargeError: it has too many values.
    """
    if len(raw) <= SMALL_BYTES:
        try:
            return model.model_validate_json(raw)
        except ValidationError as error:
            if error.error_count() <= _FEW:
                raise FlawedError(flaws_of(error, "body"), error.error_count()) from None
    if (values := sum(map(raw.count, (b":", b"[", b"{")))) > _MOST_VALUES:
        raise BodyTooLargeError(f"the body must have at most {_MOST_VALUES} keys, lists and objects (got {values})")
    try:
        document = from_json(raw)
    except ValueError as error:
        raise FlawedError([flaw("body", f"Invalid JSON: {error}"[:200])], 1) from None
    if flaws := list(islice(_flaws(model, document, "body"), MOST_FLAWS)):
        raise FlawedError(flaws, len(flaws))
    return validated(model, document, "body")


def _flaws(model: type[BaseModel], value: Any, place: str) -> Iterator[Flaw]:
    """Yield unknown keys and the flaws of list entries; replaces valid entries by their models."""
    if not isinstance(value, dict):
        return
    if model.model_config.get("extra") == "forbid":
        for key in (key for key in value if key not in model.model_fields):
            yield flaw(f"{place}.{key[:100]}", "Extra inputs are not permitted")
    for name, field in model.model_fields.items():
        (entry, *_) = get_args(field.annotation) or (None,)
        entries = value.get(name)
        if isinstance(entry, type) and issubclass(entry, BaseModel) and isinstance(entries, list):
            for number, one in enumerate(entries):
                at = f"{place}.{name}.{number}"
                if unknown := list(islice(_flaws(entry, one, at), MOST_FLAWS)):
                    yield from unknown
                    continue
                try:
                    entries[number] = entry.model_validate(one)
                except ValidationError as error:
                    yield from flaws_of(error, at)
