"""Environments under a rubric of the user's, and who answers their tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headgate.campaign.judge_needed import judged_environments, usable_environments
from headgate.campaign.judged.rows import ROLLOUT
from headgate.campaign.plan import ChatSource
from headgate.config import Settings
from headgate.core import Chat, Model, Task
from headgate.core.events import Emit
from headgate.environments import Registry, registry_with
from headgate.environments.rubric import Rubric, RubricEnvironment, load_rubric


def rubric_for(settings: Settings) -> Rubric | None:
    """Return the rubric that the settings name, None when they name none.

    Raises:
        InvalidInputError: if its file cannot be read, or breaks a rule of rubrics.
    """
    return load_rubric(Path(settings.rubric).expanduser()) if settings.rubric else None


def rubric_environments(
    names: Sequence[str], rubric: Rubric, registry: Registry | None = None
) -> dict[str, RubricEnvironment]:
    """Return environments under a rubric, by their new name: those named, else all that need a judge anyway.

    Args:
        names: environments, or patterns such as `textarena:*`.
        rubric: what answers are judged by.
        registry: where environments are looked up; what is installed when None.

    Raises:
        UnknownEnvironmentError: if one is not installed, or a pattern matches none.
        InvalidSettingError: if none is named, and none is installed that needs a judge.
        InvalidNameError: if the names of environment and rubric are too long together.
    """
    registry = registry or registry_with(())
    found = usable_environments(names, registry) if names else judged_environments((), registry)
    made = (RubricEnvironment(each, rubric) for each in found.values())
    return {each.spec.name: each for each in made}


@dataclass(frozen=True, slots=True)
class RubricChats:
    """Tells the models which task it is that they answer: that of the environment under the rubric."""

    chats: ChatSource
    environments: dict[str, RubricEnvironment]

    def chat(self, model: Model, task: Task, emit: Emit, *, trace_id: str = "") -> Chat:
        """Return what answers one episode."""
        under = self.environments.get(task.environment) if task.stage == ROLLOUT else None
        if under is not None:
            task = replace(task, environment=under.base.spec.name, seed=under.seed(task.index))
        return self.chats.chat(model, task, emit, trace_id=trace_id)
