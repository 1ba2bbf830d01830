"""The runs that a command queries or steers: the one at a given address, else those that a journal lists."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from headgate.cli.output import say
from headgate.config import LoadedSettings, Settings
from headgate.core import utc_text
from headgate.core.errors import HeadgateError, InvalidInputError, JournalError, NotFoundError, UnauthorizedError
from headgate.storage import Journal, ServedRun, runs_to_ask, served_runs
from headgate.telemetry import MonitorClient

T = TypeVar("T")


@dataclass(slots=True)
class LiveRuns:
    """The live runs of the campaigns that a command may mean.

    Attributes:
        settings: settings of the command.
        is_named: whether one campaign was named, by its name or by its address.
        running: names of the campaigns that run.
        answering: clients of the runs that answer, newest first, by campaign.
        silent: a sentence on each run that does not answer or may not be asked, by campaign.
        hidden: sentences on unreadable files that may name further runs.
        lost: start (wall time) of the last run that died without leaving its journal, by campaign.
    """

    settings: Settings
    is_named: bool
    running: list[str] = field(default_factory=list)
    answering: dict[str, list[MonitorClient]] = field(default_factory=dict)
    silent: dict[str, list[str]] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)
    lost: dict[str, float] = field(default_factory=dict)

    def campaigns(self) -> list[str]:
        """Return the campaigns that run, or else the one that the settings name."""
        return self.running or [self.settings.campaign]

    def steered(self) -> str:
        """Return the one campaign that a change is for.

        Raises:
            InvalidInputError: none was named, and several may be meant; or --campaign and --url name two.
        """
        own, place = self.settings.campaign, self.settings.journal
        if self.running and own not in self.running and self.settings.origin_of("campaign") == "flag":
            raise InvalidInputError(
                f"campaign {self.running[0]} answers at --url, not {own}, which --campaign names",
                next_step="Leave one of the two out; nothing was changed.",
            )
        said = [] if self.is_named else [*(f"{campaign} runs" for campaign in self.running), *self.hidden]
        if said and own not in self.running and Journal.is_there(place, own):
            said.append(f"{own} is at rest")
        if len(said) > 1:
            raise InvalidInputError(
                f"several campaigns of journal {place} may be meant: {', '.join(said)}",
                next_step="Name one with --campaign; nothing was changed.",
            )
        return self.campaigns()[0]

    async def first(self, campaign: str, ask: Callable[[MonitorClient], Awaitable[T]]) -> tuple[T, str]:
        """Return the answer of a campaign's first run that knows what is asked about, and that run's address.

        Each run has environments of its own. If none answers, raises the first error but NotFoundError, else the last.
        """
        refusals: list[HeadgateError] = []
        for monitor in self.answering[campaign]:
            try:
                return await ask(monitor), monitor.address
            except (InvalidInputError, NotFoundError) as error:
                refusals.append(error)
        raise next((one for one in refusals if not isinstance(one, NotFoundError)), refusals[-1])

    def why_not(self, campaign: str) -> str:
        """Return why no run of a campaign is asked, as the start of a sentence."""
        nothing = f"campaign {campaign} has no run in journal {self.settings.journal} that can be asked"
        if campaign in self.lost:
            nothing += f"; the one of {utc_text(self.lost[campaign], seconds=True)} was killed, or its machine was lost"
        return self.silent.get(campaign, [nothing])[0]

    def tell_silent(self) -> None:
        """Print to stderr which runs are not shown, and why."""
        for sentence in (*(one for of_campaign in self.silent.values() for one in of_campaign), *self.hidden):
            say(sentence, stderr=True)


@asynccontextmanager
async def live_runs(loaded: LoadedSettings, url: str | None) -> AsyncIterator[LiveRuns]:
    """Yield the runs that a command may mean: those of the named campaign, or all in the journal if none is named.

    Args:
        loaded: settings with the journal, perhaps the campaign, and the token, which is sent where the console's is.
        url: address of a run to ask instead of those in the journal.

    Raises:
        InvalidInputError: no campaign answers at `url`.
        UnauthorizedError: no run accepts the token.
        JournalError: the journal cannot be read.
    """
    settings, is_named = loaded.settings, url is not None or loaded.origins["campaign"] != "default"
    found = LiveRuns(settings, is_named)
    async with AsyncExitStack() as stack:
        if url is not None:
            monitor = await stack.enter_async_context(MonitorClient(settings, url))
            found.running = [await monitor.campaign()]
            found.answering[found.running[0]] = [monitor]
            yield found
            return
        try:
            told, unreadable = await asyncio.to_thread(served_runs, settings.journal)
        except OSError as error:
            raise JournalError(f"journal {settings.journal} cannot be read: {error}") from error
        found.hidden += [f"{path} cannot be read: {why}" for path, why in unreadable.items()]
        meant = {run: died_at for run, died_at in told.items() if not is_named or run.campaign == settings.campaign}
        found.lost = {run.campaign: run.started_at for run, died_at in meant.items() if died_at < math.inf}
        found.running = sorted({run.campaign for run, died_at in meant.items() if died_at == math.inf})
        asked, silent = runs_to_ask(meant, settings)
        monitors = [MonitorClient(settings, address, run.run_id) for run, address in asked.items()]
        for monitor in monitors:
            await stack.enter_async_context(monitor)
        problems = await asyncio.gather(*map(_problem, asked, monitors))
        for run, monitor, problem in zip(asked, monitors, problems, strict=True):
            if problem is None:
                found.answering.setdefault(run.campaign, []).append(monitor)
            else:
                silent[run] = problem.message
        refused = [problem for problem in problems if isinstance(problem, UnauthorizedError)]
        if refused and not found.answering:
            raise refused[0]
        for run, why in silent.items():
            sentence = f"campaign {run.campaign} runs at {run.address} and is not asked: {why}"
            found.silent.setdefault(run.campaign, []).append(sentence)
        yield found


async def _problem(run: ServedRun, monitor: MonitorClient) -> HeadgateError | None:
    """Return why a run does not answer, None where it does."""
    try:
        answers = await monitor.campaign()
    except HeadgateError as error:
        return error
    return None if answers == run.campaign else InvalidInputError(f"campaign {answers} answers there")
