"""A process that stood still could not hear anybody: a lease that came to its end just then runs on."""

from __future__ import annotations

import pytest

from headgate.jobqueue import JobState, writer
from tests.jobqueue.ledger.queue import spec
from tests.jobqueue.writer.rig import Rig


def test_a_lease_that_ended_right_before_the_process_went_on_runs_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.submit(spec("1"))
    rig.claim()
    monkeypatch.setattr(writer, "_STOOD_STILL_S", -1.0)  # every look comes too late
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
    monkeypatch.setattr(writer, "_STOOD_STILL_S", -1.0)
    rig.passes(60.0)
    monkeypatch.undo()
    rig.passes(30.5)
    assert rig.job("1").state is JobState.PENDING


def test_a_lease_that_ended_while_no_request_could_be_heard_runs_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.submit(spec("1"))
    rig.claim()
    rig.writer.hearing()
    monkeypatch.setattr(writer, "_STOOD_STILL_S", -1.0)  # the event loop has not turned since
    monkeypatch.setattr(rig.writer._stopwatch, "_looked_at", float("inf"))  # while the writer's own thread has
    rig.passes(90.5)
    assert rig.job("1").state is JobState.IN_PROGRESS


def test_leases_run_on_from_when_requests_are_heard_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.submit(spec("1"))
    rig.claim()
    rig.writer.hearing()
    rig.passes(60.0)
    monkeypatch.setattr(writer, "_STOOD_STILL_S", -1.0)
    rig.writer.hearing()
    assert rig.job("1").state is JobState.IN_PROGRESS
    monkeypatch.undo()
    rig.passes(89.0)
    assert rig.job("1").state is JobState.IN_PROGRESS
    rig.passes(1.5)
    assert rig.job("1").state is JobState.PENDING
