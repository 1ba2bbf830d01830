"""Simulated providers do what their script says, exactly, and the backlog loses nothing."""

from __future__ import annotations

import random

import pytest

from headgate.admission import OutcomeKind, RequestOutcome
from headgate.admission.laws import Admitted, AimdLaw, LimitChange
from headgate.core.errors import InvalidSettingError
from headgate_bench.limited_providers import Agenda, ProviderScript, load, server
from headgate_bench.rivals.limit_rules import FixedRule, InspectRule, OracleRule


def ends(script: ProviderScript, starts: list[float]) -> list[tuple[float, OutcomeKind]]:
    """Return when and how attempts that begin at `starts` end, in the order of their ends."""
    agenda = Agenda()
    provider = server(script, agenda, random.Random(1))
    ended: list[tuple[float, OutcomeKind]] = []
    for at in starts:
        agenda.at(at, lambda: provider.begin(lambda kind: ended.append((agenda.now, kind))))
    agenda.run(1_000.0)
    return ended


def test_actions_of_one_moment_run_in_the_order_they_were_set() -> None:
    agenda, ran = Agenda(), []
    for name in "abc":
        agenda.at(5.0, lambda name=name: ran.append(name))  # type: ignore[misc]
    agenda.at(1.0, lambda: ran.append("first"))
    agenda.run(10.0)
    assert ran == ["first", "a", "b", "c"]
    assert agenda.now == 10.0


def test_what_is_due_at_the_end_does_not_run() -> None:
    agenda, ran = Agenda(), []
    agenda.at(10.0, lambda: ran.append("late"))
    agenda.run(10.0)
    assert ran == []


def test_requests_beyond_the_cap_are_refused_after_fifty_milliseconds() -> None:
    ended = ends(ProviderScript(caps=((0.0, 3.0),)), [0.0] * 5)
    assert [kind for _, kind in ended].count(OutcomeKind.SUCCESS) == 3
    assert [at for at, kind in ended if kind is OutcomeKind.RATE_LIMITED] == [0.05, 0.05]


def test_a_cap_changes_at_its_time() -> None:
    ended = ends(ProviderScript(caps=((0.0, 1.0), (50.0, 3.0))), [0.0] * 3 + [60.0] * 3)
    assert [kind for at, kind in ended if at < 50].count(OutcomeKind.RATE_LIMITED) == 2
    assert [kind for at, kind in ended if at > 50].count(OutcomeKind.RATE_LIMITED) == 0


def test_a_bucket_lets_its_tokens_through_at_once_and_then_the_rate() -> None:
    script = ProviderScript("rate", caps=((0.0, 2.0),), bucket=5.0)
    kinds = [kind for _, kind in ends(script, [0.0] * 8)]
    assert kinds.count(OutcomeKind.SUCCESS) == 5
    assert [kind for _, kind in ends(script, [0.0] * 5 + [1.0] * 5)].count(OutcomeKind.SUCCESS) == 7


def test_shared_service_slows_down_in_proportion() -> None:
    script = ProviderScript("sharing", caps=((0.0, 10.0),), cv=1e-6)
    assert ends(script, [0.0] * 10)[-1][0] == pytest.approx(2.0, rel=1e-3)
    assert ends(script, [0.0] * 30)[-1][0] == pytest.approx(6.0, rel=1e-3)
    assert all(kind is OutcomeKind.SUCCESS for _, kind in ends(script, [0.0] * 300))


def test_shared_service_is_exact_when_attempts_come_and_go() -> None:
    # One server: the first is alone for 1 s, then both share until it is done at 3 s; the second has 1 s left.
    script = ProviderScript("sharing", caps=((0.0, 1.0),), cv=1e-6)
    assert [at for at, _ in ends(script, [0.0, 1.0])] == pytest.approx([3.0, 4.0], rel=1e-3)


def test_failing_requests_end_after_half_of_their_service() -> None:
    ended = ends(ProviderScript(caps=((0.0, 1e6),), cv=1e-6, failing_share=0.25), [0.0] * 2_000)
    failed = [at for at, kind in ended if kind is OutcomeKind.PROVIDER_FAILURE]
    assert 400 < len(failed) < 600
    assert failed[0] == pytest.approx(1.0, rel=1e-3)


def test_everything_is_refused_in_a_storm() -> None:
    ended = ends(ProviderScript(storm=(10.0, 20.0)), [5.0, 10.0, 19.9, 20.0])
    assert sorted(kind for _, kind in ended).count(OutcomeKind.RATE_LIMITED) == 2


def test_capacity_is_the_integral_of_the_cap() -> None:
    assert ProviderScript(caps=((0.0, 40.0), (200.0, 80.0), (400.0, 20.0))).capacity(600.0) == 14_000
    assert ProviderScript("rate", caps=((0.0, 20.0),)).capacity(600.0) == 12_000
    assert ProviderScript(failing_share=0.05).capacity(600.0) == pytest.approx(11_400)
    assert ProviderScript(storm=(200.0, 500.0)).capacity(600.0) == 6_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"caps": ()},
        {"caps": ((1.0, 5.0),)},
        {"caps": ((0.0, 5.0), (0.0, 6.0))},
        {"caps": ((0.0, 0.0),)},
        {"mean_s": 0.0},
        {"failing_share": 1.0},
    ],
)
def test_a_script_that_describes_no_provider_is_refused(wrong: dict) -> None:
    with pytest.raises(InvalidSettingError):
        ProviderScript(**wrong)


def test_a_fixed_limit_at_the_cap_uses_the_capacity_without_a_refusal() -> None:
    script = ProviderScript()
    record = load(script, FixedRule(40), seed=1, seconds=300.0)
    assert len(record.answered_at) / script.capacity(300.0) == pytest.approx(1.0, abs=0.02)
    assert record.refused == 0


@pytest.mark.parametrize("policy", ["held", "released"])
def test_no_request_is_lost_and_the_same_seed_gives_the_same_run(policy: str) -> None:
    script = ProviderScript(failing_share=0.05, storm=(50.0, 100.0))
    first = load(script, AimdLaw(60), seed=3, seconds=200.0, policy=policy)  # type: ignore[arg-type]
    again = load(script, AimdLaw(60), seed=3, seconds=200.0, policy=policy)  # type: ignore[arg-type]
    assert first == again
    assert first.lost == 0
    assert first.refused > 0


def test_a_held_slot_waits_out_its_back_off_and_a_released_one_does_not() -> None:
    script = ProviderScript(caps=((0.0, 1.0),), cv=1e-6)
    held = load(script, FixedRule(2), seed=1, seconds=30.0, policy="held")
    released = load(script, FixedRule(2), seed=1, seconds=30.0, policy="released")
    assert held.refused < 6
    assert released.refused > 300


def test_retry_after_is_waited_for() -> None:
    script = ProviderScript(caps=((0.0, 1.0),), cv=1e-6, retry_after_s=0.7)
    record = load(script, FixedRule(2), seed=1, seconds=31.0)
    assert 20 <= record.refused <= 45


class Recorder(FixedRule):
    """A fixed limit that checks what it is told."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.under_way = 0
        self.most = 0

    def admitted(self, in_flight: int, now: float) -> Admitted:
        self.under_way += 1
        self.most = max(self.most, in_flight)
        assert self.under_way <= in_flight
        return super().admitted(in_flight, now)

    def observe(self, admitted: Admitted, outcome: RequestOutcome, in_flight: int, now: float) -> list[LimitChange]:
        self.under_way -= 1
        assert self.under_way >= 0
        return super().observe(admitted, outcome, in_flight, now)


def test_the_backlog_keeps_the_limit_in_use_and_never_exceeds_it() -> None:
    law = Recorder(50)
    load(ProviderScript(), law, seed=1, seconds=60.0)
    assert law.most == 50


def test_the_oracle_follows_the_caps() -> None:
    script = ProviderScript(caps=((0.0, 40.0), (20.0, 80.0), (40.0, 20.0)))
    record = load(script, OracleRule(script), seed=1, seconds=60.0)
    assert record.limits == [(0.0, 40), (20.0, 80), (40.0, 20)]


def test_the_rule_of_inspect_doubles_per_clean_round_and_is_cut_once_in_fifteen_seconds() -> None:
    law = InspectRule(100)
    success, limited = RequestOutcome(OutcomeKind.SUCCESS), RequestOutcome(OutcomeKind.RATE_LIMITED)

    def many(times: int, outcome: RequestOutcome, now: float) -> int:
        for _ in range(times):
            law.observe(law.admitted(law.limit, now), outcome, law.limit, now)
        return law.limit

    assert law.limit == 20
    assert many(19, success, 0.0) == 20
    assert many(1, success, 0.0) == 40
    assert many(5, limited, 1.0) == 30
    assert many(100, success, 10.0) == 30
    assert many(30, success, 16.0) == 35
    assert many(1, limited, 17.0) == 25
    assert many(1, limited, 40.0) == 20
    assert many(1, limited, 60.0) == 15
    assert many(2, limited, 80.0) == 10
    assert many(1, limited, 100.0) == 10
