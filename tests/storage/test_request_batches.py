"""The journal knows which request lies in which batch, whoever dies; it forgets what is durable."""

from __future__ import annotations

import pytest

from headgate.core import Spending
from headgate.storage import BatchedRequest, BatchRecord, Journal
from headgate.storage.journal_database import JournalPlace
from tests.storage.journals import NOW, SAT, SMALL, die, opened, opening, sample


def test_batches_outlive_their_holder_and_go_when_their_samples_are_durable(place: JournalPlace) -> None:
    first, second = Journal(place, "main"), Journal(place, "main")
    tasks = opened(first, *(opening(n) for n in range(3)))
    requests = [BatchedRequest(one.task_id, 1, "d", one.task_id, "k") for one in tasks]
    batch = BatchRecord("k", SMALL, NOW, 3)
    first.accept([], NOW, started=[one.task_id for one in tasks])
    first.batches.add(batch, requests)
    first.accept([], NOW, rested=[one.task_id for one in tasks])
    batch.stage, batch.file_id, batch.batch_id = "open", "file-1", "batch_1"
    first.batches.reached(batch)
    assert second.batches.load(NOW) == ([], [])
    die(first)

    adopted = second.adopt([SAT], [SMALL])
    assert [task.attempt for task in adopted] == [1, 1, 1], "no death counts on what only waited"
    assert second.batches.load(NOW) == ([batch], requests)
    spent = {SMALL: Spending(15, 1, 263)}
    second.batches.ended([(requests[0], '{"text": "ä \\u0000"}'), (requests[1], None)], spent, NOW)
    third = Journal(place, "main")
    assert [amount for _, amount in third.exchange_spending({}, NOW)[SMALL].news] == [spent[SMALL]]
    third.close()
    assert [second.batches.reply(one) for one in requests] == ['{"text": "ä \\u0000"}', "", ""]
    batch.stage = "ended"
    second.batches.reached(batch)
    second.accept([sample(task) for task in adopted[:2]], NOW)
    assert second.batches.load(NOW) == ([batch], requests[2:])
    second.withdraw([adopted[2].task_id])
    assert second.batches.load(NOW) == ([], [])
    second.close()


def test_a_reply_that_is_kept_outlives_its_process_until_its_sample_is_durable(place: JournalPlace) -> None:
    first, second = Journal(place, "main"), Journal(place, "main")
    (task,) = opened(first, opening())
    for text in ("before", "after"):
        first.batches.keep(BatchedRequest("rollout", 2, "d", task.task_id, ""), text)
    die(first)
    (adopted,) = second.adopt([SAT], [SMALL])
    assert second.batches.load(NOW) == ([], [])
    assert [second.batches.kept("rollout", n, d) for n, d in ((2, "d"), (2, "e"), (1, "d"))] == ["after", "", ""]
    second.accept([sample(adopted)], NOW)
    assert second.batches.kept("rollout", 2, "d") == ""
    second.close()


def test_a_journal_whose_batches_do_not_say_where_they_are_reads_on(place: JournalPlace) -> None:
    journal = Journal(place, "main")
    for column in ("base_url", "credential"):
        journal._db._db.execute(f"ALTER TABLE request_batches DROP COLUMN {column}")  # type: ignore[attr-defined]
    row = "('k', '', 'm', 0.0, 1, 'open')"
    columns = "(key, holder, model, made_at, requests, stage)"
    journal._db._db.execute(f"INSERT INTO request_batches {columns} VALUES {row}")  # type: ignore[attr-defined]
    journal.close()
    journal = Journal(place, "main")
    journal.adopt([SAT], [SMALL])
    other = BatchRecord("l", SMALL, 1.0, 1, base_url="http://127.0.0.1:1/v1", credential="c")
    journal.batches.add(other, [])
    assert journal.batches.load(2.0) == ([BatchRecord("k", "m", 0.0, 1, "open"), other], [])
    journal.close()


@pytest.mark.parametrize("is_old", [True, False])
def test_what_was_never_submitted_and_what_nobody_takes_up_is_forgotten(place: JournalPlace, is_old: bool) -> None:
    journal = Journal(place, "main")
    batch = BatchRecord("k", SMALL, NOW, 1)
    journal.batches.add(batch, [BatchedRequest("a", 1, "d", "a", "k")])
    if not is_old:
        journal.batches.undo(batch)
    assert journal.batches.load(NOW + 8 * 86_400.0) == ([], [])
    journal.close()
