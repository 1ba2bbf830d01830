from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import format_datetime

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.core import ErrorKind
from headgate.models import kind_of_status, retry_after_s
from headgate.models.answer import MAX_RETRY_AFTER_S, failure_of_status

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, ErrorKind.RATE_LIMITED),
        (408, ErrorKind.PROVIDER_TIMEOUT),
        (401, ErrorKind.AUTH),
        (402, ErrorKind.QUOTA),
        (403, ErrorKind.AUTH),
        (301, ErrorKind.BAD_REQUEST),
        (400, ErrorKind.BAD_REQUEST),
        (404, ErrorKind.BAD_REQUEST),
        (422, ErrorKind.BAD_REQUEST),
        (500, ErrorKind.PROVIDER_FAILURE),
        (504, ErrorKind.PROVIDER_FAILURE),
        (529, ErrorKind.PROVIDER_FAILURE),
        (777, ErrorKind.PROVIDER_FAILURE),
    ],
)
def test_a_status_stands_for_one_kind(status: int, kind: ErrorKind) -> None:
    assert kind_of_status(status) is kind


def _body(message: str, **more: object) -> bytes:
    return orjson.dumps({"error": {"message": message, **more}})


_OPENAI = "You exceeded your current quota, please check your plan and billing details."
_GROQ = "Rate limit reached for model `llama` on tokens per day (TPD): Limit 100000, Used 99336."
_GEMINI = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "50"}


@pytest.mark.parametrize(
    ("status", "body", "headers", "kind"),
    [
        (429, _body(_OPENAI, type="insufficient_quota", code="insufficient_quota"), {}, ErrorKind.QUOTA),
        (429, _body(_OPENAI, type="insufficient_quota", code=None), {"Retry-After": "2"}, ErrorKind.QUOTA),
        (400, _body("Billing hard limit has been reached", code="billing_hard_limit_reached"), {}, ErrorKind.QUOTA),
        (403, _body("user quota is not enough", code="insufficient_user_quota"), {}, ErrorKind.QUOTA),
        (429, _body(_GROQ, code="rate_limit_exceeded"), {}, ErrorKind.QUOTA),
        (429, _body(_GROQ, code="rate_limit_exceeded"), {"Retry-After": "290"}, ErrorKind.RATE_LIMITED),
        (429, orjson.dumps([{"error": {"code": 429, "details": [{"violations": [_GEMINI]}]}}]), {}, ErrorKind.QUOTA),
        (429, _body("Rate limit exceeded: free-models-per-day", code=429), {}, ErrorKind.QUOTA),
        (429, _body("Rate limit reached on requests per min (RPM)", code=["?"]), {}, ErrorKind.RATE_LIMITED),
        (429, b"too many requests", {}, ErrorKind.RATE_LIMITED),
        (500, _body(_OPENAI, code="insufficient_quota"), {}, ErrorKind.PROVIDER_FAILURE),
    ],
    ids=str,
)
def test_a_quota_that_is_used_up_is_told_from_a_rate(
    status: int, body: bytes, headers: dict[str, str], kind: ErrorKind
) -> None:
    failed = failure_of_status(status, body, headers, NOW)
    assert failed.kind is kind
    assert ("its quota is used up" in str(failed)) is (kind is ErrorKind.QUOTA)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": " 0.5 "}, 0.5),
        ({"Retry-After": "0"}, 0.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "Retry-After": "9"}, 0.25),
        ({"retry-after-ms": "soon", "Retry-After": "9"}, 9.0),
        ({"Retry-After": "Fri, 20 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"Retry-After": "Fri, 20 Nov 2026 12:00:30 -0000"}, 30.0),
        ({"Retry-After": "Fri, 20 Nov 2026 11:59:30 GMT"}, None),
        ({"Retry-After": "Fri, 20 Nov 2026 15:00:30 GMT", "Date": "Fri, 20 Nov 2026 15:00:00 GMT"}, 30.0),
        ({"Retry-After": "999999"}, MAX_RETRY_AFTER_S),
        ({"Retry-After": "9" * 400}, MAX_RETRY_AFTER_S),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "1e3"}, None),
        ({"Retry-After": "1_0"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": ""}, None),
    ],
)
def test_retry_after_is_read_in_each_of_its_forms(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after_s(headers, NOW) == expected


@given(st.floats(min_value=0, max_value=10_000).map(lambda s: f"{s:.3f}"))
def test_seconds_are_taken_as_they_are_up_to_an_hour(text: str) -> None:
    assert retry_after_s({"Retry-After": text}, NOW) == min(float(text), MAX_RETRY_AFTER_S)


@given(st.integers(0, 7_000_000_000))
def test_a_date_counts_from_now_and_never_backwards(second: int) -> None:
    moment = datetime.fromtimestamp(second, UTC)
    ahead = moment.timestamp() - NOW
    asked = retry_after_s({"Retry-After": format_datetime(moment, usegmt=True)}, NOW)
    assert asked == (min(ahead, MAX_RETRY_AFTER_S) if ahead >= 0 else None)


@given(st.text() | st.from_regex(r"\A[A-Z][a-z]{2}, \d{1,3} [A-Z][a-z]{2} \d{1,9} \d\d:\d\d:\d\d [A-Z+0-9-]{1,9}\Z"))
@example("Fri, 31 Dec 9999 23:59:59 -2359")
@example("Mon, 01 Jan 0001 00:00:00 +2359")
@example("٣")
def test_whatever_a_provider_writes_is_a_wait_within_bounds_or_nothing(text: str) -> None:
    for headers in ({"Retry-After": text}, {"retry-after-ms": text}, {"Retry-After": "5", "Date": text}):
        asked = retry_after_s(headers, NOW)
        assert asked is None or (math.isfinite(asked) and 0 <= asked <= MAX_RETRY_AFTER_S)
