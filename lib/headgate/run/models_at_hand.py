"""The models of a campaign, with the baseline agents served for as long as it runs where the roster asks for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headgate.config import Settings
from headgate.core import Model
from headgate.core.errors import InvalidSettingError, did_you_mean
from headgate.environments import registry_of
from headgate.models import BASELINES, serve
from headgate.sampling import BASELINE_ROSTER, BaselineRoster, RosterSource, roster_source


@asynccontextmanager
async def models_at_hand(settings: Settings) -> AsyncIterator[RosterSource]:
    """Give the roster that the settings name. The roster `baselines` is served on a free port until the context ends.

    Raises:
        InvalidSettingError: if a server is named for what is no environment of AgentGym's.
    """
    if settings.roster != BASELINE_ROSTER:
        yield roster_source(settings.roster)
        return
    found = registry_of(settings)
    async with serve(find_environment=found.environment) as endpoint:
        yield BaselineRoster(endpoint.base_url)


@asynccontextmanager
async def model_at_hand(settings: Settings, name: str) -> AsyncIterator[Model]:
    """Give one model of the roster, by its name or `name@revision`, or a baseline agent whatever the roster.

    Raises:
        InvalidRosterError: if the roster cannot be read.
        InvalidSettingError: if it has no such model, or more than one.
    """
    hint = did_you_mean(name, BASELINES, cutoff=0.8)
    if name not in BASELINES and hint and not settings.roster:
        raise InvalidSettingError(
            f"there is no model {name!r}{hint}",
            next_step=f"Name one of {', '.join(BASELINES)}, or give --roster with a model of this name.",
        )
    if name in BASELINES:
        settings = settings.model_copy(update={"roster": BASELINE_ROSTER})
    async with models_at_hand(settings) as source:
        roster = await source.load()
        found = [model for model in roster if name in {model.key, model.name}]
        if len(found) != 1:
            known = ", ".join(model.key for model in roster)
            problem = "has no model" if not found else f"has {len(found)} models named"
            raise InvalidSettingError(
                f"the roster {problem} {name!r}", next_step=f"Name one of {known}, {', '.join(BASELINES)}."
            )
        yield found[0]
