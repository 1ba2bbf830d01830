"""The `AdmissionLimits` block: how many requests to an endpoint all processes together may have in flight."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from prefect.blocks.core import Block
from pydantic import BaseModel, ConfigDict, Field, field_validator

from headgate.admission import MOST_SLOTS, LimitRule, limit_rule
from headgate.admission.bank import BankRules, Outage


class EndpointLimit(BaseModel):
    """One limit of an admission-limits block."""

    model_config = ConfigDict(extra="forbid")

    endpoint: str = Field(
        default=...,
        title="Endpoint",
        description="Host, host:port, or base address that the limit applies to; * and ? are wildcards.",
        min_length=1,
        examples=["api.example.com", "http://127.0.0.1:8000/v1"],
    )
    slots: int = Field(
        default=...,
        ge=0,
        le=MOST_SLOTS,
        title="Slots",
        description="Maximum number of requests in flight over all processes; 0 admits none.",
    )
    limit: str = Field(
        default="",
        title="Limit",
        description="Name of the global concurrency limit. Empty: headgate: and the host of the endpoint.",
    )
    per_process: int | None = Field(
        default=None,
        ge=1,
        le=MOST_SLOTS,
        title="Slots of a process",
        description="Maximum number of slots that one process takes. Empty: all of them.",
    )
    model_caps: dict[str, int] = Field(
        default_factory=dict,
        title="Caps of models",
        description="Maximum number of requests in flight per process, by the model's name at the endpoint.",
    )

    def rule(self) -> LimitRule:
        """Return the limit as the library takes it.

        Raises:
            InvalidInputError: if the limit has no name, or a cap is below 1.
        """
        return limit_rule(self.endpoint, self.slots, name=self.limit, most=self.per_process, model_caps=self.model_caps)


class AdmissionLimits(Block):
    """Limits on requests in flight, kept across processes by Prefect. See docs/reference/prefect.md#admissionlimits.

    Examples:
        ```python
        from blocks import AdmissionLimits

        rules = AdmissionLimits.load("BLOCK_NAME").rules()
        ```
    """

    _block_type_name: ClassVar[str] = "Admission Limits"
    _block_type_slug: ClassVar[str] = "headgate-admission-limits"
    _logo_url: ClassVar[Any] = None

    limits: list[EndpointLimit] = Field(
        default_factory=list,
        title="Limits",
        description='E.g. [{"endpoint": "api.example.com", "slots": 64}]; the first limit that matches applies.',
    )
    block_slots: int = Field(
        default=8, ge=1, le=1_000, title="Slots of a block", description="Maximum slots that a process leases at once."
    )
    lease_s: float = Field(
        default=60.0,
        ge=60,
        le=86_400,
        allow_inf_nan=False,
        title="Lease",
        description="Seconds after which the slots of a dead process are free again.",
    )
    outage: Literal["hold", "stop"] = Field(
        default="hold",
        title="When the API is unreachable",
        description="hold: keep using the slots already leased until their leases end; stop: admit nothing.",
    )

    @field_validator("limits")
    @classmethod
    def _usable(cls, limits: list[EndpointLimit]) -> list[EndpointLimit]:
        for limit in limits:
            limit.rule()
        return limits

    def rules(self) -> list[LimitRule]:
        """Return the limits as the library takes them."""
        return [limit.rule() for limit in self.limits]

    def bank_rules(self) -> BankRules:
        """Return the rules by which a process leases slots from the limits."""
        return BankRules(block=self.block_slots, lease_s=self.lease_s, outage=Outage(self.outage))
