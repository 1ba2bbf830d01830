"""A model: something that answers chat requests, as the roster names it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from headgate.core.ids import checked_name
from headgate.core.price import Price
from headgate.core.rates import UNLIMITED, ModelRates
from headgate.core.secrets import Secret
from headgate.core.serving import Serving

if TYPE_CHECKING:
    from headgate.core.price import Counted


class Spending(NamedTuple):
    """Tokens, requests and cost that a request needs, or took.

    Attributes:
        tokens: prompt and completion together.
        requests: attempts that were sent.
        cost_micro: in millionths of the currency of the prices.
    """

    tokens: int = 0
    requests: int = 0
    cost_micro: int = 0

    def plus(self, other: Spending) -> Spending:
        """Return the sum."""
        tokens, requests, cost = self
        more_tokens, more_requests, more_cost = other
        return Spending(tokens + more_tokens, requests + more_requests, cost + more_cost)

    def less(self, other: Spending) -> Spending:
        """Return what is left after `other`, never below 0."""
        tokens, requests, cost = self
        less_tokens, less_requests, less_cost = other
        return Spending(
            tokens - less_tokens if tokens > less_tokens else 0,
            requests - less_requests if requests > less_requests else 0,
            cost - less_cost if cost > less_cost else 0,
        )

    def at_least(self, other: Spending) -> Spending:
        """Return the larger of both in each respect."""
        tokens, requests, cost = self
        least_tokens, least_requests, least_cost = other
        return Spending(max(least_tokens, tokens), max(least_requests, requests), max(least_cost, cost))


NO_SPENDING = Spending()


@dataclass(frozen=True, slots=True)
class ModelBudget:
    """The budgets of one model, as the roster states them; None means that the settings apply.

    Attributes:
        sample_tokens: prompt and completion tokens over all requests of one sample.
        sample_completion_tokens: completion tokens likewise.
        sample_time_s: seconds that the answered requests of one sample took together.
        daily_tokens: prompt and completion tokens in any 24 h.
        daily_requests: request attempts in any 24 h.
        daily_cost: in the currency of the prices, in any 24 h.
        price: prices of its tokens; None where unknown.
    """

    sample_tokens: int | None = None
    sample_completion_tokens: int | None = None
    sample_time_s: float | None = None
    daily_tokens: int | None = None
    daily_requests: int | None = None
    daily_cost: float | None = None
    price: Price | None = None

    @property
    def is_counted(self) -> bool:
        """Whether a day's spending must be counted: it is limited, or has a price."""
        limits = (self.daily_tokens, self.daily_requests, self.daily_cost)
        return self.price is not None or any(limit is not None for limit in limits)

    def cost_of(self, answered: Counted, billed_micro: int | None) -> int | None:
        """Return the cost in millionths: as billed, else by the price; None where neither is known."""
        if billed_micro is not None or self.price is None:
            return billed_micro
        return self.price.cost_of(answered)

    def spending(self, prompt_tokens: int, completion_tokens: int, requests: int = 1, lane: str = "now") -> Spending:
        """Return the spending of this many tokens; a lane without a price is charged at the other lane's."""
        price = None if self.price is None else self.price.in_lane(lane) or self.price.now or self.price.batch
        cost = 0 if price is None else price.cost(prompt_tokens, completion_tokens)
        return Spending(prompt_tokens + completion_tokens, requests, cost)


@dataclass(frozen=True, slots=True)
class Model:
    """One entry of the roster. A new revision is a new model: `key` differs, and so do its tasks and samples.

    Attributes:
        key: `name@revision`, the identity that tasks and samples carry.
        name: what people call it; the fairness group.
        revision: version of its weights or prompt; part of its identity.
        base_url: OpenAI-compatible endpoint, up to and including `/v1`; empty for a model that Headgate serves.
        served_name: the endpoint's name for it; `name` when empty.
        api_key: sent as a bearer token; never shown.
        uid: number of the model in Affine's API; position in the roster when it gives none.
        weight: share of the workers under contention, relative to other models.
        max_parallel: most requests of this model in flight.
        options: further fields of the chat request (temperature, max_tokens, …).
        budget: what it may spend per sample and per day, and what its tokens cost.
        rates: limits per minute that apply to it.
        serve: how Headgate serves it from weights; None for a model with an endpoint.
        tools: how it gets an environment's tools: in fields of the request (`native`), as text, or as its endpoint
            turns out to accept at the first request (`auto`).
        lane: lane of its requests that can wait: `now`, `batch` or `auto`; empty means that the settings apply.
    """

    name: str
    revision: str = "main"
    base_url: str = ""
    served_name: str = ""
    api_key: Secret = field(default_factory=lambda: Secret(""))
    uid: int = 0
    weight: float = 1.0
    max_parallel: int = 8
    options: tuple[tuple[str, object], ...] = ()
    budget: ModelBudget = field(default_factory=ModelBudget)
    rates: ModelRates = UNLIMITED
    serve: Serving | None = field(default=None, hash=False)
    tools: Literal["auto", "native", "text"] = "auto"
    lane: str = ""
    key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked_name(self.name, "model name")
        checked_name(self.revision, "model revision")
        object.__setattr__(self, "key", f"{self.name}@{self.revision}")

    @property
    def endpoint(self) -> str:
        """Where its requests go: `base_url`, or a name for the engines that Headgate starts only for it."""
        return self.base_url if self.serve is None else f"engines:///{self.key}"

    @property
    def request_name(self) -> str:
        """The model name in the chat request."""
        return self.served_name or self.name
