"""An engine as the pool sees it: one API over SGLang, vLLM, Ray actors and an external router's workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from headgate.elastic.worker import EngineLoad


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine reported about itself when it was checked.

    Attributes:
        models: names of the models that it serves.
        slots: most requests that it runs at once; None if it does not report it.
        token_slots: tokens that it has room for; None if it does not report it.
        is_asleep: whether its memory is released.
    """

    models: tuple[str, ...]
    slots: int | None = None
    token_slots: int | None = None
    is_asleep: bool = False


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request to an engine.

    Attributes:
        request_id: unique; identifies the request to the engine, so that it can be aborted.
        path: path of the OpenAI API, such as `/v1/chat/completions`.
        body: JSON.
        headers: headers to pass on.
    """

    request_id: str
    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """An answer that has begun: status and headers have arrived, the body has not been read.

    Attributes:
        status: HTTP status.
        content_type: content type of the body.
        chunks: the body as it arrives; can be iterated once.
        headers: other headers worth passing on, such as Retry-After.
    """

    status: int
    content_type: str
    chunks: AsyncIterator[bytes]
    headers: Mapping[str, str] = field(default_factory=dict)


class Controlled(Protocol):
    """The part of an `Engine` that a pool needs to put it to sleep and to wake it, if others send the requests."""

    @property
    def name(self) -> str:
        """The worker's name; its address if it has one."""

    async def check(self) -> EngineFacts:
        """Make sure that this is an engine of its kind that can be put to sleep, and return what it reports.

        Raises:
            NotAnEngineError: it is of another kind, or was started without the flags that sleeping needs.
        """

    async def load(self) -> EngineLoad:
        """Return a reading; a sleeping engine is read without waking it."""

    async def sleep(self) -> None:
        """Flush the cache and release the memory of an idle engine; does nothing if it is already asleep.

        Raises:
            EngineError: it is busy, which is checked before anything is released; or it failed.
        """

    async def wake(self) -> None:
        """Take the memory again and return once it can answer; does nothing if it is already awake."""


class Engine(Controlled, Protocol):
    """One inference engine. Calls may be repeated after a failure: each is idempotent on our side.

    Every call ends or raises: `check`, `load` and `abort` within `engine_timeout` per attempt; `sleep` and `wake`
    within `start_timeout`, as moving weights can take longer; `answer` lasts until its reader stops. All raise
    `EngineError` if the engine refuses, fails or does not answer; its `is_final` means that a retry cannot help.
    """

    @property
    def kind(self) -> str:
        """`sglang`, `vllm`, `ray` or `smg`."""

    async def abort(self, request_id: str) -> None:
        """Abort a request; does nothing if the engine does not have it."""

    def answer(self, request: Outgoing) -> AbstractAsyncContextManager[EngineAnswer]:
        """Send a request; leaving the context early closes the connection, which ends the request in the engine.

        Raises:
            EngineError: no answer began: the connection failed, or the answer was 502, 503 or 504.
        """

    async def close(self) -> None:
        """Close the connections; legal twice. The engine itself keeps running."""
