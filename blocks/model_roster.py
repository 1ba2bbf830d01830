"""The blocks `ModelEndpoint` and `ModelRoster`: the models that a campaign samples, and their endpoints."""

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
    """An OpenAI-compatible endpoint that serves one model or many. See docs/reference/prefect.md#modelendpoint.

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
        default=SecretStr(""), title="API key", description="Sent as a bearer token. Empty: no key is sent."
    )
    served_name: str = Field(
        default="",
        title="Served name",
        description="Name of the model at the endpoint. Empty: its name in the roster.",
    )
    max_parallel: int = Field(
        default=8, ge=1, le=100_000, title="Parallel requests", description="Maximum requests in flight per model."
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        title="Request options",
        description="Extra fields of each chat request, such as temperature or max_tokens.",
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
            InvalidNameError: if the name or revision cannot be stored in this form.
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
    """Limits per minute; an empty field is no limit."""

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
        """The limits as the library takes them."""
        return RateLimits(*(getattr(self, name) for name in RateLimits._fields))


class RosterEntry(RateFields):
    """One model of a roster block.

    It names its endpoint block rather than holding it: Prefect stores blocks inside a list as plain text, keys
    included, and would not pick up a changed key.
    """

    name: str = Field(default=..., title="Name", description="Name of the model in results.", min_length=1)
    endpoint: str = Field(
        default="",
        title="Endpoint",
        description="Name of the Model Endpoint block that serves the model. Empty: the roster's endpoint.",
    )
    served_name: str = Field(
        default="",
        title="Served name",
        description="Name of the model at the endpoint. Empty: the endpoint block's served name, else the name.",
    )
    revision: str = Field(
        default="main",
        title="Revision",
        description="Version of its weights or prompt. A new revision is a new model.",
    )
    weight: float = Field(
        default=1.0, gt=0, le=1_000_000, title="Weight", description="Share of the workers under contention."
    )
    max_parallel: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        title="Parallel requests",
        description="Maximum number of requests in flight. Empty: the endpoint block's value.",
    )
    key_limits: RateFields = Field(
        default_factory=RateFields,
        title="Limits of the key",
        description="Per minute, over all models at the same address with the same key.",
    )
    organisation: str = Field(
        default="",
        title="Organisation",
        description="The roster's organisation whose limits per minute the model shares. Empty: none.",
    )
    sample_tokens: int | None = Field(
        default=None,
        ge=32,
        title="Tokens per sample",
        description="Prompt and completion tokens over all requests of one sample. Empty: as the settings say.",
    )
    sample_completion_tokens: int | None = Field(
        default=None,
        ge=32,
        title="Completion tokens per sample",
        description="Completion tokens over all requests of one sample. Empty: as the settings say.",
    )
    sample_time_s: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        title="Seconds per sample",
        description="Total time of one sample's answered requests. Empty: as the settings say.",
    )
    daily_tokens: int | None = Field(
        default=None,
        ge=1,
        title="Tokens per day",
        description="Prompt and completion tokens in any 24 h. Empty: as the settings say.",
    )
    daily_requests: int | None = Field(
        default=None,
        ge=1,
        title="Requests per day",
        description="Request attempts in any 24 h. Empty: as the settings say.",
    )
    daily_cost: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        title="Cost per day",
        description="Cost in any 24 h, by the prices below or the settings' table. Empty: as the settings say.",
    )
    price_in: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        title="Prompt price",
        description="Per million prompt tokens. If this and the completion price are empty: the settings' table.",
    )
    price_out: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        title="Completion price",
        description="Per million completion tokens; 0 if they are free.",
    )
    price_cached_in: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        title="Cached prompt price",
        description="Per million prompt tokens read from the provider's cache. Empty: the prompt price.",
    )
    batch_discount: float | None = Field(
        default=None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        title="Discount of batches",
        description="Share by which batches lower these prices, 0.5 for half. Empty: unknown.",
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
        """Budget of the model, with the price of its tokens."""
        return ModelBudget(**{each.name: getattr(self, each.name) for each in fields(ModelBudget)})

    @property
    def price(self) -> Price | None:
        """Price of its tokens; None if the entry states none, so that the table of prices applies."""
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
        default=None, title="Endpoint", description="Serves the models that name no endpoint of their own."
    )
    models: list[RosterEntry] = Field(
        default_factory=list,
        title="Models",
        description='The models to sample, in order, e.g. [{"name": "small", "endpoint": "example"}].',
    )
    organisations: dict[str, RateFields] = Field(
        default_factory=dict,
        title="Organisations",
        description='Limits per minute that models share, e.g. {"acme": {"tokens_per_minute": 2000000}}.',
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
        """Return the limits per minute that apply to a model."""
        shared = self.organisations[entry.organisation].limits if entry.organisation else NO_RATES
        return ModelRates(entry.limits, entry.key_limits.limits, entry.organisation, shared)

    def source(self) -> RosterSource:
        """Return a source of this roster for a campaign; each load rereads the file, URL and endpoints."""
        return _RosterOfBlock(self)


class BlockRoster:
    """The roster of the `ModelRoster` block of this name, reloaded at each refresh. Implements `RosterSource`.

    Edits in the Prefect UI take effect at the next refresh. While the API is unreachable, the last good roster stays.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    async def load(self) -> Roster:
        """Return the roster that the block states now.

        Raises:
            InvalidRosterError: if there is no such block, it cannot be loaded, or it breaks a rule of rosters.
        """
        block = await loaded_block(ModelRoster, self._name, errors.InvalidRosterError)
        return await block.source().load()


class _RosterOfBlock:
    """The roster of a block. Implements `RosterSource`."""

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
