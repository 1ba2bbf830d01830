"""Every way an episode can end, and what each is booked as."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import ChatError, ChatReply, ErrorKind, Message, storable
from headgate.environments import Continue, EnvironmentSpec, Score, converse
from headgate.environments.shares import MODEL

QUESTION = (Message("user", "question"),)


class Scripted:
    """An environment that does what the test says, and counts how often its episode was closed."""

    def __init__(self, answers, *, opening=QUESTION, open_raises=None, close=None, **spec):
        self.spec = EnvironmentSpec("test:scripted", "scripted", 100.0, 10, **spec)
        self.opening = opening
        self.heard = []
        self.closed = 0
        self._answers = iter(answers)
        self._open_raises = open_raises
        self._close = close

    async def open(self, index, seed):
        if self._open_raises is not None:
            raise self._open_raises
        return self

    async def answer(self, reply):
        self.heard.append(reply)
        answer = next(self._answers)
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            return await answer()
        return answer

    async def close(self):
        self.closed += 1
        if self._close is not None:
            await self._close()

    async def baseline(self, kind, index, seed, conversation: Sequence[Message], rng: random.Random):
        return "unused"


def says(*replies):
    """A chat that gives `replies` one after the other; exceptions are raised, coroutine functions awaited."""
    waiting = iter(replies)

    async def chat(messages):
        reply = next(waiting)
        if isinstance(reply, BaseException):
            raise reply
        if callable(reply):
            return await reply()
        return reply if isinstance(reply, ChatReply) else ChatReply(reply)

    return chat


RIGHT = Score(1.0, success=True, why="right")


async def forever():
    await asyncio.Event().wait()


async def test_a_score_says_which_locks_programs_ran_without(monkeypatch):
    monkeypatch.setattr("headgate.environments.episode.SANDBOX._locks", ("calls", "files"))
    for runs_programs, why in ((True, "right (sandbox without namespaces)"), (False, "right")):
        environment = Scripted([Score(1.0, True, "right")], runs_programs=runs_programs)
        result = await converse(environment, 0, 0, says(ChatReply("a")))
        assert result.why == why


async def test_score_conversation_and_costs_are_returned():
    environment = Scripted(
        [Continue((Message("user", "go on"),)), Score(0.25, success=False, why="half")], max_rounds=2
    )
    chat = says(
        ChatReply("first", prompt_tokens=10, completion_tokens=1, wait_s=0.5, attempts=2),
        ChatReply("second", prompt_tokens=20, completion_tokens=2, wait_s=0.25),
    )

    result = await converse(environment, 3, 4, chat)

    assert (result.score, result.success, result.why, result.error_kind, result.error) == (
        0.25,
        False,
        "half",
        None,
        None,
    )
    assert [message.content for message in result.messages] == ["question", "first", "go on", "second"]
    assert [message.role for message in result.messages] == ["user", "assistant", "user", "assistant"]
    assert (result.prompt_tokens, result.completion_tokens, result.turns, result.attempts) == (30, 3, 2, 3)
    assert result.request_wait_s == 0.75
    assert environment.closed == 1


async def test_whose_episode_it_is_is_known_wherever_its_environment_acts_and_nowhere_else():
    known = []

    async def look():
        known.append(await asyncio.to_thread(MODEL.get))
        return RIGHT

    environment = Scripted([look, look], close=look)
    await asyncio.gather(*(converse(environment, 0, 0, says("x"), model=model) for model in ("a", "b")))
    assert sorted(known) == ["a", "a", "b", "b"]
    assert MODEL.get() == ""


async def test_an_empty_reply_is_judged_by_the_environment():
    environment = Scripted([Score(0.0, success=False, why="nothing said")])
    result = await converse(environment, 0, 0, says(""))
    assert environment.heard == [""]
    assert (result.score, result.error_kind) == (0.0, None)


async def test_a_reply_over_the_limit_scores_0_unread():
    environment = Scripted([RIGHT], reply_chars=1_000)
    result = await converse(environment, 0, 0, says("x" * 100_000))
    assert (result.score, result.error_kind) == (0.0, ErrorKind.BAD_ANSWER)
    assert "100000 characters, at most 1000" in result.why
    assert environment.heard == []
    assert len(result.messages[-1].content) < 5_000
    assert environment.closed == 1


async def test_a_reply_of_the_very_limit_is_read():
    result = await converse(Scripted([RIGHT], reply_chars=1_000), 0, 0, says("x" * 1_000))
    assert result.score == 1.0


class UnspeakableError(Exception):
    """An exception whose text cannot be made."""

    def __str__(self):
        raise ValueError


@pytest.mark.parametrize(
    "answer",
    [
        RuntimeError("broken"),
        Score(float("nan"), success=True, why=""),
        Score(float("inf"), success=True, why=""),
        Score(1.01, success=True, why=""),
        Score(-0.01, success=False, why=""),
        Score("1", success=True, why=""),
        Score(1.0, success=True, why=None),
        Score(1.0, success="yes", why=""),
        Score(1.0, success=None, why=""),
        Continue(()),  # after the last round
        Continue(("text",)),
        Continue(None),
        Continue((Message("user", None),)),
        Continue((Message(7, "text"),)),
        None,
        1.0,
        asyncio.CancelledError(),
        TimeoutError("of its own"),
        SystemExit(2),
        UnspeakableError("unspeakable"),
    ],
    ids=lambda answer: str(answer.args) if isinstance(answer, UnspeakableError) else repr(answer),
)
async def test_what_the_environment_does_wrong_is_never_a_score(answer):
    environment = Scripted([answer])
    result = await converse(environment, 0, 0, says("hello"))
    assert (result.score, result.success, result.error_kind) == (None, False, ErrorKind.ENVIRONMENT)
    assert result.error
    assert result.turns == 1
    assert environment.closed == 1


async def test_an_environment_that_cannot_open_is_an_environment_error():
    environment = Scripted([], open_raises=ValueError("no data"))
    result = await converse(environment, 0, 0, says("unasked"))
    assert (result.score, result.error_kind) == (None, ErrorKind.ENVIRONMENT)
    assert re.fullmatch(r"ValueError: no data \(test_episode.py, line \d+\)", result.error)
    assert environment.closed == 0


@pytest.mark.parametrize("opening", [None, ()])
async def test_an_opening_that_is_none_is_an_environment_error(opening):
    result = await converse(Scripted([], opening=opening), 0, 0, says())
    assert (result.error_kind, result.attempts) == (ErrorKind.ENVIRONMENT, 0)


async def test_an_environment_that_goes_on_without_a_message_asks_nothing_more():
    result = await converse(Scripted([Continue(()), RIGHT], max_rounds=2), 0, 0, says("hello"))
    assert (result.error_kind, result.turns) == (ErrorKind.ENVIRONMENT, 1)
    assert result.error == "messages holds no Message: a model needs one to reply to"


async def test_numbers_and_truths_of_numpy_are_kept_as_those_of_python():
    answer = Score(np.float32(0.5), success=np.bool_(True), why="half")
    result = await converse(Scripted([answer]), 0, 0, says("hello"))
    assert (result.score, result.success, result.error) == (0.5, True, None)
    assert (type(result.score), type(result.success)) == (float, bool)


async def test_an_error_of_an_environment_names_the_line_of_its_code_and_no_whole_data_set():
    def parsed():
        return json.loads("{" + "x" * 100)

    async def answer():
        return parsed()

    result = await converse(Scripted([answer]), 0, 0, says("hello"))
    line = parsed.__code__.co_firstlineno + 1
    assert result.error.startswith("JSONDecodeError: Expecting property name")
    assert result.error.endswith(f"(test_episode.py, line {line})")
    result = await converse(Scripted([ValueError("x" * 1_000_000)]), 0, 0, says("hello"))
    assert len(result.error) < 2_200


async def test_a_hanging_environment_is_an_environment_error():
    environment = Scripted([forever], timeout_s=0.02)
    result = await converse(environment, 0, 0, says("hello"))
    assert (result.score, result.error_kind) == (None, ErrorKind.ENVIRONMENT)
    assert "timeout_s=0.02" in result.error
    assert environment.closed == 1


async def test_a_hanging_model_is_a_provider_timeout():
    environment = Scripted([RIGHT], timeout_s=0.02)
    result = await converse(environment, 0, 0, says(forever))
    assert (result.score, result.error_kind) == (None, ErrorKind.PROVIDER_TIMEOUT)
    assert environment.closed == 1


@pytest.mark.parametrize("kind", [kind for kind in ErrorKind if not kind.is_scored])
async def test_a_chat_error_keeps_its_kind_and_gives_no_score(kind):
    environment = Scripted([RIGHT])
    result = await converse(environment, 0, 0, says(ChatError(kind, "refused", attempts=3, wait_s=2.0)))
    assert (result.score, result.error_kind, result.error) == (None, kind, "refused")
    assert (result.attempts, result.request_wait_s, result.turns) == (3, 2.0, 0)
    assert environment.closed == 1


async def test_a_reply_after_the_sample_budget_scores_zero_and_is_paid_for():
    late = ChatReply("too late", prompt_tokens=30, completion_tokens=12, attempts=2, wait_s=1.5)
    refused = ChatError(ErrorKind.BUDGET, "10.5 of 10 s", reply=late)
    result = await converse(Scripted([RIGHT]), 0, 0, says(refused))
    assert (result.score, result.success, result.error_kind) == (0.0, False, ErrorKind.BUDGET)
    assert (result.why, result.error) == ("10.5 of 10 s", "10.5 of 10 s")
    assert (result.prompt_tokens, result.completion_tokens, result.turns, result.attempts) == (30, 12, 1, 2)
    assert result.messages[-1] == Message("assistant", "too late")


async def test_a_bad_answer_of_the_chat_scores_0():
    result = await converse(Scripted([RIGHT]), 0, 0, says(ChatError(ErrorKind.BAD_ANSWER, "filtered")))
    assert (result.score, result.success, result.error_kind) == (0.0, False, ErrorKind.BAD_ANSWER)


async def test_secrets_do_not_get_into_the_error():
    result = await converse(Scripted([RuntimeError("key sk-abcdefgh12345678")]), 0, 0, says("hello"))
    assert "sk-abcdefgh" not in result.error


async def test_a_defect_of_the_chat_is_not_booked_on_anybody():
    environment = Scripted([RIGHT])
    with pytest.raises(KeyError):
        await converse(environment, 0, 0, says(KeyError("ours")))
    assert environment.closed == 1


@pytest.mark.parametrize("where", ["model", "environment"])
async def test_cancellation_closes_the_episode_and_propagates(where):
    waiting = asyncio.Event()

    async def hang():
        waiting.set()
        await forever()

    environment = Scripted([hang])
    task = asyncio.create_task(converse(environment, 0, 0, says(hang if where == "model" else "hello")))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert environment.closed == 1


async def test_closing_ends_although_it_is_cancelled_twice():
    closing, may_end, ended = asyncio.Event(), asyncio.Event(), []

    async def close():
        closing.set()
        await may_end.wait()
        ended.append(True)

    task = asyncio.create_task(converse(Scripted([RIGHT], close=close), 0, 0, says("hello")))
    await closing.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]


async def test_a_failing_close_is_reported_beside_the_score():
    async def close():
        raise OSError("disk")

    result = await converse(Scripted([RIGHT], close=close), 0, 0, says("hello"))
    assert (result.score, result.error_kind) == (1.0, None)
    assert re.fullmatch(r"closing failed: OSError: disk \(test_episode.py, line \d+\)", result.error)


@pytest.mark.parametrize("fault", [None, OSError("disk"), SystemExit(3)])
async def test_a_close_that_awaits_nothing_ends_within_the_task_of_its_episode(fault):
    tasks = []

    class Awaitless(Scripted):
        async def close(self):
            tasks.append(asyncio.current_task())
            if fault is not None:
                raise fault

    result = await converse(Awaitless([RIGHT]), 0, 0, says("hello"))
    assert tasks == [asyncio.current_task()]
    assert result.score == 1.0
    assert (result.error is None) if fault is None else result.error.startswith("closing failed: ")


async def test_a_hanging_close_holds_the_worker_for_a_bounded_time(monkeypatch):
    monkeypatch.setattr("headgate.environments.episode.CLOSE_TIMEOUT_S", 0.01)
    result = await converse(Scripted([RIGHT], close=forever), 0, 0, says("hello"))
    assert result.score == 1.0
    assert "closing failed: TimeoutError" in result.error


@pytest.mark.parametrize(
    ("reasons", "stored"), [(("stop", "tool_calls"), "tool_calls"), (("length", "stop"), "length"), (("", ""), "")]
)
async def test_a_reply_that_was_cut_off_is_found_whichever_turn_it_was_in(reasons, stored):
    told = iter(reasons)

    async def chat(_messages) -> ChatReply:
        return ChatReply("x", finish_reason=next(told))

    environment = Scripted([Continue((Message("user", "go on"),)), RIGHT], max_rounds=2)
    assert (await converse(environment, 0, 0, chat)).finish_reason == stored


async def test_lone_surrogates_of_a_reply_can_be_stored():
    environment = Scripted([Score(0.0, success=False, why="\udcff")])
    result = await converse(environment, 0, 0, says("a\udcffb"))
    assert environment.heard == ["a\ufffdb"]
    for text in [result.why, *(message.content for message in result.messages)]:
        text.encode()


@given(st.text(st.characters(codec=None)))
def test_storable_text_is_utf8_and_ordinary_text_stays(text):
    made = storable(text)
    made.encode()
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert made == text
