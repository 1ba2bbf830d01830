"""What tokens cost: prices per million tokens by model and lane, and the resulting costs, in whole numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from headgate.core.chat import ChatReply
    from headgate.core.model import Model
    from headgate.core.sample import Sample

    Counted = ChatReply | Sample

MILLION: Final = 1_000_000


class LanePrice(NamedTuple):
    """Prices of one lane, each in millionths of the currency per million tokens.

    Attributes:
        input: of prompt tokens that the endpoint did not have in its cache.
        output: of completion tokens other than reasoning.
        cached: of prompt tokens that it had in its cache.
        reasoning: of completion tokens spent on reasoning.
    """

    input: int
    output: int
    cached: int
    reasoning: int

    @classmethod
    def of(
        cls, prompt: float, completion: float, *, cached: float | None = None, reasoning: float | None = None
    ) -> LanePrice:
        """Return prices given in the currency per million tokens; `cached` and `reasoning` cost the same by default."""
        given = (
            prompt,
            completion,
            prompt if cached is None else cached,
            completion if reasoning is None else reasoning,
        )
        return cls(*(round(Decimal(str(price)) * MILLION) for price in given))

    def less(self, discount: float) -> LanePrice:
        """Return the prices after a discount, from 0 to 1."""
        return LanePrice(*(round(price * (1 - Decimal(str(discount)))) for price in self))

    def cost(self, prompt_tokens: int, completion_tokens: int, cached: int = 0, reasoning: int = 0) -> int:
        """Return the cost of tokens in millionths of the currency, halves rounded up.

        Args:
            prompt_tokens: all prompt tokens, including `cached` ones.
            completion_tokens: all completion tokens, including `reasoning` ones.
            cached: prompt tokens from the cache.
            reasoning: completion tokens spent on reasoning.
        """
        prompt = (prompt_tokens - cached) * self.input + cached * self.cached
        completion = (completion_tokens - reasoning) * self.output + reasoning * self.reasoning
        return (prompt + completion + MILLION // 2) // MILLION


@dataclass(frozen=True, slots=True)
class Price:
    """Prices of a model's tokens in each lane; None where unknown."""

    now: LanePrice | None = None
    batch: LanePrice | None = None

    @classmethod
    def of(
        cls,
        prompt: float,
        completion: float,
        *,
        cached: float | None = None,
        reasoning: float | None = None,
        batch_discount: float | None = None,
    ) -> Price:
        """Return a price from amounts in the currency per million tokens and the discount of batches (0 to 1)."""
        now = LanePrice.of(prompt, completion, cached=cached, reasoning=reasoning)
        return cls(now, None if batch_discount is None else now.less(batch_discount))

    def in_lane(self, lane: str) -> LanePrice | None:
        """Return the prices of the lane `now` or `batch`."""
        return self.batch if lane == "batch" else self.now

    def cost_of(self, answered: Counted) -> int | None:
        """Return the cost of tokens in millionths; None without a price of their lane or counts of prompt and reply."""
        price, prompt, completion = self.in_lane(answered.lane), answered.prompt_tokens, answered.completion_tokens
        is_counted = completion or getattr(answered, "text", None) == ""  # an empty reply has no tokens to count
        if price is None or not prompt or not is_counted:
            return None
        return price.cost(prompt, completion, answered.cached_tokens, answered.reasoning_tokens)

    @property
    def batch_is_cheaper(self) -> bool:
        """Whether some tokens are known to cost less in batches, and none more."""
        if self.now is None or self.batch is None or self.now == self.batch:
            return False
        return all(there <= here for there, here in zip(self.batch, self.now, strict=True))


@dataclass(frozen=True, slots=True)
class Prices:
    """A table of prices. A price in the roster takes precedence over it.

    Attributes:
        by_model: by key, name or served name of a model.
        told: description of the table for people: its file, date and source; empty without one.
    """

    by_model: Mapping[str, Price] = field(default_factory=dict)
    told: str = ""

    def of(self, model: Model) -> Price | None:
        """Return the price of a model: its own, else that of its key, its name or its served name, or None."""
        if model.budget.price is not None:
            return model.budget.price
        names = (model.key, model.name, model.request_name)
        return next((self.by_model[name] for name in names if name in self.by_model), None)

    def lacks(self, model: Model) -> bool:
        """Return whether there is a table and it lacks a model whose use may be billed."""
        return bool(self.told) and model.serve is None and self.of(model) is None

    def batch_is_cheaper(self, model: Model) -> bool:
        """Return whether batches of a model are known to cost less."""
        return (price := self.of(model)) is not None and price.batch_is_cheaper
