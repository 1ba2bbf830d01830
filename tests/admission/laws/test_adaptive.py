"""The default law, rule by rule."""

from __future__ import annotations

import math

import pytest

from headgate.admission import SUCCESS, OutcomeKind, RequestOutcome
from headgate.admission.laws import AdaptiveLaw, AdaptiveSettings, Admitted, LimitChange, LimitLaw

LIMITED = RequestOutcome(OutcomeKind.RATE_LIMITED)


class Client:
    """Sends attempts under a law, and answers them in their order, each after the same service time."""

    def __init__(self, law: LimitLaw, service_s: float = 2.0) -> None:
        self.law = law
        self.service_s = service_s
        self.now = 0.0
        self.under_way: list[Admitted] = []
        self.changes: list[LimitChange] = []

    def fill(self) -> None:
        while len(self.under_way) < self.law.limit:
            self.send()

    def send(self) -> None:
        self.under_way.append(self.law.admitted(len(self.under_way) + 1, self.now))

    def end(self, outcome: RequestOutcome = SUCCESS, *, latest: bool = False) -> None:
        admitted = self.under_way[-1 if latest else 0]
        self.changes += self.law.observe(admitted, outcome, len(self.under_way), self.now)
        self.under_way.remove(admitted)
        self.law.validate()

    def serve(self, successes: int) -> None:
        """Answer attempts well, each after its service time, with the limit in use all the time."""
        for _ in range(successes):
            self.fill()
            self.now = max(self.now, self.under_way[0].at + self.service_s)
            self.end()


def at_ceiling(cap: int, service_s: float = 2.0) -> Client:
    """Return a client whose provider has just refused what went beyond `cap` at once."""
    client = Client(AdaptiveLaw(100), service_s)
    while client.law.limit <= cap:
        client.serve(1)
    client.fill()
    client.now += 0.05
    while len(client.under_way) > cap:
        client.end(LIMITED, latest=True)
    return client


def test_it_starts_at_sixteen_or_at_the_cap() -> None:
    assert [AdaptiveLaw(cap).limit for cap in (1, 8, 16, 100)] == [1, 8, 16, 16]


def test_the_limit_grows_by_one_with_every_success_until_the_first_refusal() -> None:
    client = Client(AdaptiveLaw(100))
    client.serve(10)
    assert client.law.limit == 26


def test_the_limit_does_not_grow_when_it_is_not_used() -> None:
    client = Client(AdaptiveLaw(100))
    for _ in range(1_250):
        client.now += 1.0
        client.send()
        client.end()
    assert client.law.limit == 16


def test_a_sharp_ceiling_is_met_exactly_with_the_first_refusal() -> None:
    client = at_ceiling(40)
    assert client.law.limit == 40
    assert client.law.ceiling == 41


def test_a_burst_of_refusals_cuts_once() -> None:
    client = Client(AdaptiveLaw(100))
    client.fill()
    client.now = 0.05
    for _ in range(8):
        client.end(LIMITED, latest=True)
    assert [change.reason for change in client.changes] == ["decreased"]


def test_what_is_refused_while_more_than_the_limit_is_under_way_is_no_news() -> None:
    client = at_ceiling(40)
    client.law.set_max(10, client.now)
    client.now += 1.0
    client.send()
    client.end(LIMITED, latest=True)
    assert client.law.limit == 10


def test_a_heap_of_refusals_cuts_down_to_one() -> None:
    client = Client(AdaptiveLaw(64, AdaptiveSettings(initial_limit=64)))
    for _ in range(10):
        client.now += 1.0
        client.send()
        client.end(LIMITED)
    assert client.law.limit == 1
    last = [change.after for change in client.changes if change.reason == "decreased"]
    assert last[-1] == 1
    assert last == sorted(last, reverse=True)


def test_a_sharp_ceiling_is_probed_after_many_successes_and_not_before() -> None:
    client = at_ceiling(40)
    client.serve(199)
    assert client.law.limit == 40
    client.serve(1)
    assert client.law.limit == 41


def test_probes_are_some_seconds_apart_however_fast_the_provider_is() -> None:
    client = at_ceiling(40, service_s=0.4)
    began_at = client.now
    while client.law.limit == 40:
        client.serve(1)
    assert 8.0 <= client.now - began_at < 9.0


def test_a_ceiling_that_gives_way_to_a_probe_is_left_behind_fast() -> None:
    client = at_ceiling(40)
    client.serve(200)
    client.serve(41)
    client.serve(60)
    assert client.law.limit > 55


def test_a_ceiling_at_which_some_are_accepted_is_soft_and_probed_sooner() -> None:
    client = at_ceiling(40)
    client.serve(200)
    assert client.law.limit == 41
    client.serve(41 + 6)
    client.now += 0.05
    client.fill()
    client.end(LIMITED, latest=True)
    assert client.law.limit == 37
    client.serve(100)
    assert client.law.limit == 41


@pytest.mark.parametrize(
    "kind", [OutcomeKind.PROVIDER_FAILURE, OutcomeKind.PROVIDER_TIMEOUT, OutcomeKind.LOCAL_CANCELLED]
)
def test_failures_of_the_provider_do_not_move_the_limit(kind: OutcomeKind) -> None:
    client = at_ceiling(40)
    for _ in range(100):
        client.fill()
        client.end(RequestOutcome(kind))
    assert client.law.limit == 40


def test_retry_after_does_not_block_while_the_limit_can_still_be_cut() -> None:
    client = Client(AdaptiveLaw(100))
    client.send()
    client.end(RequestOutcome(OutcomeKind.RATE_LIMITED, retry_after_s=60.0))
    assert client.law.blocked_until == -math.inf


@pytest.mark.parametrize(("asked", "until"), [(None, 2.0), (5.0, 5.0), (0.0, 2.0), (1e9, 60.0), (math.nan, 2.0)])
def test_a_refusal_at_limit_one_blocks(asked: float | None, until: float) -> None:
    client = Client(AdaptiveLaw(1))
    client.send()
    client.end(RequestOutcome(OutcomeKind.RATE_LIMITED, retry_after_s=asked))
    assert client.law.blocked_until == until


def test_a_block_at_limit_one_only_ever_gets_longer() -> None:
    client = Client(AdaptiveLaw(1))
    client.send()
    client.end(RequestOutcome(OutcomeKind.RATE_LIMITED, retry_after_s=30.0))
    client.now = 1.0
    client.send()
    client.end(LIMITED)
    assert client.law.blocked_until == 30.0


def test_after_a_storm_of_refusals_the_limit_grows_back_at_once() -> None:
    client = at_ceiling(40)
    for _ in range(40):
        client.fill()
        client.now += 3.0
        while client.under_way:
            client.end(LIMITED, latest=True)
    assert client.law.limit == 1
    client.now = max(client.now, client.law.blocked_until)
    client.serve(45)
    assert client.law.limit >= 40


def test_growing_past_the_ceiling_and_to_the_maximum_is_told() -> None:
    client = Client(AdaptiveLaw(18))
    client.serve(2)
    assert client.changes == [
        LimitChange(16, 17, "increased"),
        LimitChange(17, 18, "increased"),
        LimitChange(17, 18, "fully_recovered"),
    ]


def test_a_changed_cap_lowers_the_limit_at_once_and_lets_it_grow_when_it_is_used() -> None:
    client = Client(AdaptiveLaw(100))
    assert client.law.set_max(4, 0.0) == LimitChange(16, 4, "decreased")
    assert client.law.set_max(100, 0.0) is None
    assert client.law.limit == 4
    client.serve(3)
    assert client.law.limit == 7


def test_a_refusal_ends_the_startup_ramp() -> None:
    law = AdaptiveLaw(100, AdaptiveSettings(startup_ramp_s=10.0))
    law.tick(0.0)
    law.tick(6.0)
    assert law.limit == 10
    law.observe(law.admitted(10, 6.0), LIMITED, 10, 6.0)
    assert law.next_change_at(6.0) is None
    assert law.limit < 10
