"""The journal gives each due time and each sequence number once, and accepts one sample per task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from headgate.core import Sample, sample_task
from headgate.storage import AlreadyTaken, Journal, TaskState
from headgate.storage import spool as spools
from headgate.storage.journal_database import JournalPlace
from tests.storage.journals import NOW, SAT, SMALL, die, opened, opening, sample, spool


@pytest.fixture
def journal(place: JournalPlace) -> Iterator[Journal]:
    made = Journal(place, "main")
    yield made
    made.close()


@pytest.fixture
def other(journal: Journal, place: JournalPlace) -> Iterator[Journal]:
    made = Journal(place, "main")
    yield made
    made.close()


# Tasks.


def test_sequence_numbers_run_from_zero_and_the_index_wraps_at_the_data_length(journal: Journal) -> None:
    tasks = opened(journal, *(opening(i) for i in range(12)))
    assert [task.sequence for task in tasks] == list(range(12))
    assert [task.index for task in tasks] == [*range(10), 0, 1]
    assert tasks[11] == sample_task(
        campaign="main", model=SMALL, environment=SAT, sequence=11, data_length=10, due_at=NOW + 660.0
    )


def test_pairs_count_for_themselves(journal: Journal) -> None:
    opened(journal, opening(0), opening(1))
    tasks = opened(journal, opening(0, model="acme/large@main"), opening(0, environment="affine:abd"))
    assert [task.sequence for task in tasks] == [0, 0]


def test_a_due_time_is_given_once(journal: Journal) -> None:
    opened(journal, opening(0))
    assert journal.open([opening(0)]) == [AlreadyTaken(SMALL, SAT, NOW)]
    assert journal.open_count() == 1


def test_a_due_time_that_differs_by_less_than_half_an_interval_is_the_same_one(journal: Journal) -> None:
    opened(journal, opening(0))
    assert isinstance(journal.open([opening(0.49)])[0], AlreadyTaken)  # type: ignore[arg-type]
    assert [task.sequence for task in opened(journal, opening(0.5))] == [1]  # type: ignore[arg-type]


def test_a_due_time_of_the_past_is_taken(journal: Journal) -> None:
    opened(journal, opening(5))
    assert journal.open([opening(3)]) == [AlreadyTaken(SMALL, SAT, NOW + 300.0)]


def test_results_come_in_the_order_of_their_openings(journal: Journal) -> None:
    opened(journal, opening(0))
    results = journal.open([opening(1), opening(1), opening(2)])
    assert [isinstance(result, AlreadyTaken) for result in results] == [False, True, False]


def test_a_source_that_counts_itself_is_given_its_own_numbers_in_any_order(journal: Journal) -> None:
    tasks = opened(journal, opening(0, sequence=7), opening(0, sequence=3))
    assert [task.sequence for task in tasks] == [7, 3]
    assert [task.sequence for task in opened(journal, opening(9))] == [8]


def test_a_task_that_its_source_gives_again_is_not_opened_again(journal: Journal) -> None:
    (task,) = opened(journal, opening(0, sequence=7))
    assert isinstance(journal.open([opening(0, sequence=7)])[0], AlreadyTaken)
    journal.accept([sample(task)], NOW)
    assert isinstance(journal.open([opening(0, sequence=7)])[0], AlreadyTaken)


def test_a_task_that_its_source_gives_again_after_its_sample_was_stored_is_not_opened_again(journal: Journal) -> None:
    (task,) = opened(journal, opening(0, sequence=7))
    journal.accept([sample(task)], NOW)
    batch = journal.next_batch(10)
    assert batch is not None
    journal.batch_stored(batch.batch_id)
    assert isinstance(journal.open([opening(0, sequence=7)])[0], AlreadyTaken)
    assert journal.open_count() == 0


def test_a_task_that_a_source_gives_while_the_sampler_has_it_open_is_not_opened_again(journal: Journal) -> None:
    opened(journal, opening(0), opening(1))
    assert isinstance(journal.open([opening(9, sequence=1)])[0], AlreadyTaken)
    assert journal.open_count() == 2


def test_a_withdrawn_task_may_be_given_again(journal: Journal) -> None:
    (task,) = opened(journal, opening(0, sequence=7))
    journal.withdraw([task.task_id])
    assert opened(journal, opening(0, sequence=7))[0].task_id == task.task_id


def test_a_withdrawn_task_is_closed_for_good(journal: Journal) -> None:
    task, kept = opened(journal, opening(0), opening(1))
    journal.withdraw([task.task_id, "t-unknown"])
    assert journal.open_count() == 1
    assert journal.accept([sample(task), sample(kept)], NOW) == {kept.task_id}


# Samples.


def test_a_sample_is_accepted_once(journal: Journal) -> None:
    (task,) = opened(journal, opening(0))
    assert journal.accept([sample(task)], NOW) == {task.task_id}
    assert journal.accept([sample(task)], NOW) == set()
    assert (journal.open_count(), journal.spool_count()) == (0, 1)


def test_two_samples_of_one_task_in_one_call_are_one_row_and_one_count(journal: Journal) -> None:
    (task,) = opened(journal, opening(0))
    assert journal.accept([sample(task), sample(task)], NOW) == {task.task_id}
    assert len(journal.spooled()) == 1
    assert journal.history(NOW).counts == {(SMALL, SAT): [(NOW, 1)]}


def test_a_sample_of_a_task_that_another_process_holds_is_refused(journal: Journal, other: Journal) -> None:
    (task,) = opened(other, opening(0))
    assert journal.accept([sample(task)], NOW) == set()
    assert journal.open_count() == 1
    assert other.accept([sample(task)], NOW) == {task.task_id}


def test_a_sample_comes_out_of_the_spool_as_it_went_in(journal: Journal) -> None:
    tasks = opened(journal, opening(0), opening(1))
    samples = [sample(tasks[0], score=0.1 + 0.2), sample(tasks[1], score=None)]
    journal.accept(samples, NOW)
    assert journal.spooled() == samples


def test_only_scored_samples_count(journal: Journal) -> None:
    tasks = opened(journal, opening(0), opening(1))
    journal.accept([sample(tasks[0], score=None), sample(tasks[1], score=0.0)], NOW)
    assert journal.history(NOW).counts == {(SMALL, SAT): [(NOW, 1)]}


# Batches.


def test_a_batch_keeps_its_id_and_its_rows_until_it_is_confirmed(journal: Journal) -> None:
    samples = spool(journal, 5)
    batch = journal.next_batch(3)
    assert batch is not None
    assert list(batch.samples) == samples[:3]
    spool(journal, 4, first=5)
    assert journal.next_batch(100) == batch
    journal.batch_stored(batch.batch_id)
    second = journal.next_batch(100)
    assert second is not None
    assert second.batch_id != batch.batch_id
    assert [s.sequence for s in second.samples] == [3, 4, 5, 6, 7, 8]


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what bounds a batch be a hundredth of it: to write and read megabytes tells no more."""
    for bound in ("_CHUNK_CHARS", "LARGEST_BATCH_BYTES", "_MOST_BYTES"):
        monkeypatch.setattr(spools, bound, getattr(spools, bound) // 100)


@pytest.mark.usefixtures("small_batches")
def test_batches_of_long_conversations_hold_fewer_of_them_and_leave_none_out(journal: Journal) -> None:
    samples = [sample(task) for task in opened(journal, *(opening(i) for i in range(9)))]
    long = [replace(each, conversation="x" * 60_000) for each in samples]
    journal.accept(long, NOW)
    short = spool(journal, 4, first=9)
    sizes, stored = [], list[Sample]()
    while (batch := journal.next_batch(300)) is not None:
        sizes.append(len(batch.samples))
        stored += batch.samples
        journal.batch_stored(batch.batch_id)
    assert sizes == [5, 8]
    assert stored == long + short


@pytest.mark.usefixtures("small_batches")
def test_a_conversation_that_is_longer_than_a_batch_is_one_of_its_own(journal: Journal) -> None:
    samples = [replace(sample(task), conversation="x" * 400_000) for task in opened(journal, opening(0), opening(1))]
    journal.accept(samples, NOW)
    batch = journal.next_batch(300)
    assert batch is not None
    assert list(batch.samples) == samples[:1]


def test_an_empty_spool_has_no_batch(journal: Journal) -> None:
    assert journal.next_batch(10) is None
    journal.batch_stored("b-unknown")  # type: ignore[arg-type]
    assert journal.spool_count() == 0


def test_the_state_of_the_spool_tells_rows_the_oldest_without_a_batch_and_those_in_one(journal: Journal) -> None:
    assert (journal.spool_state().rows, journal.spool_state().oldest_at) == (0, None)
    spool(journal, 2, now=NOW)
    spool(journal, 1, first=2, now=NOW + 5)
    assert (journal.spool_state().rows, journal.spool_state().oldest_at) == (3, NOW)
    journal.next_batch(2)
    state = journal.spool_state()
    assert (state.rows, state.oldest_at, state.assigned) == (3, NOW + 5, 2)


def test_a_batch_survives_its_process_with_its_id(journal: Journal, place: JournalPlace) -> None:
    spool(journal, 3)
    batch = journal.next_batch(2)
    journal.close()
    heir = Journal(place, "main")
    heir.adopt([], [])
    assert heir.next_batch(100) == batch
    heir.close()


# History.


def test_samples_are_counted_out_and_in_again_and_never_below_none(journal: Journal) -> None:
    spool(journal, 3)
    journal.recount([(SMALL, SAT, NOW, -1), (SMALL, SAT, NOW, -1)])
    assert journal.history(NOW).counts == {(SMALL, SAT): [(NOW, 1)]}
    journal.recount([(SMALL, SAT, NOW, -2), (SMALL, "other", NOW, -1)])
    assert journal.history(NOW).counts == {}
    journal.recount([(SMALL, SAT, NOW, 1)])
    assert journal.history(NOW).counts == {(SMALL, SAT): [(NOW, 1)]}


def test_counts_are_those_of_the_last_24_hours_by_the_minute(journal: Journal) -> None:
    tasks = opened(journal, *(opening(i) for i in range(4)))
    ends = [NOW - 86_400 - 60, NOW - 86_400 + 60, NOW - 61, NOW - 60]
    journal.accept([sample(t, finished_at=end) for t, end in zip(tasks, ends, strict=True)], NOW)
    assert journal.history(NOW).counts == {(SMALL, SAT): [(NOW - 86_340, 1), (NOW - 120, 1), (NOW - 60, 1)]}
    assert journal.history(NOW + 86_400).counts == {}


def test_the_next_sequence_and_the_last_due_time_are_remembered(journal: Journal, place: JournalPlace) -> None:
    opened(journal, opening(0), opening(1))
    journal.close()
    heir = Journal(place, "main")
    pair = heir.history(NOW).pairs[SMALL, SAT]
    assert (pair.next_sequence, pair.last_due) == (2, NOW + 60)
    assert isinstance(heir.open([opening(1)])[0], AlreadyTaken)
    heir.close()


def test_a_new_journal_takes_over_what_the_store_knows(journal: Journal) -> None:
    assert journal.is_new()
    journal.restore([(SMALL, SAT, 41, NOW - 30)], [(SMALL, SAT, NOW - 90, 3), (SMALL, SAT, NOW - 90, 2)], NOW)
    assert not journal.is_new()
    assert journal.history(NOW).counts == {(SMALL, SAT): [(NOW - 120, 5)]}
    assert isinstance(journal.open([opening(-0.5)])[0], AlreadyTaken)  # type: ignore[arg-type]
    assert opened(journal, opening(0))[0].sequence == 41


def test_a_restore_never_takes_a_sequence_number_back(journal: Journal) -> None:
    opened(journal, *(opening(i) for i in range(5)))
    journal.restore([(SMALL, SAT, 2, NOW - 999)], [], NOW)
    pair = journal.history(NOW).pairs[SMALL, SAT]
    assert (pair.next_sequence, pair.last_due) == (5, NOW + 240)


def test_two_processes_that_start_at_once_restore_once(journal: Journal, other: Journal) -> None:
    known = ([(SMALL, SAT, 41, NOW - 30)], [(SMALL, SAT, NOW - 90, 3)])
    assert (journal.is_new(), other.is_new()) == (True, True)
    journal.restore(*known, NOW)
    other.restore(*known, NOW)
    assert journal.history(NOW).counts == {(SMALL, SAT): [(NOW - 120, 3)]}


def test_pauses_are_remembered_until_they_are_cleared(journal: Journal, other: Journal) -> None:
    journal.record_pause(SMALL, 1, NOW + 900)
    journal.record_pause(SMALL, 2, NOW + 1_800)
    assert other.history(NOW).pauses == {SMALL: (2, NOW + 1_800)}
    other.clear_pause(SMALL)
    assert journal.history(NOW).pauses == {}


# Two holders, one life after another.


def test_two_journals_on_one_folder_never_give_a_due_time_or_a_number_twice(journal: Journal, other: Journal) -> None:
    taken = []
    for number in range(30):
        first, second = (journal, other) if number % 2 else (other, journal)
        taken += opened(first, opening(number))
        assert isinstance(second.open([opening(number)])[0], AlreadyTaken)
    assert [task.sequence for task in taken] == list(range(30))


def test_what_a_closed_journal_leaves_is_adopted_once_and_is_no_attempt(journal: Journal, place: JournalPlace) -> None:
    left = opened(journal, opening(1), opening(2))
    journal.close()
    heirs = [Journal(place, "main") for _ in range(2)]
    adopted = [heir.adopt([SAT], [SMALL]) for heir in heirs]
    assert [task.task_id for task in adopted[0]] == [task.task_id for task in left]
    assert [task.attempt for task in adopted[0]] == [1, 1]
    assert adopted[1] == []
    assert heirs[0].accept([sample(left[0])], NOW) == {left[0].task_id}
    for heir in heirs:
        heir.close()


def test_a_living_holder_keeps_its_tasks_and_its_samples(journal: Journal, other: Journal) -> None:
    spool(journal, 2)
    opened(journal, opening(5))
    assert other.adopt([SAT], [SMALL]) == []
    assert other.spool_state().rows == 0
    assert journal.spool_state().rows == 2


def test_tasks_of_other_models_and_environments_wait_for_a_campaign_that_has_them(
    journal: Journal, other: Journal
) -> None:
    opened(journal, opening(0), opening(0, model="gone@main"), opening(0, environment="affine:abd"))
    journal.close()
    assert [task.model for task in other.adopt([SAT], [SMALL])] == [SMALL]
    assert other.open_count() == 3
    assert [task.model for task in other.adopt([SAT], ["gone@main"])] == ["gone@main"]


def test_a_death_is_counted_on_the_tasks_that_had_begun_and_on_no_others(place: JournalPlace) -> None:
    first = Journal(place, "main")
    begun, waiting = opened(first, opening(0), opening(1))
    journals = [first]
    attempts = []
    for _ in range(3):
        dying = journals[-1]
        assert dying.accept([], NOW, started=[begun.task_id]) == set()
        die(dying)
        journals.append(Journal(place, "main"))
        adopted = {task.task_id: task.attempt for task in journals[-1].adopt([SAT], [SMALL])}
        attempts.append((adopted[begun.task_id], adopted[waiting.task_id]))
    assert attempts == [(2, 1), (3, 1), (4, 1)]
    journals[-1].close()


def test_the_spool_of_a_dead_process_is_stored_by_its_heir(place: JournalPlace) -> None:
    dead = Journal(place, "main")
    samples = spool(dead, 3)
    die(dead)
    heir = Journal(place, "main")
    assert heir.spool_state().rows == 0
    heir.adopt([], [])
    assert heir.spool_state().rows == 3
    batch = heir.next_batch(10)
    assert batch is not None
    assert list(batch.samples) == samples
    heir.close()


def test_where_a_task_is_can_be_asked_whoever_holds_it(journal: Journal, other: Journal) -> None:
    waiting, running, done = opened(journal, opening(0), opening(1), opening(2))
    journal.accept([sample(done)], NOW, started=[running.task_id])
    states = [other.state_of(task.task_id) for task in (waiting, running, done)]
    assert states == [TaskState.OPEN, TaskState.STARTED, TaskState.SPOOLED]
    assert other.state_of("t-nobody") is TaskState.UNKNOWN


def test_a_journal_that_restores_after_another_has_opened_tasks_opens_its_own_beside_them(
    journal: Journal, other: Journal
) -> None:
    first = opened(journal, opening(0), opening(1))
    other.restore([], [], NOW)
    second = opened(other, opening(2), opening(3))
    assert journal.accept([sample(task) for task in first], NOW) == {task.task_id for task in first}
    assert other.accept([sample(task) for task in second], NOW) == {task.task_id for task in second}


def test_campaigns_with_odd_names_have_journals_of_their_own(place: JournalPlace) -> None:
    odd = ["a/b", "a:b", "a@b", "a+b", "Ab", "x" * 200, "/".join("x" * 100)]
    names = ["a~b", "a-b", "a.b", "a_b", *odd]
    journals = [Journal(place, name) for name in names]
    tasks = [opened(journal, opening(0))[0] for journal in journals]
    assert [task.campaign for task in tasks] == names
    assert [task.sequence for task in tasks] == [0] * len(names)
    for journal in journals:
        journal.close()
    for name, task in zip(names, tasks, strict=True):
        heir = Journal(place, name)
        assert [adopted.task_id for adopted in heir.adopt([SAT], [SMALL])] == [task.task_id]
        heir.close()
