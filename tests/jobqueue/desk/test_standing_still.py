"""A process that stood still could not hear anybody: a lease that came to its end just then runs on."""

from __future__ import annotations

import pytest

from headgate.jobqueue import desk
from headgate.jobqueue.job import JobState
from tests.jobqueue.desk.rig import Rig
from tests.jobqueue.ledger.queue import spec


def test_a_lease_that_ended_right_before_the_process_went_on_runs_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.submit(spec("1"))
    rig.claim()
    monkeypatch.setattr(desk, "_STOOD_STILL_S", -1.0)  # every look comes too late
    rig.passes(90.5)
    assert rig.job("1").state is JobState.IN_PROGRESS
    monkeypatch.undo()
    rig.passes(89.0)
    assert rig.job("1").state is JobState.IN_PROGRESS
    rig.passes(1.5)
    assert rig.job("1").state is JobState.PENDING


def test_standing_still_far_from_any_deadline_extends_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.submit(spec("1"))
    rig.claim()
    monkeypatch.setattr(desk, "_STOOD_STILL_S", -1.0)
    rig.passes(60.0)
    monkeypatch.undo()
    rig.passes(30.5)
    assert rig.job("1").state is JobState.PENDING


def test_a_lease_that_ended_while_no_request_could_be_heard_runs_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.submit(spec("1"))
    rig.claim()
    rig.desk.hearing()
    monkeypatch.setattr(desk, "_STOOD_STILL_S", -1.0)  # the event loop has not turned since
    monkeypatch.setattr(rig.desk._lookout, "_looked_at", float("inf"))  # while the desk's own thread has
    rig.passes(90.5)
    assert rig.job("1").state is JobState.IN_PROGRESS


def test_leases_run_on_from_when_requests_are_heard_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.submit(spec("1"))
    rig.claim()
    rig.desk.hearing()
    rig.passes(60.0)
    monkeypatch.setattr(desk, "_STOOD_STILL_S", -1.0)
    rig.desk.hearing()
    assert rig.job("1").state is JobState.IN_PROGRESS
    monkeypatch.undo()
    rig.passes(89.0)
    assert rig.job("1").state is JobState.IN_PROGRESS
    rig.passes(1.5)
    assert rig.job("1").state is JobState.PENDING
