"""Where the job queue is; how a request reaches it, when it is sent again, and what its answer says."""

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
"""Environment variables that name the server, the first one that is set; the second is the legacy protocol's."""

TOKEN_VARIABLE: Final = "HEADGATE_JOBQUEUE_TOKEN"  # noqa: S105 - its name
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
            token: in place of the one in the URL.

        Raises:
            InvalidInputError: if it is no URL of HTTP, or the token has characters that no token has.
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
    """Return the address that is given, or the one that the environment names, or the server of this machine.

    Raises:
        InvalidInputError: if it is no URL of HTTP.
    """
    environ = os.environ if environ is None else environ
    named = (environ.get(name, "").strip() for name in URL_VARIABLES)
    found = url or next((one for one in named if one), DEFAULT_URL)
    return QueueAddress.of(found, environ.get(TOKEN_VARIABLE, "").strip())


def _no_address(text: str) -> InvalidInputError:
    # What stands before the @ may be a token.
    return InvalidInputError(
        f"the address of a job queue must be a URL with http or https (got {text.rpartition('@')[2][:200]!r})",
        next_step=f"Write http://host:8000, or set {URL_VARIABLES[0]}.",
    )


T = TypeVar("T", bound=BaseModel)

CONNECT_S: Final = 10.0
ANSWER_S: Final = 30.0
"""For an answer that the server gives at once; a commit behind a full group takes a fraction of it."""

BEYOND_WAIT_S: Final = 10.0
"""For the answer to a long poll, beyond the time that the server was asked to wait."""

_TRY_AGAIN: Final = frozenset({429, 500, 502, 503, 504})
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LONGEST_REQUESTED_S: Final = 120.0
"""A server that asks to wait longer is asked again after so long: workers have nothing better to do."""

_log = logging.getLogger("headgate.jobqueue.worker")

_Heard: TypeAlias = httpx.Response | httpx.TransportError
"""What came of sending a request once."""


class Anything(BaseModel):
    """An answer that nobody reads."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Jittered exponential back-off for as long as the caller is patient.

    Attributes:
        patience_s: seconds after which no further attempt is begun; infinite for workers, whose server may be away
            for minutes.
        base_s: ceiling of the first back-off; each further one is twice as high.
        max_s: no ceiling is higher.
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
        """Return the wait after attempt number `attempt` (from 1): in the upper half of its ceiling."""
        doubled = self.base_s * 2.0 ** min(attempt - 1, 30)
        return min(doubled, self.max_s) * rng.uniform(0.5, 1.0)


class Requests:
    """Sends requests to one job queue until they are answered. Owned by its `JobQueueClient`.

    Long polls each hold a connection, so that their number is not bounded; the proxies of the environment are for the
    world outside, and would cut long polls off.
    """

    def __init__(self, address: QueueAddress, retry: RetryPolicy, transport: httpx.AsyncBaseTransport | None) -> None:
        self._retry = retry
        self._rng = random.Random()
        self._is_away = False  # said once, however many requests wait
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        token = address.token.reveal()
        self._http = client_of(address.url, token, timeout_s=ANSWER_S, limits=limits, transport=transport)

    async def close(self) -> None:
        """Close the connections; legal twice."""
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
        """Send a request until it is answered or patience ends, and return the answer.

        Args:
            method: of HTTP.
            path: below the address.
            answer: what a success is read as.
            body: sent as JSON, or None.
            query: parameters; what is None stays out.
            key: idempotency key, or empty.
            can_repeat: whether sending it twice changes no more than sending it once: it reads, has a key, or names
                the lease that it ends or extends.
            wait_s: seconds for which the server may hold the answer back.
            longest_s: seconds for one attempt at most; None leaves that to the kind of request.
            retry: in place of the client's.

        Raises:
            HeadgateError: what the server refuses, by its code; `QueueUnreachableError` when it does not answer.
        """
        bound_s = float("inf") if longest_s is None else longest_s
        headers = {"Idempotency-Key": key} if key else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = self._http.build_request(
            method,
            path,
            params={name: str(value) for name, value in (query or {}).items() if value is not None} or None,
            # What was not given stays out: a server's own keys are passed on to workers as they came.
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
            if isinstance(heard, httpx.Response) and heard.is_success:
                self._is_away = False
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
            _log.warning("%s; it is asked again %s", _error_of(heard, request).message, until)

    async def _heard(self, request: httpx.Request) -> _Heard:
        try:
            return await self._http.send(request)
        except httpx.TransportError as error:
            return error

    def _requested_s(self, heard: _Heard) -> float:
        """Return the seconds that the server asks to wait: never before the time that it names, and not all at it."""
        if not isinstance(heard, httpx.Response):
            return 0.0
        try:
            requested_s = float(heard.headers["retry-after"])
        except (KeyError, ValueError):
            return 0.0
        return min(requested_s, _LONGEST_REQUESTED_S) * self._rng.uniform(1.0, 1.1)


def _is_worth_another(heard: _Heard, can_repeat: bool) -> bool:
    if isinstance(heard, httpx.Response):
        # 429 is refused before anything is done; after the others, nobody knows.
        return heard.status_code in _TRY_AGAIN and (can_repeat or heard.status_code == 429)
    if isinstance(heard, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return False
    return can_repeat or isinstance(heard, _NOT_SENT)


_TYPED: Final = errors_by_code(core_errors, errors) | {"unauthorized": core_errors.UnauthorizedError}
"""What the queue refuses, by its code."""

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
    """Return the error that an answer without success says, or that there was none."""
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
    # The server speaks of headers, which nobody writes who reads this.
    next_step = _TOKEN_STEP if heard.status_code == httpx.codes.UNAUTHORIZED else told.next_step
    return kind(redacted(message), next_step=next_step or None)


def _place(request: httpx.Request) -> str:
    """Return scheme and host of an address."""
    return f"{request.url.scheme}://{request.url.netloc.decode('ascii', 'replace')}"


def _text(answer: httpx.Response) -> str:
    return redacted(answer.text[: 4 * _TEXT_CHARS], limit_chars=_TEXT_CHARS)
