"""Every store of tokens keeps the same promises."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.core.errors import InvalidInputError
from headgate.jobqueue import Changes, Job, JobSpec
from headgate.jobqueue.stores import open_store
from headgate.net.authority import Authority, Caller, Refused
from headgate.net.token_stores import MemoryTokens, TokenStore, TokenStoreError, open_tokens
from headgate.net.tokens import Refusal, Scope, Token, new_token, revoked, rotated
from tests.jobqueue.tokens.conftest import identified

NOW = 1_795_000_000.25


def _token(name: str = "n", now: float = NOW, lifetime_s: float | None = None) -> Token:
    return new_token(name, [Scope.READ], now=now, lifetime_s=lifetime_s)[0]


def test_a_token_comes_back_as_it_was(store: TokenStore) -> None:
    plain = _token()
    bound, _ = new_token(
        "näme 'quoted\" %s :name", list(Scope), now=NOW + 1, teams=["a,b", "ü"], worker="w", lifetime_s=7.5,
        pools=["arms", "x y"], most_priority=-3,
    )  # fmt: skip
    changed, _ = rotated(bound, now=NOW + 2, overlap_s=3600)
    for token in (plain, replace(bound, token_id="0" * 12), revoked(changed, now=NOW + 3)):
        store.add(token, forget_before=0.0)
    assert store.tokens() == sorted(
        [plain, replace(bound, token_id="0" * 12), revoked(changed, now=NOW + 3)],
        key=lambda token: (token.created_at, token.token_id),
    )


def test_a_change_is_kept_and_returned(store: TokenStore) -> None:
    token = _token()
    store.add(token, forget_before=0.0)
    store.add(_token("other"), forget_before=0.0)
    ended = store.change(token.token_id, lambda old: revoked(old, now=NOW + 1))
    assert ended == replace(token, revoked_at=NOW + 1)
    assert [kept for kept in store.tokens() if kept.revoked_at] == [ended]


def test_what_is_not_there_is_not_changed(store: TokenStore) -> None:
    assert store.change("0" * 12, lambda old: old) is None
    assert store.tokens() == []


def test_a_change_that_raises_leaves_the_token_as_it_was(store: TokenStore) -> None:
    token = _token()
    store.add(token, forget_before=0.0)

    def change(old: Token) -> Token:
        raise InvalidInputError("no")

    with pytest.raises(InvalidInputError):
        store.change(token.token_id, change)
    assert store.tokens() == [token]
    assert store.change(token.token_id, lambda old: revoked(old, now=NOW)) is not None


def test_a_new_token_drops_those_that_ended_long_ago(store: TokenStore) -> None:
    expired, living, forever = _token("expired", lifetime_s=10), _token("living", lifetime_s=1000), _token("forever")
    ended = revoked(_token("ended"), now=NOW + 5)
    for token in (expired, living, forever, ended):
        store.add(token, forget_before=0.0)
    store.add(_token("new"), forget_before=NOW + 11)
    assert {token.name for token in store.tokens()} == {"living", "forever", "new"}


def test_closing_twice_is_legal(store: TokenStore) -> None:
    store.close()
    store.close()


def test_a_database_is_opened_again_after_it_was_closed(database: TokenStore) -> None:
    token = _token()
    database.add(token, forget_before=0.0)
    database.close()
    assert database.tokens() == [token]


def test_what_one_connection_wrote_another_reads(database: TokenStore, database_url: str) -> None:
    other = open_tokens(database_url)
    token = _token()
    database.add(token, forget_before=0.0)
    assert other.tokens() == [token]
    other.close()


def test_changes_made_at_the_same_time_are_all_kept(database: TokenStore, database_url: str) -> None:
    token = _token()
    database.add(token, forget_before=0.0)
    together = threading.Barrier(4)

    def add_ones(_: int) -> None:
        store = open_tokens(database_url)
        together.wait(20)
        for _ in range(10):
            store.change(token.token_id, lambda old: replace(old, previous_until=old.previous_until + 1))
        store.close()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add_ones, range(4)))
    assert database.tokens()[0].previous_until == 40


def test_opening_an_empty_database_from_several_sides_at_once_makes_it_once(database_url: str) -> None:
    together = threading.Barrier(6)

    def add(n: int) -> None:
        together.wait(20)
        store = open_tokens(database_url)
        store.add(_token(f"t{n}"), forget_before=0.0)
        store.close()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(add, range(6)))
    store = open_tokens(database_url)
    assert sorted(token.name for token in store.tokens()) == [f"t{n}" for n in range(6)]
    store.close()


def test_an_authority_reads_while_tokens_come_and_go(database: TokenStore, database_url: str) -> None:
    token, text = new_token("steady", [Scope.CLAIM], now=NOW)
    database.add(token, forget_before=0.0)
    # A clock that never stands: every request finds what was read too old, and reads.
    ticks = iter(range(0, 10**9, 10))
    authority = Authority(open_tokens(database_url), rate=None, monotonic=lambda: float(next(ticks)) / 4)
    is_over = threading.Event()

    def come_and_go() -> None:
        store = open_tokens(database_url)
        for n in range(25):
            new = _token(f"t{n}")
            store.add(new, forget_before=0.0)
            store.change(new.token_id, lambda old: revoked(old, now=NOW))
        store.close()
        is_over.set()

    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(come_and_go)
        verdicts = [identified(authority, text.reveal(), NOW)]
        while not is_over.is_set():
            verdicts.append(identified(authority, text.reveal(), NOW))
        done.result(20)
    assert all(isinstance(verdict, Caller) for verdict in verdicts)
    authority.close()


def test_a_revocation_elsewhere_reaches_the_authority(database: TokenStore, database_url: str) -> None:
    now = [100.0]
    token, text = new_token("n", [Scope.CLAIM], now=NOW)
    database.add(token, forget_before=0.0)
    authority = Authority(open_tokens(database_url), monotonic=lambda: now[0])
    assert isinstance(identified(authority, text.reveal(), NOW), Caller)
    database.change(token.token_id, lambda old: revoked(old, now=NOW))
    now[0] += 5.0
    assert identified(authority, text.reveal(), NOW) == Refused(Refusal.REVOKED)
    authority.close()


def test_tokens_of_a_newer_version_are_left_alone(database: TokenStore, database_url: str) -> None:
    database.add(_token(), forget_before=0.0)
    with database._transaction(changes=True) as run:
        run("note_version", version=3)
    with pytest.raises(TokenStoreError, match="version 3, and this Headgate knows 2") as raised:
        open_tokens(database_url)
    assert "newer" in raised.value.next_step


VERSION_2 = (Path(__file__).parents[2] / "net/tokens_version_2.sql").read_text()
"""Tokens as the version before this one left them; these are their texts."""

SECRETS = {
    "everything": "hgq_651c71b10d2d.V9PUrS1bW6bFD7L59n0zyIEqZ85yuMC1pJJd69ViAXE",
    "team": "hgq_22e0aa549229.CNg7y0ljkzm_hNJgNWoXJ4lAWtBDubJRiSA4CfVVEFI",
    "rotated away": "hgq_adcd31fa6783.H3iqHL2w3lvwoqITfB-0OVY4Rmu4N1Jvi5RPmiHnH08",
    "rotated": "hgq_adcd31fa6783.cudW2vxrKGemLw1DEzPTfouXz-XEcHRhiMG9iafhMVY",
    "revoked": "hgq_e7833f5e9647.McJ7mngCrQkeFtysN5-YxTuTlD2sgDxGCdLgqDdcN_c",
}


def test_tokens_that_the_version_before_left_let_the_same_callers_in(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as db:
        db.executescript(VERSION_2)
    store = open_tokens(f"sqlite:///{tmp_path}/jobs.db")
    named = {token.name: token for token in store.tokens()}
    authority = Authority(store, rate=None)
    told = {name: identified(authority, text, NOW + 10) for name, text in SECRETS.items()}
    authority.close()
    team = frozenset({"a", "b"})
    assert told["everything"] == Caller("651c71b10d2d", "everything", frozenset({Scope.ADMIN}))
    assert told["team"] == Caller("22e0aa549229", "team", frozenset({Scope.CLAIM, Scope.COMPLETE}), team, team, 0, "w")
    assert told["rotated"] == told["rotated away"] == Caller("adcd31fa6783", "rotated", frozenset({Scope.READ}))
    assert told["revoked"] == Refused(Refusal.REVOKED)
    assert (named["team"].expires_at, named["rotated"].previous_until) == (NOW + 3601, NOW + 63)


OLDER = (
    "ALTER TABLE tokens DROP COLUMN pools",
    "ALTER TABLE tokens DROP COLUMN most_priority",
    "UPDATE token_schema SET version = 1",
)
"""What makes version 1 of version 2."""


def test_a_teams_token_of_version_1_is_bound_to_its_own_pools(database: TokenStore, database_url: str) -> None:
    plain, (bound, _) = _token(), new_token("b", [Scope.CLAIM], now=NOW + 1, teams=["a", "b"])
    for token in (plain, bound):
        database.add(token, forget_before=0.0)
    database.close()
    if database_url.startswith("sqlite"):
        with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"), isolation_level=None)) as db:
            for step in OLDER:
                db.execute(step)
    else:
        import psycopg

        with psycopg.connect(database_url, autocommit=True) as older:
            older.execute("SET search_path TO headgate_jobqueue")
            for step in OLDER:
                older.execute(step.encode())
    for _ in range(2):
        again = open_tokens(database_url)
        assert again.tokens() == [plain, bound]
        again.close()


def test_the_secret_is_in_no_file_of_the_database(tmp_path: Path) -> None:
    store = open_tokens(f"sqlite:///{tmp_path}/jobs.db")
    token, text = new_token("canary", [Scope.READ], now=NOW)
    store.add(token, forget_before=0.0)
    _, second = rotated(token, now=NOW, overlap_s=60)
    store.change(token.token_id, lambda old: rotated(old, now=NOW, overlap_s=60)[0])
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    store.close()
    written += b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"canary" in written
    for secret in (text, second):
        assert secret.reveal().partition(".")[2].encode() not in written


def test_a_queue_that_is_written_holds_up_no_reader_of_tokens(tmp_path: Path) -> None:
    store = open_tokens(f"sqlite:///{tmp_path}/jobs.db")
    token = _token()
    store.add(token, forget_before=0.0)
    queue = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    queue.execute("CREATE TABLE jobs (job_id TEXT)")
    queue.execute("BEGIN IMMEDIATE")
    queue.execute("INSERT INTO jobs VALUES ('j')")
    assert store.tokens() == [token]
    queue.execute("COMMIT")
    queue.close()
    store.close()


def test_a_path_that_is_no_database_says_so(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(TokenStoreError, match="folder"):
        open_tokens(f"sqlite:///{tmp_path}/folder")
    (tmp_path / "text").write_text("no database at all, but long enough to be told from an empty file " * 20)
    with pytest.raises(TokenStoreError, match="not a database"):
        open_tokens(f"sqlite:///{tmp_path}/text")


@pytest.mark.parametrize(
    "url", ["", "sqlite:///", "sqlite://x", "mysql://u:hunter2@h/d", "jobs.db", "memory", "hunter2@h/d"]
)
def test_an_address_of_another_form_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        open_tokens(url)
    assert "hunter2" not in str(raised.value)


def test_an_address_names_the_same_file_as_it_does_for_jobs(tmp_path: Path) -> None:
    open_tokens(f" sqlite:///{tmp_path}/a%20b%3F.db ").close()
    assert (tmp_path / "a b?.db").exists()
    for other in ("a.db?mode=ro", "a.db#x", "folder/"):
        with pytest.raises(InvalidInputError):
            open_tokens(f"sqlite:///{tmp_path}/{other}")


def test_memory_is_a_store_of_its_own() -> None:
    assert isinstance(open_tokens("memory:"), MemoryTokens)
    assert isinstance(open_tokens("memory://"), MemoryTokens)


@pytest.mark.parametrize("url", ["postgresql://u:hunter2%zz@h/d", "postgresql://u:hunter2@127.0.0.1:9/d?nonsense=1"])
def test_an_address_of_postgresql_that_cannot_be_understood_is_refused_without_its_password(url: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(InvalidInputError, match="cannot be read") as raised:
        open_tokens(url)
    assert "hunter2" not in str(raised.value)
    assert raised.value.__suppress_context__


def test_a_postgresql_that_does_not_answer_is_reported_without_the_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(TokenStoreError, match="cannot be read or written") as raised:
        open_tokens("postgresql://u:hunter2@127.0.0.1:9/d")
    assert "hunter2" not in str(raised.value) + str(raised.value.__cause__)


@pytest.mark.slow
def test_a_connection_that_postgresql_ended_is_made_anew(postgres_url: str) -> None:
    import psycopg

    store = open_tokens(postgres_url)
    token = _token()
    store.add(token, forget_before=0.0)
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'headgate tokens'"
        )
    with pytest.raises(TokenStoreError):
        store.tokens()
    assert store.tokens() == [token]
    store.close()


@pytest.mark.slow
def test_a_role_that_can_create_nothing_reads_tokens(postgres_url: str) -> None:
    import psycopg

    store = open_tokens(postgres_url)
    token = _token()
    store.add(token, forget_before=0.0)
    store.close()
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute("DROP ROLE IF EXISTS token_reader")
        owner.execute("CREATE ROLE token_reader LOGIN PASSWORD 'x'")
        owner.execute("GRANT USAGE ON SCHEMA headgate_jobqueue TO token_reader")
        owner.execute("GRANT SELECT ON ALL TABLES IN SCHEMA headgate_jobqueue TO token_reader")
        role = f"{postgres_url}{'&' if '?' in postgres_url else '?'}options=-c%20role%3Dtoken_reader"
        reader = open_tokens(role)
        assert reader.tokens() == [token]
        with pytest.raises(TokenStoreError, match="permission denied"):
            reader.add(_token(), forget_before=0.0)
        reader.close()
        owner.execute("DROP OWNED BY token_reader")
        owner.execute("DROP ROLE token_reader")


@pytest.mark.parametrize("first", ["tokens", "jobs"])
def test_tokens_and_jobs_share_a_database_whoever_comes_first(first: str, database_url: str) -> None:
    if first == "tokens":
        open_tokens(database_url).close()
    jobs = open_store(database_url).own("test")
    tokens = open_tokens(database_url)
    token, spec = _token(), JobSpec("j", "team", "task")
    tokens.add(token, forget_before=0.0)
    jobs.commit(Changes(new_jobs={"j": Job(spec, seq=0, submitted_at=NOW)}))
    assert tokens.tokens() == [token]
    assert jobs.jobs(["j"])["j"].spec == spec
    tokens.close()
    jobs.close()
