"""Due times: no drift, no burst, no herd."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.sampling import Cadence, ModelSampler, SamplingRules, first_offset_s, interval_s
from tests.sampling.table import DAY_S, HOUR_S, MODELS, NOW, RATES

rates = st.floats(0.5, 50_000)
multipliers = st.sampled_from([1.0, 3.0, 7.5])


@pytest.mark.parametrize(("rate", "multiplier", "seconds"), [(100, 1, 864), (120, 3, 240), (80, 1, 1_080)])
def test_an_interval_is_a_day_over_the_rate(rate: float, multiplier: float, seconds: float) -> None:
    assert interval_s(rate, multiplier) == seconds


@given(rates, multipliers, st.lists(st.floats(0, 0.49), min_size=1, max_size=300))
def test_delays_never_add_up(rate: float, multiplier: float, delays: list[float]) -> None:
    """Whatever each sample's delay, N takes advance the due time by exactly N intervals."""
    cadence = Cadence(rate, 0.0)
    step = interval_s(rate, multiplier)
    for number, delay in enumerate(delays):
        now = cadence.next_at + delay * step
        assert cadence.take(now, multiplier) == pytest.approx(number * step, abs=1e-6)
    assert cadence.due == pytest.approx(len(delays) * step, abs=1e-6)
    assert cadence.last_due == pytest.approx((len(delays) - 1) * step, abs=1e-6)


@given(rates, multipliers, st.floats(0, 20), st.lists(st.floats(0, 2), max_size=60))
def test_two_samples_are_never_closer_than_half_an_interval(
    rate: float, multiplier: float, behind: float, lateness: list[float]
) -> None:
    step = interval_s(rate, multiplier)
    cadence = Cadence(rate, -behind * step)
    now, takes = 0.0, []
    for late in lateness:
        now = max(now, cadence.next_at) + late * step
        cadence.take(now, multiplier)
        takes.append(now)
    assert all(later - earlier >= step / 2 * (1 - 1e-9) for earlier, later in pairwise(takes))


@given(rates, multipliers, st.floats(0.1, 500), st.floats(0, 20))
def test_what_is_forgiven_are_whole_dues_older_than_the_horizon_and_the_latest_is_kept(
    rate: float, multiplier: float, behind: float, horizon: float
) -> None:
    step = interval_s(rate, multiplier)
    cadence = Cadence(rate, 0.0)
    now, horizon_s = behind * step, horizon * step
    dropped = cadence.forgive(now, multiplier, horizon_s)
    assert cadence.due == pytest.approx(dropped * step)
    too_old = behind - max(horizon, 1.0)
    assert dropped == 0 if too_old < -1e-6 else too_old - 1e-6 <= dropped < too_old + 1 + 1e-6
    assert cadence.due <= now + 1e-6 or dropped == 0
    assert now - cadence.due <= max(horizon_s, step) * (1 + 1e-9)


def test_without_a_horizon_a_sample_that_is_a_moment_late_is_still_taken() -> None:
    cadence = Cadence(100.0, 0.0)
    assert cadence.forgive(0.001, 1.0, 0.0) == 0
    assert cadence.take(0.001, 1.0) == 0.0


def test_a_rare_sample_is_late_rather_than_left_out() -> None:
    cadence = Cadence(1.0, 0.0)
    assert cadence.forgive(5 * HOUR_S, 1.0, HOUR_S) == 0
    assert cadence.forgive(2.5 * DAY_S, 1.0, HOUR_S) == 2


@given(rates, st.floats(0, 1), st.sampled_from([(1.0, 3.0), (3.0, 1.0)]))
def test_a_new_rate_keeps_the_share_of_the_interval_that_is_over(
    rate: float, share: float, change: tuple[float, float]
) -> None:
    before, after = change
    cadence = Cadence(rate, 0.0)
    cadence.take(0.0, before)
    now = share * interval_s(rate, before)
    cadence.rescale(now, before, after)
    assert cadence.due - now == pytest.approx((1 - share) * interval_s(rate, after), abs=1e-6)


def test_a_new_rate_leaves_an_overdue_sample_where_it_is() -> None:
    cadence = Cadence(100.0, 0.0)
    cadence.rescale(500.0, 3.0, 1.0)
    assert cadence.due == 0.0


def test_another_holders_due_time_is_followed_and_never_goes_back() -> None:
    cadence = Cadence(100.0, 1_000.0)
    cadence.follow(900.0, 1.0)
    assert (cadence.due, cadence.last_due) == (1_764.0, 900.0)
    cadence.follow(500.0, 1.0)
    assert cadence.due == 1_764.0


@given(st.floats(0, 0.999), st.floats(0, 20))
def test_after_a_restart_an_overdue_sample_comes_within_half_an_interval(spread: float, behind: float) -> None:
    cadence = Cadence(100.0, NOW - behind * 864)
    cadence.resume(NOW, 1.0, spread)
    if behind * 864 >= 1e-3:
        assert NOW <= cadence.next_at <= NOW + 432
    cadence = Cadence(100.0, NOW + 5)
    cadence.resume(NOW, 1.0, spread)
    assert cadence.next_at == NOW + 5


# No herd.


def _firsts(threshold: int) -> list[list[float]]:
    """The first due times of every model, after the start; boosted unless the threshold is 0."""
    rules = SamplingRules(low_sample_threshold=threshold)
    samplers = [ModelSampler(model, RATES, rules, ordinal=n, now=NOW) for n, model in enumerate(MODELS)]
    return [sorted(line.cadence.due - NOW for line in sampler._lines.values()) for sampler in samplers]


@pytest.mark.parametrize("threshold", [0, 200], ids=["normal rates", "boosted rates"])
def test_no_two_of_95_models_begin_within_the_same_second(threshold: int) -> None:
    begins = sorted(dues[0] for dues in _firsts(threshold))
    assert min(later - earlier for earlier, later in pairwise(begins)) > 1.0


@pytest.mark.parametrize(("threshold", "interval"), [(0, 1_080.0), (200, 360.0)])
def test_first_samples_fill_the_interval_evenly(threshold: int, interval: float) -> None:
    dues = [due for of_model in _firsts(threshold) for due in of_model]
    assert len(dues) == 760
    assert min(dues) >= 0
    assert max(dues) <= 2 * interval
    per_second = 760 / interval
    busiest = max(sum(begin <= due < begin + 10 for due in dues) for begin in range(0, int(2 * interval), 10))
    assert busiest <= 10 * per_second * 3


def test_a_models_environments_do_not_all_begin_in_the_same_order() -> None:
    orders = {tuple(ModelSampler(m, RATES, SamplingRules(), ordinal=0, now=NOW).environments) for m in MODELS[:20]}
    assert len(orders) > 15


def test_the_same_seed_gives_the_same_start_and_another_seed_another() -> None:
    first = [first_offset_s(3, 2, 8, 720.0, 864.0, seed) for seed in ("main", "main", "other")]
    assert first[0] == first[1] != first[2]
