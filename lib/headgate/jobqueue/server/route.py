"""A route of the server: what it takes, who may call it, what it answers; and the call that its handler works with.

With an idempotency key, a request that is sent again gets the answer that it got, and changes nothing.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from pydantic import BaseModel
from starlette.types import Receive

from headgate.core import ANYBODY, record_change
from headgate.core.errors import InvalidInputError
from headgate.jobqueue.errors import ReplyConflictError
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.outcomes import Instant
from headgate.jobqueue.port import Reply
from headgate.jobqueue.server.answers import Answer
from headgate.jobqueue.server.bodies import SMALL_BYTES
from headgate.jobqueue.server.service import Service
from headgate.jobqueue.writer import Operation
from headgate.net.authority import Caller
from headgate.net.tokens import Scope

T = TypeVar("T")

AUDIT: Final = logging.getLogger("headgate.jobqueue.audit")


MOST_KEY_CHARS: Final = 200
REPLAYED: Final = "Idempotent-Replay"


@dataclass(frozen=True, slots=True)
class Key:
    """A request's key, within what its token has sent before.

    Attributes:
        name: token and key.
        fingerprint: of everything that the answer depends on.
    """

    name: str
    fingerprint: str

    def replay(self, ledger: Ledger) -> Answer | None:
        """Return the answer that the same request was given, or None when there is none.

        Raises:
            ReplyConflictError: another request had this key.
        """
        reply = ledger.reply(self.name)
        if reply is None:
            return None
        if reply.fingerprint != self.fingerprint:
            raise ReplyConflictError("the idempotency key was used before for another request")
        return Answer(reply.status, reply.body.encode(), {REPLAYED: "true"})

    def remember(self, ledger: Ledger, answer: Answer, at: Instant) -> Answer:
        """Keep the answer, in the transaction of what it answers; return it."""
        ledger.remember(Reply(self.name, self.fingerprint, answer.status, answer.body.decode(), at.wall))
        return answer

    def once(self, operation: Callable[[Ledger, Instant], Answer]) -> Callable[[Ledger, Instant], Answer]:
        """Return the operation that runs `operation` only when its request is new, or has changed nothing before."""

        def run(ledger: Ledger, at: Instant) -> Answer:
            if (known := self.replay(ledger)) is not None:
                return known
            written = len(ledger.changes.history)
            answer = operation(ledger, at)
            # Refusals could fill the database, and are found again when the request is sent again.
            return answer if len(ledger.changes.history) == written else self.remember(ledger, answer, at)

        return run


def key_of(given: bytes, token_id: str, method: str, path: str, body: bytes) -> Key:
    """Return the key of a request.

    Raises:
        InvalidInputError: if it is empty, too long or not printable.
    """
    text = given.decode("latin-1").strip()
    if not 0 < len(text) <= MOST_KEY_CHARS or not text.isascii() or not text.isprintable():
        raise InvalidInputError(
            f"an Idempotency-Key must be 1 to {MOST_KEY_CHARS} printable ASCII characters (got {len(text)})",
            next_step="Send a random one, such as a UUID, and the same one when the same request is sent again.",
        )
    parts = (method.encode(), path.encode(), token_id.encode(), hashlib.sha256(body).digest())
    return Key(f"{token_id}:{text}", hashlib.sha256(b"\0".join(parts)).hexdigest())


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
        action: what a worker did or a submitter added, for the log: as often as jobs come; empty: nothing.
        changes: what an operator or submitter changed, for the audit trail.
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
    changes: list[Callable[[], None]] = field(default_factory=list)

    def changed(self, what: str, thing: str, *, before: object = "", after: object = "") -> None:
        """Note a change for the audit trail, under the caller's name."""
        who = f"token {self.caller.name} ({self.caller.token_id})" if self.caller.token_id else ANYBODY
        self.changes.append(partial(record_change, f"jobqueue {what}", thing, before=before, after=after, who=who))

    async def change(self, operation: Operation[Answer]) -> Answer:
        """Run an operation on the writer and return its answer; one whose key was seen before is not run again."""
        return await self.service.writer.do(operation if self.key is None else self.key.once(operation))

    async def look(self, operation: Operation[T]) -> T:
        """Run an operation that changes nothing."""
        return await self.service.writer.do(operation)


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
        most_bytes: that its body can need; the settings may allow less.
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
    most_bytes: int = SMALL_BYTES
    is_of_all_teams: bool = False
    errors: tuple[int, ...] = ()
    media_type: str = "application/json"
    tag: str = "jobs"
    example: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its label in metrics."""
        return f"{self.method} {self.pattern}"
