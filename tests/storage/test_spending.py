"""What processes spend together stays within a day's budget, whoever of them asks, spends, ends or dies."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.core import DAY_S, NO_SPENDING, Spending
from headgate.storage import Journal, SpendingNeed, SpendingReport
from headgate.storage.journal_database import JournalPlace
from headgate.storage.spending import Others

START = 1_767_225_600.0
LIMIT = Spending(10_000, 100, 5_000)
AMOUNTS = st.builds(Spending, st.integers(0, 2_000), st.integers(0, 20), st.integers(0, 900))


@dataclass
class Process:
    """One process that keeps within what it is granted, as `DailyBudget` does."""

    journal: Journal
    known: Spending = NO_SPENDING
    grant: Spending = NO_SPENDING
    unreported: Spending = NO_SPENDING

    def ask(self, wanted: Spending, ahead: Spending, now: float) -> None:
        spent, self.unreported = self.unreported, NO_SPENDING
        self.known = self.known.plus(spent)
        report = SpendingReport(spent, SpendingNeed(wanted, ahead, self.grant, LIMIT.less(self.known)))
        answer = self.journal.exchange_spending({"a@main": report}, now)["a@main"]
        for _, amount in answer.news:
            self.known = self.known.plus(amount)
        assert answer.granted is not None
        self.grant = answer.granted


class Processes(RuleBasedStateMachine):
    """Processes of one journal and model within one day: they join, ask, spend what they are granted, and die."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.processes: list[Process] = []
        self.spent = NO_SPENDING
        self.now = START

    @precondition(lambda self: len(self.processes) < 4)
    @rule()
    def join(self) -> None:
        journal = Journal(Path(self.folder.name), "c", fsync=False)
        process = Process(journal)
        for answer in journal.exchange_spending({}, self.now).values():
            for _, amount in answer.news:
                process.known = process.known.plus(amount)
        self.processes.append(process)

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, 3), wanted=AMOUNTS, ahead=AMOUNTS, seconds=st.integers(0, 90))
    def ask(self, which: int, wanted: Spending, ahead: Spending, seconds: int) -> None:
        self.now = min(self.now + seconds, START + DAY_S / 2)
        self.processes[which % len(self.processes)].ask(wanted, ahead, self.now)

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, 3), amount=AMOUNTS)
    def spend(self, which: int, amount: Spending) -> None:
        process = self.processes[which % len(self.processes)]
        amount = Spending(*map(min, amount, process.grant))
        process.grant = process.grant.less(amount)
        process.unreported = process.unreported.plus(amount)
        self.spent = self.spent.plus(amount)

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, 3), tells=st.booleans())
    def leave(self, which: int, tells: bool) -> None:
        process = self.processes.pop(which % len(self.processes))
        if tells:
            process.ask(NO_SPENDING, NO_SPENDING, self.now)
        else:  # what was not told is lost: nobody else can know of it
            self.spent = self.spent.less(process.unreported)
        process.journal.close()

    @invariant()
    def what_is_spent_and_what_may_be_spent_stay_within_the_day(self) -> None:
        together = self.spent
        for process in self.processes:
            together = together.plus(process.grant)
        assert together.less(LIMIT) == NO_SPENDING

    def teardown(self) -> None:
        for process in self.processes:
            process.journal.close()
        self.folder.cleanup()


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


@pytest.fixture
def two(place: JournalPlace):
    one, other = Journal(place, "c"), Journal(place, "c")
    yield one, other
    one.close()
    other.close()


def needs(tokens: int, *, room: int = 1_000, spent: int = 0, allowed: int = 0, ahead: int = 0) -> SpendingReport:
    need = SpendingNeed(*(Spending(amount) for amount in (tokens, ahead, allowed, room)))
    return SpendingReport(Spending(spent), need)


def test_one_process_alone_is_granted_more_than_it_needs_and_half_of_the_rest_stays(two) -> None:
    one, other = two
    assert one.exchange_spending({"a": needs(200)}, START)["a"].granted == Spending(200 + 400)
    answer = other.exchange_spending({"a": needs(300)}, START)["a"]
    assert answer.others == Others(Spending(600), 1, 1)
    assert answer.granted == Spending(300), "with others it is what it needs, and what it says it will need"


def test_a_grant_shrinks_to_what_is_needed_once_there_are_others(two) -> None:
    one, other = two
    one.exchange_spending({"a": needs(200)}, START)
    other.exchange_spending({"a": needs(900)}, START)
    assert one.exchange_spending({"a": needs(200, allowed=600)}, START)["a"].granted == Spending(200)
    assert other.exchange_spending({"a": needs(900, allowed=400)}, START)["a"].granted == Spending(800)


def test_what_others_spend_is_told_once_and_in_its_minute(two) -> None:
    one, other = two
    one.exchange_spending({"a": needs(0, spent=70)}, START)
    one.exchange_spending({"a": needs(0, spent=30)}, START + 1)
    one.exchange_spending({"b": SpendingReport(Spending(5, 1, 9))}, START + 61)
    told = other.exchange_spending({}, START + 62)
    assert told["a"].news == ((START, Spending(100)),)
    assert told["b"].news == ((START + 60, Spending(5, 1, 9)),)
    assert other.exchange_spending({}, START + 63) == {}
    one.exchange_spending({"a": needs(0, spent=1)}, START + 62)
    assert other.exchange_spending({}, START + 64)["a"].news == ((START + 60, Spending(1)),)


def test_nobody_hears_of_its_own_spending_but_after_a_restart(place: JournalPlace, two) -> None:
    one, _ = two
    one.exchange_spending({"a": needs(0, spent=70)}, START)
    assert one.exchange_spending({"a": needs(0)}, START + 5)["a"].news == ()
    again = Journal(place, "c")
    assert again.exchange_spending({}, START + 10)["a"].news == ((START, Spending(70)),)
    again.close()


def test_what_left_the_day_is_forgotten_and_what_comes_after_is_told(two) -> None:
    one, other = two
    one.exchange_spending({"a": needs(0, spent=70)}, START)
    other.exchange_spending({}, START)
    later = START + DAY_S + 3_600.0
    one.exchange_spending({"a": needs(0)}, later)
    one.exchange_spending({"a": needs(0, spent=8)}, later)
    assert other.exchange_spending({}, later)["a"].news == ((later, Spending(8)),)


def test_the_grant_of_a_process_that_has_ended_is_free(two) -> None:
    one, other = two
    one.exchange_spending({"a": needs(1_000)}, START)
    assert other.exchange_spending({"a": needs(600)}, START)["a"].granted == NO_SPENDING
    one.close()
    answer = other.exchange_spending({"a": needs(600)}, START)["a"]
    assert (answer.granted, answer.others) == (Spending(800), Others())


def test_a_process_that_was_killed_keeps_no_grant_and_what_it_reported_counts(tmp_path: Path) -> None:
    program = f"""
import os, pathlib
from headgate.core import Spending
from headgate.storage import Journal, SpendingNeed, SpendingReport
journal = Journal(pathlib.Path({str(tmp_path)!r}), "c")
asked = SpendingReport(Spending(100), SpendingNeed(wanted=Spending(700), room=Spending(900)))
os._exit(9 if journal.exchange_spending({{"a": asked}}, {START})["a"].granted == Spending(800) else 1)
"""
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert killed.returncode == 9, killed.stderr
    journal = Journal(tmp_path, "c")
    answer = journal.exchange_spending({"a": needs(900, room=1_000)}, START)["a"]
    assert answer.news == ((START, Spending(100)),)
    assert (answer.granted, answer.others) == (Spending(900), Others())
    journal.close()


def test_what_a_sample_took_is_known_with_the_sample_and_told_once(two) -> None:
    one, other = two
    other.exchange_spending({"a": needs(0, spent=7)}, START)
    assert one.accept([], START, spent={"a": Spending(40, 2, 5)}) == set()
    told = other.exchange_spending({}, START + 1)
    assert told["a"].news == ((START, Spending(40, 2, 5)),)
    assert one.exchange_spending({}, START + 1)["a"].news == ((START, Spending(7)),)
    assert one.exchange_spending({}, START + 2) == {}


def test_what_is_heard_of_a_model_that_was_not_asked_for_is_no_answer_about_it(two) -> None:
    one, other = two
    one.exchange_spending({"a": needs(100)}, START)
    other.exchange_spending({"a": needs(100, spent=10)}, START)
    told = one.exchange_spending({"b": needs(100)}, START)
    assert told["a"].news == ((START, Spending(10)),)
    assert told["a"].granted is None
    assert told["b"].granted is not None


def test_a_process_that_asks_for_nothing_any_more_has_no_grant_and_is_none_of_the_others(two) -> None:
    one, other = two
    one.exchange_spending({"a": needs(1_000)}, START)
    assert other.exchange_spending({"a": needs(600)}, START)["a"].others == Others(Spending(1_000), 1, 1)
    one.exchange_spending({"a": SpendingReport()}, START)
    assert other.exchange_spending({"a": needs(600)}, START)["a"].others == Others()
