"""Where tokens are kept: beside the jobs, in a table of their own, so that commands and server need no other place."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.tokens import Token


class TokenStore(Protocol):
    """Tokens, with a connection of its own. All methods block; one thread calls them at a time.

    Every method raises `StoreFailedError` when the database cannot be read or written; nothing was changed then, and
    the next call connects anew.
    """

    def tokens(self) -> list[Token]:
        """Return every token, by the time of its creation."""
        ...

    def add(self, token: Token, *, forget_before: float) -> None:
        """Keep a new token; drop those that were revoked or expired before that wall time."""
        ...

    def change(self, token_id: str, change: Callable[[Token], Token]) -> Token | None:
        """Replace a token by what `change` makes of it and return that; None when there is none.

        Nobody else changes it in between. What `change` raises is passed on, and the token stays as it was.
        """
        ...

    def close(self) -> None:
        """Give the connection up; legal twice."""
        ...


class MemoryTokens:
    """Tokens that end with their process."""

    def __init__(self, *tokens: Token) -> None:
        self._tokens = {token.token_id: token for token in tokens}

    def tokens(self) -> list[Token]:
        """Return every token; see `TokenStore`."""
        return sorted(self._tokens.values(), key=lambda token: (token.created_at, token.token_id))

    def add(self, token: Token, *, forget_before: float) -> None:
        """Keep a new token; see `TokenStore`."""
        for old in list(self._tokens.values()):
            if any(at is not None and at < forget_before for at in (old.revoked_at, old.expires_at)):
                del self._tokens[old.token_id]
        self._tokens[token.token_id] = token

    def change(self, token_id: str, change: Callable[[Token], Token]) -> Token | None:
        """Replace a token; see `TokenStore`."""
        if token_id not in self._tokens:
            return None
        self._tokens[token_id] = change(self._tokens[token_id])
        return self._tokens[token_id]

    def close(self) -> None:
        """Do nothing: there is no connection."""


def open_tokens(url: str) -> TokenStore:
    """Return the tokens of the job queue at `url`: `sqlite:///path`, `postgresql://…` or `memory:`.

    Raises:
        InvalidInputError: if the URL has another form.
        StoreFailedError: if the database cannot be opened, or belongs to a newer version of Headgate.
        MissingExtraError: if it is PostgreSQL and its driver is not installed.
    """
    # Here, since the databases need what stands above.
    from headgate.jobqueue.token_databases import PostgresTokens, SqliteTokens  # noqa: PLC0415

    scheme, colon, rest = url.strip().partition(":")
    match scheme:
        case "memory" if colon and rest in {"", "//"}:
            return MemoryTokens()
        case "sqlite" if rest.startswith("///") and not re.search(r"[?#]|/\Z", rest):
            return SqliteTokens(Path(unquote(rest.removeprefix("///"))))
        case "postgresql" | "postgres" if rest.startswith("//"):
            return PostgresTokens(f"postgresql:{rest}")
    shown = repr(scheme) if "@" not in scheme else "an address with a password"
    raise InvalidInputError(
        f"the database of a job queue must be named by a sqlite, postgresql or memory URL (got {shown})",
        next_step="Write sqlite:///path (sqlite:////path from the root), postgresql://USER@HOST/NAME or memory:.",
    )
