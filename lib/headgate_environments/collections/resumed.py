"""Episodes of packages that call the model themselves: their coroutine is suspended while the model replies."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from headgate.core import Message
from headgate.core.errors import EnvironmentFailedError
from headgate.environments import BaselineKind, Continue, EnvironmentSpec, ForJudge, Score, failed
from headgate.environments.judge_questions import ReadsGrades

Ask = Callable[[Sequence[Message]], Awaitable[str]]
"""Takes the whole conversation, returns the model's reply."""

Play = Callable[[Ask], Awaitable[Score | ForJudge]]

CLOSE_S: Final = 5.0


class RewrittenConversationError(EnvironmentFailedError):
    """A package sends the model a conversation that contradicts the earlier one."""


class ResumedEpisode:
    """One run of a package's own coroutine, resumed whenever the model has replied.

    Owned by one worker; the task that runs the coroutine ends with the episode. Invariant: the coroutine waits for a
    reply, or the episode is over.
    """

    def __init__(self) -> None:
        self._said: tuple[Message, ...] = ()
        self._asked: asyncio.Queue[tuple[Message, ...]] = asyncio.Queue()
        self._replies: asyncio.Queue[str] = asyncio.Queue()
        self._playing: asyncio.Task[Score | ForJudge] | None = None

    @classmethod
    async def begun(cls, play: Play) -> ResumedEpisode:
        """Return an episode that runs `play`, up to its first question.

        Raises:
            EnvironmentFailedError: if `play` ends without asking the model anything.
            Exception: whatever `play` raises before its first question.
        """
        episode = cls()
        episode._playing = asyncio.ensure_future(play(episode._ask))
        try:
            first = await episode._next()
        except BaseException:
            await episode.close()
            raise
        if not isinstance(first, Continue):
            why = first.why if isinstance(first, Score) else "it asks a judge"
            raise EnvironmentFailedError(f"it ended without asking the model anything: {why}")
        return episode

    @property
    def opening(self) -> tuple[Message, ...]:
        """The conversation with the model so far."""
        return self._said

    async def answer(self, reply: str) -> Continue | Score | ForJudge:
        """Pass `reply` to the coroutine and return its next message or its result.

        Raises:
            Exception: whatever the coroutine raises.
        """
        problem = _problem_of(reply, self._said)
        self._said = (*self._said, Message("assistant", reply))
        self._replies.put_nowait(reply)
        told = await self._next()
        return failed(problem) if problem and not isinstance(told, Continue) else told

    async def close(self) -> None:
        """End the coroutine."""
        playing, self._playing = self._playing, None
        if playing is None:
            return
        playing.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await asyncio.wait_for(playing, CLOSE_S)

    async def _ask(self, conversation: Sequence[Message]) -> str:
        await self._asked.put(tuple(conversation))
        return await self._replies.get()

    async def _next(self) -> Continue | Score | ForJudge:
        assert self._playing is not None  # a closed episode gets no answers
        asked = asyncio.ensure_future(self._asked.get())
        try:
            await asyncio.wait([asked, self._playing], return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return self._continued(asked.result())
            return self._playing.result()
        finally:
            asked.cancel()

    def _continued(self, conversation: tuple[Message, ...]) -> Continue:
        known = len(self._said)
        if [message.content for message in conversation[:known]] != [message.content for message in self._said]:
            raise RewrittenConversationError(
                "it changes earlier messages to or from the model, which an episode cannot do",
                next_step="Use a variant of it that only appends to the conversation.",
            )
        new = conversation[known:]
        self._said = conversation
        return Continue(new)


def _problem_of(reply: str, said: Sequence[Message]) -> str:
    """Return why a last reply must score 0, whatever the package's scorer says; empty if it need not."""
    text = reply.strip()
    if not text:
        return "the reply is empty"
    question = next((message.content for message in reversed(said) if message.role == "user"), "")
    everything = "\n".join(message.content for message in said if message.role != "assistant")
    if len(text) >= 0.8 * len(question.strip()) and text in everything:
        return "the reply repeats the question"
    return ""


REPLY_CHARS: Final = 100_000
"""Longer replies score 0 unread: other packages' scorers may not be made for them."""

MAX_ROUNDS: Final = 30
"""Maximum number of replies if the package sets none."""

_WORD: Final = re.compile(r"-?\d+(?:\.\d+)?|[A-Za-z]+")


class Tasks(Protocol):
    """The tasks of one environment of a package."""

    async def play(self, index: int, ask: Ask) -> Score | ForJudge:
        """Play task `index` to its end, asking the model through `ask`."""
        ...

    def target(self, index: int) -> str:
        """Return the package's answer to task `index`; empty if it gives none."""
        ...


class AskedEnvironment:
    """A list of tasks, each played by a coroutine of its package.

    `random` replies with a random word of the last message, `greedy` with its last word or number, `solver` with the
    package's target, which solves only tasks that ask for the bare answer: `spec.solver_rate` is 0.
    """

    def __init__(self, spec: EnvironmentSpec, tasks: Tasks) -> None:
        self.spec = spec
        self._tasks = tasks

    async def open(self, index: int, seed: int) -> ResumedEpisode:
        """Begin task `index`; `seed` is not used, since the package's tasks are a list."""
        del seed
        return await ResumedEpisode.begun(lambda ask: self._tasks.play(index, ask))

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Reply as described in the class."""
        del seed
        if kind == "solver":
            return self._tasks.target(index)
        words: list[str] = _WORD.findall(conversation[-1].content) or ["0"]
        return words[-1] if kind == "greedy" else rng.choice(words)


class GradedEnvironment(ReadsGrades, AskedEnvironment):
    """Tasks whose answers a judge grades."""
