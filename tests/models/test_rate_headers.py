"""What an answer tells of limits per minute is read in every form that providers use, and nonsense is none of it."""

from __future__ import annotations

import pytest

from headgate.core.rates import RateNote
from headgate.models.rate_headers import lasting, rate_notes, refusal_notes

NOW = 1_700_000_000.0


def x(unit: str, limit: str, remaining: str, reset: str) -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{unit}": limit,
        f"x-ratelimit-remaining-{unit}": remaining,
        f"x-ratelimit-reset-{unit}": reset,
    }


@pytest.mark.parametrize(
    ("headers", "notes"),
    [
        ({"Content-Type": "text/plain"}, ()),
        (x("requests", "60", "59", "1s"), (RateNote(0, 60, 59, 1.0),)),
        (x("tokens", "150000", "149984", "6m0s"), (RateNote(3, 150_000, 149_984, 360.0),)),
        (x("tokens", "10", "4", "120ms"), (RateNote(3, 10, 4, 0.12),)),
        (
            {
                "anthropic-ratelimit-input-tokens-limit": "40000",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2023-11-14T22:13:50Z",
                "anthropic-ratelimit-output-tokens-limit": "8000",
            },
            (RateNote(1, 40_000, 0, 30.0), RateNote(2, 8_000, None, None)),
        ),
        # LiteLLM's proxy names whose limits they are.
        (
            {
                "x-ratelimit-api_key-limit-requests": "10",
                "x-ratelimit-api_key-remaining-requests": "7",
                "x-ratelimit-team-limit-requests": "8",
                "x-ratelimit-model_per_key-remaining-tokens": "90",
                "x-ratelimit--limit-tokens": "1",
                "x-ratelimit-{told}-limit-tokens": "2",
            },
            (RateNote(0, 8, 7, None), RateNote(3, None, 90, None)),
        ),
        # They contradict: the smaller counts.
        (
            x("requests", "60", "5", "1s") | {"anthropic-ratelimit-requests-limit": "50"},
            (RateNote(0, 50, 5, 1.0),),
        ),
        # What cannot be true, or is no number.
        (x("requests", "0", "3", "soon"), (RateNote(0, None, 3, None),)),
        (x("requests", "10", "3000", "99h"), (RateNote(0, 10, 10, None),)),
        (x("requests", "10", "-4", "-1"), (RateNote(0, 10, 0, None),)),
        (x("tokens", "1e9", "nan", "inf"), ()),
        (x("tokens", "9" * 400, "٣", ""), ()),
        ({"anthropic-ratelimit-tokens-limit": "9", "anthropic-ratelimit-tokens-reset": "2023?"}, (RateNote(3, 9),)),
    ],
)
def test_headers_are_read(headers: dict[str, str], notes: tuple[RateNote, ...]) -> None:
    assert rate_notes(headers, NOW) == notes


@pytest.mark.parametrize(
    ("said", "note"),
    [
        (
            "Rate limit reached for m in organization o on tokens per min (TPM): Limit 10,000, Used 9,500.",
            RateNote(3, 10_000, 0.0),
        ),
        ("This request would exceed the rate limit of 40,000 input tokens per minute.", RateNote(1, 40_000, 0.0)),
        ("Rate limit exceeded. Limit type: tokens. Current limit: 100, Remaining: 0", RateNote(3, 100, 0.0)),
        # It has room, and not for what the request may be answered with: LiteLLM 1.108 reserves `max_tokens`.
        (
            "Limit type: tokens. Current limit: 3002, Remaining: 3002. Limit resets at: 2026-11-26 21:19:29 UTC",
            RateNote(3, 3_002, 0.0),
        ),
        ("Too many requests per minute", RateNote(0, None, 0.0)),
    ],
)
def test_a_refusal_names_its_unit(said: str, note: RateNote) -> None:
    assert refusal_notes(said, ()) == (note,)


def test_a_refusal_that_names_nothing_tells_nothing() -> None:
    assert refusal_notes("all 8 slots are busy", ()) == ()


def test_a_refusal_and_its_headers_are_put_together() -> None:
    requests, tokens = RateNote(0, 60, 3, 1.0), RateNote(3, 900, 40, 2.0)
    both = refusal_notes("tokens per min (TPM): Limit 800", (requests, tokens))
    assert both == (requests, RateNote(3, 800, 0.0, 2.0))


def test_only_limits_outlast_the_moment_of_an_answer() -> None:
    assert lasting((RateNote(0, 60, 3, 1.0), RateNote(3, None, 5))) == (RateNote(0, 60),)
