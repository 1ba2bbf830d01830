"""Which runs a command asks or steers: the one at an address that was given, else those that a journal tells of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headgate.cli.output import say
from headgate.config import LoadedSettings, Settings
from headgate.core.errors import HeadgateError, InvalidInputError, JournalError, UnauthorizedError, did_you_mean
from headgate.storage import Journal, ServedRun, runs_to_ask, served_runs
from headgate.telemetry import MonitorClient


class LiveRun(NamedTuple):
    """A run that answers."""

    campaign: str
    monitor: MonitorClient


@dataclass(frozen=True, slots=True)
class LiveRuns:
    """What runs of the campaigns that a command may mean.

    Attributes:
        settings: of the command.
        is_named: one campaign was named, by its name or by its address.
        answering: newest first.
        silent: runs that live and do not answer, or may not be asked, and why.
        unreadable: files in which others may say that they run, and why they cannot be read.
        others: campaigns of the journal that run and are not meant.
    """

    settings: Settings
    is_named: bool
    answering: list[LiveRun]
    silent: dict[ServedRun, str]
    unreadable: dict[Path, str]
    others: list[str]

    def of(self, campaign: str) -> list[LiveRun]:
        """Return the runs of a campaign that answer."""
        return [run for run in self.answering if run.campaign == campaign]

    def campaigns(self) -> list[str]:
        """Return the campaigns that run, or else the one that the settings name."""
        found = {run.campaign for run in self.answering} | {run.campaign for run in self.silent}
        return sorted(found) or [self.settings.campaign]

    def steered(self) -> str:
        """Return the one campaign that a change is for.

        Raises:
            InvalidInputError: none was named, and several may be meant.
        """
        campaigns, own, place = self.campaigns(), self.settings.campaign, self.settings.journal
        said = [f"{campaign} runs" for campaign in campaigns]
        said += [] if self.is_named else [f"{path} cannot be read" for path in self.unreadable]
        if not self.is_named and own not in campaigns and Journal.is_there(place, own):
            said.append(f"{own} is at rest")
        if len(said) > 1:
            raise InvalidInputError(
                f"several campaigns of journal {place} may be meant: {', '.join(said)}",
                next_step="Name one with --campaign; nothing was changed.",
            )
        return campaigns[0]

    def why_not(self, campaign: str) -> str:
        """Return why no run of a campaign is asked, as the first words of a sentence."""
        if silent := [run for run in self.silent if run.campaign == campaign]:
            return f"campaign {campaign} runs at {silent[0].address} and is not asked ({self.silent[silent[0]]})"
        return f"campaign {campaign} has no run in journal {self.settings.journal} that can be asked"

    def tell_silent(self) -> None:
        """Say on stderr of which runs nothing is shown, and why."""
        for run, why in self.silent.items():
            say(f"campaign {run.campaign} runs at {run.address} and is not asked: {why}", stderr=True)
        for path, why in self.unreadable.items():
            say(f"{path} cannot be read: {why}", stderr=True)

    def no_journal(self, campaign: str) -> InvalidInputError:
        """Return the refusal of a campaign that neither answers nor has a journal."""
        return InvalidInputError(
            f"{self.why_not(campaign)}, and no journal there{did_you_mean(campaign, self.others)}",
            next_step="Check --campaign and --journal, or give --url; a run can be asked with --enable-monitoring.",
        )


@asynccontextmanager
async def live_runs(loaded: LoadedSettings, url: str | None) -> AsyncIterator[LiveRuns]:
    """Give the runs that a command may mean: of the campaign that was named, of all in the journal where none was.

    Args:
        loaded: name the journal and perhaps the campaign, and hold the token, which goes where the console's goes.
        url: asks the run there in place of those of the journal.

    Raises:
        InvalidInputError: no campaign answers at `url`.
        UnauthorizedError: all that answer ask for another token.
        JournalError: the journal cannot be looked into.
    """
    settings = loaded.settings
    async with AsyncExitStack() as stack:
        if url is not None:
            monitor = await stack.enter_async_context(MonitorClient(settings, url))
            yield LiveRuns(settings, True, [LiveRun(await monitor.campaign(), monitor)], {}, {}, [])
            return
        is_named = loaded.origins["campaign"] != "default"
        try:
            told = await asyncio.to_thread(served_runs, settings.journal)
        except OSError as error:
            raise JournalError(f"journal {settings.journal} cannot be looked into: {error}") from error
        meant = {run: lives for run, lives in told.runs.items() if not is_named or run.campaign == settings.campaign}
        asked, silent = runs_to_ask(meant, settings)
        monitors = {run: MonitorClient(settings, address, run.run_id) for run, address in asked.items()}
        for monitor in monitors.values():
            await stack.enter_async_context(monitor)
        problems = dict(zip(monitors, await asyncio.gather(*map(_problem, monitors.values())), strict=True))
        answering = [LiveRun(run.campaign, monitor) for run, monitor in monitors.items() if problems[run] is None]
        for run, problem in problems.items():
            if isinstance(problem, UnauthorizedError) and not answering:
                raise problem
            silent |= {run: problem.message} if problem else {}
        others = sorted({run.campaign for run, lives in told.runs.items() if lives and run not in meant})
        yield LiveRuns(settings, is_named, answering, silent, told.unreadable, others)


async def _problem(monitor: MonitorClient) -> HeadgateError | None:
    """Return why a run does not answer, None where it does."""
    try:
        await monitor.campaign()
    except HeadgateError as error:
        return error
    return None
