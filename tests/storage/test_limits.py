"""What processes of one journal learn of a provider: the next one begins where the others have come to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.admission.laws import AdaptiveLaw, AimdLaw, LimitLaw
from headgate.core import DAY_S
from headgate.core.rates import RateLimits
from headgate.storage import Journal, LimitKey, LimitReport
from headgate.storage.journal_database import JournalPlace
from headgate.storage.limits import LimitShare
from tests.storage.journals import NOW, SMALL

KEY = LimitKey("https://api.example.com/v1", "small", "chat")


@pytest.fixture
def three(place: JournalPlace) -> Iterator[list[Journal]]:
    journals = [Journal(place, "main") for _ in range(3)]
    yield journals
    for journal in journals:
        journal.close()


def share(
    journal: Journal, told: int | None, ceiling: int | None, now: float = NOW, cap: int = 100
) -> LimitShare | None:
    return journal.share_limits({KEY: LimitReport(cap, told, ceiling)}, now).get(KEY)


def test_a_ceiling_is_shared_by_those_who_come_and_left_to_those_who_stay(three: list[Journal]) -> None:
    first, second, third = three
    assert share(first, None, None) is None
    assert share(first, None, 40) == LimitShare(40, 1)
    assert share(second, None, None) == LimitShare(20, 2)
    assert share(third, None, None) == LimitShare(13, 3)
    assert share(first, 40, 40) == LimitShare(13, 3), "nobody has found another ceiling"
    assert share(second, 20, 26) == LimitShare(15, 3), "6 more of 40 in all"
    first.close()
    assert share(third, 13, 13) == LimitShare(23, 2)


def test_what_is_known_outlives_its_processes_for_a_day_and_no_clock_that_is_wrong(three: list[Journal]) -> None:
    first, second, third = three
    share(first, None, 40)
    first.close()
    assert share(second, None, None, NOW + DAY_S - 60) == LimitShare(40, 1)
    second.close()
    assert share(third, None, None, NOW + DAY_S + 60) is None
    assert share(third, None, None, NOW - DAY_S) is None


@pytest.mark.parametrize(("ceiling", "cap", "expected"), [(10**12, 100, 100), (40, 8, 8), (1, 100, 1)])
def test_no_share_is_beyond_what_can_be_true(three: list[Journal], ceiling: int, cap: int, expected: int) -> None:
    share(three[0], None, ceiling, cap=cap)
    assert share(three[1], None, None, cap=cap) in (LimitShare(expected, 2), LimitShare(max(1, expected // 2), 2))


RATE = KEY._replace(domain="tokens_per_minute")


def rate(journal: Journal, told: int | None, limit: int | None, now: float = NOW) -> LimitShare | None:
    """Share a limit per minute; a process that learns one has been refused, and shares the ceiling of its requests."""
    reports = {KEY: LimitReport(100, is_rated=True), RATE: LimitReport(100, told, limit)}
    return journal.share_limits(reports, now).get(RATE)


def test_a_limit_per_minute_is_shared_by_those_who_come_and_left_to_those_who_stay(three: list[Journal]) -> None:
    first, second, third = three
    assert rate(first, None, None) is None
    assert rate(first, None, 60_000) == LimitShare(60_000, 1)
    assert second.limits.rates(NOW) == {KEY[:2]: RateLimits(tokens_per_minute=60_000)}
    assert not second.limits.rates(NOW + DAY_S + 60)
    assert rate(second, None, None) == LimitShare(30_000, 2)
    assert rate(second, 30_000, 36_000) == LimitShare(33_000, 2), "6 000 more of 60 000 in all"
    first.close()
    second.close()
    assert rate(third, None, None, NOW + DAY_S - 60) == LimitShare(66_000, 1)
    assert rate(third, None, None, NOW + DAY_S + 60) is None


def test_processes_that_learn_at_the_same_time_have_each_measured_a_part(three: list[Journal]) -> None:
    for journal in three:
        assert rate(journal, None, None) is None
    assert rate(three[0], None, 20_000) == LimitShare(6_666, 3)
    assert rate(three[1], None, 10_000) == LimitShare(10_000, 3)
    assert rate(three[2], None, 30_000) == LimitShare(20_000, 3)


def test_a_limit_per_minute_that_is_given_up_is_given_up_for_all_until_it_is_learnt_again(three: list[Journal]) -> None:
    first, second, _ = three
    rate(first, None, 60_000)
    rate(second, None, None)
    assert rate(second, 20_000, 0) == LimitShare(30_000, 2), "who held less than its part has shown no more than that"
    assert rate(second, 30_000, 0) == LimitShare(0, 2)
    assert rate(first, 60_000, 61_000) == LimitShare(0, 2), "what it holds of it is void"
    assert rate(first, None, None) == LimitShare(0, 2)
    assert rate(first, None, 80_000) == LimitShare(40_000, 2)


@pytest.mark.parametrize("total", [-5, 7, 10**15])
def test_a_limit_per_minute_that_cannot_be_true_is_told_once_and_forgotten(three: list[Journal], total: int) -> None:
    first, second, third = three
    rate(first, None, 60_000)
    with first._transaction():
        first._db.run("set_limit", (*RATE, total, NOW))
    assert rate(second, None, None) == LimitShare(None, 2, ignored=total)
    assert rate(third, None, None) is None
    assert rate(first, 60_000, 60_000) == LimitShare(None, 3), "who has learnt it keeps it"
    assert rate(first, 60_000, 62_000) == LimitShare(62_000, 3)


def test_pauses_are_seen_by_all(three: list[Journal]) -> None:
    three[0].record_pause(SMALL, 2, NOW + 900)
    assert three[1].pauses() == {SMALL: (2, NOW + 900)}


@pytest.mark.parametrize(("law", "expected"), [(AdaptiveLaw(100), 19), (AimdLaw(100), 20), (AdaptiveLaw(8), 8)])
def test_a_law_begins_at_the_ceiling_that_others_have_found(law: LimitLaw, expected: int) -> None:
    law.learnt(20, 0.0)
    law.validate()
    assert law.limit == expected
    assert law.ceiling == min(20, law.max_limit)
