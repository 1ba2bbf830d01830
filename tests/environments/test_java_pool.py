"""Who gets one of few games, and that none is lost or shared whatever is cancelled, dies or hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from headgate.core import errors
from headgate.environments.shares import MODEL
from headgate_environments.java import Pool

T = TypeVar("T")


class Game:
    """A process that answers at once, or not before it is killed."""

    def __init__(self) -> None:
        self.is_dead = threading.Event()
        self.is_called = threading.Event()
        self.may_go_on = threading.Event()
        self.played: list[str] = []

    @property
    def can_be_lent(self) -> bool:
        return not self.is_dead.is_set()

    def kill(self) -> None:
        self.is_dead.set()

    def play(self, move: str) -> list[str]:
        self.played = [move] if move == "begin" else [*self.played, move]
        return self.played

    def take_long(self) -> None:
        self.is_called.set()
        self.may_go_on.wait()

    def hang(self) -> None:
        self.is_called.set()
        self.is_dead.wait()
        raise errors.EnvironmentFailedError("it ended before its time")


class Start:
    """Starts games; keeps them all, and waits for leave where it has to."""

    def __init__(self) -> None:
        self.games: list[Game] = []
        self.has_begun = threading.Event()
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self) -> Game:
        self.has_begun.set()
        self.may_end.wait()
        self.games.append(Game())
        return self.games[-1]


def itself(game: Game) -> Game:
    return game


async def cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def until(event: threading.Event) -> None:
    await asyncio.to_thread(event.wait)


async def waiting(pool: Pool[Game]) -> asyncio.Task[object]:
    """Return a borrower that stands in line."""
    task: asyncio.Task[object] = asyncio.ensure_future(pool.lend())
    await asyncio.sleep(0)
    assert not task.done()
    return task


@pytest.fixture
def start():
    return Start()


@pytest.fixture
def pool(start):
    return Pool(start, 1)


async def test_a_game_is_started_once_and_lent_to_one_after_the_other(pool, start):
    first = await pool.lend()
    second = await waiting(pool)
    game = await first.call(itself)
    first.close()
    loan = await second
    assert await loan.call(itself) is game
    assert start.games == [game]


async def test_closing_twice_gives_back_once(pool):
    first = await pool.lend()
    first.close()
    first.close()
    await pool.lend()
    await cancelled(await waiting(pool))


async def test_one_who_is_cancelled_in_line_is_passed_over(pool):
    first = await pool.lend()
    second, third = await waiting(pool), await waiting(pool)
    await cancelled(second)
    first.close()
    (await third).close()


async def test_a_loan_that_a_cancelled_borrower_had_just_been_given_goes_to_the_next(pool):
    first = await pool.lend()
    second, third = await waiting(pool), await waiting(pool)
    first.close()
    await cancelled(second)
    (await third).close()
    await pool.lend()


async def test_closing_after_a_cancelled_call_kills_the_game_and_the_next_gets_another(pool, start):
    first = await pool.lend()
    await first.call(itself)
    call = asyncio.ensure_future(first.call(Game.hang))
    await until(start.games[0].is_called)
    await cancelled(call)
    next_one = await waiting(pool)
    first.close()
    game = await (await next_one).call(itself)
    assert start.games == [start.games[0], game]
    assert (start.games[0].is_dead.is_set(), game.can_be_lent) == (True, True)


async def test_a_game_whose_start_was_cancelled_waits_untouched_for_the_next(pool, start):
    start.may_end.clear()
    first = await pool.lend()
    call = asyncio.ensure_future(first.call(Game.hang))
    await until(start.has_begun)
    await cancelled(call)
    first.close()
    next_one = await waiting(pool)
    start.may_end.set()
    game = await (await next_one).call(itself)
    assert start.games == [game]
    assert not game.is_called.is_set()


async def test_a_game_that_died_is_not_lent_again(pool, start):
    first = await pool.lend()
    (await first.call(itself)).kill()
    first.close()
    second = await pool.lend()
    assert (await second.call(itself)).can_be_lent
    assert len(start.games) == 2


async def test_a_game_that_died_while_it_was_idle_is_not_lent_again(pool, start):
    first = await pool.lend()
    game = await first.call(itself)
    first.close()
    game.kill()
    second = await pool.lend()
    assert await second.call(itself) is not game


async def test_a_start_that_fails_costs_nobody_a_place(start):
    def failing() -> Game:
        raise errors.EnvironmentFailedError("it does not start")

    pool = Pool(failing, 1)
    first = await pool.lend()
    with pytest.raises(errors.EnvironmentFailedError, match="it does not start"):
        await first.call(itself)
    first.close()
    (await pool.lend()).close()


async def test_a_closed_loan_and_a_busy_game_take_no_calls(pool, start):
    first = await pool.lend()
    await first.call(itself)
    call = asyncio.ensure_future(first.call(Game.hang))
    await until(start.games[0].is_called)
    with pytest.raises(errors.EnvironmentFailedError, match="after its episode, or twice at once"):
        await first.call(itself)
    first.close()
    with pytest.raises(errors.EnvironmentFailedError, match="it ended before its time"):
        await call
    with pytest.raises(errors.EnvironmentFailedError, match="after its episode, or twice at once"):
        await first.call(itself)


async def test_borrowers_of_several_event_loops_share_one_pool(pool):
    first = await pool.lend()
    in_line = threading.Event()

    async def elsewhere() -> None:
        borrowing = await waiting(pool)
        in_line.set()
        (await borrowing).close()

    other = asyncio.ensure_future(asyncio.to_thread(asyncio.run, elsewhere()))
    await until(in_line)
    first.close()
    await other
    (await pool.lend()).close()


def as_model(name: str, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    async def run() -> T:
        MODEL.set(name)
        return await coroutine

    return asyncio.ensure_future(run())


def move(what: str) -> Callable[[Game], list[str]]:
    return lambda game: game.play(what)


@pytest.fixture
def hasty(start):
    """One game, which goes to another model as soon as that wants it."""
    return Pool(start, 1, idle_s=0.0)


async def test_an_episode_that_waits_for_its_model_gives_its_game_away_and_later_goes_on_where_it_was(hasty, start):
    first = await as_model("slow", hasty.lend())
    for one in ("begin", "left"):
        await first.call(move(one))
    second = await as_model("other", hasty.lend())
    assert await second.call(move("begin")) == ["begin"]
    going_on = asyncio.ensure_future(first.call(move("right")))
    assert await going_on == ["begin", "left", "right"]
    assert await second.call(move("up")) == ["begin", "up"]
    assert len(start.games) == 1
    first.close()
    second.close()
    (await hasty.lend()).close()


async def test_a_game_is_not_taken_away_during_a_call(hasty, start):
    first = await as_model("slow", hasty.lend())
    await first.call(itself)
    call = asyncio.ensure_future(first.call(Game.take_long))
    await until(start.games[0].is_called)
    second = as_model("other", hasty.lend())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not second.done()
    start.games[0].may_go_on.set()
    await call
    (await second).close()
    first.close()


async def test_a_model_alone_keeps_its_games_however_many_of_its_episodes_wait(hasty):
    first = await as_model("a", hasty.lend())
    game = await first.call(itself)
    second = as_model("a", hasty.lend())
    await asyncio.sleep(0)
    assert await first.call(itself) is game
    assert not second.done()
    first.close()
    (await second).close()


async def test_closing_an_episode_whose_game_went_to_another_gives_back_nothing(hasty):
    first = await as_model("slow", hasty.lend())
    await first.call(itself)
    second = await as_model("other", hasty.lend())
    first.close()
    await cancelled(await waiting(hasty))
    with pytest.raises(errors.EnvironmentFailedError, match="after its episode"):
        await first.call(itself)
    second.close()
    (await hasty.lend()).close()
