"""Answers that are missing in the store, taken by an ordinary campaign before they are compared."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headgate.admission import SlotSource
from headgate.campaign.assembly import run_campaign, run_judged
from headgate.campaign.judge_needed import judged_environments, usable_environments
from headgate.campaign.plan import ChosenModels
from headgate.config import Settings
from headgate.core import Model
from headgate.core.errors import InvalidRosterError
from headgate.environments import registry_of
from headgate.sampling import RosterSource
from headgate.storage import SampleStore


async def answered(
    settings: Settings,
    models: Sequence[str],
    instances: int,
    judge: Model,
    roster: RosterSource,
    store: SampleStore,
    stop: asyncio.Event | None,
    slots: SlotSource | None,
) -> None:
    """Have the roster's models answer tasks 0 to `instances` - 1 under the campaign's name; what is there stays.

    Environments that need a judge have their answers judged and scored, too. Without a name in the settings these
    are the ones that are answered.

    Raises:
        HeadgateError: if something that was given cannot be used.
    """
    chosen = ChosenModels(_named((await roster.load()).models, models))
    registry = registry_of(settings)
    known = usable_environments(settings.environments or tuple(judged_environments((), registry)), registry)
    judged = tuple(name for name, one in known.items() if one.spec.needs_judge)
    others = tuple(name for name in known if name not in judged)
    # Samples without their conversation cannot be compared; a rubric is for the comparison.
    own = settings.model_copy(update={"keep_conversations": True, "rubric": ""})
    if judged:
        of_judged = own.model_copy(update={"environments": judged})
        await run_judged(
            of_judged, instances=instances, judge=judge, roster=chosen, store=store, stop=stop, slots=slots
        )
    if others and not (stop is not None and stop.is_set()):
        of_others = own.model_copy(update={"environments": others})
        await run_campaign(of_others, roster=chosen, store=store, instances=instances, stop=stop, slots=slots)


def _named(models: Sequence[Model], names: Sequence[str]) -> tuple[Model, ...]:
    known = {model.name for model in models} | {model.key for model in models}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidRosterError(
            f"the roster has no model {unknown[0]!r}",
            next_step=f"It has {', '.join(sorted(m.key for m in models)[:20])}.",
        )
    return tuple(model for model in models if not names or model.name in names or model.key in names)
