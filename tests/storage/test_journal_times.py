"""What a journal remembers of a day outlives a clock that was set, ahead or back, and nothing of it stays ahead."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core import CLOCK_TOLERANCE_S, DAY_S, NO_SPENDING, Spending, errors
from headgate.sampling.budgets import SpendingWindow
from headgate.storage import Journal, SpendingReport
from headgate.storage.journal_database import JournalPlace
from tests.storage.journals import NOW, SAT, SMALL, opened, opening, sample, spool

LIMIT = 60
HOUR_S = 3_600.0
STEPS = st.one_of(
    st.floats(-2 * HOUR_S, 2 * HOUR_S), st.floats(-3 * DAY_S, 3 * DAY_S), st.floats(-1_000 * DAY_S, 1_000 * DAY_S)
)


def _spend(folder: JournalPlace, now: float, wanted: int = LIMIT) -> int:
    """Start by the clock `now`, spend what is left of a day's requests, and end; return what was spent."""
    journal = Journal(folder, "c", fsync=False)
    try:
        journal.reconcile(now, {})
        window = SpendingWindow()
        window.total(now)
        for answer in journal.exchange_spending({}, now).values():
            window.restore([(min(at, now), spent) for at, spent in answer.news])
        spent = min(wanted, LIMIT - min(LIMIT, window.total(now).requests))
        journal.exchange_spending({"a@main": SpendingReport(Spending(0, spent, 0))}, now)
        return spent
    finally:
        journal.close()


@settings(max_examples=20)
@given(steps=st.lists(STEPS, min_size=1, max_size=3))
def test_starts_by_wrong_clocks_never_free_what_was_spent_by_the_right_one(
    steps: list[float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    assert _spend(folder, NOW) == LIMIT
    for number, step in enumerate(steps):
        _spend(folder, NOW + 60.0 * number + step, 0)
        assert _spend(folder, NOW + 60.0 * number) == 0
    assert _spend(folder, NOW + HOUR_S) == 0
    assert _spend(folder, NOW + 2 * HOUR_S) == 0


@settings(max_examples=20)
@given(step=st.floats(600.0, 1_000 * DAY_S))
def test_a_clock_that_goes_back_and_returns_frees_nothing(
    step: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    spent = _spend(folder, NOW, 40) + _spend(folder, NOW + 60.0 - step) + _spend(folder, NOW + 120.0)
    assert spent == LIMIT


@settings(max_examples=20)
@given(step=st.floats(2 * DAY_S, 1_000 * DAY_S))
def test_what_a_clock_ahead_has_spent_is_free_a_day_after_it_was_corrected(
    step: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    assert _spend(folder, NOW + step) == LIMIT
    assert _spend(folder, NOW) == 0
    assert _spend(folder, NOW + HOUR_S) == 0
    assert _spend(folder, NOW + DAY_S + HOUR_S) == LIMIT


def test_a_journal_that_lay_idle_for_days_has_its_budget_again(place: JournalPlace) -> None:
    assert _spend(place, NOW) == LIMIT
    assert _spend(place, NOW + 3 * DAY_S) == LIMIT


def test_what_is_old_is_deleted_once_the_journal_has_lived_for_a_day(place: JournalPlace) -> None:
    _spend(place, NOW, 1)
    for hours in range(0, 24 * 5, 6):
        _spend(place, NOW + 4 * DAY_S + hours * HOUR_S, 1)
    with _opened(place) as journal:
        assert min(at for at, _ in _news(journal, NOW + 9 * DAY_S)) > NOW + 5 * DAY_S


def test_samples_that_wait_for_a_store_wait_no_longer_because_the_clock_was_set_back(place: JournalPlace) -> None:
    with _opened(place) as journal:
        spool(journal, 3, now=NOW + 400 * DAY_S)
    with _opened(place) as journal:
        ahead_s, times = journal.reconcile(NOW, {})
        journal.adopt([], [])
        assert (times > 0, journal.spool_state().oldest_at) == (True, NOW)
        assert ahead_s == pytest.approx(400 * DAY_S, abs=60)


def test_a_due_time_that_may_be_to_come_is_left_as_it_is(place: JournalPlace) -> None:
    with _opened(place) as journal:
        opened(journal, opening(600))
        assert journal.reconcile(NOW + 600 * 60.0 - HOUR_S, {SAT: 2 * HOUR_S})[1] == 1  # the task's
        assert journal.history(NOW).pairs[SMALL, SAT].last_due == NOW + 600 * 60.0
        journal.reconcile(NOW, {SAT: 2 * HOUR_S})
        assert journal.history(NOW).pairs[SMALL, SAT].last_due == NOW


def test_a_journal_is_not_repaired_under_a_process_that_goes_by_the_other_clock(place: JournalPlace) -> None:
    with _opened(place) as ahead, _opened(place) as other:
        spool(ahead, 1, now=NOW + 2 * DAY_S)
        with pytest.raises(errors.ClockDisagreesError, match="another process"):
            other.reconcile(NOW, {})
        assert other.times.latest() == NOW + 2 * DAY_S
        ahead.close()
        assert other.reconcile(NOW, {})[1]


def test_clocks_that_differ_by_minutes_agree(place: JournalPlace) -> None:
    with _opened(place) as journal:
        task = opened(journal, opening())[0]
        journal.accept([sample(task)], NOW + CLOCK_TOLERANCE_S - 60.0)
        assert journal.reconcile(NOW, {})[1] == 0


class _opened:  # noqa: N801 - reads as a function
    """A journal that is closed at the end."""

    def __init__(self, folder: JournalPlace) -> None:
        self._open: Callable[[], Journal] = lambda: Journal(folder, "c", fsync=False)

    def __enter__(self) -> Journal:
        self._journal = self._open()
        return self._journal

    def __exit__(self, *_: object) -> None:
        self._journal.close()


def _news(journal: Journal, now: float) -> list[tuple[float, Spending]]:
    answers = journal.exchange_spending({"a@main": SpendingReport(NO_SPENDING)}, now).values()
    return [one for answer in answers for one in answer.news]
