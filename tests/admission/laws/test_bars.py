"""Bar P2 in short: one seed of each case; `headgate bench limit` measures it in full."""

from __future__ import annotations

import pytest

from headgate.admission.laws import AdaptiveLaw
from headgate_bench.limited_providers import ProviderScript, SlotPolicy, load

CASES = {
    "S1": (ProviderScript(), 98.0, 1.0),
    "S2": (ProviderScript(caps=((0.0, 40.0), (130.0, 80.0), (260.0, 20.0))), 94.0, 1.5),
    "S3": (ProviderScript("rate", caps=((0.0, 20.0),)), 98.0, 2.5),
    "S3b": (ProviderScript("rate", caps=((0.0, 20.0),), retry_after_s=5.0), 98.0, 2.5),
    "S4": (ProviderScript(failing_share=0.05), 98.0, 1.0),
}


@pytest.mark.parametrize("policy", ["held", "released"])
@pytest.mark.parametrize("case", CASES)
def test_the_default_law_uses_a_provider_that_refuses_without_pestering_it(case: str, policy: SlotPolicy) -> None:
    script, goodput, refused = CASES[case]
    record = load(script, AdaptiveLaw(100), seed=4, seconds=400.0, policy=policy)
    assert 100 * len(record.answered_at) / script.capacity(400.0) >= goodput
    assert 100 * record.refused_share <= refused
    assert record.lost == 0


def test_the_default_law_uses_a_provider_that_queues_without_a_long_queue() -> None:
    script = ProviderScript("sharing")
    record = load(script, AdaptiveLaw(100), seed=4, seconds=600.0)
    assert 100 * len(record.answered_at) / script.capacity(600.0) >= 95.0
    assert record.latency_s(0.95) <= 1.3 * script.latency_quantile_s(1.645)


def test_a_cap_cut_to_a_quarter_is_followed_within_five_service_times() -> None:
    script = ProviderScript(caps=((0.0, 80.0), (60.0, 20.0)))
    record = load(script, AdaptiveLaw(100), seed=4, seconds=100.0)
    highest, mean = record.limit_over(70.0, 100.0)
    assert highest <= 22
    assert mean >= 18.0


def test_a_doubled_cap_is_used_within_a_minute() -> None:
    script = ProviderScript(caps=((0.0, 40.0), (60.0, 80.0)))
    record = load(script, AdaptiveLaw(200), seed=4, seconds=140.0)
    assert record.limit_over(120.0, 140.0)[1] >= 72.0


@pytest.mark.parametrize("seed", range(3))
def test_after_five_minutes_of_refusals_the_capacity_is_used_within_a_minute_and_nothing_is_lost(seed: int) -> None:
    script = ProviderScript(storm=(60.0, 360.0))
    record = load(script, AdaptiveLaw(100), seed=seed, seconds=440.0)
    late = sum(at >= 420.0 for at in record.answered_at)
    assert late >= 0.9 * 20 * 20
    assert record.lost == 0
    assert record.refused < 400
