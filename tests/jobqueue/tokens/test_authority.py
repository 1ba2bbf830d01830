"""Who a request comes from: what it may do, how soon a revocation acts, and what happens without the database."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import Secret
from headgate.net.authority import (
    EVERYBODY,
    NEW_TOKEN_S,
    REFRESH_S,
    RETRY_S,
    REVOCATION_BOUND_S,
    Authority,
    Caller,
    Rate,
    Refused,
    Verdict,
)
from headgate.net.token_stores import MemoryTokens, TokenStoreError
from headgate.net.tokens import Refusal, Scope, Token, new_token, revoked, rotated
from tests.jobqueue.tokens.conftest import StillClock, identified

NOW = 1_000_000.0


class CountedTokens(MemoryTokens):
    """Counts how often it is read, remembers by which thread, and fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[int] = []
        self.fails = False

    @property
    def readings(self) -> int:
        return len(self.readers)

    def tokens(self) -> list[Token]:
        self.readers.append(threading.get_ident())
        if self.fails:
            raise TokenStoreError("the disk at /dev/somewhere is gone")
        return super().tokens()


def _created(store: MemoryTokens, *scopes: Scope, teams: list[str] | None = None, worker: str | None = None) -> str:
    token, text = new_token("name", scopes or [Scope.READ], now=NOW, teams=teams, worker=worker)
    store.add(token, forget_before=0.0)
    return text.reveal()


def _id(text: str) -> str:
    return text[4:16]


def _reason(verdict: Verdict) -> Refusal | None:
    return verdict.reason if isinstance(verdict, Refused) else None


def _caller(store: MemoryTokens, text: str) -> Caller:
    verdict = identified(Authority(store), text, NOW)
    assert isinstance(verdict, Caller)
    return verdict


def test_the_caller_is_what_the_token_says() -> None:
    store = MemoryTokens()
    text = _created(store, Scope.CLAIM, Scope.COMPLETE, teams=["a", "b"], worker="w-1")
    caller = _caller(store, text)
    assert caller == Caller(
        _id(text), "name", frozenset({Scope.CLAIM, Scope.COMPLETE}), *[frozenset({"a", "b"})] * 2, 0, "w-1"
    )
    assert [scope for scope in Scope if caller.has(scope)] == [Scope.CLAIM, Scope.COMPLETE]
    assert caller.speaks_for("w-1")
    assert not caller.speaks_for("w-2")


def test_admin_implies_every_scope_but_not_every_team() -> None:
    store = MemoryTokens()
    everywhere = _caller(store, _created(store, Scope.ADMIN))
    bound = _caller(store, _created(store, Scope.ADMIN, teams=["a"]))
    assert all(caller.has(scope) for caller in (everywhere, bound) for scope in Scope)
    assert (everywhere.teams, bound.teams) == (None, {"a"})
    assert everywhere.speaks_for("anybody")


@pytest.mark.parametrize(
    ("given_text", "reason"),
    [
        (None, Refusal.MISSING),
        ("", Refusal.MALFORMED),
        ("secret", Refusal.MALFORMED),
        ("hgq_000000000000." + "A" * 43, Refusal.UNKNOWN),
    ],
)
def test_nobody_else_is_let_in(given_text: str | None, reason: Refusal) -> None:
    store = MemoryTokens()
    _created(store)
    verdict = identified(Authority(store), given_text, NOW)
    assert isinstance(verdict, Refused)
    assert (verdict.reason, verdict.http_status, verdict.retry_after_s) == (reason, 401, None)


def test_every_refusal_has_a_sentence_and_a_next_step() -> None:
    for reason in Refusal:
        assert Refused(reason).message
        assert Refused(reason).next_step.endswith(".")


def test_a_server_that_needs_no_tokens_lets_everybody_do_everything_until_there_is_one(clock: StillClock) -> None:
    store = MemoryTokens()
    authority = Authority(store, needs_no_tokens=True, monotonic=clock)
    caller = identified(authority, None, NOW)
    assert caller is EVERYBODY
    assert all(EVERYBODY.has(scope) for scope in Scope)
    assert EVERYBODY.teams is None
    assert EVERYBODY.speaks_for("anybody")
    assert identified(authority, "nonsense", NOW) is EVERYBODY
    text = _created(store)
    clock.now += REVOCATION_BOUND_S
    assert _reason(identified(authority, None, NOW)) is Refusal.MISSING
    assert isinstance(identified(authority, text, NOW), Caller)


def test_revoking_the_last_token_does_not_open_the_server() -> None:
    store = MemoryTokens()
    text = _created(store)
    store.change(_id(text), lambda token: revoked(token, now=NOW))
    assert _reason(identified(Authority(store, needs_no_tokens=True), None, NOW)) is Refusal.MISSING


def test_other_servers_let_nobody_in_without_tokens() -> None:
    assert _reason(identified(Authority(MemoryTokens()), None, NOW)) is Refusal.MISSING


@given(st.lists(st.floats(0.0, 3.0), max_size=12), st.floats(0.0, 3.0), st.booleans())
def test_no_request_is_let_in_longer_than_the_bound_after_the_revocation(
    gaps: list[float], until_revoked: float, fails_afterwards: bool
) -> None:
    clock, store = StillClock(), CountedTokens()
    text = _created(store)
    authority = Authority(store, monotonic=clock)
    assert isinstance(identified(authority, text, NOW), Caller)
    clock.now += until_revoked
    identified(authority, text, NOW)
    store.change(_id(text), lambda token: revoked(token, now=NOW))
    revoked_at = clock.now
    store.fails = fails_afterwards
    for gap in gaps:
        clock.now += gap
        if isinstance(identified(authority, text, NOW), Caller):
            assert clock.now - revoked_at <= REVOCATION_BOUND_S


def test_a_token_is_not_read_again_at_every_request(clock: StillClock) -> None:
    store = CountedTokens()
    text = _created(store)
    authority = Authority(store, rate=None, monotonic=clock)
    for _ in range(1000):
        assert isinstance(identified(authority, text, NOW), Caller)
        clock.now += 0.001
    assert store.readings == 1


def test_a_new_token_and_a_new_secret_are_good_at_once(clock: StillClock) -> None:
    store = CountedTokens()
    authority = Authority(store, monotonic=clock)
    identified(authority, _created(store), NOW)
    clock.now += NEW_TOKEN_S + 0.01
    text = _created(store)
    assert isinstance(identified(authority, text, NOW), Caller)
    texts: list[Secret] = []

    def change(token: Token) -> Token:
        changed, secret = rotated(token, now=NOW, overlap_s=60.0)
        texts.append(secret)
        return changed

    clock.now += NEW_TOKEN_S + 0.01
    store.change(_id(text), change)
    assert isinstance(identified(authority, texts[0].reveal(), NOW), Caller)
    assert isinstance(identified(authority, text, NOW), Caller)
    assert _reason(identified(authority, text, NOW + 60)) is Refusal.ROTATED


@pytest.mark.parametrize("guess", ["unknown id", "wrong secret"])
def test_guessing_reads_the_store_a_bounded_number_of_times_and_alike_for_every_guess(
    guess: str, clock: StillClock
) -> None:
    store = CountedTokens()
    text = _created(store)
    wrong = text[:-3] + "AAA" if guess == "wrong secret" else "hgq_000000000000." + "A" * 43
    authority = Authority(store, monotonic=clock)
    for _ in range(1000):
        assert _reason(identified(authority, wrong, NOW)) is Refusal.UNKNOWN
        clock.now += 0.01
    assert store.readings == pytest.approx(10.0 / NEW_TOKEN_S, abs=2)


def test_guessing_with_somebody_s_id_does_not_use_up_what_they_may_ask(clock: StillClock) -> None:
    store = MemoryTokens()
    text = _created(store)
    authority = Authority(store, rate=Rate(1.0, 1), monotonic=clock)
    for _ in range(100):
        identified(authority, text[:-3] + "AAA", NOW)
    assert isinstance(identified(authority, text, NOW), Caller)


def test_a_token_that_asks_too_much_is_told_when_to_ask_again(clock: StillClock) -> None:
    store = MemoryTokens()
    text, other = _created(store), _created(store)
    authority = Authority(store, rate=Rate(2.0, 3), monotonic=clock)
    assert [_reason(identified(authority, text, NOW)) for _ in range(3)] == [None] * 3
    refused = identified(authority, text, NOW)
    assert refused == Refused(Refusal.TOO_MANY_REQUESTS, 0.5)
    assert refused.http_status == 429
    assert isinstance(identified(authority, other, NOW), Caller)
    clock.now += 0.5
    assert isinstance(identified(authority, text, NOW), Caller)


def test_by_default_a_token_may_ask_50_times_a_second_and_100_times_at_once(clock: StillClock) -> None:
    store = MemoryTokens()
    text = _created(store)
    authority = Authority(store, monotonic=clock)

    def let_in() -> int:
        return sum(isinstance(identified(authority, text, NOW), Caller) for _ in range(500))

    assert let_in() == 100
    clock.now += 1.0
    assert let_in() == 50


def test_a_database_that_is_silent_for_less_than_the_bound_refuses_nobody(clock: StillClock) -> None:
    store = CountedTokens()
    text = _created(store)
    authority = Authority(store, monotonic=clock)
    identified(authority, text, NOW)
    store.fails = True
    clock.now += REVOCATION_BOUND_S - 0.1
    assert isinstance(identified(authority, text, NOW), Caller)
    assert "is gone" in authority.trouble
    store.fails = False
    clock.now += RETRY_S
    assert isinstance(identified(authority, text, NOW), Caller)
    assert authority.trouble == ""


@pytest.mark.parametrize("needs_no_tokens", [False, True])
def test_a_database_that_is_silent_for_longer_lets_nobody_in_and_is_not_named_to_them(
    needs_no_tokens: bool, clock: StillClock
) -> None:
    store = CountedTokens()
    text = _created(store)
    authority = Authority(store, needs_no_tokens=needs_no_tokens, monotonic=clock)
    store.fails = True
    for _ in range(100):
        refused = identified(authority, text, NOW)
        assert refused == Refused(Refusal.UNAVAILABLE, RETRY_S)
        assert (refused.http_status, "disk" in refused.message) == (503, False)
    assert store.readings == 1
    store.fails = False
    clock.now += RETRY_S
    assert isinstance(identified(authority, text, NOW), Caller)
    assert REFRESH_S < REVOCATION_BOUND_S


def test_many_threads_that_ask_at_once_read_the_store_once(clock: StillClock) -> None:
    class SlowTokens(CountedTokens):
        def tokens(self) -> list[Token]:
            everybody_asks.wait(10)
            return super().tokens()

    everybody_asks = threading.Event()
    asking = threading.Barrier(8, action=everybody_asks.set)
    store = SlowTokens()
    token, text = new_token("n", [Scope.READ], now=NOW)
    store.add(token, forget_before=0.0)
    authority = Authority(store, monotonic=clock)

    def ask(_: int) -> Verdict:
        asking.wait(10)
        return identified(authority, text.reveal(), NOW)

    with ThreadPoolExecutor(8) as threads:
        assert all(isinstance(verdict, Caller) for verdict in threads.map(ask, range(8)))
    assert store.readings == 1


async def test_the_event_loop_never_reads_the_store_itself(clock: StillClock) -> None:
    store = CountedTokens()
    text = _created(store)
    authority = Authority(store, monotonic=clock)
    assert isinstance(await authority.identify(text, NOW), Caller)
    clock.now += REVOCATION_BOUND_S + 1
    assert isinstance(await authority.identify(text, NOW), Caller)
    clock.now += 1
    assert _reason(await authority.identify(text[:-3] + "AAA", NOW)) is Refusal.UNKNOWN
    assert store.readings == 3
    assert threading.get_ident() not in store.readers
    assert isinstance(await authority.identify(text, NOW), Caller)
    assert store.readings == 3


def test_closing_twice_is_legal() -> None:
    authority = Authority(MemoryTokens())
    authority.close()
    authority.close()


async def test_tokens_are_read_while_every_thread_of_the_loop_is_busy() -> None:
    store = MemoryTokens()
    text = _created(store)
    go_on = threading.Event()
    with ThreadPoolExecutor(1) as listings:
        asyncio.get_running_loop().set_default_executor(listings)
        busy = asyncio.create_task(asyncio.to_thread(go_on.wait))
        await asyncio.sleep(0)
        try:
            verdict = await asyncio.wait_for(Authority(store).identify(text, NOW), 30)
        finally:
            go_on.set()
        await busy
    assert isinstance(verdict, Caller)
