"""The heartbeat of a driver beside a ledger that says what a test wants."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from headgate.placement.cluster.link import Heartbeat, LedgerLink
from headgate.placement.cluster.pools import PlacementLease
from headgate.placement.errors import LedgerUnreachableError, PlacementLostError
from headgate.placement.request import Occupancy, Stage
from headgate.placement.service.protocol import Beat, WorkView, view_of
from tests.placement.service.conftest import work

SOON_S = 20


class SaidLink:
    """A link to a ledger whose beats a test says; `watched` has what each beat of the driver asked for."""

    def __init__(self) -> None:
        self.said: queue.Queue[tuple[WorkView, ...]] = queue.Queue()
        self.watched: list[tuple[str, ...]] = []
        self.answered = threading.Semaphore(0)
        self.is_connected = True
        self.replaced = ""

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
        """Answer the beat under way, and return when the heartbeat has taken it."""
        self.said.put(views)
        assert self.answered.acquire(timeout=SOON_S)


def view(name: str, stage: Stage) -> WorkView:
    return replace(view_of(Occupancy(work(name).request, "d1", 0.0, 1)), stage=stage, epoch=1)


@pytest.fixture
def link() -> SaidLink:
    return SaidLink()


@pytest.fixture
def heartbeat(link: SaidLink) -> Iterator[Heartbeat]:
    heartbeat = Heartbeat(cast("LedgerLink", link), "d1")
    yield heartbeat
    heartbeat.close()


def test_of_a_request_that_has_ended_and_was_told_nothing_is_listened_to_any_more(
    heartbeat: Heartbeat, link: SaidLink
) -> None:
    told: list[str] = []
    for name in ("mine", "theirs"):
        heartbeat.listen(name, lambda each: told.append(f"{each.request_id} {each.stage}"))
    heartbeat.watch("theirs")
    link.tell(view("mine", Stage.RUNNING), view("theirs", Stage.RUNNING))
    assert (set(heartbeat._listeners), heartbeat._watched) == ({"mine", "theirs"}, {"theirs"})
    link.tell(view("mine", Stage.DONE), view("theirs", Stage.WITHDRAWN))
    assert told == ["mine running", "theirs running", "mine done", "theirs withdrawn"]
    assert (heartbeat._listeners, heartbeat._watched, heartbeat._unsaid) == ({}, set(), set())
    ended = heartbeat.wait("mine", lambda each: each.stage.has_ended, 0)
    assert ended is not None, "who waits for its end later still finds it"


def test_what_another_call_has_learnt_is_told_to_who_listens(heartbeat: Heartbeat) -> None:
    told: list[Stage] = []
    heartbeat.listen("r", lambda each: told.append(each.stage))
    heartbeat.take(view("r", Stage.DONE))
    heartbeat.take(view("r", Stage.DONE))
    assert told == [Stage.DONE]
    assert heartbeat._listeners == {}


def test_the_end_that_another_call_has_learnt_counts_also_where_no_more_was_told(
    heartbeat: Heartbeat, link: SaidLink
) -> None:
    link.tell(view("r", Stage.RUNNING))  # another driver takes it over then
    heartbeat.take(view("r", Stage.DONE))
    heartbeat.take(view("r", Stage.RUNNING))
    known = heartbeat.view("r")
    assert known is not None
    assert known.stage is Stage.DONE


def test_a_session_that_has_ended_ends_the_heart_without_a_warning(
    heartbeat: Heartbeat, link: SaidLink, caplog: pytest.LogCaptureFixture
) -> None:
    lease = PlacementLease(cast("LedgerLink", link), heartbeat, "r", on_lost=None, timeout=None)
    link.is_connected = False
    link.said.put(())
    with pytest.raises(PlacementLostError, match="connection was closed"):
        lease.wait()
    assert heartbeat.is_closed
    assert caplog.messages == []


def test_who_gives_up_a_lease_in_line_is_woken_at_once(heartbeat: Heartbeat, link: SaidLink) -> None:
    lease = PlacementLease(cast("LedgerLink", link), heartbeat, "r", on_lost=None, timeout=None)
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


def test_who_waits_for_a_lease_is_told_when_the_connection_is_closed(heartbeat: Heartbeat, link: SaidLink) -> None:
    lease = PlacementLease(cast("LedgerLink", link), heartbeat, "r", on_lost=None, timeout=None)
    heartbeat.close()
    with pytest.raises(PlacementLostError, match="connection was closed"):
        lease.wait()


def test_who_holds_a_place_of_a_cluster_that_was_started_anew_is_told_that_it_is_lost(
    heartbeat: Heartbeat, link: SaidLink
) -> None:
    told: list[str] = []
    heartbeat.listen("mine", lambda each: told.append(f"{each.stage} {each.note}"))
    link.tell(view("mine", Stage.RUNNING), view("done", Stage.DONE))
    link.replaced, link.is_connected = "it was started anew", False
    link.said.put(())
    assert heartbeat.lost.result(SOON_S) == "this connection is closed"
    assert told == ["running ", "failed this connection is closed"]
    assert heartbeat.is_closed
