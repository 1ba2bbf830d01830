"""The blocks `ModelEndpoint` and `ModelRoster`: the models that a campaign samples, and where they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Self

from prefect.blocks.core import Block
from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from blocks.loading import loaded_block
from headgate.core import Model, ModelBudget, Price, Secret, errors
from headgate.core.rates import NO_RATES, ModelRates, RateLimits
from headgate.sampling import Roster, RosterSource, roster_source


class ModelEndpoint(Block):
    """An OpenAI-compatible endpoint that answers for one model or many. See docs/reference/prefect.md#modelendpoint.

    Examples:
        ```python
        from blocks import ModelEndpoint

        endpoint = ModelEndpoint.load("BLOCK_NAME")
        model = endpoint.model("my-model")
        ```
    """

    _block_type_name: ClassVar[str] = "Model Endpoint"
    _block_type_slug: ClassVar[str] = "headgate-model-endpoint"
    _logo_url: ClassVar[Any] = None

    base_url: str = Field(
        default=...,
        title="Base URL",
        description="Address of the API, up to and including /v1.",
        examples=["http://127.0.0.1:8000/v1"],
        pattern=r"^https?://\S+$",
    )
    api_key: SecretStr = Field(
        default=SecretStr(""), title="API key", description="Sent as a bearer token. Empty: none is sent."
    )
    served_name: str = Field(
        default="",
        title="Served name",
        description="What the endpoint calls the model. Empty: the name that the roster gives it.",
    )
    max_parallel: int = Field(
        default=8, ge=1, le=100_000, title="Parallel requests", description="Requests of one model in flight at most."
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        title="Request options",
        description="Further fields of each chat request, such as temperature or max_tokens.",
    )

    def model(
        self,
        name: str,
        *,
        revision: str = "main",
        served_name: str = "",
        weight: float = 1.0,
        max_parallel: int | None = None,
        uid: int = 0,
    ) -> Model:
        """Return the model `name` behind this endpoint.

        Raises:
            InvalidNameError: if the name or revision has a form that cannot be stored.
        """
        return Model(
            name=name,
            revision=revision,
            base_url=self.base_url,
            served_name=served_name or self.served_name,
            api_key=Secret(self.api_key.get_secret_value()),
            uid=uid,
            weight=weight,
            max_parallel=max_parallel or self.max_parallel,
            options=tuple(sorted(self.options.items())),
        )


class RateFields(BaseModel):
    """Limits per minute; empty is no limit."""

    model_config = ConfigDict(extra="forbid")

    requests_per_minute: int | None = Field(
        default=None, ge=1, title="Requests per minute", description="Empty: no limit."
    )
    input_tokens_per_minute: int | None = Field(
        default=None, ge=1, title="Input tokens per minute", description="Empty: no limit."
    )
    output_tokens_per_minute: int | None = Field(
        default=None, ge=1, title="Output tokens per minute", description="Empty: no limit."
    )
    tokens_per_minute: int | None = Field(
        default=None, ge=1, title="Tokens per minute", description="Input and output together. Empty: no limit."
    )

    @property
    def limits(self) -> RateLimits:
        """What they say."""
        return RateLimits(*(getattr(self, name) for name in RateLimits._fields))


class RosterEntry(RateFields):
    """One model of a roster block.

    It names its endpoint block rather than holding it: Prefect stores blocks inside of a list as plain text, keys
    included, and would not follow a key that is changed.
    """

    name: str = Field(default=..., title="Name", description="What people call the model.", min_length=1)
    endpoint: str = Field(
        default="",
        title="Endpoint",
        description="Name of the Model Endpoint block that answers. Empty: the endpoint of the roster.",
    )
    served_name: str = Field(
        default="",
        title="Served name",
        description="What the endpoint calls the model. Empty: what the endpoint block says, else the name.",
    )
    revision: str = Field(
        default="main",
        title="Revision",
        description="Version of its weights or prompt. Another revision is another model.",
    )
    weight: float = Field(
        default=1.0, gt=0, le=1_000_000, title="Weight", description="Share of the workers under contention."
    )
    max_parallel: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        title="Parallel requests",
        description="Requests in flight at most. Empty: what the endpoint block says.",
    )
    key_limits: RateFields = Field(
        default_factory=RateFields,
        title="Limits of the key",
        description="Per minute, of all models at the same address with the same key.",
    )
    organisation: str = Field(
        default="",
        title="Organisation",
        description="One of the roster's organisations, whose limits per minute the model shares. Empty: none.",
    )
    sample_tokens: int | None = Field(
        default=None,
        ge=32,
        title="Tokens per sample",
        description="Prompt and completion tokens over all requests of one sample. Empty: what the settings say.",
    )
    sample_completion_tokens: int | None = Field(
        default=None,
        ge=32,
        title="Completion tokens per sample",
        description="Completion tokens over all requests of one sample. Empty: what the settings say.",
    )
    sample_time_s: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        title="Seconds per sample",
        description="Of the answered requests of one sample together. Empty: what the settings say.",
    )
    daily_tokens: int | None = Field(
        default=None,
        ge=1,
        title="Tokens per day",
        description="Prompt and completion tokens of any 24 h. Empty: what the settings say.",
    )
    daily_requests: int | None = Field(
        default=None,
        ge=1,
        title="Requests per day",
        description="Attempts of requests of any 24 h. Empty: what the settings say.",
    )
    daily_cost: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        title="Cost per day",
        description="Of any 24 h, by the prices below or the settings' table. Empty: what the settings say.",
    )
    price_in: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        title="Prompt price",
        description="Per million prompt tokens. Empty, as the completion price: what the settings' table says.",
    )
    price_out: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        title="Completion price",
        description="Per million completion tokens; 0 where these cost nothing.",
    )
    price_cached_in: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        title="Cached prompt price",
        description="Per million prompt tokens that the provider had in its cache. Empty: the prompt price.",
    )
    batch_discount: float | None = Field(
        default=None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        title="Discount of batches",
        description="Share by which these prices are lower in batches, 0.5 for half. Empty: not known.",
    )

    @model_validator(mode="after")
    def _has_a_whole_price(self) -> Self:
        unpriced = [name for name in ("price_in", "price_out") if getattr(self, name) is None]
        parts = ("price_in", "price_out", "price_cached_in", "batch_discount")
        stated = [name for name in parts if getattr(self, name) is not None]
        if unpriced and stated:
            got = "neither" if len(unpriced) == 2 else f"no {unpriced[0]}; 0 where these tokens cost nothing"
            raise ValueError(f"{stated[0]} of {self.name!r} needs price_in and price_out (got {got})")
        return self

    @property
    def budget(self) -> ModelBudget:
        """What the model may spend, and what its tokens cost."""
        return ModelBudget(**{each.name: getattr(self, each.name) for each in fields(ModelBudget)})

    @property
    def price(self) -> Price | None:
        """What its tokens cost; None without prices, so that the table of prices may know it."""
        if self.price_in is None or self.price_out is None:
            return None
        return Price.of(self.price_in, self.price_out, cached=self.price_cached_in, batch_discount=self.batch_discount)


class ModelRoster(Block):
    """The models to sample, from endpoint blocks, a file or a URL. See docs/reference/prefect.md#modelroster.

    Examples:
        ```python
        from blocks import ModelRoster

        roster = await ModelRoster.load("BLOCK_NAME").source().load()
        ```
    """

    _block_type_name: ClassVar[str] = "Model Roster"
    _block_type_slug: ClassVar[str] = "headgate-model-roster"
    _logo_url: ClassVar[Any] = None

    endpoint: ModelEndpoint | None = Field(
        default=None, title="Endpoint", description="Answers for the models that name no endpoint of their own."
    )
    models: list[RosterEntry] = Field(
        default_factory=list,
        title="Models",
        description='The models to sample, in their order, as in [{"name": "small", "endpoint": "example"}].',
    )
    organisations: dict[str, RateFields] = Field(
        default_factory=dict,
        title="Organisations",
        description='Limits per minute that models share, as in {"acme": {"tokens_per_minute": 2000000}}.',
    )
    location: str = Field(
        default="",
        title="File or URL",
        description="A roster file (YAML, JSON) or http(s) URL whose models come before those above.",
    )

    @model_validator(mode="after")
    def _has_organisations(self) -> Self:
        for entry in self.models:
            if entry.organisation and entry.organisation not in self.organisations:
                known = ", ".join(self.organisations) or "none"
                raise ValueError(
                    f"organisation of {entry.name!r} must be one of the roster's organisations "
                    f"(got {entry.organisation!r}; known: {known})"
                )
        return self

    def rates(self, entry: RosterEntry) -> ModelRates:
        """Return the limits per minute that hold for a model."""
        shared = self.organisations[entry.organisation].limits if entry.organisation else NO_RATES
        return ModelRates(entry.limits, entry.key_limits.limits, entry.organisation, shared)

    def source(self) -> RosterSource:
        """Return where a campaign reads this roster from; the file, URL and endpoints are read anew each time."""
        return _RosterOfBlock(self)


class BlockRoster:
    """The roster of the `ModelRoster` block of this name, loaded anew at each refresh. Implements `RosterSource`.

    What is edited in the Prefect UI takes effect at the next refresh. While the API is away the last good roster stays.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    async def load(self) -> Roster:
        """Return the roster as the block states it now.

        Raises:
            InvalidRosterError: if there is no such block, it cannot be loaded, or breaks a rule of rosters.
        """
        block = await loaded_block(ModelRoster, self._name, errors.InvalidRosterError)
        return await block.source().load()


class _RosterOfBlock:
    """A roster block as a campaign reads it."""

    def __init__(self, block: ModelRoster) -> None:
        self._block = block

    async def load(self) -> Roster:
        read = (await roster_source(self._block.location).load()).models if self._block.location else ()
        return Roster((*read, *await self._entries(1 + max((model.uid for model in read), default=-1))))

    async def _entries(self, first_uid: int) -> Sequence[Model]:
        endpoints: dict[str, ModelEndpoint] = {}
        models = []
        for uid, entry in enumerate(self._block.models, start=first_uid):
            if entry.endpoint and entry.endpoint not in endpoints:
                endpoints[entry.endpoint] = await loaded_block(ModelEndpoint, entry.endpoint, errors.InvalidRosterError)
            endpoint = endpoints[entry.endpoint] if entry.endpoint else self._block.endpoint
            if endpoint is None:
                raise errors.InvalidRosterError(
                    f"model {entry.name!r} names no endpoint, and its roster has none",
                    next_step="Choose a Model Endpoint block in the entry or in the roster block.",
                )
            model = endpoint.model(
                **entry.model_dump(include={"name", "revision", "served_name", "weight", "max_parallel"}), uid=uid
            )
            models.append(replace(model, budget=entry.budget, rates=self._block.rates(entry)))
        return models
