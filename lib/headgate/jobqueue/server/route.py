"""A route of the server, the call that its handler works with, and repeated requests with an idempotency key."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_args, get_type_hints

from pydantic import BaseModel
from starlette.requests import Request

from headgate.core.audit import ANYBODY, record_change
from headgate.core.errors import InvalidInputError
from headgate.jobqueue.errors import ReplyConflictError
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.outcomes import Instant
from headgate.jobqueue.records import Reply
from headgate.jobqueue.server.answers import Answer, ModelT
from headgate.jobqueue.server.bodies import SMALL_BYTES
from headgate.jobqueue.server.service import Service
from headgate.jobqueue.writer import Operation
from headgate.net.authority import Caller
from headgate.net.tokens import Scope

MOST_KEY_CHARS: Final = 200
REPLAYED: Final = "Idempotent-Replay"


@dataclass(frozen=True, slots=True)
class Key:
    """A request's idempotency key, unique per token.

    Attributes:
        name: token and key.
        fingerprint: hash of everything that the answer depends on.
    """

    name: str
    fingerprint: str

    def replay(self, ledger: Ledger) -> Answer[Any] | None:
        """Return the earlier answer to the same request, or None when there is none.

        Raises:
            ReplyConflictError: another request had this key.
        """
        reply = ledger.reply(self.name)
        if reply is None:
            return None
        if reply.fingerprint != self.fingerprint:
            raise ReplyConflictError("the idempotency key was used before for another request")
        return Answer(reply.body.encode(), reply.status, {REPLAYED: "true"})

    def remember(self, ledger: Ledger, answer: Answer[T], at: Instant) -> Answer[T]:
        """Store the answer in the transaction of its operation; return it."""
        ledger.remember(Reply(self.name, self.fingerprint, answer.status_code, bytes(answer.body).decode(), at.wall))
        return answer

    def once(self, operation: Callable[[Ledger, Instant], Answer[T]]) -> Callable[[Ledger, Instant], Answer[T]]:
        """Return an operation that runs `operation` only when its request is new, or changed nothing before."""

        def run(ledger: Ledger, at: Instant) -> Answer[T]:
            if (known := self.replay(ledger)) is not None:
                return known
            written = len(ledger.changes.history)
            answer = operation(ledger, at)
            # Refusals could fill the database, and a repeat of the request yields them again.
            return answer if len(ledger.changes.history) == written else self.remember(ledger, answer, at)

        return run


def key_of(request: Request, token_id: str, body: bytes) -> Key | None:
    """Return the idempotency key of a request, None where it has none or needs none.

    Raises:
        InvalidInputError: if it is empty, too long or not printable.
    """
    given = request.headers.get("idempotency-key")
    if given is None or request.method != "POST":
        return None
    text = given.strip()
    if not 0 < len(text) <= MOST_KEY_CHARS or not text.isascii() or not text.isprintable():
        raise InvalidInputError(
            f"an Idempotency-Key must be 1 to {MOST_KEY_CHARS} printable ASCII characters (got {len(text)})",
            next_step="Send a random one, such as a UUID, and the same one when the same request is sent again.",
        )
    parts = (b"POST", request.scope["path"].encode(), token_id.encode(), hashlib.sha256(body).digest())
    return Key(f"{token_id}:{text}", hashlib.sha256(b"\0".join(parts)).hexdigest())


T = TypeVar("T")

_AUDIT: Final = logging.getLogger("headgate.jobqueue.audit")


def audit(caller: Caller, action: str) -> None:
    """Log an action of a worker or submitter, which can be as frequent as jobs are."""
    _AUDIT.info("token %s: %s", caller.token_id or "none", action)


class Changed(NamedTuple, Generic[ModelT, T]):
    """The answer to a request, and the outcome of its operation, None when that was not run again."""

    answer: Answer[ModelT]
    outcome: T | None


@dataclass(frozen=True, slots=True)
class Call:
    """One accepted request, its body read, with its idempotency key if it has one."""

    service: Service
    caller: Caller
    request: Request
    key: Key | None

    async def changed(self, what: str, thing: str, *, before: object = "", after: object = "") -> None:
        """Record a change by an operator or submitter in the audit trail, under the caller's name."""
        who = f"token {self.caller.name} ({self.caller.token_id})" if self.caller.token_id else ANYBODY
        change = f"jobqueue {what}"
        await asyncio.to_thread(record_change, change, thing, before=before, after=after, who=who)  # waits for the disk

    async def change(self, operation: Operation[T], answered: Callable[[T], Answer[ModelT]]) -> Changed[ModelT, T]:
        """Run an operation on the writer; one whose key was seen before is not run again.

        With a key, the answer that `answered` makes of the outcome is stored in the same transaction.
        """
        outcomes: list[T] = []

        def run(ledger: Ledger, at: Instant) -> Answer[ModelT]:
            outcomes.append(operation(ledger, at))
            return answered(outcomes[-1])

        answer = await self.service.writer.do(run if self.key is None else self.key.once(run))
        return Changed(answer, outcomes[-1] if outcomes else None)

    async def look(self, operation: Operation[T]) -> T:
        """Run an operation that changes nothing."""
        return await self.service.writer.do(operation)


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path.

    Attributes:
        pattern: path, with `{parameters}`.
        handler: answers a `Call`. The models of its further parameters `path`, `query` and `body` define what the
            request takes; its return annotation defines the answer with status 200.
        scope: the scope that a token needs; None: no token is needed.
        summary: one line for the documentation.
        most_bytes: largest body that it can need; the settings may allow less.
        is_of_all_teams: whether tokens bound to teams or pools are refused.
        errors: statuses of its errors, in addition to those of every route.
        media_type: media type of its answer, where that is not JSON.
    """

    method: str
    pattern: str
    handler: Callable[..., Awaitable[Answer[Any]]]
    scope: Scope | None
    summary: str
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

    @property
    def takes(self) -> dict[str, type[BaseModel]]:
        """The models of its handler's `path`, `query` and `body`, as far as it has them."""
        hints = get_type_hints(self.handler)
        return {name: hints[name] for name in ("path", "query", "body") if name in hints}

    @property
    def answers(self) -> type[BaseModel] | None:
        """The model of an answer with status 200, or None for a text."""
        (model,) = get_args(get_type_hints(self.handler)["return"])
        return None if model is bytes else model
