"""Whose comparisons are shown where none is asked for: those of the judge that is named, or of the only one."""

from __future__ import annotations

from headgate.campaign.arena.records import judge_of_stage, stage_of, stages_of
from headgate.config import Settings
from headgate.core import Model
from headgate.core.errors import InvalidInputError
from headgate.storage import SampleStore


async def shown_judge(settings: Settings, kept: SampleStore, rubric: str) -> tuple[Model, str]:
    """Return whose comparisons are told, and the stage that they are kept under. The judge cannot be asked.

    Args:
        settings: may name the judge; its address is not needed.
        kept: the comparisons.
        rubric: label of the rubric, empty for none.

    Raises:
        InvalidInputError: if no judge is named, and the campaign has comparisons of none, or of several.
        StoreError: if the comparisons cannot be read.
    """
    if settings.judge_model:
        return _judge(settings.judge_model), stage_of(settings.judge_model, rubric)
    rows = (await kept.scan(columns=["campaign", "stage"])).frame
    stages = [stage for stage in stages_of(rows, settings.campaign) if not rubric or stage.endswith(f"/{rubric}")]
    if not stages:
        raise InvalidInputError(
            f"the store has no comparisons of campaign {settings.campaign!r}" + " by this rubric" * bool(rubric),
            next_step="Give --judge-model and --judge-url, and leave --comparisons 0 out, to have some made.",
        )
    judges = [judge_of_stage(stage) for stage in stages]
    if len(stages) > 1:
        raise InvalidInputError(
            f"the store has comparisons by {len(judges)} judges or rubrics: {', '.join(judges)}",
            next_step="Say whose to show: --judge-model NAME, and --rubric FILE where a rubric's name follows it.",
        )
    return _judge(judges[0].removesuffix(f"/{rubric}") if rubric else judges[0]), stages[0]


def _judge(name: str) -> Model:
    return Model("judge", served_name=name)
