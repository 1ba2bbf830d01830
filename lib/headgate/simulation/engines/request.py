"""A request inside a fake engine: what is asked, how far it has come, how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "abort"]

GIBBERISH = "\N{REPLACEMENT CHARACTER}"


@dataclass(slots=True, eq=False)
class EngineRequest:
    """One request. Owned by the core; lives as long as the call that brought it.

    Invariants: `generated <= limit`; once `finish` is set nothing changes any more.

    Attributes:
        request_id: by which it is aborted and told about.
        number: its place in the order of arrival, from 1.
        prompt: words; a word is a token here.
        max_tokens: that it asked for.
        natural_tokens: length at which the model would stop by itself.
        generated: tokens so far.
        finish: how it ended; None while it has not.
        is_probe: a health check of the engine itself, which nobody counts.
        is_retracted: it has to give its slot back and compute its prompt again.
        may_pass: it goes on although answers are held.
        is_gibberish: it was computed with weights that were thrown away.
        granted: set when it has a slot, or has ended without one.
        interrupted: set when it has to look up from computing.
    """

    request_id: str
    prompt: Sequence[str]
    max_tokens: int
    natural_tokens: int
    number: int = 0
    generated: int = 0
    finish: FinishReason | None = None
    is_probe: bool = False
    is_retracted: bool = False
    may_pass: bool = False
    is_gibberish: bool = False
    granted: asyncio.Event = field(default_factory=asyncio.Event)
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.prompt)

    @property
    def limit(self) -> int:
        """Tokens that it generates unless it is aborted."""
        return min(self.max_tokens, self.natural_tokens)

    @property
    def tokens(self) -> int:
        """Tokens that it holds in the cache while it runs."""
        return self.prompt_tokens + self.generated

    def text(self, start: int = 0) -> str:
        """Return the generated text from token `start` on: the words of the prompt, over and over."""
        words = (self._word(index) for index in range(start, self.generated))
        return (" " if start and start < self.generated else "") + " ".join(words)

    def _word(self, index: int) -> str:
        return GIBBERISH if self.is_gibberish else self.prompt[index % len(self.prompt)]
