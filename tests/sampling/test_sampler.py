"""A model's sampler over a simulated day: exact counts, the boost, restarts, outages and pauses."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.events import BoostChanged, DuesForgiven, ModelPaused, ModelResumed
from headgate.sampling import ModelSampler, PairHistory, SamplingRules
from tests.sampling.simulated import DAY_S, HOUR_S, NOW, RATES, Day, day, history, most_in_any_window
from tests.sampling.table import MODELS

STEADY = SamplingRules(low_sample_threshold=0)


def _is_the_rate(count: int, rate: float) -> bool:
    return rate - 1 <= count <= rate + 1


# Counts.


@pytest.mark.parametrize("ordinal", [0, 1, 41, 94])
def test_a_day_in_steady_state_has_as_many_samples_as_the_rate_says(ordinal: int) -> None:
    past = history(RATES, 1.0, NOW)
    counts = day(past=past, ordinal=ordinal).run(NOW + DAY_S).counts()
    assert {e: n for e, n in counts.items() if not _is_the_rate(n, RATES[e])} == {}


@pytest.mark.parametrize("rate", [80.0, 97.0, 100.0, 120.0, 200.0, 1_000.0])
def test_one_environment_alone_gets_its_exact_rate(rate: float) -> None:
    simulated = day({"e": rate}, rules=STEADY).run(NOW + 10 * DAY_S)
    for number in range(10):
        assert _is_the_rate(simulated.counts(NOW + number * DAY_S, NOW + (number + 1) * DAY_S)["e"], rate)
    assert abs(len(simulated.taken) - 10 * rate) <= 1


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**32))
def test_a_loop_that_is_late_up_to_ten_seconds_each_time_changes_no_count(seed: int) -> None:
    rng = random.Random(seed)
    simulated = day(rules=STEADY).run(NOW + DAY_S, lateness=lambda n: rng.uniform(0, 10))
    assert {e: n for e, n in simulated.counts().items() if not _is_the_rate(n, RATES[e])} == {}


def test_due_times_of_a_pair_are_exactly_one_interval_apart() -> None:
    rng = random.Random(4)
    simulated = day(rules=STEADY).run(NOW + DAY_S, lateness=lambda n: rng.uniform(0, 5))
    for environment, rate in RATES.items():
        dues = [one.slot_at or one.due_at for _, one in simulated.taken if one.environment == environment]
        assert all(later - earlier == pytest.approx(DAY_S / rate, abs=1e-5) for earlier, later in pairwise(dues))


def test_a_demand_names_its_pair_its_due_time_and_the_spacing() -> None:
    simulated = day({"e": 100.0}, rules=STEADY).run(NOW + 2_000)
    for at, one in simulated.taken:
        assert (one.model, one.environment, one.interval_s, one.sequence) == (MODELS[0].key, "e", 864.0, None)
        assert at == pytest.approx(one.due_at)


def test_a_sampler_without_environments_wants_nothing() -> None:
    sampler = ModelSampler(MODELS[0], {}, SamplingRules(), ordinal=0, now=NOW)
    assert sampler.next_at(NOW) is None
    assert sampler.due(NOW) == ([], [])


# The boost.


def test_rates_are_threefold_while_a_model_has_under_200_samples_in_24_hours() -> None:
    simulated = day()
    while simulated.sampler.multiplier == 3.0:
        simulated.run(simulated.now + 60)
        assert simulated.now < NOW + DAY_S
    (changed,) = simulated.of(BoostChanged)
    assert isinstance(changed, BoostChanged)
    assert changed.multiplier == 1.0
    assert 200 <= changed.samples_24h <= 200 + len(RATES)
    boosted_for = simulated.now - NOW
    for environment, count in simulated.counts().items():
        # The first sample comes at once, the next within an interval.
        exact = 3 * RATES[environment] * boosted_for / DAY_S
        assert exact - 1 <= count <= exact + 2
    second_day = simulated.run(simulated.now + DAY_S).counts(simulated.now - DAY_S)
    assert {e: n for e, n in second_day.items() if not _is_the_rate(n, RATES[e])} == {}


@pytest.mark.parametrize(("samples", "multiplier"), [(199, 3.0), (200, 1.0)])
def test_the_threshold_is_200_samples_of_all_environments_together(samples: int, multiplier: float) -> None:
    past = {
        "affine:sat": PairHistory(((NOW - HOUR_S, 100),)),
        "an environment that is not sampled any more": PairHistory(((NOW - HOUR_S, samples - 100),)),
    }
    sampler = day(past=past).sampler
    assert (sampler.multiplier, sampler.samples_24h(NOW)) == (multiplier, samples)
    assert sampler.rate_per_day("affine:sat") == 100.0 * multiplier


def test_a_model_whose_samples_grow_old_is_boosted_again() -> None:
    simulated = day(past=history(RATES, 1.0, NOW))
    simulated.is_answered = False
    simulated.run(NOW + DAY_S)
    (changed,) = simulated.of(BoostChanged)
    assert (changed.multiplier, changed.samples_24h) == (3.0, 199)  # type: ignore[attr-defined]
    in_last_hour = simulated.counts(NOW + DAY_S - HOUR_S)
    assert sum(in_last_hour.values()) == pytest.approx(3 * sum(RATES.values()) / 24, abs=len(RATES))


def test_the_last_day_counts_and_not_everything_since_the_start() -> None:
    simulated = day({"e": 100.0})
    simulated.run(NOW + 3 * DAY_S)
    third = simulated.counts(NOW + 2 * DAY_S)["e"]
    assert 195 <= third <= 205


def test_the_end_of_the_boost_keeps_the_share_of_each_interval_that_is_over() -> None:
    sampler = day().sampler
    dues = {e: line.cadence.due for e, line in sampler._lines.items()}
    now = min(dues.values()) - 1.0
    sampler._total.add(now, 200)
    demand, (changed,) = sampler.due(now)
    assert demand == []
    assert isinstance(changed, BoostChanged)
    for environment, line in sampler._lines.items():
        assert line.cadence.due - now == pytest.approx(3 * (dues[environment] - now))
    sampler.validate()


# Restarts.


def test_a_restart_of_many_models_that_are_all_overdue_is_no_herd() -> None:
    past = {e: PairHistory(((NOW - HOUR_S, 200),), NOW - 1_800.0) for e in RATES}
    firsts = []
    for ordinal in range(95):
        sampler = day(past=past, ordinal=ordinal).sampler
        firsts += [line.cadence.next_at - NOW for line in sampler._lines.values()]
    assert min(firsts) >= 0
    assert max(firsts) <= DAY_S / 80 / 2
    busiest = max(sum(begin <= at < begin + 10 for at in firsts) for begin in range(0, 540, 10))
    assert busiest <= 3 * len(firsts) * 10 / 432


@pytest.mark.parametrize("at_hour", [0.3, 7.0, 12.21, 23.9])
def test_a_restart_in_the_middle_changes_no_count(at_hour: float) -> None:
    restart = NOW + at_hour * HOUR_S
    first = day(past=history(RATES, 1.0, NOW)).run(restart)
    known = first.remembered()
    before = history(RATES, 1.0, NOW)
    past = {e: PairHistory(before[e].counts + known[e].counts, known[e].last_due or before[e].last_due) for e in RATES}
    second = day(past=past, now=restart + 2.0).run(NOW + DAY_S)
    assert second.of(BoostChanged) == []
    both = first.counts() + second.counts()
    assert {e: n for e, n in both.items() if not _is_the_rate(n, RATES[e])} == {}


def test_a_restart_while_boosted_goes_on_boosted_and_one_in_steady_state_steady() -> None:
    first = day().run(NOW + HOUR_S)
    assert day(past=first.remembered(), now=first.now).sampler.multiplier == 3.0
    first.run(NOW + DAY_S)
    assert day(past=first.remembered(), now=first.now).sampler.multiplier == 1.0


@pytest.mark.parametrize("hours", [10 / 60, 3.0, 50.0], ids=["10 minutes", "3 hours", "50 hours"])
def test_after_an_outage_of_the_process_there_is_no_burst(hours: float) -> None:
    first = day(past=history(RATES, 1.0, NOW)).run(NOW + 5 * HOUR_S)
    back = first.now + hours * HOUR_S
    # A long outage empties the 24 h window: the boost after it is the seed's rule, not a mistake of the restart.
    rules = SamplingRules() if hours < 20 else STEADY
    known, before = first.remembered(), history(RATES, 1.0, NOW)
    past = {e: PairHistory(before[e].counts + known[e].counts, known[e].last_due) for e in RATES}
    second = day(past=past, now=back, rules=rules).run(back + 6 * HOUR_S)
    assert second.of(BoostChanged) == []
    _assert_no_burst(second, RATES)


def _assert_no_burst(simulated: Day, rates: dict[str, float]) -> None:
    """In no window more than twice the rate, and one for the edge; no herd over all environments either."""
    for environment, rate in rates.items():
        times = [at for at, one in simulated.taken if one.environment == environment]
        for window in (60.0, 900.0, HOUR_S, 4 * HOUR_S):
            assert most_in_any_window(times, window) <= 2 * rate * window / DAY_S + 1
    everything = [at for at, _ in simulated.taken]
    for window in (900.0, HOUR_S):
        assert most_in_any_window(everything, window) <= 2 * sum(rates.values()) * window / DAY_S + len(rates)


@pytest.mark.parametrize("minutes", [10, 180])
def test_after_a_standstill_of_the_loop_there_is_no_burst_and_a_short_one_costs_no_sample(minutes: int) -> None:
    simulated = day(past=history(RATES, 1.0, NOW)).run(NOW + 5 * HOUR_S)
    simulated.now += minutes * 60
    resumed = len(simulated.taken)
    simulated.run(NOW + DAY_S)
    after = Day(simulated.sampler, taken=simulated.taken[resumed:])
    for environment, rate in RATES.items():
        times = [at for at, one in after.taken if one.environment == environment]
        for window in (60.0, 900.0, HOUR_S):
            assert most_in_any_window(times, window) <= 2 * rate * window / DAY_S + 1
    lost = {e: RATES[e] - n for e, n in simulated.counts().items()}
    forgiven = {event.environment: event.dues for event in simulated.of(DuesForgiven)}  # type: ignore[attr-defined]
    for environment, rate in RATES.items():
        assert abs(lost[environment] - forgiven.get(environment, 0)) <= 1
        assert forgiven.get(environment, 0) == pytest.approx(max(0.0, (minutes - 60) / 1_440) * rate, abs=1.01)


def test_without_a_horizon_sampling_goes_on() -> None:
    rules = SamplingRules(low_sample_threshold=0, catch_up_horizon_s=0.0)
    simulated = day(rules=rules).run(NOW + DAY_S, lateness=lambda n: 0.01)
    assert {e: n for e, n in simulated.counts().items() if not _is_the_rate(n, RATES[e])} == {}


def test_a_first_start_from_the_store_alone_begins_where_the_last_sample_ended() -> None:
    past = {e: PairHistory(((NOW - HOUR_S, 30),), NOW - 300.0) for e in RATES}
    simulated = day(past=past).run(NOW + HOUR_S)
    first = {e: min(at for at, one in simulated.taken if one.environment == e) for e in RATES}
    for environment, at in first.items():
        assert at == pytest.approx(NOW - 300.0 + DAY_S / RATES[environment])


# Several processes.


def test_a_due_time_that_another_process_took_is_not_taken_again() -> None:
    simulated = day({"e": 100.0}, rules=STEADY)
    simulated.run(NOW + HOUR_S)
    _, last = simulated.taken[-1]
    simulated.sampler.was_taken("e", last.due_at + 800.0)
    simulated.sampler.validate()
    before = len(simulated.taken)
    simulated.run(NOW + 2 * HOUR_S)
    assert simulated.taken[before][1].due_at == pytest.approx(last.due_at + 800.0 + 864.0)


def test_two_processes_that_follow_one_another_take_the_rate_of_one() -> None:
    """The journal is played by one number: the due time last taken."""
    days = [day({"e": 100.0}, rules=STEADY, ordinal=n) for n in (0, 1)]
    last_due, taken = float("-inf"), 0
    now = NOW
    while now < NOW + DAY_S:
        now, which = min((d.sampler.next_at(now) or 0.0, i) for i, d in enumerate(days))
        demand, _ = days[which].sampler.due(now)
        for one in demand:
            if (one.slot_at is not None and taken) or one.due_at < last_due + one.interval_s / 2:
                days[which].sampler.was_taken("e", last_due)
            else:
                last_due, taken = one.due_at if one.slot_at is None else one.slot_at, taken + 1
    assert taken == pytest.approx(100, abs=2), "the first comes at once, and the two differ in their phases"


# Pauses.


def _fail(simulated: Day, times: int) -> list[object]:
    happened: list[object] = []
    for _ in range(times):
        happened += simulated.sampler.observe(
            "service_error", error="refused", started_at=simulated.now, now=simulated.now
        )
    return happened


def test_a_paused_model_is_left_alone_and_resumes_by_itself_without_a_burst() -> None:
    simulated = day(rules=STEADY).run(NOW + HOUR_S)
    assert _fail(simulated, 2) == []
    assert _fail(simulated, 1) == [ModelPaused(MODELS[0].key, 0, 900.0, 3, 1, "refused")]
    paused_at, before = simulated.now, len(simulated.taken)
    assert simulated.sampler.next_at(paused_at) == paused_at + 900.0
    assert simulated.sampler.due(paused_at + 899.0) == ([], [])
    simulated.run(paused_at + 2 * HOUR_S)
    assert simulated.of(ModelResumed) == [ModelResumed(MODELS[0].key, 0, 900.0)]
    after = simulated.taken[before:]
    assert min(at for at, _ in after) >= paused_at + 900.0
    for environment, rate in RATES.items():
        times = [at for at, one in after if one.environment == environment]
        assert most_in_any_window(times, HOUR_S) <= 2 * rate / 24 + 1


def test_a_short_pause_changes_no_daily_count() -> None:
    simulated = day(rules=STEADY).run(NOW + 5 * HOUR_S)
    _fail(simulated, 3)
    simulated.run(NOW + DAY_S)
    assert {e: n for e, n in simulated.counts().items() if not _is_the_rate(n, RATES[e])} == {}


def test_an_answer_ends_a_pause_and_says_so() -> None:
    simulated = day(rules=STEADY).run(NOW + HOUR_S)
    _fail(simulated, 3)
    now = simulated.now + 30
    assert simulated.sampler.observe("answered", error=None, started_at=now - 1, now=now) == [
        ModelResumed(MODELS[0].key, 0, 30.0)
    ]
    assert simulated.sampler.next_at(now) != simulated.now + 900.0


def test_the_end_of_a_pause_is_told_once() -> None:
    simulated = day(rules=STEADY)
    _fail(simulated, 3)
    assert simulated.sampler.end_pause(NOW + 899) == []
    assert len(simulated.sampler.end_pause(NOW + 900)) == 1
    assert simulated.sampler.end_pause(NOW + 901) == []


def test_wrong_answers_never_pause() -> None:
    simulated = day(rules=STEADY)
    for _ in range(100):
        simulated.sampler.observe("answered", error="cannot be parsed", started_at=NOW, now=NOW)
    assert not simulated.sampler.pause.is_paused(NOW)
    assert simulated.sampler.errors.total(NOW) == 100
    assert simulated.sampler.last_error == (NOW, "cannot be parsed")


def test_counts_by_environment_are_those_of_the_samples() -> None:
    simulated = day(rules=STEADY).run(NOW + 6 * HOUR_S)
    end = simulated.now
    assert simulated.sampler.counts(end, DAY_S) == dict(simulated.counts())
    recent = simulated.sampler.counts(end, HOUR_S)
    for environment, count in recent.items():
        assert count == pytest.approx(simulated.counts(end - HOUR_S)[environment], abs=1)
    assert simulated.sampler.samples_24h(end) == len(simulated.taken)
