"""Who may use a policy server, as a rule and over any sequence of visits."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.jobqueue.policy import MalformedMessageError, PolicyLease
from headgate.jobqueue.policy.protocol import read_lease
from headgate.jobqueue.policy.server import BUSY, Refusal, Seat


def lease(epoch: int, lease_id: str = "") -> PolicyLease:
    return PolicyLease(lease_id or f"lease-{epoch}", epoch)


def is_stale(refusal: Refusal | None) -> bool:
    return refusal is not None and refusal.status == HTTPStatus.CONFLICT


def test_a_second_client_without_a_lease_waits() -> None:
    seat = Seat()
    assert seat.ask(None) is None
    seat.take(1, None)
    assert seat.ask(None) == BUSY
    seat.leave(1)
    assert seat.ask(None) is None


def test_a_newer_epoch_takes_over_and_the_older_one_stays_out() -> None:
    seat = Seat()
    seat.take(1, lease(3))
    assert seat.ask(lease(4)) is None
    seat.take(2, lease(4))
    assert is_stale(seat.ask(lease(3)))
    seat.leave(1)
    assert seat.visit == 2
    seat.leave(2)
    assert is_stale(seat.ask(lease(3)))


def test_the_same_lease_comes_back_on_a_new_connection() -> None:
    seat = Seat()
    seat.take(1, lease(3))
    assert seat.ask(lease(3)) is None


def test_another_lease_of_the_same_epoch_stays_out() -> None:
    seat = Seat()
    seat.take(1, lease(3))
    assert is_stale(seat.ask(lease(3, "other")))


def test_a_lease_takes_over_from_a_client_without_one_and_not_the_other_way_round() -> None:
    seat = Seat()
    seat.take(1, None)
    assert seat.ask(lease(1)) is None
    seat.take(2, lease(1))
    assert seat.ask(None) == BUSY


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Headgate-Lease": "a"},
        {"X-Headgate-Epoch": "1"},
        {"X-Headgate-Lease": "a", "X-Headgate-Epoch": "-1"},
        {"X-Headgate-Lease": "a", "X-Headgate-Epoch": "one"},
        {"X-Headgate-Lease": "a", "X-Headgate-Epoch": "9" * 19},
        {"X-Headgate-Lease": "", "X-Headgate-Epoch": "1"},
        {"X-Headgate-Lease": "a b", "X-Headgate-Epoch": "1"},
    ],
    ids=str,
)
def test_headers_that_say_no_lease_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(MalformedMessageError):
        read_lease(headers)


def test_headers_say_the_lease_that_was_meant() -> None:
    assert read_lease(lease(12).headers) == lease(12)
    assert read_lease({}) is None


class Visits(RuleBasedStateMachine):
    """Clients come and go in any order; the epochs that get in never go back."""

    def __init__(self) -> None:
        super().__init__()
        self.seat = Seat()
        self.visits = 0
        self.epochs: list[int] = []

    @rule(epoch=st.none() | st.integers(0, 5), name=st.sampled_from("ab"))
    def come(self, epoch: int | None, name: str) -> None:
        wanted = None if epoch is None else lease(epoch, name)
        if self.seat.ask(wanted) is None:
            self.visits += 1
            self.seat.take(self.visits, wanted)
            self.epochs += [] if epoch is None else [epoch]

    @rule(back=st.integers(0, 3))
    def go(self, back: int) -> None:
        self.seat.leave(self.visits - back)

    @invariant()
    def epochs_never_go_back(self) -> None:
        assert self.epochs == sorted(self.epochs)
        self.seat.validate()


TestVisits = Visits.TestCase
TestVisits.settings = settings(max_examples=30, stateful_step_count=20)
