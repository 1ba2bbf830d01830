"""Due times: no drift, no burst, no herd."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.sampling import NEW_PAIRS_PER_S, ModelSampler, PairHistory, SamplingRules, interval_s
from headgate.sampling.sampler import Cadence, phase_s
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


# New pairs: sampled at once, and no herd, neither at the start nor later.


@given(rates, multipliers, st.floats(0, 0.999), st.floats(0, 2))
def test_a_new_pair_is_due_after_its_wait_and_then_at_its_phase(
    rate: float, multiplier: float, phase: float, wait: float
) -> None:
    step = interval_s(rate, multiplier)
    cadence = Cadence.new(rate, NOW, multiplier, phase * step, wait * step)
    assert cadence.next_at == pytest.approx(NOW + min(phase, wait) * step)
    cadence.take(cadence.next_at, multiplier)
    assert cadence.next_at == cadence.due, "what comes next is at its phase, and no less than half an interval away"
    assert cadence.due - NOW - min(phase, wait) * step >= step / 2 - 1e-3
    assert (cadence.due - NOW) / step - phase == pytest.approx(round((cadence.due - NOW) / step - phase), abs=1e-3)


def _starts(threshold: int) -> list[list[tuple[float, float]]]:
    """First and second due time of every pair, after the start, by model; boosted unless the threshold is 0."""
    rules = SamplingRules(low_sample_threshold=threshold)
    starts = []
    for n, model in enumerate(MODELS):
        sampler = ModelSampler(model, RATES, rules, ordinal=n, now=NOW)
        lines = [line.cadence for line in sampler._lines.values()]
        firsts = [cadence.next_at for cadence in lines]
        for cadence in lines:
            cadence.take(cadence.next_at, sampler.multiplier)
        starts.append([(first - NOW, cadence.due - NOW) for first, cadence in zip(firsts, lines, strict=True)])
    return starts


@pytest.mark.parametrize("threshold", [0, 200], ids=["normal rates", "boosted rates"])
def test_every_new_pair_is_sampled_within_seconds_and_at_a_bounded_rate(threshold: int) -> None:
    firsts = sorted(first for of_model in _starts(threshold) for first, _ in of_model)
    assert len(firsts) == 760
    assert firsts[0] == 0.0
    assert firsts[-1] <= 760 / NEW_PAIRS_PER_S
    # Some pairs' own phase comes before their turn among the new ones.
    assert max(sum(begin <= first < begin + 1 for first in firsts) for begin in range(38)) <= 2 * NEW_PAIRS_PER_S


@pytest.mark.parametrize(("threshold", "interval"), [(0, 1_080.0), (200, 360.0)])
def test_the_samples_after_the_first_fill_the_interval_evenly(threshold: int, interval: float) -> None:
    dues = [second for of_model in _starts(threshold) for _, second in of_model]
    assert min(dues) >= 0
    per_second = 760 / interval
    busiest = max(sum(begin <= due < begin + 10 for due in dues) for begin in range(0, int(2 * interval), 10))
    assert busiest <= 10 * per_second * 3


@pytest.mark.parametrize("threshold", [0, 200], ids=["normal rates", "boosted rates"])
def test_no_two_of_95_models_have_due_times_of_an_environment_within_the_same_second(threshold: int) -> None:
    step = interval_s(120, 3 if threshold else 1)
    phases = sorted(phase_s(n, 0, 8, step, step, "main") for n in range(95))
    assert min(later - earlier for earlier, later in pairwise(phases)) > 1.0


def test_a_restart_keeps_the_phases_of_pairs_that_were_sampled_once() -> None:
    """Who stops after the first samples and starts again meets no herd an interval after them."""
    rules = SamplingRules()
    before = ModelSampler(MODELS[5], RATES, rules, ordinal=5, now=NOW)
    demand, _ = before.due(NOW + 30)
    taken = {d.environment: PairHistory(last_due=d.slot_at) for d in demand if d.slot_at}
    assert set(taken) == set(RATES)
    again = ModelSampler(MODELS[5], RATES, rules, ordinal=0, now=NOW + 60, history=taken)
    dues = [{e: line.cadence.due for e, line in sampler._lines.items()} for sampler in (before, again)]
    assert dues[0] == dues[1]


def test_a_first_sample_counts_as_due_from_when_its_pair_began() -> None:
    sampler = ModelSampler(MODELS[0], RATES, SamplingRules(), ordinal=0, now=NOW)
    demand, _ = sampler.due(NOW + 30)
    assert all(d.due_at >= NOW for d in demand)
    assert any(d.slot_at is not None and d.slot_at < NOW for d in demand)


def test_a_models_environments_do_not_all_begin_in_the_same_order() -> None:
    orders = {tuple(ModelSampler(m, RATES, SamplingRules(), ordinal=0, now=NOW).environments) for m in MODELS[:20]}
    assert len(orders) > 15


def test_the_same_seed_gives_the_same_start_and_another_seed_another() -> None:
    first = [phase_s(3, 2, 8, 720.0, 864.0, seed) for seed in ("main", "main", "other")]
    assert first[0] == first[1] != first[2]
