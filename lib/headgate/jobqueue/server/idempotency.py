"""Requests that are sent again with their Idempotency-Key: they get the answer that they got, and change nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from starlette.requests import Request

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.errors import ReplyConflictError
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.outcomes import Instant
from headgate.jobqueue.records import Reply
from headgate.jobqueue.server.answers import Answer

T = TypeVar("T")

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

    def replay(self, ledger: Ledger) -> Answer[Any] | None:
        """Return the answer that the same request was given, or None when there is none.

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
        """Keep the answer, in the transaction of what it answers; return it."""
        ledger.remember(Reply(self.name, self.fingerprint, answer.status_code, bytes(answer.body).decode(), at.wall))
        return answer

    def once(self, operation: Callable[[Ledger, Instant], Answer[T]]) -> Callable[[Ledger, Instant], Answer[T]]:
        """Return the operation that runs `operation` only when its request is new, or has changed nothing before."""

        def run(ledger: Ledger, at: Instant) -> Answer[T]:
            if (known := self.replay(ledger)) is not None:
                return known
            written = len(ledger.changes.history)
            answer = operation(ledger, at)
            # Refusals could fill the database, and are found again when the request is sent again.
            return answer if len(ledger.changes.history) == written else self.remember(ledger, answer, at)

        return run


def key_of(request: Request, token_id: str, body: bytes) -> Key | None:
    """Return the key of a request, None where it has none or needs none.

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
