"""Limits per minute in a roster: of a model, of its key, and of its organisation; what cannot be is told."""

from __future__ import annotations

import pytest

from headgate.core.errors import InvalidRosterError
from headgate.core.rates import UNLIMITED, ModelRates, RateLimits
from headgate.sampling.roster_entries import KeyRules, read_entries

ENTRY = {"name": "a", "base_url": "http://h/v1"}


def read(*entries: dict[str, object], **more: object) -> list[ModelRates]:
    return [m.rates for m in read_entries({"models": list(entries), **more}, "roster", KeyRules({}))]


def test_limits_of_all_levels_are_read() -> None:
    stated = {
        "requests_per_minute": 60,
        "output_tokens_per_minute": 8_000,
        "key_limits": {"tokens_per_minute": 90_000},
        "organisation": "acme",
    }
    rates = read(ENTRY | stated, ENTRY | {"name": "b"}, organisations={"acme": {"input_tokens_per_minute": 5}})
    shared = RateLimits(input_tokens_per_minute=5)
    assert rates == [
        ModelRates(RateLimits(60, None, 8_000), RateLimits(tokens_per_minute=90_000), "acme", shared),
        UNLIMITED,
    ]


@pytest.mark.parametrize(
    ("entry", "more", "said"),
    [
        ({"output_tokens_per_minute": 0}, {}, "output_tokens_per_minute: must be greater than or equal to 1"),
        ({"key_limits": {"requests_per_minute": 0}}, {}, "key_limits.requests_per_minute: must be greater"),
        ({"key_limits": {"requests": 5}}, {}, "key_limits.requests: is unknown; did you mean 'requests_per_minute'?"),
        ({}, {"organisations": {"acme": {"tokens_per_minute": -1}}}, "organisations, acme, tokens_per_minute: must be"),
        ({}, {"organisations": ["acme"]}, "organisations: must be a mapping"),
        ({"organisation": "acne"}, {"organisations": {"acme": {}}}, "did you mean 'acme'"),
        ({"organisation": "acme"}, {}, "the roster has none"),
    ],
)
def test_what_cannot_be_is_told(entry: dict[str, object], more: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidRosterError, match="problem") as raised:
        read(ENTRY | entry, **more)
    assert said in str(raised.value)
