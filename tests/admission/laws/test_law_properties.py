"""What holds for every law, whatever happens: bounds, one cut per episode, cooldowns that only get longer, the gate."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.admission import SUCCESS, OutcomeKind, RequestOutcome
from headgate.admission.laws import AdaptiveLaw, AdaptiveSettings, Admitted, AimdLaw, AimdSettings, LimitLaw
from tests.examples import examples

MakeLaw = Callable[[int], LimitLaw]

LAWS: dict[str, MakeLaw] = {
    "aimd": AimdLaw,
    "aimd, ramp and small steps": lambda cap: AimdLaw(
        cap, AimdSettings(startup_ramp_s=20.0, successes_until_increase=2, initial_limit=7)
    ),
    "adaptive": AdaptiveLaw,
    "adaptive, ramp and eager probes": lambda cap: AdaptiveLaw(
        cap, AdaptiveSettings(startup_ramp_s=20.0, probe_successes=3, probe_pause_s=0.0, soft_probe_successes=2)
    ),
}

every_law = pytest.mark.parametrize("make", LAWS.values(), ids=LAWS.keys())

outcomes = st.builds(
    RequestOutcome,
    st.sampled_from(OutcomeKind),
    retry_after_s=st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
    latency_s=st.one_of(st.none(), st.floats(0, 1e6)),
    first_token_s=st.one_of(st.none(), st.floats(0, 1e6)),
)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 30)),
        st.tuples(st.just("end"), st.tuples(st.integers(0, 50), outcomes)),
        st.tuples(st.just("wait"), st.floats(0, 60)),
        st.tuples(st.just("cap"), st.integers(1, 200)),
    ),
    max_size=120,
)


@every_law
@settings(max_examples=examples(80), deadline=None)
@given(cap=st.integers(1, 200), history=actions)
def test_the_limit_stays_in_its_bounds_and_every_change_is_told(make: MakeLaw, cap: int, history: list) -> None:
    law = make(cap)
    now = 0.0
    under_way: list[Admitted] = []
    for what, value in history:
        before, blocked_until = law.limit, law.blocked_until
        changes = []
        if what == "send":
            under_way += [law.admitted(len(under_way) + number, now) for number in range(1, value + 1)]
        elif what == "wait":
            now += value
            changes = [law.tick(now)]
        elif what == "cap":
            changes = [law.set_max(value, now)]
        elif under_way:
            index, outcome = value
            changes = law.observe(under_way.pop(index % len(under_way)), outcome, len(under_way) + 1, now)
        told = [change for change in changes if change is not None]
        law.validate()
        assert 1 <= law.limit <= law.max_limit
        assert law.blocked_until >= blocked_until or blocked_until <= now
        assert law.blocked_until <= now + 300.0 or law.blocked_until == blocked_until
        assert (told[-1].after if told else before) == law.limit
        assert not told or told[0].before == before
        at = law.next_change_at(now)
        assert at is None or math.isfinite(at)


@every_law
@given(cap=st.integers(2, 200), size=st.integers(1, 200), order=st.randoms(use_true_random=False))
@settings(max_examples=examples(60), deadline=None)
def test_one_congestion_episode_cuts_once(make: MakeLaw, cap: int, size: int, order: object) -> None:
    law = make(cap)
    law.tick(0.0)
    law.tick(1_000.0)
    burst = [law.admitted(number, 1_000.0) for number in range(1, min(size, law.limit) + 1)]
    order.shuffle(burst)  # type: ignore[attr-defined]
    cuts = [
        change
        for number, admitted in enumerate(burst)
        for change in law.observe(admitted, RequestOutcome(OutcomeKind.RATE_LIMITED), len(burst) - number, 1_000.05)
    ]
    assert len(cuts) <= 1


@every_law
@given(pauses=st.lists(st.tuples(st.floats(0, 5), st.one_of(st.none(), st.floats(0, 1e9))), min_size=1, max_size=40))
@settings(max_examples=examples(60), deadline=None)
def test_a_cooldown_is_never_shortened(make: MakeLaw, pauses: list[tuple[float, float | None]]) -> None:
    law, now = make(1), 0.0
    for pause, asked in pauses:
        before = law.blocked_until
        now += pause
        law.observe(law.admitted(1, now), RequestOutcome(OutcomeKind.RATE_LIMITED, retry_after_s=asked), 1, now)
        assert law.blocked_until >= before
        assert law.blocked_until <= max(before, now + 300.0)


@pytest.mark.parametrize("start", [1, 2, 16])
def test_requests_one_at_a_time_never_lift_the_default_limit_beyond_what_they_use(start: int) -> None:
    law = AdaptiveLaw(200, AdaptiveSettings(initial_limit=start))
    for number in range(2_000):
        law.observe(law.admitted(1, float(number)), SUCCESS, 1, number + 0.5)
    assert law.limit == max(2, start)


@given(used=st.integers(1, 40))
@settings(max_examples=20, deadline=None)
def test_the_default_limit_never_grows_far_beyond_what_is_in_flight(used: int) -> None:
    law = AdaptiveLaw(200, AdaptiveSettings(initial_limit=1))
    now = 0.0
    under_way: list[Admitted] = []
    for _ in range(1_000):
        while len(under_way) < min(used, law.limit):
            under_way.append(law.admitted(len(under_way) + 1, now))
        now = max(now, under_way[0].at + 2.0)
        law.observe(under_way.pop(0), SUCCESS, len(under_way) + 1, now)
    assert law.limit <= used / 0.8 + 1
