"""What a request of a model probably takes in tokens, where limits per minute make that matter."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from typing import Final

from headgate.core import ChatReply, Message, Model
from headgate.run.budgets import reply_length
from headgate.sampling.budgets import Habits, prompt_chars

_REMEMBERED: Final = 64
"""Replies of a model in an environment that the next is judged by."""

_QUANTILE: Final = 0.9
"""Of their tokens is kept free for a reply: more would wait for room that is not used, less would be overdrawn often.
What a reply takes beyond is paid by who comes next."""


class RecentReplies:
    """The tokens of the last replies of one model in one environment."""

    __slots__ = ("_last", "_ordered")

    def __init__(self) -> None:
        self._last: deque[int] = deque()
        self._ordered: list[int] = []

    def add(self, tokens: int) -> None:
        """Remember a reply, and forget the one that is too long ago."""
        if len(self._last) == _REMEMBERED:
            del self._ordered[bisect_left(self._ordered, self._last.popleft())]
        self._last.append(tokens)
        insort(self._ordered, tokens)

    @property
    def usual(self) -> int | None:
        """The tokens that most replies did not exceed; None before the first."""
        return self._ordered[int(_QUANTILE * len(self._ordered))] if self._ordered else None


class TokenNeeds:
    """Learns what requests take, of models with limits per minute. Owned by the request side; nothing is stored."""

    def __init__(self) -> None:
        self._habits: dict[str, Habits] = {}
        self._replies: dict[str, dict[str, RecentReplies]] = {}

    def expected(self, model: Model, environment: str, messages: Sequence[Message]) -> tuple[int, int]:
        """Return the tokens of a prompt, and those to keep free for its reply: never more than it may have."""
        habits = self._habits.setdefault(model.key, Habits())
        replies = self._replies.get(model.key, {}).get(environment)
        usual = None if replies is None else replies.usual
        completion = habits.completion_tokens if usual is None else usual
        _, longest = reply_length(model)
        if longest is not None and longest < completion:
            completion = longest
        return habits.tokens_of(prompt_chars(messages)), max(1, completion)

    def answered(self, model: Model, environment: str, messages: Sequence[Message], reply: ChatReply) -> None:
        """Learn from an answer whose tokens its endpoint counted."""
        if reply.prompt_tokens:
            habits = self._habits.setdefault(model.key, Habits())
            habits.answered(prompt_chars(messages), reply.prompt_tokens, reply.completion_tokens)
        if reply.completion_tokens:
            environments = self._replies.setdefault(model.key, {})
            environments.setdefault(environment, RecentReplies()).add(reply.completion_tokens)

    def forget(self, alias: str) -> None:
        """Forget a model that has left the roster."""
        self._habits.pop(alias, None)
        self._replies.pop(alias, None)
