from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.core import ErrorKind
from headgate.models import kind_of_status, retry_after_s
from headgate.models.answer import MAX_RETRY_AFTER_S

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, ErrorKind.RATE_LIMITED),
        (408, ErrorKind.PROVIDER_TIMEOUT),
        (401, ErrorKind.AUTH),
        (402, ErrorKind.AUTH),
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
