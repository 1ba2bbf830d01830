"""The committed rules of the idle suite: which cases must be there, floors, tolerances."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from headgate.bench.idle.cases import Mode

_FILE: Final = Path(__file__).with_name("checks.toml")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tolerances(_Strict):
    """How far a run may fall behind its baseline."""

    utilisation: float = Field(ge=0)
    idle: float = Field(ge=0)
    throughput: float = Field(ge=0, le=1)


class Rule(_Strict):
    """One behaviour that the figures must show."""

    name: str
    case: str
    metric: str
    mode: Mode | None = None
    minus: str = ""
    at_least: float | None = None
    at_most: float | None = None
    equals: bool | float | str | None = None
    unless_at_least: float | None = None

    def expectation(self) -> str:
        """Return what is expected, in words."""
        said = f"{self.metric} of {self.case}"
        if self.minus:
            said += f" less that of {self.minus}"
        for sign, level in ((">=", self.at_least), ("<=", self.at_most), ("=", self.equals)):
            if level is not None:
                said += f" {sign} {level}"
        return said + (f", unless that is >= {self.unless_at_least}" if self.unless_at_least is not None else "")


class Required(_Strict):
    """The ids that a whole run must have."""

    both: tuple[str, ...]
    quick: tuple[str, ...]
    full: tuple[str, ...]


class Rules(_Strict):
    """The file of rules."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    version: Literal["headgate-idle-rules-v1"] = Field(alias="schema")
    tolerances: Tolerances
    required: Required
    behaviour: tuple[Rule, ...] = Field(alias="check")

    def required_in(self, mode: Mode) -> tuple[str, ...]:
        """Return the ids that a run of a mode must have."""
        return tuple(sorted((*self.required.both, *getattr(self.required, mode))))

    def behaviour_in(self, mode: Mode) -> tuple[Rule, ...]:
        """Return the rules that hold in a mode."""
        return tuple(rule for rule in self.behaviour if rule.mode in {None, mode})


@cache
def committed_rules() -> Rules:
    """Return the rules that Headgate comes with."""
    return Rules.model_validate(tomllib.loads(_FILE.read_text("utf-8")))
