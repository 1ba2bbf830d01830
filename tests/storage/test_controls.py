"""Controls of a campaign are kept in its journal: who changed what, whoever was first, and what can be undone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headgate.core.errors import ControlChangedError, InvalidInputError, NotFoundError
from headgate.storage import ControlChange, ControlOrder, Journal, TaskState, controls, told
from headgate.storage.journal_database import JournalPlace
from tests.storage.journals import NOW, SAT, SMALL, die, opened, opening


@pytest.fixture
def journal(place: JournalPlace) -> Iterator[Journal]:
    made = Journal(place, "main")
    yield made
    made.close()


def pause(journal: Journal, **fields: Any) -> tuple[ControlChange, bool]:
    return journal.steer(ControlOrder("pause", what="paused", value=True, **fields), "ops", NOW)


def test_a_change_is_seen_by_every_process_of_the_journal_and_after_a_restart(
    journal: Journal, place: JournalPlace
) -> None:
    other = Journal(place, "main")
    assert other.controls.revision() == 0
    change, is_new = pause(journal, model=SMALL, reason="it hallucinates")
    assert is_new
    assert other.controls.revision() == 1
    assert other.controls.changes(0) == [change]
    other.close()
    again = Journal(place, "main")
    assert again.controls.latest() == [
        ControlChange(1, "pause", SMALL, None, "paused", None, True, "ops", NOW, "it hallucinates")
    ]
    again.close()


def test_what_is_so_already_is_not_changed_again(journal: Journal) -> None:
    first, _ = pause(journal, environment=SAT)
    assert pause(journal, environment=SAT) == (first, False)
    assert pause(journal)[0].revision == 2, "the whole run is another subject"
    assert journal.steer(ControlOrder("resume", model=SMALL, what="paused"), "ops", NOW)[1] is False


def test_a_dry_run_changes_nothing(journal: Journal) -> None:
    order = ControlOrder("set", environment=SAT, what="rate", value=50.0)
    assert journal.steer(order, "ops", NOW, dry_run=True)[0].after == 50.0
    assert journal.controls.revision() == 0


def test_the_second_of_two_operators_is_told_what_the_first_did(journal: Journal) -> None:
    pause(journal, model=SMALL, reason="too slow")
    order = ControlOrder("resume", model=SMALL, what="paused", revision=0)
    with pytest.raises(ControlChangedError, match=r"paused model acme/small@main, by ops \(change 1\): too slow"):
        journal.steer(order, "another", NOW)
    pause(journal, environment=SAT)
    seen = ControlOrder("resume", model=SMALL, what="paused", revision=1)
    assert journal.steer(seen, "another", NOW)[1], "what is newer is about something else"


@pytest.mark.parametrize(
    ("verb", "about", "values", "said"),
    [
        ("pause", (SMALL, None, "paused"), (None, True), f"paused model {SMALL}"),
        ("resume", (SMALL, SAT, "paused"), (True, None), f"resumed {SMALL} in {SAT}"),
        ("set", (None, SAT, "rate"), (50.0, 25.0), f"set rate of environment {SAT} from 50 to 25"),
        ("set", (None, None, "workers"), (None, 8), "set workers of the whole run from default to 8"),
        ("set", (SMALL, None, "cap"), (4, None), f"set cap of model {SMALL} from 4 to default"),
        ("retry", (SMALL, None, "retry"), (None, None), f"retried model {SMALL} at once"),
        ("retry", (None, None, "retry"), (None, None), "retried every model at once"),
        ("withdraw", (None, SAT, "withdraw"), (None, None), f"withdrew what was queued of environment {SAT}"),
        ("drain", (None, None, "drain"), (None, None), "drained the whole run"),
        ("undo", (SMALL, None, "cap"), (9, None), f"undid setting cap of model {SMALL} to 9: it is default again"),
        ("undo", (SMALL, None, "paused"), (True, None), f"undid pausing model {SMALL}: it is resumed"),
        ("undo", (None, None, "paused"), (None, True), "undid resuming the whole run: it is paused again"),
        ("recount", (None, None, "recount"), (None, None), "recounted the samples of the whole run"),
    ],
    ids=str,
)
def test_what_somebody_did_is_a_sentence(
    verb: str, about: tuple[Any, Any, str], values: tuple[Any, Any], said: str
) -> None:
    change = ControlChange(3, verb, *about, *values, "ops", NOW, "new disks")
    assert told(change) == f"{said}, by ops (change 3): new disks"


def test_a_change_is_undone_unless_it_was_changed_again(journal: Journal) -> None:
    for value in (50.0, 25.0):
        journal.steer(ControlOrder("set", environment=SAT, what="rate", value=value), "ops", NOW)
    with pytest.raises(ControlChangedError, match=r"set rate of environment affine:sat from 50 to 25, by"):
        journal.steer(ControlOrder("undo", revision=1), "ops", NOW)
    change, _ = journal.steer(ControlOrder("undo", revision=2), "ops", NOW)
    assert (change.before, change.after) == (25.0, 50.0)
    with pytest.raises(NotFoundError, match="there is no change 9"):
        journal.steer(ControlOrder("undo", revision=9), "ops", NOW)
    journal.steer(ControlOrder("drain", what="drain"), "ops", NOW)
    with pytest.raises(InvalidInputError, match="change 4 cannot be undone"):
        journal.steer(ControlOrder("undo", revision=4), "ops", NOW)


def test_old_changes_are_forgotten_but_not_those_in_force(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls, "KEPT_CHANGES", 5)
    pause(journal, model=SMALL)
    for number in range(8):
        journal.steer(ControlOrder("set", what="workers", value=1 + number % 2), "ops", NOW)
    assert len(journal.controls.changes()) == 6
    assert [change.what for change in journal.controls.latest()] == ["paused", "workers"]


def test_a_retry_forgets_pauses(journal: Journal) -> None:
    journal.record_pause(SMALL, 2, NOW + 900)
    journal.record_pause("acme/large@main", 1, NOW + 900)
    journal.steer(ControlOrder("retry", model=SMALL, what="retry"), "ops", NOW)
    assert list(journal.pauses()) == ["acme/large@main"]
    journal.steer(ControlOrder("retry", what="retry"), "ops", NOW)
    assert journal.pauses() == {}


def test_withdrawn_tasks_of_a_process_that_died_are_not_taken_over(journal: Journal, place: JournalPlace) -> None:
    dead = Journal(place, "main")
    gone, kept = opened(dead, opening(0), opening(0, environment="affine:abd"))
    journal.steer(ControlOrder("withdraw", environment=SAT, what="withdraw"), "ops", NOW)
    (later,) = opened(dead, opening(1))
    die(dead)
    assert journal.open_count() == 3
    adopted = journal.adopt([SAT, "affine:abd"], [SMALL])
    assert {task.task_id for task in adopted} == {kept.task_id, later.task_id}
    assert journal.state_of(gone.task_id) is TaskState.UNKNOWN


def test_a_withdrawn_task_that_its_source_counts_can_be_given_again(journal: Journal, place: JournalPlace) -> None:
    dead = Journal(place, "main")
    opened(dead, opening(0, sequence=7))
    journal.steer(ControlOrder("withdraw", what="withdraw"), "ops", NOW)
    die(dead)
    assert journal.adopt([SAT], [SMALL]) == []
    assert [task.sequence for task in opened(journal, opening(0, sequence=7))] == [7]
