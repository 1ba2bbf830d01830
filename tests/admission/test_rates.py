"""Limits per minute: nothing beyond them is admitted, what is not used is given back, groups share what is scarce."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.admission import (
    AdmissionController,
    Denied,
    OutcomeKind,
    PressureReason,
    ProviderModel,
    RequestItem,
    RequestKey,
    RequestLease,
    RequestOutcome,
)
from headgate.admission.items import NO_CORRELATION, DenyReason, PressureChanged, Ticket
from headgate.admission.rates import BURST_S
from headgate.core.rates import ModelRates, RateLimits, RateNote
from tests.admission.toy_laws import FixedLaw
from tests.examples import examples

ONE, TWO = ProviderModel("p", "one"), ProviderModel("p", "two")
OTHER = ProviderModel("q", "one")
REFUSED = OutcomeKind.RATE_LIMITED


def controller(*rates: tuple[ProviderModel, ModelRates], cap: int = 1_000) -> AdmissionController:
    made = AdmissionController(FixedLaw)
    for name, limits in rates:
        made.register(name, cap, "m", 0.0, limits)
    return made


def item(name: ProviderModel = ONE, group: str = "g", tokens: tuple[int, int] = (0, 0)) -> RequestItem:
    return RequestItem(RequestKey(name), group, 1.0, None, NO_CORRELATION, *tokens)


def answered(prompt: int, reply: int, *told: RateNote) -> RequestOutcome:
    return RequestOutcome(OutcomeKind.SUCCESS, tokens=reply, prompt_tokens=prompt, told=told)


def granted(made: AdmissionController, now: float, *items: RequestItem) -> list[RequestLease]:
    """Return the leases that are had at once, one item after the other."""
    answers = [made.try_acquire(each, now) for each in items]
    made.validate(now)
    return [answer for answer in answers if isinstance(answer, RequestLease)]


@given(
    limits=st.tuples(*[st.none() | st.integers(1, 600)] * 4).map(lambda four: RateLimits(*four)),
    steps=st.lists(
        st.tuples(
            st.floats(0.0, 40.0),
            st.tuples(st.integers(1, 50), st.integers(1, 50)),
            st.sampled_from(list(OutcomeKind)),
            st.lists(st.builds(RateNote, st.integers(0, 3), st.floats(1, 1e9), st.floats(0, 1e9)), max_size=1),
        ),
        max_size=60,
    ),
)
@settings(max_examples=examples(150), deadline=None)
def test_what_is_admitted_in_any_time_is_within_what_is_stated_whatever_answers_tell(
    limits: RateLimits, steps: list[tuple[float, tuple[int, int], OutcomeKind, list[RateNote]]]
) -> None:
    made, now = controller((ONE, ModelRates(own=limits))), 0.0
    taken: list[tuple[float, tuple[int, int, int, int]]] = []
    for pause, (prompt, reply), kind, told in steps:
        now += pause
        for lease in granted(made, now, item(tokens=(prompt, reply))):
            taken.append((now, (1, prompt, reply, prompt + reply)))
            # Whatever becomes of it, all that was taken is used: nothing is given back that was not free.
            used = (prompt, reply) if kind is OutcomeKind.SUCCESS else (0, 0)
            if kind in {OutcomeKind.SUCCESS, OutcomeKind.LOCAL_CANCELLED, OutcomeKind.LOCAL_TIMEOUT}:
                made.release(lease, RequestOutcome(kind, None, None, None, used[1], used[0], tuple(told)), now)
            made.validate(now)
    for unit, limit in enumerate(limits):
        if limit is None:
            continue
        most = max((need[unit] for _, need in taken), default=0)
        for (first, (since, _)), (last, (until, _)) in itertools.combinations_with_replacement(enumerate(taken), 2):
            spent = sum(need[unit] for _, need in taken[first : last + 1])
            assert spent <= max(1.0, limit * BURST_S / 60) + (until - since) * limit / 60 + most + 1e-3


def test_requests_per_minute_let_a_burst_through_and_then_one_at_a_time() -> None:
    made = controller((ONE, ModelRates(own=RateLimits(requests_per_minute=30))))
    assert len(granted(made, 0.0, *[item()] * 20)) == 5
    assert len(granted(made, 1.9, item())) == 0
    assert len(granted(made, 2.0, item(), item())) == 1
    pressure = made.accounts.pressure(RequestKey(ONE), 2.0)
    assert pressure is not None
    assert (pressure.reason, pressure.until) == (PressureReason.REQUESTS_PER_MINUTE, pytest.approx(4.0))


def test_who_waits_is_served_when_the_bucket_has_room() -> None:
    made = controller((ONE, ModelRates(own=RateLimits(output_tokens_per_minute=600))))
    (lease,) = granted(made, 0.0, item(tokens=(5, 400)))
    ticket = made.request(item(tokens=(5, 10)), 0.0)
    assert isinstance(ticket, Ticket)
    assert made.changes_at == pytest.approx(30.1)  # 100 are there, 400 taken: until one is left, 10 a second
    made.release(lease, answered(5, 90), 10.0)  # 310 of them are given back
    assert ticket.lease is not None
    made.validate(10.0)


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        (OutcomeKind.SUCCESS, 30),  # no usage: what was expected stays taken
        (OutcomeKind.RATE_LIMITED, 100),
        (OutcomeKind.PROVIDER_FAILURE, 80),
        (OutcomeKind.PROVIDER_TIMEOUT, 30),
        (OutcomeKind.LOCAL_CANCELLED, 30),
        (OutcomeKind.UNEXPECTED_EXCEPTION, 30),
    ],
)
def test_every_end_settles(kind: OutcomeKind, left: float) -> None:
    made = controller((ONE, ModelRates(own=RateLimits(tokens_per_minute=600))))
    (lease,) = granted(made, 0.0, item(tokens=(20, 50)))
    made.release(lease, RequestOutcome(kind), 0.0)
    (status,) = made.accounts.statuses(0.0)[0].rates
    assert (status.left, status.reserved) == (left, 0.0)


def test_a_lease_that_was_never_sent_gives_everything_back() -> None:
    made = controller((ONE, ModelRates(own=RateLimits(60, 600))))
    ticket = Ticket(item(tokens=(90, 1)))
    (ticket.lease,) = granted(made, 0.0, ticket.item)
    assert made.cancel(ticket, 0.0)
    assert [(s.left, s.reserved) for s in made.accounts.statuses(0.0)[0].rates] == [(10.0, 0.0), (100.0, 0.0)]


def test_models_share_their_keys_limits_and_their_organisations() -> None:
    by_key, shared = ModelRates(key=RateLimits(6)), RateLimits(12)
    made = controller((ONE, by_key), (TWO, ModelRates()), (OTHER, ModelRates()))
    assert len(granted(made, 0.0, item(TWO), item(ONE), item(OTHER), item(OTHER))) == 3
    made = controller(
        (ONE, ModelRates(organisation="acme", shared=shared)), (OTHER, ModelRates(organisation="acme", shared=shared))
    )
    leases = granted(made, 0.0, item(ONE), item(OTHER), item(ONE))
    assert len(leases) == 2
    waiting = [made.request(item(name), 0.0) for name in (OTHER, ONE, OTHER, ONE)]
    for step in range(1, 5):
        made.tick(5.0 * step)
        made.validate(5.0 * step)
    assert all(isinstance(one, Ticket) and one.lease is not None for one in waiting)
    made.unregister(OTHER, "m", 30.0)
    assert len(granted(made, 30.0, item(ONE), item(ONE), item(ONE))) == 2


def test_the_smallest_of_the_aliases_limits_holds_and_goes_with_its_alias() -> None:
    made = controller((ONE, ModelRates(own=RateLimits(60))))
    made.register(ONE, 9, "n", 0.0, ModelRates(own=RateLimits(6)))
    assert len(granted(made, 0.0, item(), item())) == 1
    made.unregister(ONE, "n", 60.0)
    assert len(granted(made, 70.0, *[item()] * 20)) == 10


def test_a_prompt_larger_than_a_minutes_tokens_is_told_at_once() -> None:
    made = controller((ONE, ModelRates(own=RateLimits(input_tokens_per_minute=1_000))))
    denied = made.request(item(tokens=(1_001, 1)), 0.0)
    assert isinstance(denied, Denied)
    assert denied.reason is DenyReason.TOO_LARGE
    assert "about 1001 tokens" in denied.detail
    assert "1000 input tokens" in denied.detail
    assert len(granted(made, 0.0, item(tokens=(1_000, 1)))) == 1  # it fits, and who follows pays the debt


def test_a_told_limit_lowers_is_never_above_what_is_stated_and_is_forgotten() -> None:
    made = controller((ONE, ModelRates(own=RateLimits(requests_per_minute=60))))
    (lease,) = granted(made, 0.0, item())
    made.release(lease, answered(1, 1, RateNote(0, 6.0, 6.0)), 0.0)
    assert len(granted(made, 0.0, item(), item())) == 1
    (lease,) = granted(made, 10.0, item(), item())
    made.release(lease, answered(1, 1, RateNote(0, 1e9, 1e9)), 10.0)  # it lies, or has changed its unit
    assert len(granted(made, 11.0, item(), item())) == 1
    (status,) = made.accounts.statuses(80.0)[0].rates
    assert (status.limit, status.is_told) == (60.0, False)


def test_an_absurdly_low_limit_costs_a_minute_and_fails_nothing() -> None:
    made = controller((ONE, ModelRates()))
    (lease,) = granted(made, 0.0, item(tokens=(500, 500)))
    made.release(lease, answered(500, 500, RateNote(1, 1.0, 0.0)), 0.0)
    ticket = made.request(item(tokens=(500, 500)), 0.0)
    assert isinstance(ticket, Ticket)
    assert made.changes_at <= 61.0
    made.tick(made.changes_at)
    made.tick(61.0)
    assert ticket.lease is not None
    made.release(ticket.lease, answered(500, 500), 62.0)
    assert len(granted(made, 62.0, *[item(tokens=(500, 500))] * 9)) == 9


def test_a_refusal_for_a_rate_closes_its_bucket_and_cuts_no_limit_of_requests_in_flight() -> None:
    made = controller((ONE, ModelRates(own=RateLimits(tokens_per_minute=60_000))))
    first, second = granted(made, 0.0, item(tokens=(10, 10)), item(tokens=(10, 10)))
    made.release(first, RequestOutcome(REFUSED, 7.0, told=(RateNote(3, None, 0.0),)), 1.0)
    pressure = made.accounts.pressure(RequestKey(ONE), 1.0)
    assert pressure is not None
    assert (pressure.reason, pressure.until) == (PressureReason.TOKENS_PER_MINUTE, 8.0)
    (status,) = made.accounts.statuses(1.0)
    assert (status.rate_limited, status.limit, status.breaker) == (1, 1_000, "closed")
    made.release(second, answered(10, 10), 2.0)
    assert not granted(made, 7.9, item())
    assert granted(made, 8.0, item())


def test_a_process_has_its_share() -> None:
    made = controller((ONE, ModelRates(own=RateLimits(requests_per_minute=60))))
    made.set_rate_share("p", 0.5, 0.0)
    assert len(granted(made, 0.0, *[item()] * 20)) == 5
    assert len(granted(made, 4.0, *[item()] * 20)) == 2


def test_what_answers_tell_is_kept_for_their_model_also_after_it_has_left() -> None:
    made = controller((ONE, ModelRates(key=RateLimits(600))), (TWO, ModelRates()))
    mine, others = granted(made, 0.0, item(TWO), item(ONE))
    made.release(mine, answered(1, 1, RateNote(0, 6.0, 0.0)), 0.0)
    assert not granted(made, 1.0, item(TWO))
    assert len(granted(made, 1.0, item(ONE))) == 1  # the key's limit is as it was
    made.unregister(ONE, "m", 2.0)
    made.release(others, answered(1, 1, RateNote(0, 6.0, 0.0)), 2.0)
    made.validate(2.0)


def test_what_a_model_gives_back_to_limits_that_it_has_left_is_handed_over() -> None:
    shared = ModelRates(organisation="acme", shared=RateLimits(output_tokens_per_minute=60))
    made = controller((ONE, shared), (OTHER, shared))
    (lease,) = granted(made, 0.0, item(ONE, tokens=(1, 500)))
    ticket = made.request(item(OTHER, tokens=(1, 1)), 0.0)
    assert isinstance(ticket, Ticket)
    made.register(ONE, 9, "m", 1.0, ModelRates())
    made.release(lease, answered(1, 1), 2.0)
    assert ticket.lease is not None
    made.validate(2.0)


def test_a_shared_limit_that_has_room_presses_on_none_of_its_models() -> None:
    names = [ProviderModel("p", f"m{number}") for number in range(300)]
    limits = ModelRates(organisation="acme", shared=RateLimits(6_000, 600_000))
    made = controller(*[(name, limits) for name in names])
    made.watch(0.0)
    made.effects.drain()
    for number, name in enumerate(names):
        (lease,) = granted(made, 1.0 + number, item(name)) if not number % 100 else [made.try_acquire(item(name), 1.0)]
        assert isinstance(lease, RequestLease)
        made.release(lease, answered(9, 1), 1.0 + number)
    assert [effect for effect in made.effects.drain() if isinstance(effect, PressureChanged)] == []


def test_who_begins_to_watch_while_a_shared_limit_is_reached_hears_when_it_has_room() -> None:
    shared = ModelRates(organisation="acme", shared=RateLimits(requests_per_minute=6))
    made = controller((ONE, shared), (OTHER, shared))
    (lease,) = granted(made, 0.0, item(ONE))
    made.release(lease, answered(1, 1), 0.0)
    made.watch(0.0)
    assert [change.pressure is None for change in changes(made)] == [False]
    made.tick(made.changes_at)
    assert [change.pressure is None for change in changes(made)] == [True]


def test_an_organisation_is_shared_out_by_the_provider_that_most_processes_use() -> None:
    shared = ModelRates(organisation="acme", shared=RateLimits(requests_per_minute=600))
    made = controller((ONE, shared), (OTHER, shared))
    granted(made, 0.0, item(ONE))
    for provider, share in (("p", 0.25), ("q", 0.5)):
        made.set_rate_share(provider, share, 0.0)
    assert [rate.limit for rate in made.accounts.statuses(0.0)[0].rates] == [150.0]
    made.unregister(ONE, "m", 1.0)
    granted(made, 1.0, item(OTHER))
    made.tick(2.0)
    made.validate(2.0)


def changes(made: AdmissionController) -> list[PressureChanged]:
    return [effect for effect in made.effects.drain() if isinstance(effect, PressureChanged)]


def test_groups_share_tokens_where_tokens_are_scarce() -> None:
    """One group's replies are ten times as long, and twice as long as expected: it gets a tenth of the turns."""
    made = controller((ONE, ModelRates(own=RateLimits(output_tokens_per_minute=6_000))), cap=5)
    sizes = {"long": (500, 1_000), "short": (100, 100)}
    now, spent = 0.0, Counter[str]()
    waiting = {
        group: [made.request(item(group=group, tokens=(1, size[0])), 0.0) for _ in range(8)]
        for group, size in sizes.items()
    }
    flying: list[tuple[float, str, RequestLease]] = []
    while now < 3_600:
        for group, tickets in waiting.items():
            for ticket in list(tickets):
                lease = ticket.lease if isinstance(ticket, Ticket) else ticket
                if isinstance(lease, RequestLease):
                    tickets.remove(ticket)
                    flying.append((now + 5.0, group, lease))
                    tickets.append(made.request(item(group=group, tokens=(1, sizes[group][0])), now))
        for end in [each for each in flying if each[0] <= now]:
            flying.remove(end)
            spent[end[1]] += sizes[end[1]][1]
            made.release(end[2], answered(1, sizes[end[1]][1]), now)
        now = min([now + 1.0, max(now + 0.001, made.changes_at)])
        made.tick(now)
    assert spent["long"] == pytest.approx(spent["short"], rel=0.05)
    assert sum(spent.values()) == pytest.approx(6_000 * 60, rel=0.05)
