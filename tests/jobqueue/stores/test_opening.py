"""URLs of stores."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from headgate.core.errors import ClockDisagreesError, InvalidInputError, MissingExtraError
from headgate.jobqueue.stores import MemoryStore, SqliteStore, open_store
from tests.jobqueue.stores.values import a_job, submitted


@pytest.mark.parametrize("url", ["memory:", "memory://"])
def test_memory_is_a_new_store_each_time(url: str) -> None:
    assert isinstance(open_store(url), MemoryStore)
    assert open_store(url) is not open_store(url)


def test_three_slashes_are_a_relative_path_and_four_an_absolute_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///in/this%20folder/queue.db").own("me")
    assert isinstance(store, SqliteStore)
    store.commit(submitted(a_job(0)))
    store.close()
    again = open_store(f"sqlite:///{tmp_path}/in/this folder/queue.db").own("me")
    assert again.load().next_seq == 1
    again.close()


def test_opening_makes_nothing(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/queue.db").close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("", "sqlite, postgresql or memory URL"),
        ("queue.db", "sqlite, postgresql or memory URL"),
        ("mysql://host/db", "sqlite, postgresql or memory URL"),
        ("postgresql:host/db", "sqlite, postgresql or memory URL"),
        ("memory:x", "sqlite, postgresql or memory URL"),
        ("sqlite:queue.db", "three slashes"),
        ("sqlite://queue.db", "three slashes"),
        ("sqlite:///", "three slashes"),
        ("sqlite:////", "three slashes"),
        ("sqlite:///folder/", "three slashes"),
        ("sqlite:///queue.db?mode=ro", "without options"),
        ("sqlite:///queue.db#x", "without options"),
        ("sqlite:///queue%00.db", "without options"),
    ],
)
def test_other_urls_are_refused_with_value_rule_and_next_step(url: str, rule: str) -> None:
    with pytest.raises(InvalidInputError, match=rule) as refusal:
        open_store(url)
    assert repr(url) in str(refusal.value)
    assert refusal.value.next_step


@pytest.mark.parametrize(
    "url",
    [
        "mysql://someone:pass-word@host/db",
        "postgres:/someone:pass-word@host/db",
        "postgresql://someone:pass-word@host:port:x/db?nothing=1",
        "postgresql://someone:pass-word@host/db?connect_timeout",
        "sqlite://someone:pass-word@host/db",
    ],
)
def test_a_password_in_a_refused_url_is_not_shown(url: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        open_store(url)
    assert "pass-word" not in str(refusal.value)
    assert refusal.value.__cause__ is None


def test_postgres_without_its_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("headgate.jobqueue.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"'headgate\[postgres\]'"):
        open_store("postgresql://host/db")


def test_a_database_whose_clock_says_another_time_is_refused(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = SimpleNamespace(time=lambda: time.time() + 2 * 86_400.0)
    monkeypatch.setattr("headgate.jobqueue.stores.postgres.time", ahead)
    with pytest.raises(ClockDisagreesError, match="the database of"):
        open_store(postgres_url).own("me")
    monkeypatch.undo()
    open_store(postgres_url).own("me").close()
