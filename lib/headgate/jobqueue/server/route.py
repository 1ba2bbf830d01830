"""A route of the server: what it takes, who may call it, what it answers; and the call that its handler works with."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pydantic import BaseModel
from starlette.types import Receive

from headgate.jobqueue.authority import Caller
from headgate.jobqueue.desk import Operation
from headgate.jobqueue.server.answers import Answer
from headgate.jobqueue.server.idempotency import Key
from headgate.jobqueue.server.service import Service
from headgate.jobqueue.tokens import Scope

T = TypeVar("T")

AUDIT: Final = logging.getLogger("headgate.jobqueue.audit")


class Path(BaseModel):
    """The parameters of a route's path; none of its own."""


class Nothing(BaseModel):
    """No body, no query."""


@dataclass(slots=True)
class Call:
    """One request that was let in.

    Attributes:
        service: the server.
        caller: who asks.
        receive: of the request; its body has been read.
        path: parameters of the path.
        query: parameters of the query, as the route's model.
        body: as the route's model.
        key: of idempotency, or None.
        token: as the request carried it, or None.
        action: what was changed, for the audit log; empty: nothing.
    """

    service: Service
    caller: Caller
    receive: Receive
    path: Any
    query: Any
    body: Any
    key: Key | None
    token: str | None = None
    action: str = ""

    async def change(self, operation: Operation[Answer]) -> Answer:
        """Run an operation on the desk and return its answer; one whose key was seen before is not run again."""
        return await self.service.desk.do(operation if self.key is None else self.key.once(operation))

    async def look(self, operation: Operation[T]) -> T:
        """Run an operation that changes nothing."""
        return await self.service.desk.do(operation)


Handler = Callable[[Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path.

    Attributes:
        method: of HTTP.
        pattern: path, with `{parameters}`.
        handler: answers it.
        scope: that a token needs; None: nobody needs a token.
        summary: one line for the documentation.
        answers: body of the answer with status 200; None: see `media_type`.
        takes: body of the request, if it has one.
        query: parameters of the query.
        path: parameters of the path.
        is_batch: whether its body may be as large as a batch's.
        is_of_all_teams: whether tokens that are bound to teams are refused.
        errors: statuses that it answers beside those of every route.
        media_type: of an answer that is not JSON.
        tag: chapter of the documentation.
    """

    method: str
    pattern: str
    handler: Handler
    scope: Scope | None
    summary: str
    answers: type[BaseModel] | None = None
    takes: type[BaseModel] | None = None
    query: type[BaseModel] = Nothing
    path: type[BaseModel] = Path
    is_batch: bool = False
    is_of_all_teams: bool = False
    errors: tuple[int, ...] = ()
    media_type: str = "application/json"
    tag: str = "jobs"
    example: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its label in metrics."""
        return f"{self.method} {self.pattern}"
