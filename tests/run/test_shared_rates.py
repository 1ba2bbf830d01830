"""Processes of one journal before a provider that counts tokens per minute and tells nothing, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.admission import OutcomeKind
from headgate.admission.laws import AdaptiveLaw
from headgate.core.rates import UNLIMITED, RateLimits, RateNote
from headgate.core.status import RateStatus, RequestStatus
from headgate.run.learning import SHARE_EVERY_S, SharedLearning
from headgate.storage import Journal, JournalThread
from headgate_bench.limited_providers import Agenda
from headgate_bench.rated_provider import Asked, Group, RatedCase, RatedProvider
from headgate_bench.token_rates import Backlog, ControllerRule
from tests.storage.journals import NOW

PER_MINUTE = 40_000


class CountingRule(ControllerRule):
    """Request admission that remembers when it was refused."""

    def __init__(self) -> None:
        super().__init__(AdaptiveLaw, 100, UNLIMITED, heeds=True)
        self.refusals: list[float] = []

    def ended(self, request: Asked, kind: OutcomeKind, told: tuple[RateNote, ...], wait_s: float, now: float) -> None:
        if kind is OutcomeKind.RATE_LIMITED:
            self.refusals.append(now)
        super().ended(request, kind, told, wait_s, now)


class Site:
    """One provider, one journal, and the processes that share both."""

    def __init__(self, folder: Path, run: Callable[[Coroutine[Any, Any, None]], None], *, limits: RatedCase) -> None:
        self.folder = folder
        self.run = run
        self.case = limits
        self.agenda = Agenda()
        self.provider = RatedProvider(limits, seed=50)
        for at, _ in limits.limits[1:]:
            self.agenda.at(at, partial(self.provider.follow, at))

    def start(self, seed: int) -> Process:
        """Have one more process, which asks for as much as it can get."""
        return Process(self, seed)


class Process:
    """A process of a campaign, as far as it asks a provider and learns of its limits."""

    def __init__(self, site: Site, seed: int) -> None:
        self._site = site
        self._rule = CountingRule()
        self._journal = JournalThread(Journal(site.folder, "main"), inline=True)
        parts = SimpleNamespace(journal=self._journal, requests=self, now=lambda: NOW + site.agenda.now)
        self._learning = SharedLearning(parts, SimpleNamespace())  # type: ignore[arg-type]
        self.admission = SimpleNamespace(
            learnt=lambda name, of, limit: self._rule.learnt(name, of, limit, site.agenda.now),
            set_rate_share=lambda name, share: self._rule.set_rate_share(name, share, site.agenda.now),
        )
        self._is_over = False
        self._share()
        self._backlog = Backlog(site.case, site.provider, site.agenda, self._rule, seed)
        self._backlog.fill()

    def status(self) -> list[RequestStatus]:
        """Return what a run says of its requests, before the first of them as after."""
        return self._rule.statuses(self._site.agenda.now) or [RequestStatus("simulated", "model", "chat", (), 100, 100)]

    def _share(self) -> None:
        if not self._is_over:
            self._site.run(self._learning.share())
            self._site.agenda.at(self._site.agenda.now + SHARE_EVERY_S, self._share_again)

    def _share_again(self) -> None:
        self._share()
        self._backlog.fill()

    def refused(self, since: float, until: float) -> int:
        """Return how many of its attempts were refused."""
        return sum(since <= at < until for at in self._rule.refusals)

    def rates(self) -> list[RateStatus]:
        """Return the limits per minute that it keeps to."""
        return [rate for status in self.status() for rate in status.rates]

    def end(self) -> None:
        """Leave the journal; what is in flight runs on."""
        self._is_over = True
        self._journal.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    with ExitStack() as stack:
        loop = stack.enter_context(asyncio.Runner())

        def made(*limits: tuple[float, int], seconds: float) -> Site:
            rates = tuple((at, RateLimits(output_tokens_per_minute=limit)) for at, limit in limits)
            case = RatedCase(rates, (Group("one", 500, 400),), 2, states=False, seconds=seconds)
            return Site(tmp_path, loop.run, limits=case)

        yield made


def test_what_one_process_has_learnt_of_tokens_per_minute_no_other_has_to_learn(site: Callable[..., Site]) -> None:
    here = site((0.0, PER_MINUTE), seconds=900.0)
    first = here.start(50)
    here.agenda.run(300.0)
    assert first.refused(0.0, 300.0) > 30, "it had to break the limit to learn it"
    others = []
    for seed in range(51, 55):
        others.append(here.start(seed))
        here.agenda.run(here.agenda.now + 30.0)
    here.agenda.run(900.0)
    assert sum(other.refused(300.0, 900.0) for other in others) < 10, "each would have been refused some fifty times"
    for process in (first, *others):
        (rate,) = process.rates()
        assert rate.is_learnt
        assert rate.is_heard
        process.end()
    assert here.provider.record.goodput > 0.93 * PER_MINUTE * 15


def test_a_later_window_begins_with_what_an_earlier_one_has_learnt(site: Callable[..., Site]) -> None:
    here = site((0.0, PER_MINUTE), seconds=900.0)
    first = here.start(50)
    here.agenda.run(600.0)
    (learnt,) = first.rates()
    assert not learnt.is_heard
    first.end()
    second = here.start(60)
    (taken,) = second.rates()
    assert taken.unit == learnt.unit
    assert taken.limit == pytest.approx(learnt.limit, rel=0.2), "what it has grown by since is told every 5 s"
    assert taken.is_heard
    second.end()


def test_a_limit_that_the_provider_lifts_is_given_up_by_all_who_had_learnt_it(site: Callable[..., Site]) -> None:
    here = site((0.0, PER_MINUTE), (700.0, 100 * PER_MINUTE), seconds=1_800.0)
    processes = [here.start(50)]
    here.agenda.run(600.0)
    processes.append(here.start(51))
    here.agenda.run(700.0)
    assert all(process.rates() for process in processes)
    here.agenda.run(1_800.0)
    for process in processes:
        assert not process.rates(), "nobody holds it against the others"
        assert process.refused(900.0, 1_800.0) == 0
        process.end()
