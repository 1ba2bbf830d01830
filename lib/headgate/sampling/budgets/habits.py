"""What a model's requests and samples usually take: what estimates are made of before anything is known for sure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headgate.core import Message, Spending

_CHARS_PER_TOKEN: Final = 4.0
"""Of English text in the vocabularies in use; what an endpoint reports replaces it."""

_FRAME_CHARS: Final = 16
"""What the frame of one message (its role and marks, about 4 tokens) takes besides its text."""

_COMPLETION_TOKENS: Final = 512.0
"""Assumed of a reply before there was any, where the request sets no `max_tokens`."""

_WEIGHT: Final = 0.05
"""Of the newest observation in a running mean."""


def prompt_chars(messages: Iterable[Message]) -> int:
    """Return the size of messages in characters, with what their frames take."""
    chars = 0
    for message in messages:
        chars += len(message.content) + _FRAME_CHARS
    return chars


def reply_chars(text: str) -> int:
    """Return the size of a reply as a message of the next prompt."""
    return len(text) + _FRAME_CHARS


class Habits:
    """Running means of one model. Pure; owned with its budgets.

    Attributes:
        sample: mean spending of a whole sample; None before the first.
        reports_usage: False once an answer came without a count of its tokens.
    """

    __slots__ = ("_chars_per_token", "_completion_tokens", "_sample", "reports_usage")

    def __init__(self) -> None:
        self._chars_per_token = _CHARS_PER_TOKEN
        self._completion_tokens = _COMPLETION_TOKENS
        self._sample: tuple[float, float, float] | None = None
        self.reports_usage = True

    def tokens_of(self, chars: int) -> int:
        """Return the tokens that so many characters probably are, rounded up."""
        return int(chars / self._chars_per_token) + 1

    @property
    def completion_tokens(self) -> int:
        """What a reply probably takes."""
        return int(self._completion_tokens) + 1

    @property
    def sample(self) -> Spending | None:
        """What a whole sample probably takes, rounded up; None before the first."""
        if self._sample is None:
            return None
        tokens, requests, cost = self._sample
        return Spending(int(tokens + 0.999), int(requests + 0.999), int(cost + 0.999))

    def answered(self, chars: int, prompt_tokens: int, completion_tokens: int) -> None:
        """Learn from an answer whose tokens its endpoint counted."""
        ratio = min(max(chars / max(prompt_tokens, 1), 0.5), 16.0)
        self._chars_per_token += _WEIGHT * (ratio - self._chars_per_token)
        self._completion_tokens += _WEIGHT * (completion_tokens - self._completion_tokens)

    def ended(self, spent: Spending) -> None:
        """Learn from a whole sample."""
        if self._sample is None:
            self._sample = (float(spent.tokens), float(spent.requests), float(spent.cost_micro))
        else:
            old = self._sample
            self._sample = (
                old[0] + _WEIGHT * (spent.tokens - old[0]),
                old[1] + _WEIGHT * (spent.requests - old[1]),
                old[2] + _WEIGHT * (spent.cost_micro - old[2]),
            )
