"""The guard: queues at the provider are found and kept short; longer or noisier answers are not taken for queues."""

from __future__ import annotations

import heapq
import math
import random

import pytest

from headgate.admission import OutcomeKind, RequestOutcome
from headgate.admission.laws import AdaptiveLaw, Admitted
from headgate_bench.limited_providers import ProviderScript, load


class Providing:
    """A provider whose service time may change: each attempt takes what `service_s` says for the number in flight."""

    def __init__(self, law: AdaptiveLaw, seed: int) -> None:
        self.law = law
        self.now = 0.0
        self.knee = math.inf
        self.mean_s = 2.0
        self.first_token_share: float | None = None
        self.lengths: tuple[int, ...] = ()
        """Mean tokens of each kind of answer; the time of one goes with its tokens. Empty: they are not told."""
        self._rng = random.Random(seed)
        self._ends: list[tuple[float, int, int, Admitted]] = []
        self._number = 0

    def run(self, seconds: float) -> list[int]:
        """Keep the limit in use for a while; return the limit after each answer."""
        until, limits = self.now + seconds, []
        while self.now < until:
            while len(self._ends) < self.law.limit:
                self._send()
            self.now, _, tokens, admitted = heapq.heappop(self._ends)
            took_s = self.now - admitted.at
            first_s = None if self.first_token_share is None else took_s * self.first_token_share
            outcome = RequestOutcome(OutcomeKind.SUCCESS, latency_s=took_s, first_token_s=first_s, tokens=tokens)
            self.law.observe(admitted, outcome, len(self._ends) + 1, self.now)
            self.law.validate()
            limits.append(self.law.limit)
        return limits

    def _send(self) -> None:
        self._number += 1
        in_flight = len(self._ends) + 1
        slower = max(1.0, in_flight / self.knee)
        if self.lengths:
            tokens = round(self._rng.choice(self.lengths) * self._rng.lognormvariate(-0.59, 1.09))
            took_s = slower * (0.5 + tokens / 50)
        else:
            tokens, took_s = 0, slower * self.mean_s * self._rng.lognormvariate(-0.11, 0.47)
        heapq.heappush(self._ends, (self.now + took_s, self._number, tokens, self.law.admitted(in_flight, self.now)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cv", [0.5, 1.0])
def test_noise_of_service_times_is_not_taken_for_a_queue(cv: float, seed: int) -> None:
    script = ProviderScript(caps=((0.0, 1_000.0),), cv=cv)
    record = load(script, AdaptiveLaw(60), seed=seed, seconds=400.0)
    assert record.limit_over(60.0, 400.0)[1] > 58.0


@pytest.mark.parametrize("seed", range(3))
def test_a_queue_is_found_and_the_limit_held_at_the_knee(seed: int) -> None:
    record = load(ProviderScript("sharing"), AdaptiveLaw(1_000), seed=seed, seconds=400.0)
    assert 36.0 < record.limit_over(120.0, 400.0)[1] < 54.0


@pytest.mark.parametrize("seed", range(3))
def test_a_queue_is_found_by_the_first_token_as_well(seed: int) -> None:
    providing = Providing(AdaptiveLaw(200), seed)
    providing.knee, providing.first_token_share = 40.0, 0.1
    providing.run(150.0)
    limits = providing.run(150.0)
    assert 34.0 < sum(limits) / len(limits) < 56.0


@pytest.mark.parametrize("seed", range(3))
def test_answers_that_become_longer_cost_one_measurement_and_not_the_limit(seed: int) -> None:
    providing = Providing(AdaptiveLaw(60), seed)
    assert providing.run(60.0)[-1] == 60
    providing.mean_s = 5.0
    limits = providing.run(200.0)
    assert min(limits) < 60
    assert providing.run(100.0)[-1] == 60


@pytest.mark.parametrize("seed", range(3))
def test_a_held_limit_follows_a_provider_that_gets_more_servers(seed: int) -> None:
    script = ProviderScript("sharing", caps=((0.0, 30.0), (200.0, 60.0)))
    record = load(script, AdaptiveLaw(200), seed=seed, seconds=420.0)
    assert 26.0 < record.limit_over(120.0, 200.0)[1] < 42.0
    assert record.limit_over(300.0, 420.0)[1] > 48.0


@pytest.mark.parametrize("seed", range(3))
def test_a_held_limit_follows_a_provider_that_loses_servers(seed: int) -> None:
    script = ProviderScript("sharing", caps=((0.0, 60.0), (200.0, 30.0)))
    record = load(script, AdaptiveLaw(200), seed=seed, seconds=500.0)
    assert 54.0 < record.limit_over(120.0, 200.0)[1] < 78.0
    assert 26.0 < record.limit_over(350.0, 500.0)[1] < 42.0


@pytest.mark.parametrize("seed", range(3))
def test_another_mixture_of_short_and_long_answers_is_not_taken_for_a_queue(seed: int) -> None:
    providing = Providing(AdaptiveLaw(60), seed)
    providing.lengths = (100, 100, 400)
    assert providing.run(120.0)[-1] == 60
    providing.lengths = (100, 800, 800)
    assert min(providing.run(400.0)) == 60


@pytest.mark.parametrize("seed", range(3))
def test_a_queue_is_found_behind_short_and_long_answers(seed: int) -> None:
    providing = Providing(AdaptiveLaw(200), seed)
    providing.knee, providing.lengths = 40.0, (100, 400, 800)
    providing.run(600.0)
    limits = providing.run(600.0)
    assert 34.0 < sum(limits) / len(limits) < 56.0
