"""What arrivals tell of the rate and of its trend."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from headgate.elastic.policies.predictive import Arrivals, Stream


def poisson(rate: Callable[[float], float], until_s: float, *, seed: int, every_s: float = 5.0) -> Arrivals:
    """Arrivals of a rate that changes with time, read every so often."""
    arrivals, chance = Arrivals(6.0), random.Random(seed)
    highest = max(rate(at) for at in range(int(until_s) + 1))
    at, count, read_at = 0.0, 0, 0.0
    while read_at <= until_s:
        while at <= read_at:
            count += chance.random() * highest < rate(at)
            at += chance.expovariate(highest)
        arrivals.note(count, read_at)
        arrivals.validate()
        read_at += every_s
    return arrivals


def test_before_the_second_reading_nothing_is_known() -> None:
    arrivals = Arrivals(6.0)
    arrivals.note(5, 10.0)
    assert arrivals.stream() == Stream(0.0, 0.0, 0.0)
    assert arrivals.stream().rate_error == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_a_steady_rate_is_told_from_a_long_window_and_without_much_of_a_trend(seed: int) -> None:
    stream = poisson(lambda _: 16.0, 400.0, seed=seed).stream()
    assert stream.seen_s >= 48.0
    assert stream.rate == pytest.approx(16.0, rel=0.15)
    assert stream.rate_in(30.0) == pytest.approx(16.0, rel=0.25)


@pytest.mark.parametrize("seed", range(20))
def test_a_step_is_seen_within_two_decisions_and_its_past_is_forgotten(seed: int) -> None:
    stream = poisson(lambda at: 4.0 if at < 300.0 else 24.0, 310.0, seed=seed).stream()
    assert stream.seen_s <= 48.0
    assert stream.rate > 16.0


@pytest.mark.parametrize("seed", range(10))
def test_the_end_of_a_burst_is_seen_within_two_decisions(seed: int) -> None:
    stream = poisson(lambda at: 48.0 if at < 300.0 else 6.0, 310.0, seed=seed).stream()
    assert stream.rate < 16.0
    assert stream.rate_in(30.0) < 16.0


@pytest.mark.parametrize("seed", range(10))
def test_a_steep_rise_goes_on_into_the_forecast(seed: int) -> None:
    stream = poisson(lambda at: 2.0 + at * 0.2, 300.0, seed=seed).stream()
    assert stream.rate == pytest.approx(62.0, rel=0.15)
    assert stream.rate_in(30.0) == pytest.approx(68.0, rel=0.15)


def test_a_trend_is_not_carried_on_for_longer_than_it_has_been_seen() -> None:
    stream = Stream(rate=10.0, growth=1.0, seen_s=6.0)
    assert stream.rate_in(2.0) == 12.0
    assert stream.rate_in(30.0) == 16.0


def test_a_falling_rate_is_not_forecast_to_fall_further() -> None:
    assert Stream(rate=10.0, growth=-1.0, seen_s=60.0).rate_in(30.0) == 10.0
