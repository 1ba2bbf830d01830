"""What a campaign needs: settings, models, environments, a store, and a source of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from headgate.config import Settings
from headgate.core import Chat, Model, Task
from headgate.core.errors import InvalidInputError, InvalidSettingError
from headgate.core.events import Emit
from headgate.environments import Environment
from headgate.run.environments import rates_of, refuse_judged, refuse_meaningless, refuse_unknown_budgets
from headgate.run.hosts import EnvironmentHosts
from headgate.run.judging import Judging
from headgate.run.outside_workers import Executor
from headgate.run.request_side import RequestSide
from headgate.sampling import RosterSource, SamplingRules, TaskProvider
from headgate.storage import BatchStore, History, RecentSample
from headgate.telemetry import Notices

ONE_SHOT_PAUSE_S: Final = 2.0
ONE_SHOT_MAX_PAUSE_S: Final = 60.0
ONE_SHOT_PAUSES: Final = 5
"""Pauses of a run that ends on its own: 2, 4, 8, 16 and 32 s, about a minute in all, in which most services restart."""


class RunStore(BatchStore, Protocol):
    """What a campaign needs from its store."""

    async def history(self, now: float) -> History:
        """Return what was sampled before: totals, last times, next sequence numbers."""

    async def task_scores(self, campaign: str) -> Sequence[tuple[str, str, int, float]]:
        """Return model, environment, sequence and score of each scored sample of a campaign, by sequence."""

    async def to_resample(self, campaign: str, *, every: bool = False) -> Sequence[tuple[str, str, int, str]]:
        """Return model, environment, sequence and next stage of invalidated tasks to sample again, or `every` one."""

    async def invalid(self, campaign: str, since: float) -> Sequence[tuple[str, str, float, float, int]]:
        """Return model, environment, end, score and index of scored samples since then that no longer count."""

    async def recent(self, campaign: str, since: float, most: int) -> Sequence[RecentSample]:
        """Return the newest samples of a campaign that ended since then, at most `most`, by their end."""

    async def spent(self, since: float) -> Sequence[tuple[str, str, float, int, int, int, int | None]]:
        """Return task, model, end, prompt and completion tokens, attempts and cost of each sample since then."""


class ChatSource(Protocol):
    """What answers a task's conversation: the models behind their endpoints, or a script in a simulation."""

    def chat(self, model: Model, task: Task, emit: Emit, *, trace_id: str = "") -> Chat:
        """Return the chat that answers one episode's requests; all of its events share `trace_id`."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Everything that a campaign needs before it starts.

    Attributes:
        roster: where the models come from.
        environments: those to sample, by name.
        store: where samples go, and where history comes from.
        requests: the admission that `chats` sends through; None if the models are scripted.
        duration_s: how long to sample; None samples until stopped.
        provider: a source of tasks in place of the daily rates.
        run_id: identifies this run in its events; generated if empty.
        is_traced: whether events of single tasks are emitted as well.
        judging: the judge and its rule; None if every environment scores answers itself.
        executor: takes samples that are not played in this process; None if all are.
        is_last: whether the journal is discarded afterwards, so that the end waits for the store as long as it may.
        stop_when_idle: end when the provider has nothing more to give and everything given is done.
        hosts: of environments on other machines; None if all are played on this one.
        notices: turns the run's events into notices; None if nobody receives any.
    """

    settings: Settings
    roster: RosterSource
    environments: Mapping[str, Environment]
    store: RunStore
    chats: ChatSource
    requests: RequestSide | None = None
    duration_s: float | None = None
    provider: TaskProvider | None = None
    judging: Judging | None = None
    executor: Executor | None = None
    is_last: bool = False
    stop_when_idle: bool = False
    run_id: str = ""
    is_traced: bool = False
    hosts: EnvironmentHosts | None = None
    notices: Notices | None = None

    def rates(self) -> dict[str, float]:
        """Return samples per model and day, by environment."""
        return rates_of(self.settings, self.environments)

    def sampling_rules(self) -> SamplingRules:
        """Return the rules of the samplers.

        A user waits for a run that ends on its own: it pauses models for seconds, and gives up those that stay down.
        """
        settings = self.settings
        pause_s, max_pause_s = settings.error_pause_s, settings.max_pause_s
        if self.stop_when_idle:
            pause_s, max_pause_s = min(pause_s, ONE_SHOT_PAUSE_S), min(max_pause_s, ONE_SHOT_MAX_PAUSE_S)
        return SamplingRules(
            # A ranking already gives new models more, and a boost would undo what it takes from others.
            low_sample_threshold=settings.low_sample_threshold if settings.allocation == "rates" else 0,
            low_sample_multiplier=settings.low_sample_multiplier,
            catch_up_horizon_s=settings.catch_up_horizon_s,
            error_threshold=settings.error_threshold,
            error_pause_s=pause_s,
            max_pause_s=max_pause_s,
            max_pauses=ONE_SHOT_PAUSES if self.stop_when_idle and settings.early_stop else None,
            seed=settings.campaign,
        )

    def checked(self) -> RunPlan:
        """Return the plan itself if it can be run.

        Raises:
            InvalidSettingError: if there is no environment to sample.
            JudgeNeededError: if an environment needs a judge and the plan has none.
            InvalidInputError: if the window is not longer than 0 s.
        """
        if self.duration_s is not None and not self.duration_s > 0:
            raise InvalidInputError(f"the window (--duration) must last longer than 0 s (got {self.duration_s:g})")
        if not self.environments:
            raise InvalidSettingError(
                "no environment is to be sampled", next_step="`headgate environments` lists what is installed."
            )
        if self.judging is None:
            refuse_judged(self.environments)
        self.rates()
        refuse_unknown_budgets(self.settings, self.environments)
        refuse_meaningless("lanes", self.settings.lanes, self.environments)
        refuse_meaningless("executors", self.settings.executors, self.environments)
        return self
