"""What a run with a judge is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headgate.campaign.judged.figures import JudgedFigures
from headgate.campaign.judged.verdicts import EnvironmentVerdicts, Verdicts
from headgate.campaign.plan import CampaignStore, ChatSource
from headgate.campaign.request_side import RequestSide
from headgate.config import Settings
from headgate.core import Model, new_run_id
from headgate.core.errors import InvalidRosterError, InvalidSettingError
from headgate.core.events import Event
from headgate.environments import JudgedEnvironment
from headgate.sampling import TaskProvider


def _wants_all(_kind: type[Event]) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class JudgedPlan:
    """Everything that a run with a judge needs before it starts.

    Attributes:
        settings: see `headgate.config.Settings`.
        models: those whose answers are judged.
        judge: the model that judges; its key is that of no other model.
        environments: by name; all of them need a judge.
        store: where samples go.
        chats: who answers, models and judge.
        cells: which samples to take.
        requests: the admission that `chats` sends by; None where the models are scripted.
        verdicts: how replies become judgements, and these a score.
        figures: counts so far, of samples that earlier runs took.
        run_id: on the events of this run.
        wants: whether anybody listens to events of a type.
    """

    settings: Settings
    models: tuple[Model, ...]
    judge: Model
    environments: Mapping[str, JudgedEnvironment]
    store: CampaignStore
    chats: ChatSource
    cells: TaskProvider
    requests: RequestSide | None = None
    verdicts: Verdicts = field(default_factory=EnvironmentVerdicts)
    figures: JudgedFigures = field(default_factory=JudgedFigures)
    run_id: str = field(default_factory=new_run_id)
    wants: Callable[[type[Event]], bool] = _wants_all

    def checked(self) -> JudgedPlan:
        """Return the plan itself when it can be run.

        Raises:
            InvalidSettingError: if an environment needs no judge, or there is none.
            InvalidRosterError: if there is no model, or one has the judge's key.
        """
        others = [name for name, known in self.environments.items() if not known.spec.needs_judge]
        if others or not self.environments:
            raise InvalidSettingError(
                f"environment {others[0]!r} scores answers itself" if others else "no environment is to be judged",
                next_step="Name environments whose spec says needs_judge, such as headgate:explain.",
            )
        if not self.models or self.judge.key in {model.key for model in self.models}:
            raise InvalidRosterError(f"there must be models to judge, none of them called {self.judge.key}")
        return self
