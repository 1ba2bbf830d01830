"""The settings of request admission."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, model_validator

from headgate.config.aliases import own_name
from headgate.config.renamed import RENAMED
from headgate.core.errors import InvalidSettingError


class AdmissionSettings(BaseModel):
    """How many requests of a model may be in flight, and what is learnt from their outcomes."""

    limit_law: Literal["adaptive", "aimd"] = Field(
        "adaptive",
        validation_alias=own_name("LIMIT_LAW"),
        description="Law of the adaptive limits: the default one, or additive increase and multiplicative decrease.",
    )
    cooldown_seconds: float = Field(
        2.0,
        gt=0,
        le=3600,
        allow_inf_nan=False,
        validation_alias=own_name("COOLDOWN_SECONDS"),
        description="Pause of a request key after a 429 without Retry-After (law aimd).",
    )
    multiplicative_decrease_factor: float = Field(
        0.75,
        gt=0,
        lt=1,
        allow_inf_nan=False,
        validation_alias=own_name("MULTIPLICATIVE_DECREASE_FACTOR"),
        description="Factor on the limit once per congestion episode (law aimd).",
    )
    additive_increase_step: int = Field(
        1,
        ge=1,
        le=100_000,
        validation_alias=own_name("ADDITIVE_INCREASE_STEP"),
        description="What the limit grows by at once (law aimd).",
    )
    successes_until_increase: int = Field(
        25,
        ge=1,
        le=1_000_000,
        validation_alias=own_name("SUCCESSES_UNTIL_INCREASE"),
        description="Consecutive successes after which the limit grows (law aimd).",
    )
    startup_ramp_seconds: float = Field(
        0.0,
        ge=0,
        le=86_400,
        allow_inf_nan=False,
        validation_alias=own_name("STARTUP_RAMP_SECONDS"),
        description="Time over which a new limit rises from 1 to its start value; 0 starts there.",
    )
    request_queue_wait_s: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        validation_alias=own_name("REQUEST_QUEUE_WAIT_S"),
        description="A request that waited this long for admission is denied. Empty: it waits as long as its episode.",
    )
    retry_budget: float = Field(
        0.2,
        ge=0,
        le=1,
        allow_inf_nan=False,
        validation_alias=own_name("RETRY_BUDGET"),
        description="Maximum share of an endpoint's requests that may be retries after failures.",
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_former_names(cls, values: object) -> object:
        for name in values if isinstance(values, dict) else ():
            if name in RENAMED:
                advice = RENAMED[name]
                raise InvalidSettingError(
                    f"setting {name!r} has been replaced", next_step=f"{advice[0].upper()}{advice[1:]}."
                )
        return values
