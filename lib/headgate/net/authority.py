"""Who makes a request, what it may do and how often, by its token; a revocation takes effect within five seconds."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from headgate.core.errors import InvalidSettingError
from headgate.net.token_stores import TokenStore, TokenStoreError
from headgate.net.tokens import Refusal, Scope, Token, parsed, refusal_of

REVOCATION_BOUND_S: Final = 5.0
"""Tokens read longer ago than this are not trusted: a revoked one is accepted for at most this long."""

REFRESH_S: Final = 2.5
"""Tokens are read again after this: half of the bound, so that one failed read refuses nobody."""

NEW_TOKEN_S: Final = 0.5
"""An unknown token triggers another read, at most this often, so that a new token works at once."""

RETRY_S: Final = 1.0
"""Time between two attempts to read tokens while the database does not answer."""

_MESSAGES: Final = {
    Refusal.MISSING: "the request carries no token",
    Refusal.MALFORMED: "the request carries something that is not a token of Headgate",
    Refusal.UNKNOWN: "the token is not known",
    Refusal.ROTATED: "the token was given a new secret, and the old one is no longer accepted",
    Refusal.EXPIRED: "the token has expired",
    Refusal.REVOKED: "the token was revoked",
    Refusal.TOO_MANY_REQUESTS: "the token makes more requests than it may",
    Refusal.UNAVAILABLE: "tokens cannot be read at present",
}
_NEXT_STEPS: Final = {
    Refusal.MISSING: "Send `Authorization: Bearer TOKEN`, or the token as the password of the URL.",
    Refusal.TOO_MANY_REQUESTS: "Wait for the time in Retry-After.",
    Refusal.UNAVAILABLE: "Send the request again; nothing was changed.",
}
_STATUSES: Final = {Refusal.TOO_MANY_REQUESTS: 429, Refusal.UNAVAILABLE: 503}


MOST_BUCKETS: Final = 10_000
"""How many buckets are kept; far more than there are tokens in use."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate limit of a token.

    Attributes:
        per_s: sustained requests per second.
        burst: requests at once, after a pause.
    """

    per_s: float = 50.0
    burst: int = 100

    def __post_init__(self) -> None:
        if not 0 < self.per_s < float("inf") or self.burst < 1:
            raise InvalidSettingError(
                f"a token's rate must be > 0 per s with a burst >= 1 (got {self.per_s:g} and {self.burst})"
            )


class _Bucket(NamedTuple):
    level: float
    at: float


class TokenBuckets:
    """The buckets of all tokens. One thread at a time; at most `most` are kept, the most recently used.

    A forgotten bucket is full again, so forgetting the least recently used one lets the least through.
    """

    def __init__(self, rate: Rate, most: int = MOST_BUCKETS) -> None:
        self._rate = rate
        self._most = most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, token_id: str, now: float) -> float:
        """Count a request; return 0 when it is allowed, else the seconds after which the next one is.

        Args:
            token_id: the token of the request.
            now: monotonic seconds.
        """
        bucket = self._buckets.pop(token_id, None) or _Bucket(self._rate.burst, now)
        level = min(self._rate.burst, bucket.level + max(0.0, now - bucket.at) * self._rate.per_s)
        # Rounding makes sums of small refills fall short of 1: a caller that waits as long as told is let in.
        is_let_in = level >= 1.0 - 1e-9
        left = max(0.0, level - 1.0) if is_let_in else level
        self._buckets[token_id] = _Bucket(left, now)
        while len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return 0.0 if is_let_in else (1.0 - level) / self._rate.per_s

    def validate(self) -> None:
        """Assert the invariants."""
        assert len(self._buckets) <= self._most
        assert all(0.0 <= bucket.level <= self._rate.burst for bucket in self._buckets.values())


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request.

    Attributes:
        token_id: the token's id, for logs; empty where none is needed.
        name: the token's name; empty where none is needed.
        teams: the teams whose jobs it sees and changes; None for all.
        pools: the pools whose servers it uses and sees; None for all.
        most_priority: highest priority of the jobs that it submits; None for any.
        worker: the only worker that it may act as; None for any.
    """

    token_id: str
    name: str
    scopes: frozenset[Scope]
    teams: frozenset[str] | None = None
    pools: frozenset[str] | None = None
    most_priority: int | None = None
    worker: str | None = None

    def has(self, scope: Scope) -> bool:
        """Return whether it may do this for some team; claims and listings are narrowed to its `teams`."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def speaks_for(self, worker: str) -> bool:
        """Return whether it may act as this worker."""
        return self.worker is None or self.worker == worker


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused request.

    Attributes:
        reason: the rule that refused it.
        retry_after_s: seconds after which trying again can help, or None where it cannot.
    """

    reason: Refusal
    retry_after_s: float | None = None

    @property
    def http_status(self) -> int:
        """401; 429 or 503 where trying again can help."""
        return _STATUSES.get(self.reason, 401)

    @property
    def message(self) -> str:
        """What is wrong, in a sentence that reveals nothing about other tokens."""
        return _MESSAGES[self.reason]

    @property
    def next_step(self) -> str:
        """What the caller can do."""
        return _NEXT_STEPS.get(self.reason, "Ask whoever runs the job queue for a token.")


Verdict: TypeAlias = Caller | Refused

EVERYBODY: Final = Caller(token_id="", name="", scopes=frozenset({Scope.ADMIN}))
"""Any caller of a server that needs no tokens."""


@dataclass(frozen=True, slots=True)
class _Known:
    tokens: Mapping[str, Token]
    read_at: float


class Authority:
    """Identifies callers by their tokens. Owned by a server for as long as it serves; any thread may use it.

    It keeps all tokens in memory and rereads them from its own store, so that the thread that works on jobs never waits
    for them. When they cannot be read for `REVOCATION_BOUND_S`, every caller is refused until they can.

    Args:
        store: where the tokens are; the authority owns and closes it.
        needs_no_tokens: allow every caller everything as long as no token was ever created. Only for a server that no
            other machine can reach.
        rate: limit of each token; None for no limit.
        monotonic: clock for the age of what was read.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        needs_no_tokens: bool = False,
        rate: Rate | None = Rate(),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._needs_no_tokens = needs_no_tokens
        self._buckets = None if rate is None else TokenBuckets(rate)
        self._monotonic = monotonic
        self._counting = threading.Lock()  # protects the buckets
        self._reading = threading.Lock()  # protects the store, `_next_read_at` and the change of `_known`
        self._known: _Known | None = None
        self._next_read_at = float("-inf")
        self.trouble = ""
        """Why the latest read failed, for the operator; empty when it did not."""
        # Separate from the loop's executor, where heartbeats would wait behind listings that read every job.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="headgate-tokens")

    async def identify(self, text: str | None, now: float) -> Verdict:
        """Return the caller that `text` is the token of; the store is read in a thread, and only if necessary.

        Args:
            text: the token as the request carried it (`token_of`), or None.
            now: wall time, seconds since the epoch; tokens expire by it.
        """
        return self._counted(await self._looked_up(text, now))

    async def still_lets_in(self, text: str | None, now: float) -> bool:
        """Return whether a request that was accepted earlier would still be accepted now; it is not counted again."""
        return not isinstance(await self._looked_up(text, now), Refused)

    async def _looked_up(self, text: str | None, now: float) -> Verdict:
        verdict = self._remembered(text, now)
        if verdict is None:
            verdict = await asyncio.get_running_loop().run_in_executor(self._reader, self._read_verdict, text, now)
        return verdict

    def close(self) -> None:
        """Close the store; may be called twice."""
        self._reader.shutdown(wait=False)
        with self._reading:
            self._store.close()

    def _remembered(self, text: str | None, now: float) -> Verdict | None:
        """Return the verdict by the tokens in memory, or None when they are too old for it."""
        known = self._known
        if known is None:
            return None
        age_s = self._monotonic() - known.read_at
        verdict = self._verdict(known, text, now)
        return None if age_s > _longest_age_s(verdict) else verdict

    def _read_verdict(self, text: str | None, now: float) -> Verdict:
        known = self._read(REFRESH_S)
        verdict = self._verdict(known, text, now)
        longest_s = _longest_age_s(verdict)
        return verdict if longest_s >= REFRESH_S else self._verdict(self._read(longest_s), text, now)

    def _verdict(self, known: _Known | None, text: str | None, now: float) -> Verdict:
        if known is None:
            return Refused(Refusal.UNAVAILABLE, RETRY_S)
        if self._needs_no_tokens and not known.tokens:
            return EVERYBODY
        if text is None:
            return Refused(Refusal.MISSING)
        parts = parsed(text)
        if parts is None:
            return Refused(Refusal.MALFORMED)
        token = known.tokens.get(parts.token_id)
        refusal = refusal_of(token, parts.secret, now)
        if token is None or refusal is not None:
            return Refused(refusal or Refusal.UNKNOWN)
        return Caller(
            token.token_id, token.name, token.scopes, token.teams, token.pools, token.most_priority, token.worker
        )

    def _read(self, longest_age_s: float) -> _Known | None:
        """Return tokens at most this old; if reading fails, older ones, or None beyond `REVOCATION_BOUND_S`."""
        oldest = self._monotonic() - longest_age_s
        with self._reading:
            known = self._known
            if known is not None and known.read_at >= oldest:
                return known  # another request has read them while this one waited
            # Taken before the read, which may miss a revocation that happens while it runs.
            now = self._monotonic()
            if now >= self._next_read_at:
                try:
                    tokens = self._store.tokens()
                except TokenStoreError as error:
                    self.trouble = error.message
                    self._next_read_at = self._monotonic() + RETRY_S
                else:
                    self.trouble = ""
                    known = self._known = _Known(MappingProxyType({t.token_id: t for t in tokens}), now)
            return known if known is not None and self._monotonic() - known.read_at <= REVOCATION_BOUND_S else None

    def _counted(self, verdict: Verdict) -> Verdict:
        if self._buckets is None or isinstance(verdict, Refused) or verdict is EVERYBODY:
            return verdict
        with self._counting:
            wait_s = self._buckets.take(verdict.token_id, self._monotonic())
        return Refused(Refusal.TOO_MANY_REQUESTS, wait_s) if wait_s else verdict


def _longest_age_s(verdict: Verdict) -> float:
    """Return how old tokens may be for this verdict to be given without reading them again."""
    is_perhaps_new = isinstance(verdict, Refused) and verdict.reason is Refusal.UNKNOWN
    return NEW_TOKEN_S if is_perhaps_new else REFRESH_S
