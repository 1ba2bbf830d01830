"""How a policy reads an environment's words: what there is to decide, and how a decision is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.core import Message
from headgate.placement.errors import InvalidPlacementError

Features = NDArray[np.float64]
"""One decision: a row of features for each alternative."""


class Skill(Protocol):
    """What is decided in one environment. Stateless: everything is in the conversation."""

    @property
    def features(self) -> int:
        """Columns of every decision."""
        ...

    def decisions(self, conversation: Sequence[Message]) -> list[Features]:
        """Return what the next reply has to decide, read from a conversation that ends with the environment's words."""
        ...

    def reply(self, conversation: Sequence[Message], chosen: Sequence[int]) -> str:
        """Return the reply that says the chosen alternative of each decision."""
        ...


def _babyai() -> Skill:
    from headgate.placement.roles.babyai_skill import BabyAISkill  # noqa: PLC0415 - only what is played is loaded

    return BabyAISkill()


def _sat() -> Skill:
    from headgate.placement.roles.sat_skill import SatisfiabilitySkill  # noqa: PLC0415 - as above

    return SatisfiabilitySkill()


SKILLS: Final[Mapping[str, Callable[[], Skill]]] = {
    "agentgym:babyai": _babyai,
    "affine:sat": _sat,
    "affine:sat-hard": _sat,
}
"""Environment -> how a policy plays it."""


def skill_of(environment: str) -> Skill:
    """Return how a policy plays an environment.

    Raises:
        InvalidPlacementError: nobody has said how.
    """
    if environment not in SKILLS:
        raise InvalidPlacementError(
            f"No policy can play {environment!r} yet",
            next_step=f"Take one of {', '.join(SKILLS)}.",
        )
    return SKILLS[environment]()
