"""A sampler whose environments are settled one after the other."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.sampling import SamplingRules
from tests.sampling.simulated import DAY_S, NOW, RATES, day

STEADY = SamplingRules(low_sample_threshold=0)


def test_a_settled_environment_is_sampled_no_further_and_the_day_s_total_stays_the_same() -> None:
    simulated = day(rules=STEADY)
    simulated.sampler.settle("affine:sat", NOW)
    simulated.run(NOW + DAY_S)
    counts = simulated.counts()
    assert counts["affine:sat"] == 0
    assert sum(counts.values()) == pytest.approx(sum(RATES.values()), abs=len(RATES))
    share = sum(RATES.values()) / (sum(RATES.values()) - RATES["affine:sat"])
    for environment, rate in RATES.items():
        if environment != "affine:sat":
            assert counts[environment] == pytest.approx(rate * share, abs=2)


def test_a_change_in_the_middle_of_an_interval_makes_no_burst() -> None:
    simulated = day({"affine:sat": 100.0, "affine:ded": 100.0}, rules=STEADY).run(NOW + DAY_S / 2)
    simulated.sampler.settle("affine:sat", simulated.now)
    simulated.run(NOW + DAY_S)
    times = [at for at, one in simulated.taken if one.environment == "affine:ded"]
    assert min(b - a for a, b in itertools.pairwise(times)) > 86_400 / 200 / 2
    assert simulated.counts(begin=NOW + DAY_S / 2)["affine:ded"] == pytest.approx(100, abs=2)


@given(st.lists(st.sampled_from(sorted(RATES)), max_size=12))
def test_the_model_s_rate_is_kept_while_an_environment_is_left(order: list[str]) -> None:
    sampler = day(rules=STEADY).sampler
    for environment in order:
        sampler.settle(environment, NOW)
        sampler.validate()
    total = sum(sampler.rate_per_day(environment) for environment in sampler.environments)
    assert total == (0 if set(order) == set(RATES) else pytest.approx(sum(RATES.values())))


def test_with_every_environment_settled_nothing_falls_due() -> None:
    simulated = day({"affine:sat": 100.0}, rules=STEADY)
    simulated.sampler.settle("affine:sat", NOW)
    simulated.sampler.settle("unknown:one", NOW)
    assert simulated.sampler.next_at(NOW) is None
    assert simulated.sampler.due(NOW + DAY_S) == ([], [])
