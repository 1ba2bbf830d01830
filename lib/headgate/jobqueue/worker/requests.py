"""The job queue's address; how requests are sent, when they are retried, and how answers are read."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

import httpx
from pydantic import BaseModel, ValidationError

from headgate.core import Secret, redacted
from headgate.core import errors as core_errors
from headgate.core.errors import HeadgateError, InvalidInputError, errors_by_code
from headgate.jobqueue import errors
from headgate.jobqueue.errors import QueueUnreachableError
from headgate.jobqueue.wire import ProblemOut
from headgate.net.clients import client_of

URL_VARIABLES: Final = ("HEADGATE_JOBQUEUE_URL", "JOB_QUEUE_URL")
"""Environment variables that name the server, the first that is set wins; the second is the legacy protocol's."""

TOKEN_VARIABLE: Final = "HEADGATE_JOBQUEUE_TOKEN"  # noqa: S105 - the name of a variable
DEFAULT_URL: Final = "http://127.0.0.1:8000"
_WHOLE_TOKEN: Final = f"Copy it whole into {TOKEN_VARIABLE}, as `headgate jobqueue token create` printed it."


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """A job queue's server.

    Attributes:
        url: scheme, host, port and path, without a token and without a slash at the end.
        token: sent with every request; empty when the server needs none.
    """

    url: str
    token: Secret = field(default_factory=lambda: Secret(""))

    @classmethod
    def of(cls, text: str, token: str = "") -> QueueAddress:
        """Return the address in a URL, which may carry the token as `http://user:TOKEN@host`.

        Args:
            text: the URL.
            token: used in place of the one in the URL.

        Raises:
            InvalidInputError: if it is not an HTTP URL, or the token has characters that no token has.
        """
        try:
            parts = urlsplit(text.strip())
            port = parts.port
        except ValueError:
            raise _no_address(text) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _no_address(text)
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        place = host if port is None else f"{host}:{port}"
        token = token or unquote(parts.password or parts.username or "")
        if not token.isascii() or not token.isprintable():
            raise InvalidInputError(
                "the token of the job queue has characters that no token has", next_step=_WHOLE_TOKEN
            )
        return cls(f"{parts.scheme}://{place}{parts.path.rstrip('/')}", Secret(token))


def queue_address(url: str | None = None, environ: Mapping[str, str] | None = None) -> QueueAddress:
    """Return the given address, else the one in the environment, else the default server on this machine.

    Raises:
        InvalidInputError: if it is not an HTTP URL.
    """
    environ = os.environ if environ is None else environ
    named = (environ.get(name, "").strip() for name in URL_VARIABLES)
    found = url or next((one for one in named if one), DEFAULT_URL)
    return QueueAddress.of(found, environ.get(TOKEN_VARIABLE, "").strip())


def _no_address(text: str) -> InvalidInputError:
    # The text before the @ may be a token.
    return InvalidInputError(
        f"the address of a job queue must be a URL with http or https (got {text.rpartition('@')[2][:200]!r})",
        next_step=f"Write http://host:8000, or set {URL_VARIABLES[0]}.",
    )


T = TypeVar("T", bound=BaseModel)

CONNECT_S: Final = 10.0
ANSWER_S: Final = 30.0
"""Timeout of an answer that the server gives at once; a commit behind a full group takes a fraction of it."""

BEYOND_WAIT_S: Final = 10.0
"""Timeout of the answer to a long poll, beyond the time that the server was asked to wait."""

_TRY_AGAIN: Final = frozenset({429, 500, 502, 503, 504})
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LONGEST_REQUESTED_S: Final = 120.0
"""Longest wait that a server may ask for; after it, the worker asks again, having nothing better to do."""

_log = logging.getLogger("headgate.jobqueue.worker")

_Heard: TypeAlias = httpx.Response | httpx.TransportError
"""The outcome of sending a request once."""


class Anything(BaseModel):
    """An answer whose content is ignored."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Jittered exponential back-off, for up to `patience_s`.

    Attributes:
        patience_s: seconds after which no further attempt is started; infinite for workers, whose server may be away
            for minutes.
        base_s: ceiling of the first back-off; each further one is twice as high.
        max_s: limit of every ceiling.
    """

    patience_s: float = 30.0
    base_s: float = 0.25
    max_s: float = 15.0

    def __post_init__(self) -> None:
        if self.patience_s < 0 or not 0 < self.base_s <= self.max_s:
            raise ValueError(
                f"patience_s must be >= 0 and 0 < base_s <= max_s "
                f"(got {self.patience_s:g}, base_s {self.base_s:g}, max_s {self.max_s:g})"
            )

    def back_off_s(self, attempt: int, rng: random.Random) -> float:
        """Return the wait after attempt number `attempt` (from 1): random, in the upper half of the ceiling."""
        doubled = self.base_s * 2.0 ** min(attempt - 1, 30)
        return min(doubled, self.max_s) * rng.uniform(0.5, 1.0)


class Requests:
    """Sends requests to one job queue until they are answered. Owned by its `JobQueueClient`.

    Each long poll holds a connection, so their number is not bounded. The environment's proxies are not used: they are
    for hosts outside, and would cut long polls off.
    """

    def __init__(self, address: QueueAddress, retry: RetryPolicy, transport: httpx.AsyncBaseTransport | None) -> None:
        self._retry = retry
        self._rng = random.Random()
        self._is_away = False  # logged once, however many requests wait
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        token = address.token.reveal()
        self._http = client_of(address.url, token, timeout_s=ANSWER_S, limits=limits, transport=transport)

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        await self._http.aclose()

    async def send(
        self,
        method: str,
        path: str,
        answer: type[T],
        body: BaseModel | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        key: str = "",
        can_repeat: bool = True,
        wait_s: float = 0.0,
        longest_s: float | None = None,
        retry: RetryPolicy | None = None,
    ) -> T:
        """Send a request until it is answered or patience runs out, and return the answer.

        Args:
            method: HTTP method.
            path: path below the address.
            answer: model that parses a successful answer.
            body: sent as JSON, or None.
            query: parameters; those that are None are omitted.
            key: idempotency key, or empty.
            can_repeat: whether sending it twice has the effect of sending it once: it only reads, has a key, or names
                the lease that it ends or extends.
            wait_s: seconds for which the server may delay the answer.
            longest_s: limit of one attempt in seconds; None for the default of the kind of request.
            retry: used in place of the client's policy.

        Raises:
            HeadgateError: a refusal, of the class of its code; `QueueUnreachableError` when the server does not answer.
        """
        bound_s = float("inf") if longest_s is None else longest_s
        headers = {"Idempotency-Key": key} if key else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = self._http.build_request(
            method,
            path,
            params={name: str(value) for name, value in (query or {}).items() if value is not None} or None,
            # Unset fields are omitted; a server's own keys reach workers unchanged.
            content=None if body is None else body.model_dump_json(exclude_unset=True).encode(),
            headers=headers,
            timeout=httpx.Timeout(
                ANSWER_S,
                connect=min(CONNECT_S, bound_s),
                read=min(wait_s + BEYOND_WAIT_S if wait_s else ANSWER_S, bound_s),
                pool=CONNECT_S,
            ),
        )
        policy = retry or self._retry
        began = time.monotonic()
        attempt = 0
        while True:
            heard = await self._heard(request)
            self._is_away &= not isinstance(heard, httpx.Response) or heard.status_code in _TRY_AGAIN
            if isinstance(heard, httpx.Response) and heard.is_success:
                return _read(heard, answer)
            attempt += 1
            pause_s = max(policy.back_off_s(attempt, self._rng), self._requested_s(heard))
            if not _is_worth_another(heard, can_repeat) or time.monotonic() - began + pause_s > policy.patience_s:
                raise _error_of(heard, request)
            self._tell(heard, request, policy.patience_s)
            await asyncio.sleep(pause_s)

    def _tell(self, heard: _Heard, request: httpx.Request, patience_s: float) -> None:
        if not self._is_away and getattr(heard, "status_code", 0) != httpx.codes.TOO_MANY_REQUESTS:
            self._is_away = True
            until = "until it answers" if patience_s == float("inf") else f"for up to {patience_s:g} s"
            _log.warning("%s; retrying %s", _error_of(heard, request).message, until)

    async def _heard(self, request: httpx.Request) -> _Heard:
        try:
            return await self._http.send(request)
        except httpx.TransportError as error:
            return error

    def _requested_s(self, heard: _Heard) -> float:
        """Return the wait that the server asks for, in seconds: never less, and jittered so that retries spread out."""
        if not isinstance(heard, httpx.Response):
            return 0.0
        try:
            requested_s = float(heard.headers["retry-after"])
        except (KeyError, ValueError):
            return 0.0
        return min(requested_s, _LONGEST_REQUESTED_S) * self._rng.uniform(1.0, 1.1)


def _is_worth_another(heard: _Heard, can_repeat: bool) -> bool:
    if isinstance(heard, httpx.Response):
        # A 429 was refused before any work was done; after the others, the outcome is unknown.
        return heard.status_code in _TRY_AGAIN and (can_repeat or heard.status_code == 429)
    if isinstance(heard, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return False
    return can_repeat or isinstance(heard, _NOT_SENT)


_TYPED: Final = errors_by_code(core_errors, errors) | {"unauthorized": core_errors.UnauthorizedError}
"""Error classes of the queue's refusals, by code."""

_BY_STATUS: Final[dict[int, type[HeadgateError]]] = {
    401: core_errors.UnauthorizedError,
    403: errors.ForbiddenError,
}
_TEXT_CHARS: Final = 300
_TOKEN_STEP: Final = (
    f"Put a token into {TOKEN_VARIABLE}, or into the address as its password. "
    "`headgate jobqueue token create` makes one."
)


def _read(answer: httpx.Response, kind: type[T]) -> T:
    try:
        return kind.model_validate_json(answer.content or b"{}")
    except ValidationError:
        raise QueueUnreachableError(
            f"what answers at {_place(answer.request)}{answer.request.url.path} is not a job queue: {_text(answer)!r}"
        ) from None


def _error_of(heard: _Heard, request: httpx.Request) -> HeadgateError:
    """Return the error that an unsuccessful answer states, or one that says that there was no answer."""
    if not isinstance(heard, httpx.Response):
        said = f"{type(heard).__name__}: {heard}"[:200] if str(heard) else type(heard).__name__
        return QueueUnreachableError(f"the job queue at {_place(request)} does not answer ({said})")
    by_status = _BY_STATUS.get(heard.status_code)
    try:
        told = ProblemOut.model_validate_json(heard.content)
    except ValidationError:
        kind = by_status or QueueUnreachableError
        return kind(f"HTTP {heard.status_code} from {_place(request)}{request.url.path}: {_text(heard)!r}")
    kind = _TYPED.get(told.code) or by_status or errors.JobQueueError
    flaws = "; ".join(f"{flaw.field}: {flaw.rule} (got {flaw.value})" for flaw in told.errors[:3])
    message = (told.detail or told.title).rstrip(".")
    if flaws and flaws not in message:
        message = f"{message}: {flaws}"
    # The server's advice is about headers, which users of this client do not write.
    next_step = _TOKEN_STEP if heard.status_code == httpx.codes.UNAUTHORIZED else told.next_step
    return kind(redacted(message), next_step=next_step or None)


def _place(request: httpx.Request) -> str:
    """Return the scheme and host of a request."""
    return f"{request.url.scheme}://{request.url.netloc.decode('ascii', 'replace')}"


def _text(answer: httpx.Response) -> str:
    return redacted(answer.text[: 4 * _TEXT_CHARS], limit_chars=_TEXT_CHARS)
