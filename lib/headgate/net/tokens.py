"""Tokens: what their holders may do, and for which teams."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from headgate.core import MAX_NAME_CHARS, MOST_PRIORITY, Secret, checked_text, credible
from headgate.core.errors import InvalidInputError

SECRET_BYTES: Final = 32
_ID_BYTES: Final = 6
_TEXT: Final = re.compile(r"hgq_([0-9a-f]{12})\.([A-Za-z0-9_-]{43})")
_NO_DIGEST: Final = secrets.token_hex(32)
"""Compared with a secret's hash where there is no stored hash; no secret has this hash."""


class Scope(StrEnum):
    """What a token allows."""

    SUBMIT = "submit"
    CLAIM = "claim"
    COMPLETE = "complete"
    READ = "read"
    STEER = "steer"
    LEGACY = "legacy"
    ADMIN = "admin"


class Refusal(StrEnum):
    """Why a request was refused. Only callers with the right secret learn more than `unknown`."""

    MISSING = "missing"
    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    ROTATED = "rotated"
    EXPIRED = "expired"
    REVOKED = "revoked"
    TOO_MANY_REQUESTS = "too_many_requests"
    UNAVAILABLE = "unavailable"


class TokenParts(NamedTuple):
    """A token's text taken apart."""

    token_id: str
    secret: str


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is stored; its secret cannot be derived from it.

    Attributes:
        token_id: public part of its text, unique.
        scopes: what it allows; `admin` allows everything.
        digest: SHA-256 of its secret, in hex.
        created_at: wall time, seconds since the epoch.
        teams: only jobs of these; None for all.
        pools: only servers of these; None for all.
        most_priority: highest priority of jobs submitted with it; None for any.
        worker: only this worker may use it; None for any.
        expires_at: wall time from which it is refused, or None.
        revoked_at: wall time at which it was revoked, or None.
        rotated_at: wall time at which it got its present secret, or None when that is the first one.
        previous_digest: digest of the previous secret, or empty.
        previous_until: wall time from which that one is refused.
    """

    token_id: str
    name: str
    scopes: frozenset[Scope]
    digest: str = field(repr=False)
    created_at: float
    teams: frozenset[str] | None = None
    pools: frozenset[str] | None = None
    most_priority: int | None = None
    worker: str | None = None
    expires_at: float | None = None
    revoked_at: float | None = None
    rotated_at: float | None = None
    previous_digest: str = field(default="", repr=False)
    previous_until: float = 0.0

    def ended_by(self, now: float) -> Refusal | None:
        """Return why it cannot be used at wall time `now`, or None."""
        if self.revoked_at is not None:
            # Set means revoked, whatever the time: the clock of the machine that revoked it may be ahead.
            return Refusal.REVOKED
        if self.expires_at is not None and now >= self.expires_at:
            return Refusal.EXPIRED
        return None


def new_token(
    name: str,
    scopes: Iterable[Scope],
    *,
    now: float,
    teams: Iterable[str] | None = None,
    pools: Iterable[str] | None = None,
    most_priority: int | None = None,
    worker: str | None = None,
    lifetime_s: float | None = None,
) -> tuple[Token, Secret]:
    """Return a new token and its text, which is not stored anywhere.

    A token bound to teams is by default limited to the pools with the teams' names and to priorities up to 0: a team
    must not decide what the queue does for others.

    Raises:
        InvalidInputError: if a name breaks a rule, there is no scope or team, or it would have expired already.
    """
    allowed = frozenset(scopes)
    bound_to = None if teams is None else frozenset(_checked(team, "team") for team in teams)
    served_by = bound_to if pools is None else frozenset(_checked(pool, "pool") for pool in pools)
    if not allowed:
        raise InvalidInputError("a token needs at least one scope", next_step=f"Scopes are {', '.join(Scope)}.")
    if bound_to is not None and not bound_to:
        raise InvalidInputError("a token bound to no team could do nothing", next_step="Name a team, or leave it out.")
    if most_priority is not None and abs(most_priority) > MOST_PRIORITY:
        raise InvalidInputError(f"a priority must be within ±{MOST_PRIORITY} (got {most_priority})")
    token_id = secrets.token_hex(_ID_BYTES)
    secret = secrets.token_urlsafe(SECRET_BYTES)
    token = Token(
        token_id=token_id,
        name=_checked(name, "name"),
        scopes=allowed,
        digest=_digest(secret),
        created_at=now,
        teams=bound_to,
        pools=served_by,
        most_priority=0 if most_priority is None and bound_to is not None else most_priority,
        worker=None if worker is None else _checked(worker, "worker"),
        expires_at=_expiry(lifetime_s, now),
    )
    return token, _text(token_id, secret)


def rotated(token: Token, *, now: float, overlap_s: float, lifetime_s: float | None = None) -> tuple[Token, Secret]:
    """Return the token with a new secret, and its text; the old one is good for `overlap_s` more seconds.

    Any earlier secret ends at once, and the old one never outlives its own expiry.

    Args:
        token: the current token.
        now: wall time.
        overlap_s: 0 ends the old secret at once.
        lifetime_s: seconds until the token expires; None leaves its expiry as it is.

    Raises:
        InvalidInputError: if it was revoked, it has expired and gets no new lifetime, or a duration is negative.
    """
    ended = token.ended_by(now)
    if ended is Refusal.REVOKED or (ended is Refusal.EXPIRED and lifetime_s is None):
        raise InvalidInputError(f"token {token.token_id} is {ended.value}", next_step="Create a new one.")
    if overlap_s < 0:
        raise InvalidInputError(f"overlap must be >= 0 s (got {overlap_s:g})")
    secret = secrets.token_urlsafe(SECRET_BYTES)
    until = now + overlap_s
    changed = replace(
        token,
        digest=_digest(secret),
        rotated_at=now,
        previous_digest=token.digest,
        previous_until=until if token.expires_at is None else min(until, token.expires_at),
        expires_at=token.expires_at if lifetime_s is None else _expiry(lifetime_s, now),
    )
    return changed, _text(token.token_id, secret)


def revoked(token: Token, *, now: float) -> Token:
    """Return the token revoked; one that was revoked before keeps its time."""
    return token if token.revoked_at is not None else replace(token, revoked_at=now)


def parsed(text: str) -> TokenParts | None:
    """Return the parts of a token's text, or None when it is not one."""
    match = _TEXT.fullmatch(text)
    return None if match is None else TokenParts(*match.groups())


def refusal_of(token: Token | None, secret: str, now: float) -> Refusal | None:
    """Return why `secret` does not open `token` at wall time `now`, or None when it does.

    The work is the same for an unknown id (`token` None) and for a wrong secret, and both are `unknown`: the time of an
    answer does not reveal which ids exist.
    """
    digest = _digest(secret)
    current = _NO_DIGEST if token is None else token.digest
    previous = (token.previous_digest if token is not None else "") or _NO_DIGEST
    is_current = hmac.compare_digest(digest, current)
    is_previous = hmac.compare_digest(digest, previous)
    if token is None or not (is_current or is_previous):
        return Refusal.UNKNOWN
    ended = token.ended_by(now)
    # If the clock that rotated it was ahead, the old secret would be accepted until that time.
    is_possible = token.rotated_at is None or credible(token.rotated_at, now) == token.rotated_at
    if ended is None and not is_current and not (is_possible and now < token.previous_until):
        return Refusal.ROTATED
    return ended


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _text(token_id: str, secret: str) -> Secret:
    return Secret(f"hgq_{token_id}.{secret}")


def _expiry(lifetime_s: float | None, now: float) -> float | None:
    if lifetime_s is not None and lifetime_s <= 0:
        raise InvalidInputError(f"a token's lifetime must be > 0 s (got {lifetime_s:g})")
    return None if lifetime_s is None else now + lifetime_s


def _checked(value: str, what: str) -> str:
    if not 0 < len(value) <= MAX_NAME_CHARS:
        raise InvalidInputError(f"a {what} must have 1 to {MAX_NAME_CHARS} characters (got {len(value)})")
    try:
        return checked_text(value)
    except ValueError as error:
        raise InvalidInputError(f"a {what} {error}") from None
