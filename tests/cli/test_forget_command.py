"""`headgate forget`: what it deletes, what it says, and what it refuses."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from headgate.storage import Journal, open_store
from tests.cli.conftest import Command
from tests.storage.journals import NOW, opened, opening
from tests.storage.journals import sample as done
from tests.storage.samples import many, sample

STORE = Path(".headgate/samples")
_TWICE = "select task_id from stored group by task_id having count(*) > 1"
WORDS = "words that nobody may keep"


@pytest.fixture
def stored(headgate: Command) -> None:
    """Twenty samples of two models in the folder that is the default."""

    async def put() -> None:
        store = open_store(str(STORE))
        await store.put_batch("one", many(10, conversation=f'["{WORDS}"]'))
        await store.put_batch("two", many(10, model="org/b@main"))
        store.close()

    STORE.mkdir(parents=True)
    asyncio.run(put())


def _count(headgate: Command, where: str = "true") -> int:
    (row,) = headgate("query", f"select count(*) as n from samples where {where}", "--json").document
    return int(row["n"])


def _on_disk(words: str) -> bool:
    return any(words.encode() in path.read_bytes() for path in Path(".headgate").rglob("*") if path.is_file())


def test_conversations_of_a_model_are_dropped_and_its_ranking_stays(headgate: Command, stored: None) -> None:
    ranking = headgate("leaderboard", "--json").document
    would = headgate("forget", "--model", "org/a", "--conversations", "--dry-run", "--json").document
    said = headgate("forget", "--model", "org/a", "--conversations", "--yes", "--json")
    assert (said.status, said.document) == (0, would | {"dry_run": False})
    assert (said.document["samples"], said.document["parts"]) == (10, 1)
    assert said.document["conversation_bytes"] == 10 * len(f'["{WORDS}"]')
    assert headgate("leaderboard", "--json").document == ranking
    assert _count(headgate, "conversation = ''") == 10
    again = headgate("forget", "--model", "org/a", "--conversations", "--yes")
    assert again.out == "deleted conversations of 0 samples, 0 bytes of conversations in 0 parts\n"


def test_samples_are_chosen_by_age_and_by_sql(headgate: Command, stored: None) -> None:
    assert (
        headgate("forget", "--where", "score = 0 and model = 'org/a@main'", "--yes", "--json").document["samples"] == 5
    )
    assert _count(headgate) == 15
    assert headgate("forget", "--until", "2026-01-01T00:00:04Z", "--yes", "--json").document["samples"] == 6
    assert (_count(headgate), headgate("verify").status) == (9, 0)


def test_every_row_of_a_task_that_was_stored_twice_is_looked_at(headgate: Command, stored: None) -> None:
    async def put_again() -> None:
        store = open_store(str(STORE))
        await store.put_batch("again", [replace(one, score=0.25) for one in many(2)])
        store.close()

    asyncio.run(put_again())
    shown = _count(headgate, "score = 0.25")
    hidden = "score = 0.25" if shown == 0 else "score <> 0.25 and model = 'org/a@main'"
    headgate("forget", "--where", f"{hidden} and task_id in ({_TWICE})", "--yes")
    (row,) = headgate(
        "query", f"select count(*) as n from stored where {hidden} and task_id in ({_TWICE})", "--json"
    ).document
    assert row["n"] == 0


def test_a_choice_that_is_none_or_cannot_be_read_deletes_nothing(headgate: Command, stored: None) -> None:
    for wrong, says in (
        ((), "forget was not told which samples"),
        (("--where", "scores = 0"), "scores"),
        (("--where", "true; drop view samples"), "one statement"),
        (("--model", "org/typo"), "org/typo"),
    ):
        said = headgate("forget", *wrong)
        assert (said.status, says in said.err) == (2, True), said.err
    assert _count(headgate) == 20


def test_a_script_that_does_not_say_yes_is_told_what_would_go_and_deletes_nothing(
    headgate: Command, stored: None
) -> None:
    said = headgate("forget", "--model", "org/a")
    assert (said.status, said.out) == (2, "")
    assert "forget would delete 10 samples, " in said.err
    assert said.err.endswith("nothing was done, as there is no terminal to ask at\nAdd --yes to do it.\n")
    assert headgate("forget", "--model", "org/a", "--json").document["error"]["next_step"] == "Add --yes to do it."
    assert _count(headgate) == 20


@pytest.mark.parametrize(("typed", "status", "left"), [(b"y\n", 0, 10), (b"\n", 130, 20), (b"\x04", 130, 20)])
def test_at_a_terminal_only_a_yes_deletes(
    headgate: Command, stored: None, typed: bytes, status: int, left: int
) -> None:
    ours, theirs = os.openpty()
    os.write(ours, typed)
    command = [sys.executable, "-m", "headgate.cli", "forget", "--model", "org/a"]
    ended = subprocess.run(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, timeout=60, check=False)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    os.close(theirs)
    assert "forget would delete 10 samples, " in shown
    assert (ended.returncode, "nothing was done" in shown, _count(headgate)) == (status, status == 130, left)


def test_what_a_dead_campaign_left_in_its_journal_is_forgotten_and_scrubbed_too(
    headgate: Command, stored: None
) -> None:
    folder = Path(".headgate/journal")
    journal = Journal(folder, "main")
    tasks = opened(journal, *(opening(number) for number in range(4)))
    said = orjson.dumps([["assistant", WORDS]]).decode()
    journal.accept([replace(done(task), conversation=said) for task in tasks], NOW)
    busy = headgate("forget", "--until", "2030-01-01", "--conversations", "--yes")
    assert (busy.status, "4 samples in the journal not looked at" in busy.err) == (4, True)
    journal.close()
    assert _on_disk(WORDS)
    before = headgate("forget", "--until", "2030-01-01", "--conversations", "--dry-run")
    assert (before.status, "4 samples in the journal not looked at" in before.err) == (4, True)
    assert headgate("forget", "--until", "2030-01-01", "--conversations", "--yes").status == 0
    assert _count(headgate, "conversation = ''") == _count(headgate) == 24
    assert not _on_disk(WORDS)


def test_compaction_drops_old_conversations_only_when_the_setting_says_so(headgate: Command, stored: None) -> None:
    assert headgate("compact", "--json").document["dropped_conversations"] == 0
    said = headgate("compact", "--set", "conversation_days=1", "--json")
    assert (said.status, said.document["dropped_conversations"]) == (0, 20)
    assert _count(headgate, "conversation = ''") == 20
    assert headgate("compact", "--set", "conversation_days=0").status == 2
    assert sample().conversation
