"""A model: something that answers chat requests, as the roster names it."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.core.budget import ModelBudget
from headgate.core.ids import checked_name
from headgate.core.secrets import Secret


@dataclass(frozen=True, slots=True)
class Model:
    """One entry of the roster. A new revision is a new model: `key` differs, and so do its tasks and samples.

    Attributes:
        name: what people call it; the fairness group.
        revision: version of its weights or prompt; part of its identity.
        base_url: OpenAI-compatible endpoint, up to and including `/v1`.
        served_name: what the endpoint calls it; `name` when empty.
        api_key: sent as a bearer token; never shown.
        uid: number of the model in Affine's API; position in the roster when it gives none.
        weight: share of the workers under contention, relative to other models.
        max_parallel: requests of this model in flight at most.
        options: further fields of the chat request (temperature, max_tokens, …).
        budget: what it may spend per sample and per day, and what its tokens cost.
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

    def __post_init__(self) -> None:
        checked_name(self.name, "model name")
        checked_name(self.revision, "model revision")

    @property
    def key(self) -> str:
        """`name@revision`, the identity that tasks and samples carry."""
        return f"{self.name}@{self.revision}"

    @property
    def request_name(self) -> str:
        """What the chat request names as its model."""
        return self.served_name or self.name
