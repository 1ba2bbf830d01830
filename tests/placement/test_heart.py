"""The heart of a driver beside a ledger that says what a test wants."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from headgate.placement.cluster.heart import Heart
from headgate.placement.cluster.leases import PlacementLease
from headgate.placement.cluster.link import LedgerLink
from headgate.placement.errors import LedgerUnreachableError, PlacementLostError
from headgate.placement.occupancy import Occupancy, Stage
from headgate.placement.service.values import Beat, WorkView, view_of
from tests.placement.service.conftest import work

SOON_S = 20


class SaidLink:
    """A link to a ledger whose beats a test says; `watched` has what each beat of the driver asked for."""

    def __init__(self) -> None:
        self.said: queue.Queue[tuple[WorkView, ...]] = queue.Queue()
        self.watched: list[tuple[str, ...]] = []
        self.answered = threading.Semaphore(0)
        self.is_connected = True

    def ask(self, name: str, *args: Any, patience_s: float = 0.0) -> Any:
        del patience_s
        if name == "leave":
            self.said.put(())
        if name != "beat":
            return None
        if not self.is_connected:
            raise LedgerUnreachableError("this connection is closed")
        _, _, number, watched, _ = args
        if number:
            self.answered.release()
        self.watched.append(watched)
        return Beat(1, number + 1, self.said.get())

    def tell(self, *views: WorkView) -> None:
        """Answer the beat under way, and return when the heart has taken it."""
        self.said.put(views)
        assert self.answered.acquire(timeout=SOON_S)


def view(name: str, stage: Stage) -> WorkView:
    return replace(view_of(Occupancy(work(name).request, "d1", 0.0, 1)), stage=stage, epoch=1)


@pytest.fixture
def link() -> SaidLink:
    return SaidLink()


@pytest.fixture
def heart(link: SaidLink) -> Iterator[Heart]:
    heart = Heart(cast("LedgerLink", link), "d1")
    yield heart
    heart.close()


def test_of_a_request_that_has_ended_and_was_told_nothing_is_listened_to_any_more(heart: Heart, link: SaidLink) -> None:
    told: list[str] = []
    for name in ("mine", "theirs"):
        heart.listen(name, lambda each: told.append(f"{each.request_id} {each.stage}"))
    heart.watch("theirs")
    link.tell(view("mine", Stage.RUNNING), view("theirs", Stage.RUNNING))
    assert (set(heart._listeners), heart._watched) == ({"mine", "theirs"}, {"theirs"})
    link.tell(view("mine", Stage.DONE), view("theirs", Stage.WITHDRAWN))
    assert told == ["mine running", "theirs running", "mine done", "theirs withdrawn"]
    assert (heart._listeners, heart._watched, heart._unsaid) == ({}, set(), set())
    ended = heart.wait("mine", lambda each: each.stage.has_ended, 0)
    assert ended is not None, "who waits for its end later still finds it"


def test_what_another_call_has_learnt_is_told_to_who_listens(heart: Heart) -> None:
    told: list[Stage] = []
    heart.listen("r", lambda each: told.append(each.stage))
    heart.take(view("r", Stage.DONE))
    heart.take(view("r", Stage.DONE))
    assert told == [Stage.DONE]
    assert heart._listeners == {}


def test_the_end_that_another_call_has_learnt_counts_also_where_no_more_was_told(heart: Heart, link: SaidLink) -> None:
    link.tell(view("r", Stage.RUNNING))  # another driver takes it over then
    heart.take(view("r", Stage.DONE))
    heart.take(view("r", Stage.RUNNING))
    known = heart.view("r")
    assert known is not None
    assert known.stage is Stage.DONE


def test_a_session_that_has_ended_ends_the_heart_without_a_warning(
    heart: Heart, link: SaidLink, caplog: pytest.LogCaptureFixture
) -> None:
    lease = PlacementLease(cast("LedgerLink", link), heart, "r", on_lost=None, timeout=None)
    link.is_connected = False
    link.said.put(())
    with pytest.raises(PlacementLostError, match="connection was closed"):
        lease.wait()
    assert heart.is_closed
    assert caplog.messages == []


def test_who_gives_up_a_lease_in_line_is_woken_at_once(heart: Heart, link: SaidLink) -> None:
    lease = PlacementLease(cast("LedgerLink", link), heart, "r", on_lost=None, timeout=None)
    given_up, looks, answers = threading.Event(), threading.Semaphore(0), []

    def unless() -> bool:
        looks.release()
        return given_up.is_set()

    waiter = threading.Thread(target=lambda: answers.append(lease.wait(unless=unless)))
    waiter.start()
    assert looks.acquire(timeout=SOON_S)
    given_up.set()
    lease.wake()
    waiter.join(SOON_S)
    assert answers == [False]


def test_who_waits_for_a_lease_is_told_when_the_connection_is_closed(heart: Heart, link: SaidLink) -> None:
    lease = PlacementLease(cast("LedgerLink", link), heart, "r", on_lost=None, timeout=None)
    heart.close()
    with pytest.raises(PlacementLostError, match="connection was closed"):
        lease.wait()
