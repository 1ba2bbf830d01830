"""Runs say in their journal where they are asked; who looks for them finds those that live."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headgate.core.errors import JournalError
from headgate.durable.databases import PostgresAddress
from headgate.durable.locks import lock_of
from headgate.storage import Journal, JournalPlace, ServedRun, served_runs
from headgate.storage.journal_postgres import PostgresJournal
from tests.storage.journals import SAT, SMALL, opened, opening

RUN = ServedRun("main", "r-1", "http://worker-1:8765", "worker-1", 1_767_225_600.0)
OTHER = ServedRun("odd name/2", "r-2", "http://10.0.0.7:41234", "worker-2", 1_767_225_700.0)


def killed(journal: Journal, place: JournalPlace) -> None:
    """Have the holder of a journal be gone as by a kill, and the time pass after which that is known."""
    if isinstance(journal._db, PostgresJournal):
        assert isinstance(place, PostgresAddress)
        cut_off(journal, place)
        journal._db._disconnect()
    else:
        os.close(journal._db.holders._lock._handle)  # type: ignore[attr-defined]


def cut_off(journal: Journal, place: PostgresAddress) -> None:
    """Have the lease of a journal's holder have run out."""
    with psycopg.connect(**place.parameters()) as database:
        database.execute("UPDATE headgate_journal_main.holders SET lease_s = -60 WHERE holder = %s", (journal.holder,))


def test_runs_of_all_campaigns_are_found_while_they_live(place: JournalPlace) -> None:
    assert served_runs(place)[0] == {}
    with closing(Journal(place, "main")) as main, closing(Journal(place, "odd name/2")) as other:
        assert served_runs(place)[0] == {}  # they serve nothing
        main.announce(RUN)
        other.announce(OTHER)
        assert served_runs(place)[0] == {RUN: math.inf, OTHER: math.inf}
        main.announce(moved := RUN._replace(address="http://w:1"))
        assert served_runs(place)[0] == {moved: math.inf, OTHER: math.inf}
    assert served_runs(place)[0] == {}


def test_a_run_that_was_killed_is_told_from_one_that_closed_its_journal(place: JournalPlace) -> None:
    journal = Journal(place, "main")
    journal.announce(RUN)
    killed(journal, place)
    assert served_runs(place)[0][RUN] <= time.time()


def test_a_run_says_what_it_samples_unless_that_is_too_much_to_be_kept(place: JournalPlace) -> None:
    sampling = RUN._replace(environments=("affine:sat", "headgate:tables"))
    with closing(Journal(place, "main")) as journal:
        journal.announce(sampling)
        assert set(served_runs(place)[0]) == {sampling}
        journal.announce(RUN._replace(environments=tuple(f"suite:{number:03}" for number in range(100))))
        assert set(served_runs(place)[0]) == {RUN}


def test_a_run_that_was_killed_is_told_of_for_a_day_although_another_took_over_what_it_left(
    place: JournalPlace,
) -> None:
    journal = Journal(place, "main")
    journal.announce(RUN)
    opened(journal, opening())
    killed(journal, place)
    with closing(Journal(place, "main")) as other:
        other.announce(OTHER)
        for _ in range(2):
            assert len(other.adopt([SAT], [SMALL])) <= 1
            found = served_runs(place)[0]
            assert (set(found), found[OTHER]) == ({RUN, OTHER}, math.inf)
            assert 0 <= time.time() - found[RUN] < 3_600
        aged(place)
        assert set(served_runs(place)[0]) == {OTHER}
        opened(second := Journal(place, "main"), opening(1))
        second.announce(later := RUN._replace(run_id="r-3"))
        killed(second, place)
        other.adopt([SAT], [SMALL])
        assert set(served_runs(place)[0]) == {later, OTHER}
    assert set(served_runs(place)[0]) == {later}


@pytest.mark.slow
def test_a_run_that_was_only_cut_off_is_told_of_as_living_when_it_is_back(postgres_place: PostgresAddress) -> None:
    with closing(Journal(postgres_place, "main")) as journal, closing(Journal(postgres_place, "main")) as other:
        began = time.time()
        journal.announce(RUN)
        opened(journal, opening())
        cut_off(journal, postgres_place)
        # Since it was last heard of, and not since its lease ended: who takes over from it may have begun before that.
        assert began <= served_runs(postgres_place)[0][RUN] < time.time()
        assert len(other.adopt([SAT], [SMALL])) == 1
        assert began <= served_runs(postgres_place)[0][RUN] < time.time()
        journal.history(RUN.started_at)  # any transaction
        assert served_runs(postgres_place)[0] == {RUN: math.inf}


@pytest.mark.slow
def test_a_run_that_died_while_its_server_was_down_for_days_is_told_of(postgres_place: PostgresAddress) -> None:
    with closing(Journal(postgres_place, "main")) as other:
        journal = Journal(postgres_place, "main")
        journal.announce(RUN)
        opened(journal, opening())
        killed(journal, postgres_place)
        with psycopg.connect(**postgres_place.parameters()) as database:
            database.execute(
                "UPDATE headgate_journal_main.holders SET seen_at = seen_at - interval '2 days' WHERE said <> ''"
            )
        assert len(other.adopt([SAT], [SMALL])) == 1
        assert 0 <= time.time() - served_runs(postgres_place)[0][RUN] < 86_400


def aged(place: JournalPlace) -> None:
    """Have a day pass for what is told of the dead."""
    if isinstance(place, PostgresAddress):
        with psycopg.connect(**place.parameters()) as database:
            changed = database.execute(
                "UPDATE headgate_journal_main.meta SET value = jsonb_set(value::jsonb, '{0}', '1')::text"
                " WHERE key LIKE 'lost %'"
            )
            assert changed.rowcount == 1
    else:
        (left,) = (place / "main" / "holders").glob("*.lost")
        os.utime(left, (1, 1))


@pytest.mark.slow
def test_a_holder_that_was_thought_dead_says_it_again_when_it_is_back(postgres_place: PostgresAddress) -> None:
    with closing(Journal(postgres_place, "main")) as journal:
        journal.announce(RUN)
        with psycopg.connect(**postgres_place.parameters()) as database:
            database.execute("DELETE FROM headgate_journal_main.holders")
            database.execute("UPDATE headgate_journal_main.turn SET buried = buried + 1")
        assert served_runs(postgres_place)[0] == {}
        journal.history(RUN.started_at)  # any transaction
        assert set(served_runs(postgres_place)[0]) == {RUN}


@pytest.mark.slow
def test_a_journal_of_an_earlier_version_has_no_runs_and_is_upgraded_when_it_is_opened(
    postgres_place: PostgresAddress,
) -> None:
    Journal(postgres_place, "main").close()
    with psycopg.connect(**postgres_place.parameters()) as database:
        database.execute("ALTER TABLE headgate_journal_main.holders DROP COLUMN said")
    assert served_runs(postgres_place)[0] == {}
    with closing(Journal(postgres_place, "main")) as journal:
        journal.announce(RUN)
        assert set(served_runs(postgres_place)[0]) == {RUN}


@pytest.mark.parametrize(
    "said",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"r-1"', "1"),
        lambda text: text.replace("http://worker-1:8765", "http://" + "w" * 1_000),
        lambda text: text.replace("1767225600.0", "true"),
        lambda text: text.replace("1767225600.0", "1e999"),
        lambda text: text.replace("1767225600.0", "NaN"),
        lambda text: text.replace("r-1", "\\ud800"),
        lambda _: "[" * 1_000,
        lambda _: "[]",
        lambda _: "\x00\xff",
    ],
)
def test_what_no_run_says_is_passed_over(tmp_path: Path, said: Callable[[str], Any]) -> None:
    with closing(Journal(tmp_path, "main")) as journal:
        journal._db.holders.announce(said(json.dumps(RUN[:5])))
        assert served_runs(tmp_path)[0] == {}


def test_runs_are_found_in_a_folder_that_can_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def read_only(path: Any, flags: int, *more: Any, **further: Any) -> int:
        assert not flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT), f"{path} is opened to be written"
        return opened(path, flags, *more, **further)

    with closing(Journal(tmp_path, "main")) as journal:
        journal.announce(RUN)
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", read_only)
            assert set(served_runs(tmp_path)[0]) == {RUN}


def test_what_is_said_anew_leaves_nothing_of_what_was_said_before(tmp_path: Path) -> None:
    with closing(Journal(tmp_path, "main")) as journal:
        for said in ("a long sentence", "short", ""):
            journal._db.holders.announce(said)
            assert lock_of(tmp_path / "main" / "holders" / journal.holder) == (True, said)


def test_beside_what_cannot_be_read_of_a_folder_its_runs_are_found(tmp_path: Path) -> None:
    with closing(Journal(tmp_path, "main")) as journal, closing(Journal(tmp_path, "other")):
        journal.announce(RUN)
        (loop := tmp_path / "main" / "holders" / "h-0").symlink_to(loop)
        (folder := tmp_path / "third" / "holders").mkdir(parents=True)
        (inner := folder / "h-1").mkdir()
        (tmp_path / "fourth").mkdir()
        ((tmp_path / "fourth") / "holders").symlink_to(tmp_path / "fourth" / "holders")
        (tmp_path / "no journal").write_text("x")
        found, unreadable = served_runs(tmp_path)
    assert found == {RUN: math.inf}
    assert set(unreadable) == {loop, inner, tmp_path / "fourth" / "holders"}
    assert "directory" in unreadable[inner]


@pytest.mark.slow
def test_a_journal_in_a_database_is_there_once_it_was_opened(postgres_url: str) -> None:
    place = PostgresAddress(postgres_url)
    assert not Journal.is_there(place, "main")
    Journal(place, "main").close()
    assert Journal.is_there(place, "main")
    assert not Journal.is_there(place, "other")
    with pytest.raises(JournalError, match="cannot be read"):
        Journal.is_there(PostgresAddress("postgresql://127.0.0.1:9/none"), "main")
