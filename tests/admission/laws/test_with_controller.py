"""The default law inside the real controller, breaker included, with slots that are given back during a back-off."""

from __future__ import annotations

import random
from collections import deque
from functools import partial

import pytest

from headgate.admission import (
    AdmissionController,
    OutcomeKind,
    ProviderModel,
    RequestItem,
    RequestKey,
    RequestLease,
    RequestOutcome,
)
from headgate.admission.laws import AdaptiveLaw
from headgate_bench.limited_providers import Agenda, ProviderScript, server

MODEL = ProviderModel("https://api.example.com/v1", "m")
ITEM = RequestItem(RequestKey(MODEL), "campaign")


class Backlog:
    """Sends whatever the controller admits, without end; what was refused comes back after its back-off."""

    def __init__(self, script: ProviderScript, seed: int) -> None:
        self.agenda = Agenda()
        self.controller = AdmissionController(AdaptiveLaw)
        self.controller.register(MODEL, 100, "alias", 0.0)
        self.good: list[float] = []
        self.refused = 0
        self._rng = random.Random(seed)
        self._server = server(script, self.agenda, self._rng)
        self._retry_after_s = script.retry_after_s
        self._again: deque[int] = deque()
        self._asks_at = -1.0
        self.agenda.at(0.0, self.fill)

    def fill(self) -> None:
        now = self.agenda.now
        while isinstance(got := self.controller.try_acquire(ITEM, now), RequestLease):
            refusals = self._again.popleft() if self._again else 0
            self._server.begin(partial(self._ended, got, refusals, now))
        at = got.retry_at
        if at is not None and not now < self._asks_at <= at:
            self._asks_at = at
            self.agenda.at(at, self.fill)

    def _ended(self, lease: RequestLease, refusals: int, began_at: float, kind: OutcomeKind) -> None:
        now = self.agenda.now
        is_refused = kind is OutcomeKind.RATE_LIMITED
        outcome = RequestOutcome(kind, self._retry_after_s if is_refused else None, now - began_at)
        self.controller.release(lease, outcome, now)
        if is_refused:
            self.refused += 1
            pause_s = self._retry_after_s or min(60.0, 3 * 2**refusals * self._rng.uniform(0.5, 1.5))
            self.agenda.at(now + pause_s, partial(self._back, refusals + 1))
        else:
            self.good.append(now)
        self.fill()

    def _back(self, refusals: int) -> None:
        self._again.append(refusals)
        self.fill()


@pytest.mark.parametrize(
    ("script", "goodput", "refused"),
    [
        (ProviderScript(), 98.0, 1.0),
        (ProviderScript("rate", caps=((0.0, 20.0),)), 98.0, 2.5),
        (ProviderScript("rate", caps=((0.0, 20.0),), retry_after_s=5.0), 98.0, 2.5),
        (ProviderScript("sharing"), 93.0, 0.0),
    ],
    ids=["S1", "S3", "S3b", "S5"],
)
def test_the_bars_hold_inside_the_controller(script: ProviderScript, goodput: float, refused: float) -> None:
    backlog = Backlog(script, seed=1)
    backlog.agenda.run(400.0)
    backlog.controller.validate(400.0)
    assert 100 * len(backlog.good) / script.capacity(400.0) >= goodput
    assert 100 * backlog.refused / (backlog.refused + len(backlog.good)) <= refused


@pytest.mark.parametrize("seed", range(3))
def test_breaker_and_law_together_are_back_within_a_minute_of_a_storm(seed: int) -> None:
    backlog = Backlog(ProviderScript(storm=(60.0, 360.0)), seed)
    backlog.agenda.run(440.0)
    assert sum(at >= 420.0 for at in backlog.good) >= 0.9 * 20 * 20
    assert backlog.refused < 400
