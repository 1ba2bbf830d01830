"""Failed requests: which error kind a status or an exception is, and what a Retry-After asks for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp
import orjson

from headgate.core import ChatError, ErrorKind, json_value, redacted

MAX_RETRY_AFTER_S: Final = 3600.0
"""Longer demands are cut to an hour: beyond it a provider is down, and the model's error pause takes over."""

_NUMBER: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*", re.ASCII)
_SHOWN_CHARS: Final = 300


def kind_of_status(status: int) -> ErrorKind:
    """Return the error kind of an HTTP status that is not 2xx."""
    match status:
        case 429:
            return ErrorKind.RATE_LIMITED
        case 408:
            return ErrorKind.PROVIDER_TIMEOUT
        case 401 | 402 | 403:  # 402: the account behind the key has no credit left
            return ErrorKind.AUTH
        case _ if 300 <= status < 500:
            return ErrorKind.BAD_REQUEST
        case _:
            return ErrorKind.PROVIDER_FAILURE


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Return how long the provider asks to wait, in [0, `MAX_RETRY_AFTER_S`] seconds; None when it does not say.

    `retry-after-ms` goes before `Retry-After`, which holds seconds or an HTTP date (RFC 9110, 10.2.3). A date counts
    from the answer's own `Date` where it has one, so that a provider's clock may differ from ours. What cannot be read,
    is negative, or lies in the past is as if it were absent.

    Args:
        headers: of the answer; looked up without regard to case.
        now: wall time, seconds since the epoch.
    """
    in_ms = _number(headers.get("retry-after-ms"))
    if in_ms is not None:
        return min(in_ms / 1000, MAX_RETRY_AFTER_S)
    asked = headers.get("Retry-After")
    if asked is None:
        return None
    in_s = _number(asked)
    if in_s is None:
        until = _http_date(asked)
        if until is None:
            return None
        in_s = until - (_http_date(headers.get("Date", "")) or now)
    return min(in_s, MAX_RETRY_AFTER_S) if in_s >= 0 else None


def failure_of_status(status: int, body: bytes | bytearray, headers: Mapping[str, str], now: float) -> ChatError:
    """Return the error that an answer with a status other than 2xx stands for."""
    advice = "; it redirects, which is not followed: name the final address as base_url" if 300 <= status < 400 else ""
    said = redacted(_said(body), limit_chars=_SHOWN_CHARS)
    return ChatError(
        kind_of_status(status),
        f"HTTP {status}{advice}" + (f": {said}" if said else ""),
        status=status,
        retry_after_s=retry_after_s(headers, now),
    )


def failure_of_exception(error: aiohttp.ClientError | OSError, *, was_answered: bool) -> ChatError:
    """Return the error that a failure of the transport stands for: never judged by its message.

    Before an answer began it is the connection (refused, reset, DNS, TLS, connect timeout); afterwards an answer that
    was cut short, and at any time one that is no HTTP, is the provider's failure.
    """
    if isinstance(error, aiohttp.InvalidURL):
        kind = ErrorKind.BAD_REQUEST
    elif isinstance(error, aiohttp.ClientConnectionError | OSError) and not was_answered:
        kind = ErrorKind.CONNECTION
    else:
        kind = ErrorKind.PROVIDER_FAILURE
    # The text of a ClientResponseError is safe; its repr holds the request's headers, and with them the key.
    said = f": {error}" if str(error) else ""
    return ChatError(kind, redacted(f"{type(error).__name__}{said}", limit_chars=_SHOWN_CHARS))


def _number(text: str | None) -> float | None:
    found = _NUMBER.fullmatch(text or "")
    return float(found[1]) if found else None


def _http_date(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
        stamp = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return stamp if math.isfinite(stamp) else None


def _said(body: bytes | bytearray) -> str:
    """Return the message inside an error body as providers shape it, else the body's beginning."""
    try:
        parsed = json_value(body)
    except orjson.JSONDecodeError:
        return body[: _SHOWN_CHARS * 4].decode("utf-8", "replace").strip()
    inner = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    message = inner.get("message", inner) if isinstance(inner, dict) else inner
    return message if isinstance(message, str) else orjson.dumps(message).decode()
