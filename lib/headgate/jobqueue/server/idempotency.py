"""Idempotency keys: a request that is sent again with the same key gets the answer that it got, and changes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.errors import ReplyConflictError
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.outcomes import Instant
from headgate.jobqueue.port import Reply
from headgate.jobqueue.server.answers import Answer

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
        """Return the operation that runs `operation` only when its request is new."""

        def run(ledger: Ledger, at: Instant) -> Answer:
            return self.replay(ledger) or self.remember(ledger, operation(ledger, at), at)

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
