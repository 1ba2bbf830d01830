"""The `ModelEndpoint` block: an OpenAI-compatible address, and what it takes to be answered there."""

from __future__ import annotations

from typing import Any, ClassVar

from prefect.blocks.core import Block
from pydantic import Field, SecretStr

from headgate.core import Model, Secret


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
