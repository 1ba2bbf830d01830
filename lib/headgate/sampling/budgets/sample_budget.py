"""What one sample may spend: whether its next request fits, and how long its reply may be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from headgate.core import Message, Spending

_CHARS_PER_TOKEN: Final = 4.0
"""Typical of English text in common vocabularies; adjusted by the counts that an endpoint reports."""

_FRAME_CHARS: Final = 16
"""Size of a message's frame (its role and delimiters, about 4 tokens) in addition to its text."""

_COMPLETION_TOKENS: Final = 512.0
"""Assumed length of a reply before the first one, where the request sets no `max_tokens`."""

_WEIGHT: Final = 0.05
"""Weight of the newest observation in a running mean."""


def prompt_chars(messages: Iterable[Message]) -> int:
    """Return the size of messages in characters, including their frames."""
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
        reports_usage: False once an answer had no token counts.
    """

    __slots__ = ("_chars_per_token", "_completion_tokens", "_sample", "reports_usage")

    def __init__(self) -> None:
        self._chars_per_token = _CHARS_PER_TOKEN
        self._completion_tokens = _COMPLETION_TOKENS
        self._sample: tuple[float, ...] | None = None
        self.reports_usage = True

    def tokens_of(self, chars: int) -> int:
        """Return the estimated number of tokens in `chars` characters, rounded up."""
        return int(chars / self._chars_per_token) + 1

    @property
    def completion_tokens(self) -> int:
        """Estimated completion tokens of a reply, rounded up."""
        return int(self._completion_tokens) + 1

    @property
    def sample(self) -> Spending | None:
        """Estimated spending of a whole sample, rounded up; None before the first."""
        if self._sample is None:
            return None
        return Spending(*(int(part + 0.999) for part in self._sample))

    def answered(self, chars: int, prompt_tokens: int, completion_tokens: int) -> None:
        """Update the means with an answer whose tokens the endpoint counted."""
        ratio = min(max(chars / max(prompt_tokens, 1), 0.5), 16.0)
        self._chars_per_token += _WEIGHT * (ratio - self._chars_per_token)
        self._completion_tokens += _WEIGHT * (completion_tokens - self._completion_tokens)

    def ended(self, spent: Spending) -> None:
        """Update the mean with a whole sample."""
        mean = self._sample or spent
        self._sample = tuple(old + _WEIGHT * (new - old) for old, new in zip(mean, spent, strict=True))


_Number = TypeVar("_Number", int, float)

COMPLETION_FLOOR: Final = 16
"""A request that leaves fewer tokens than this for its reply is not sent, since hardly any answer would fit."""


@dataclass(frozen=True, slots=True)
class SampleLimits:
    """What one sample may take; None is no limit.

    Attributes:
        tokens: prompt and completion tokens of all requests; every turn pays for the conversation again.
        completion_tokens: completion tokens of all requests.
        time_s: total seconds of the answered requests; waiting, back-off and failed attempts do not count.
    """

    tokens: int | None = None
    completion_tokens: int | None = None
    time_s: float | None = None

    @property
    def any(self) -> bool:
        """True if there is any limit."""
        return self.tokens is not None or self.completion_tokens is not None or self.time_s is not None

    def and_also(self, other: SampleLimits) -> SampleLimits:
        """Return the stricter of each limit."""
        return SampleLimits(
            _smaller(self.tokens, other.tokens),
            _smaller(self.completion_tokens, other.completion_tokens),
            _smaller(self.time_s, other.time_s),
        )


@dataclass(frozen=True, slots=True)
class Allowed:
    """A request fits; `max_completion` is the maximum tokens of its reply, None when nothing bounds it."""

    max_completion: int | None


@dataclass(frozen=True, slots=True)
class Spent:
    """The sample has used up a budget: `limit` names its setting, `reason` is a sentence that explains it."""

    limit: str
    reason: str


class SampleBudget:
    """The budget of one sample. Pure; owned by its conversation, which reports every answer."""

    __slots__ = ("completion_tokens", "limits", "prompt_tokens", "replies", "time_s")

    def __init__(self, limits: SampleLimits) -> None:
        self.limits = limits
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.time_s = 0.0
        self.replies = 0

    def ask(self, prompt_tokens: int) -> Allowed | Spent:
        """Return whether a request with a prompt of about `prompt_tokens` may be sent."""
        late = self.late()
        if late is not None:
            return late
        limits = self.limits
        left: int | None = None
        if limits.tokens is not None:
            left = limits.tokens - self.prompt_tokens - self.completion_tokens - prompt_tokens
            if left < COMPLETION_FLOOR:
                used = self.prompt_tokens + self.completion_tokens
                needs = f"; the next request needs {prompt_tokens} and a reply of at least {COMPLETION_FLOOR}"
                return self._spent("sample_tokens", f"{used} of {limits.tokens} tokens", needs)
        if limits.completion_tokens is not None:
            left = _smaller(left, limits.completion_tokens - self.completion_tokens)
            if left is not None and left < COMPLETION_FLOOR:
                told = f"{self.completion_tokens} of {limits.completion_tokens} completion tokens"
                needs = f"; the next reply needs at least {COMPLETION_FLOOR}"
                return self._spent("sample_completion_tokens", told, needs)
        return Allowed(left)

    def answered(self, prompt_tokens: int, completion_tokens: int, took_s: float) -> Spent | None:
        """Count an answer; return `Spent` if it came too late to be used."""
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        self.time_s += took_s
        self.replies += 1
        limit_s = self.limits.time_s
        return self.late() if limit_s is not None and self.time_s > limit_s else None

    def late(self) -> Spent | None:
        """Return `Spent` if the model's time is used up."""
        limit_s = self.limits.time_s
        if limit_s is None or self.time_s < limit_s:
            return None
        return self._spent("sample_time_s", f"{self.time_s:.3g} of {limit_s:g} s")

    def _spent(self, limit: str, used: str, needs: str = "") -> Spent:
        if not self.replies:
            return Spent(limit, f"the sample's budget {limit} has no room for its first request: {used} used{needs}")
        after = f"after {self.replies} {'reply' if self.replies == 1 else 'replies'}"
        return Spent(limit, f"the sample's budget {limit} is used up: {used} {after}{needs}")

    def validate(self) -> None:
        """Assert that nothing was counted below zero."""
        assert min(self.prompt_tokens, self.completion_tokens, self.replies) >= 0
        assert self.time_s >= 0


def _smaller(one: _Number | None, other: _Number | None) -> _Number | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)
