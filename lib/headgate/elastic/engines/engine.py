"""An engine as the pool sees it: one API over SGLang, vLLM, Ray actors and an external router's workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from headgate.elastic.worker import EngineLoad


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine told of itself when it was checked.

    Attributes:
        models: names that it serves.
        slots: requests that it runs at most at once; None where it does not tell.
        token_slots: tokens that it has room for; None where it does not tell.
        is_asleep: whether its memory is released.
    """

    models: tuple[str, ...]
    slots: int | None = None
    token_slots: int | None = None
    is_asleep: bool = False


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as it goes to an engine.

    Attributes:
        request_id: unique; the engine knows the request by it, so that it can be aborted.
        path: of the OpenAI API, such as `/v1/chat/completions`.
        body: JSON.
        headers: to be passed on.
    """

    request_id: str
    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """An answer that begins: status and headers are there, the body is to be read.

    Attributes:
        status: HTTP status.
        content_type: of the body.
        chunks: the body as it arrives, once.
        headers: further ones worth passing on, such as Retry-After.
    """

    status: int
    content_type: str
    chunks: AsyncIterator[bytes]
    headers: Mapping[str, str] = field(default_factory=dict)


class Controlled(Protocol):
    """The part of an `Engine` that a pool puts to sleep and wakes: all of it where others send the requests."""

    @property
    def name(self) -> str:
        """The worker's name; where it has an address, the address."""

    async def check(self) -> EngineFacts:
        """Make sure that this is an engine of its kind that can be put to sleep, and return what it tells of itself.

        Raises:
            NotAnEngineError: it is another kind, or was started without what sleeping needs.
        """

    async def load(self) -> EngineLoad:
        """Return a reading; of a sleeping engine too, without waking it."""

    async def sleep(self) -> None:
        """Flush the cache and release the memory of an idle engine; nothing where it sleeps already.

        Raises:
            EngineError: it is busy, which is found out before anything is released; or it failed.
        """

    async def wake(self) -> None:
        """Take the memory and return once it can answer; nothing where it is awake already."""


class Engine(Controlled, Protocol):
    """One inference engine. Calls may be made again after a failure: each is idempotent on our side.

    Every call ends or raises: `check`, `load` and `abort` within `engine_timeout` an attempt; `sleep` and `wake` within
    `start_timeout`, because weights can take longer to move; `answer` lasts until its reader has enough. All raise
    `EngineError` where the engine refuses, fails or does not answer; its `is_final` tells that trying again cannot
    help.
    """

    @property
    def kind(self) -> str:
        """`sglang`, `vllm`, `ray` or `smg`."""

    async def abort(self, request_id: str) -> None:
        """Have it let go of a request; nothing where it does not have it."""

    def answer(self, request: Outgoing) -> AbstractAsyncContextManager[EngineAnswer]:
        """Send a request; leaving the context early closes the connection, which ends the request in the engine.

        Raises:
            EngineError: no answer began: the connection failed, or the engine answered 502 or 503 for itself.
        """

    async def close(self) -> None:
        """Give up connections; legal twice. The engine itself goes on."""
