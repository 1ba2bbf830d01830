"""The settings that limit what samples and models may spend."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from headgate.core.addresses import has_user

EVERYWHERE: Final = "*"
"""Stands for every environment that no other key of a setting matches."""

T = TypeVar("T")

_Number = TypeVar("_Number", int, float)


def value_for(values: Mapping[str, T], environment: str) -> T | None:
    """Return the value for an environment: its own, else that of the longest matching pattern, else None."""
    if environment in values:
        return values[environment]
    patterns = [pattern for pattern in values if fnmatch.fnmatchcase(environment, pattern)]
    return values[max(patterns, key=lambda pattern: (len(pattern), pattern))] if patterns else None


def meaningless(values: Iterable[str], environments: Iterable[str]) -> list[str]:
    """Return the names and patterns that match none of the environments, sorted; `*` is never among them."""
    names = list(environments)
    return sorted(
        name
        for name in values
        if name != EVERYWHERE and not any(fnmatch.fnmatchcase(environment, name) for environment in names)
    )


def names_in(value: str) -> tuple[str, ...]:
    """Return the comma-separated parts of a text, stripped, without empty ones."""
    return tuple(part.strip() for part in value.split(",") if part.strip())


def pairs(form: str, *, or_one: bool = False, at_first: bool = False) -> BeforeValidator:
    """Return a validator that parses `a=1,b=2` into a mapping; it raises ValueError with `form` for a part without `=`.

    With `or_one`, a single value applies to every environment. A part is split at its last `=` (`at_first`: first).
    """

    def split(value: object) -> object:
        if or_one and isinstance(value, int | float):
            return {EVERYWHERE: value}
        if not isinstance(value, str):
            return value
        parts = names_in(value)
        if or_one and len(parts) == 1 and "=" not in parts[0]:
            return {EVERYWHERE: parts[0]}
        if wrong := [part for part in parts if "=" not in part]:
            raise ValueError(f"{form} (got {wrong[0]!r})")
        return dict(part.split("=", 1) if at_first else part.rsplit("=", 1) for part in parts)

    return BeforeValidator(split)


def _address(value: str) -> str:
    if value and not value.startswith(("http://", "https://")):
        raise ValueError("it must be an http or https address")
    return value


def _without_user(value: str) -> str:
    if has_user(value):
        raise ValueError("must not contain a user or password, as it is shown; keys and tokens have their own settings")
    return value


Names = BeforeValidator(lambda value: names_in(value) if isinstance(value, str) else value)
"""Parses a setting that may be written as comma-separated text."""

Address = Annotated[str, AfterValidator(_address)]
"""An http or https address, or an empty string."""

ShownAddress = Annotated[Address, AfterValidator(_without_user)]
"""An address that pages, logs and Prefect show."""


_WRITTEN: Final = pairs(
    f"a budget is one number, or environment=number, comma separated, with {EVERYWHERE}= for all others", or_one=True
)


def _usable(value: dict[str, _Number], least: _Number) -> dict[str, _Number]:
    for environment, budget in value.items():
        if not least <= budget < float("inf"):
            raise ValueError(
                f"the budget of {environment} must be >= {least} (got {budget}); leave it out for no budget"
            )
    return value


TokenBudgets = Annotated[dict[str, int], _WRITTEN, AfterValidator(lambda value: _usable(value, 32))]
"""Tokens by environment; at least 32, since no request fits into fewer."""

TimeBudgets = Annotated[dict[str, float], _WRITTEN, AfterValidator(lambda value: _usable(value, 0.001))]
"""Seconds by environment."""


class Section(BaseModel):
    """Base class of all settings: numbers must be finite."""

    model_config = ConfigDict(allow_inf_nan=False)


class BudgetSettings(Section):
    """Budgets of one sample, and of one model in any 24 h. A roster may override them for its models."""

    sample_tokens: TokenBudgets = Field(
        default_factory=dict,
        description="Prompt and completion tokens over all requests of one sample: 8000, or by environment: "
        "affine:sat=4000,textarena:*=16000,*=8000. Empty: no budget.",
    )
    sample_completion_tokens: TokenBudgets = Field(
        default_factory=dict,
        description="Completion tokens over all requests of one sample, written likewise. Empty: no budget.",
    )
    sample_time_s: TimeBudgets = Field(
        default_factory=dict,
        description="Seconds that the answered requests of one sample take together, written likewise; waiting for "
        "admission, back-off and failed attempts do not count. Empty: no budget.",
    )
    daily_tokens: int | None = Field(
        None, ge=1, description="Prompt and completion tokens of each model in any 24 h. Empty: no budget."
    )
    daily_requests: int | None = Field(
        None, ge=1, description="Attempts of requests of each model in any 24 h. Empty: no budget."
    )
    daily_cost: float | None = Field(
        None,
        gt=0,
        description="Cost of each model in any 24 h, as billed, else by its price in the roster or in `prices`. Empty: "
        "no budget.",
    )
    prices: str = Field(
        "",
        description="YAML or JSON file with the prices of tokens by model and lane, for models whose roster entry "
        "states none. Empty: no table.",
    )
    judge_daily_tokens: int | None = Field(
        None,
        ge=1,
        description="Prompt and completion tokens of the judge in any 24 h; the budgets of models are not the judge's. "
        "Empty: no budget.",
    )
