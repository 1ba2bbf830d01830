from __future__ import annotations

import asyncio
import concurrent.futures
from email.utils import formatdate

import aiohttp
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.admission import OutcomeKind
from headgate.admission.classify import classify, error_kind
from headgate.core import ChatError, ErrorKind

REQUEST = httpx.Request("POST", "http://one/v1/chat/completions")


def of_httpx(status: int, **headers: str) -> httpx.HTTPStatusError:
    response = httpx.Response(status, headers=headers, request=REQUEST)
    return httpx.HTTPStatusError(f"HTTP {status}", request=REQUEST, response=response)


def of_openai(status: int, **headers: str) -> Exception:
    import openai

    response = httpx.Response(status, headers=headers, request=REQUEST)
    return openai.APIStatusError(f"HTTP {status}", response=response, body=None)


class NamelessError(Exception):
    """An exception of some other client that only has a status."""

    def __init__(self, status_code: object) -> None:
        super().__init__()
        self.status_code = status_code


def coded(status_code: int, code: str) -> NamelessError:
    """Return an error with the code that its body had, as exceptions of openai have it."""
    error = NamelessError(status_code)
    error.code = code  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("error", "kind", "outcome"),
    [
        (ChatError(ErrorKind.RATE_LIMITED, ""), ErrorKind.RATE_LIMITED, "rate_limited"),
        (ChatError(ErrorKind.PROVIDER_FAILURE, ""), ErrorKind.PROVIDER_FAILURE, "provider_failure"),
        (ChatError(ErrorKind.PROVIDER_TIMEOUT, ""), ErrorKind.PROVIDER_TIMEOUT, "provider_timeout"),
        (ChatError(ErrorKind.CONNECTION, ""), ErrorKind.CONNECTION, "provider_failure"),
        (ChatError(ErrorKind.AUTH, ""), ErrorKind.AUTH, "provider_failure"),
        (ChatError(ErrorKind.QUOTA, ""), ErrorKind.QUOTA, "rate_limited"),
        (ChatError(ErrorKind.BAD_REQUEST, ""), ErrorKind.BAD_REQUEST, "provider_failure"),
        (ChatError(ErrorKind.BAD_ANSWER, ""), ErrorKind.BAD_ANSWER, "success"),
        (ChatError(ErrorKind.CANCELLED, ""), ErrorKind.CANCELLED, "local_cancelled"),
        (of_httpx(429), ErrorKind.RATE_LIMITED, "rate_limited"),
        (of_httpx(503), ErrorKind.PROVIDER_FAILURE, "provider_failure"),
        (of_httpx(401), ErrorKind.AUTH, "provider_failure"),
        (httpx.ReadTimeout("", request=REQUEST), ErrorKind.PROVIDER_TIMEOUT, "provider_timeout"),
        (httpx.ConnectError("", request=REQUEST), ErrorKind.CONNECTION, "provider_failure"),
        (httpx.RemoteProtocolError("", request=REQUEST), ErrorKind.CONNECTION, "provider_failure"),
        (aiohttp.ServerTimeoutError(), ErrorKind.PROVIDER_TIMEOUT, "provider_timeout"),
        (aiohttp.ServerDisconnectedError(), ErrorKind.CONNECTION, "provider_failure"),
        (aiohttp.ClientPayloadError(), ErrorKind.CONNECTION, "provider_failure"),
        (ConnectionRefusedError(), ErrorKind.CONNECTION, "provider_failure"),
        (NamelessError(429), ErrorKind.RATE_LIMITED, "rate_limited"),
        (NamelessError(529), ErrorKind.PROVIDER_FAILURE, "provider_failure"),
        (coded(429, "insufficient_quota"), ErrorKind.QUOTA, "rate_limited"),
        (NamelessError("429"), None, "unexpected_exception"),
        (NamelessError(True), None, "unexpected_exception"),
        (NamelessError(7), None, "unexpected_exception"),
        (asyncio.CancelledError(), None, "local_cancelled"),
        (concurrent.futures.CancelledError(), None, "local_cancelled"),
        (KeyboardInterrupt(), None, "local_cancelled"),
        (SystemExit(1), None, "local_cancelled"),
        (TimeoutError(), None, "local_timeout"),
        (TypeError("x"), None, "unexpected_exception"),
        (KeyError("x"), None, "unexpected_exception"),
        (MemoryError(), None, "unexpected_exception"),
    ],
    ids=lambda value: f"{type(value).__name__}-{value}" if isinstance(value, BaseException) else str(value),
)
def test_every_exception_has_a_kind_and_an_outcome(error: BaseException, kind: ErrorKind | None, outcome: str) -> None:
    assert error_kind(error) is kind
    assert classify(error).kind == outcome


def test_exceptions_of_openai_s_client_have_a_kind_and_an_outcome() -> None:
    import openai

    found = [
        (error_kind(error), classify(error).kind)
        for error in (
            *map(of_openai, (429, 500, 408)),
            openai.APITimeoutError(REQUEST),
            openai.APIConnectionError(request=REQUEST),
        )
    ]
    assert found == [
        (ErrorKind.RATE_LIMITED, "rate_limited"),
        (ErrorKind.PROVIDER_FAILURE, "provider_failure"),
        (ErrorKind.PROVIDER_TIMEOUT, "provider_timeout"),
        (ErrorKind.PROVIDER_TIMEOUT, "provider_timeout"),
        (ErrorKind.CONNECTION, "provider_failure"),
    ]


@pytest.mark.parametrize("made", [of_httpx, of_openai])
@pytest.mark.parametrize(
    ("headers", "asked_s"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "7"}, 7.0),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": "1000000000"}, 3600.0),
        ({"Retry-After": "tomorrow"}, None),
        ({"Retry-After": formatdate(1_000_030, usegmt=True)}, 30.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({}, None),
    ],
)
def test_what_a_provider_asks_to_wait_is_read_from_the_headers_of_any_client(
    made: type, headers: dict[str, str], asked_s: float | None
) -> None:
    assert classify(made(429, **headers), wall=1_000_000.0).retry_after_s == asked_s


@given(st.text(), st.floats(allow_nan=True))
def test_no_header_makes_it_raise_or_ask_for_more_than_an_hour(text: str, wall: float) -> None:
    error = NamelessError(429)
    error.headers = {"Retry-After": text}  # type: ignore[attr-defined]
    outcome = classify(error, wall=wall)
    assert outcome.kind is OutcomeKind.RATE_LIMITED
    assert outcome.retry_after_s is None or 0.0 <= outcome.retry_after_s <= 3600.0
