"""Stopping, resuming, sharing a journal, a store that fails, tasks that kill."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from headgate.core import SystemClock
from headgate.core.errors import InvalidSettingError, StoreError, UnknownEnvironmentError
from headgate.core.events import (
    CampaignStarted,
    CampaignStopped,
    DailyBudgetFreed,
    Event,
    JournalBlocked,
    JournalRecovered,
    RunMoved,
    StoreFailed,
    TaskReturned,
)
from headgate.environments import Score
from headgate.run import Run
from headgate.run.matrix import MatrixTaskProvider
from headgate.simulation import LoopClock, ServiceTime
from headgate.storage import Journal
from headgate.telemetry import EventStream, Notice, Notices
from tests.run.run_world import World, models

RATES = {"affine:sat": 8_640.0}
STEADY = {"low_sample_threshold": 0}


def test_the_end_of_a_window_waits_for_episodes_in_progress(world: World) -> None:
    result = world.run(
        models(2), RATES, duration_s=105, service=ServiceTime(10.0), settings={**STEADY, "batch_flush_interval": 0}
    )
    assert world.of(TaskReturned) == []
    assert result.open_tasks == 0
    assert result.stored == result.samples == len(world.store.samples)


def test_episodes_that_outlast_the_drain_are_given_back_and_run_again(world: World) -> None:
    slow = {"service": ServiceTime(100.0), "settings": {**STEADY, "drain_timeout_s": 5}}
    result = world.run(models(1), RATES, duration_s=150, **slow)
    returned = [e.task_id for e in world.of(TaskReturned)]
    assert returned
    assert result.open_tasks >= len(returned)
    world.run(models(1), RATES, start_s=160, duration_s=900, settings=STEADY)
    assert world.of(CampaignStarted)[1].reopened_tasks == result.open_tasks
    (numbers,) = world.sequences().values()
    assert numbers == list(range(len(numbers)))


def test_stop_drains_and_says_why(world: World) -> None:
    async def stop_soon(campaign: Run, clock: LoopClock) -> None:
        await clock.sleep(50)
        campaign.stop("somebody asked")
        campaign.stop("a second time changes nothing")

    result = world.run(models(1), RATES, duration_s=None, during=stop_soon, settings=STEADY)
    assert result.stopped_by == "somebody asked"
    assert result.spooled == 0
    assert world.of(CampaignStopped)[0].samples == result.samples > 0


def test_a_store_that_is_down_loses_nothing_and_gets_everything_later(world: World) -> None:
    world.store.is_down = True
    settings = {**STEADY, "sink_batch_size": 5}
    result = world.run(models(1), RATES, duration_s=300, settings=settings)
    assert world.of(StoreFailed)
    assert result.stored == 0
    assert result.spooled == result.samples > 20
    world.store.is_down = False
    world.run(models(1), RATES, start_s=400, duration_s=60, settings=settings)
    (numbers,) = world.sequences().values()
    assert numbers == list(range(len(numbers)))


def test_a_store_that_comes_back_while_sampling_catches_up(world: World) -> None:
    async def outage(_: Run, clock: LoopClock) -> None:
        world.store.is_down = True
        await clock.sleep(200)
        world.store.is_down = False

    result = world.run(models(1), RATES, duration_s=600, during=outage, settings={**STEADY, "sink_batch_size": 5})
    assert result.spooled == 0
    assert len(world.store.samples) == result.samples


def test_a_new_journal_without_a_readable_store_does_not_start(world: World) -> None:
    async def broken(_: float) -> None:
        raise StoreError("the store is down")

    world.store.history = broken  # type: ignore[assignment]
    with pytest.raises(StoreError, match="down"):
        world.run(models(1), RATES)


def test_two_campaigns_on_one_journal_share_the_rate_and_the_numbers(world: World, tmp_path) -> None:
    other = World(world.folder, store=world.store)

    async def main() -> None:
        async def one(place: World) -> None:
            from headgate.run import RunPlan
            from headgate.sampling import StaticRoster
            from headgate.simulation import ScriptedChats, free_environments

            clock = LoopClock()
            plan = RunPlan(
                place.settings(**STEADY),
                StaticRoster(models(3)),
                free_environments(RATES),
                place.store,
                ScriptedChats(clock, service=ServiceTime(3.0)),
                duration_s=1_000,
            )
            await Run(plan, clock=clock, emit=place.events.append, inline=True).run()

        async with asyncio.TaskGroup() as group:
            group.create_task(one(world))
            group.create_task(one(other))

    from headgate.simulation import run_virtual

    run_virtual(main())
    for numbers in world.sequences().values():
        assert numbers == list(range(len(numbers)))
        assert 99 <= len(numbers) <= 101, "both together sample at the rate of one"


def test_a_matrix_runs_each_cell_once_and_ends_by_itself(world: World) -> None:
    result = world.run(
        models(3),
        {"affine:sat": 1.0, "affine:abd": 1.0},
        duration_s=None,
        plan={"provider": MatrixTaskProvider(["affine:sat", "affine:abd"], 7), "stop_when_idle": True},
    )
    assert result.stopped_by == "everything is done"
    assert {tuple(n) for n in world.sequences().values()} == {tuple(range(7))}
    assert result.samples == 3 * 2 * 7


def test_a_matrix_leaves_out_what_is_done(world: World) -> None:
    done = {("m000@main", "affine:sat", i) for i in range(5)}
    world.run(
        models(2),
        {"affine:sat": 1.0},
        duration_s=None,
        plan={"provider": MatrixTaskProvider(["affine:sat"], 7, done=done), "stop_when_idle": True},
    )
    assert world.sequences()["m000@main", "affine:sat"] == [5, 6]
    assert world.sequences()["m001@main", "affine:sat"] == list(range(7))


def test_a_matrix_takes_failed_cells_again_and_keeps_both_on_record(world: World) -> None:
    from headgate.core import ErrorKind

    matrix = {"duration_s": None, "plan": {"provider": MatrixTaskProvider(["affine:sat"], 3), "stop_when_idle": True}}
    world.run(models(1), {"affine:sat": 1.0}, script=lambda _m, _at: ErrorKind.RATE_LIMITED, **matrix)
    failed = {("m000@main", "affine:sat", i): 1 for i in range(3)}
    again = {"provider": MatrixTaskProvider(["affine:sat"], 3, failed=failed), "stop_when_idle": True}
    world.run(models(1), {"affine:sat": 1.0}, start_s=100, duration_s=None, plan=again)
    assert sorted((s.sequence, s.stage, s.score is None) for s in world.store.samples) == [
        (0, "sample", True),
        (0, "sample.2", False),
        (1, "sample", True),
        (1, "sample.2", False),
        (2, "sample", True),
        (2, "sample.2", False),
    ]


def test_a_matrix_whose_model_is_paused_goes_on_after_the_pause(world: World) -> None:
    from headgate.core import ErrorKind

    world.run(
        models(1, max_parallel=1),
        {"affine:sat": 1.0},
        duration_s=None,
        script=lambda _m, at: ErrorKind.AUTH if at < 10 else None,
        service=ServiceTime(1.0),
        plan={"provider": MatrixTaskProvider(["affine:sat"], 30), "stop_when_idle": True},
    )
    assert world.sequences()["m000@main", "affine:sat"] == list(range(30))


def test_nothing_new_starts_while_the_journal_cannot_be_written(world: World, monkeypatch) -> None:
    async def fill_disk(campaign: Run, clock: LoopClock) -> None:
        await clock.sleep(100)
        journal, is_full = campaign.journal.journal, [True]
        for name in ("accept", "open", "adopt", "history", "next_batch"):
            real = getattr(journal, name)

            def write(*arguments: object, real=real, **named: object) -> object:
                if is_full[0]:
                    raise sqlite3.OperationalError("database or disk is full")
                return real(*arguments, **named)

            monkeypatch.setattr(journal, name, write)
        await clock.sleep(100)
        assert campaign.status().journal_problem == f"database or disk is full ({journal.place})"
        due = campaign.inquiry.next_due("m000@main", "affine:sat")
        assert due is not None
        assert (due.gate, due.until) == ("journal", None)
        assert due.reason == f"the journal cannot be written: database or disk is full ({journal.place})"
        is_full[0] = False
        await clock.sleep(10)
        assert campaign.status().journal_problem == ""

    world.run(models(1), RATES, duration_s=400, during=fill_disk, settings=STEADY)
    assert len(world.of(JournalBlocked)) == 1
    assert len(world.of(JournalRecovered)) == 1
    started = [s.started_at - 1_767_225_600 for s in world.store.samples]
    assert [at for at in started if 110 < at < 195] == []
    assert [at for at in started if at > 210], "it goes on by itself"
    (numbers,) = world.sequences().values()
    assert numbers == list(range(len(numbers)))


class Heard(list[Event]):
    """Events, which are passed on to notices, too."""

    def __init__(self, notices: Notices) -> None:
        super().__init__()
        self._stream = EventStream(SystemClock(), [notices])

    def append(self, event: Event) -> None:
        super().append(event)
        self._stream.emit(event)


@pytest.mark.parametrize("recovers", [False, True])
def test_a_run_whose_disk_is_full_tells_of_it_and_ends_when_it_is_stopped(
    world: World, monkeypatch, recovers: bool
) -> None:
    told: list[Notice] = []

    async def fill_disk(campaign: Run, clock: LoopClock) -> None:
        journal, is_full = campaign.journal.journal, True

        def fails_while_full(method: Callable[..., Any]) -> Callable[..., Any]:
            def called(*given: Any, **named: Any) -> Any:
                if is_full:
                    raise sqlite3.OperationalError("database or disk is full")
                return method(*given, **named)

            return called

        await clock.sleep(100)
        assert await campaign._told.claim("budget.exhausted model/m", 1.0, 0.0)
        for name in ("accept", "open", "adopt", "next_batch", "claim_notice", "release_notice"):
            monkeypatch.setattr(journal, name, fails_while_full(getattr(journal, name)))
        world.events.append(DailyBudgetFreed("m", "requests", 1.0))  # what ends holds up nothing that begins
        await clock.sleep(3_000)
        assert [one.kind for one in told] == ["run.stalled"]
        assert "samples due: the journal cannot be written: database or disk is full" in told[0].text
        if recovers:
            is_full = False
            await clock.sleep(100)
            assert journal.told_notices() == []
        world.events.append(RunMoved("main", 1.0))

    notices = Notices([told.append])
    world.events = Heard(notices)
    settings = STEADY | {"stalled_after_s": 1_000}
    plan = {"notices": notices}
    result = world.run(models(1), RATES, duration_s=4_000, during=fill_disk, settings=settings, plan=plan)
    assert result.stopped_by == "the window is over"


def test_a_task_that_ended_its_process_again_and_again_is_recorded_and_not_run(world: World, monkeypatch) -> None:
    monkeypatch.setattr(Journal, "close", die)
    lives = {"service": ServiceTime(1_000.0), "duration_s": 4, "settings": {**STEADY, "drain_timeout_s": 0}}
    for life in range(5):
        world.run(models(1), RATES, start_s=life * 100, **lives)
    world.run(models(1), {"affine:sat": 1.0}, start_s=700, duration_s=5, settings=STEADY)
    poison = [s for s in world.store.samples if s.error_kind == "environment"]
    assert [s.sequence for s in poison] == [0]
    assert poison[0].score is None
    assert "ended 5 times" in (poison[0].error or "")


def test_a_task_that_was_only_queued_when_processes_died_is_no_poison(world: World, monkeypatch) -> None:
    monkeypatch.setattr(Journal, "close", die)
    for life in range(7):
        one_worker = {**STEADY, "drain_timeout_s": 0, "num_evaluation_workers": 1}
        world.run(
            models(1), RATES, start_s=life * 100, duration_s=31, service=ServiceTime(1_000.0), settings=one_worker
        )
    world.run(models(1), RATES, start_s=900, duration_s=60, settings=STEADY)
    assert [s.sequence for s in world.store.samples if s.error_kind == "environment"] == [0]


def die(journal: Journal) -> None:
    """What the operating system does when a process is killed: free its locks, and nothing else."""
    journal._db._db.close()
    os.close(journal._db.holders._lock._handle)


def test_a_defect_of_our_own_stops_the_run_with_its_traceback(world: World, monkeypatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise TypeError("a defect")

    monkeypatch.setattr("headgate.run.stages.sample_of", broken)
    with pytest.raises(BaseExceptionGroup) as caught:
        world.run(models(1), RATES, settings=STEADY)
    assert caught.group_contains(TypeError, match="a defect")


def test_an_environment_that_raises_fails_its_own_samples_only(world: World, monkeypatch) -> None:
    from headgate.simulation.doubles import _FreeEpisode

    real = _FreeEpisode.answer

    async def answer(self: _FreeEpisode, reply: str) -> Score:
        if "Task 3:" in self.opening[0].content:
            raise ZeroDivisionError("the environment's own")
        return await real(self, reply)

    monkeypatch.setattr(_FreeEpisode, "answer", answer)
    world.run(models(1), RATES, duration_s=100, settings=STEADY)
    broken = [s for s in world.store.samples if s.index == 3]
    assert [s.error_kind for s in broken] == ["environment"]
    assert all(s.score is not None for s in world.store.samples if s.index != 3)


@pytest.mark.parametrize(
    ("settings", "rates", "error"),
    [({"rates": {"affine:nope": 5.0}}, RATES, UnknownEnvironmentError), ({}, {}, InvalidSettingError)],
)
def test_what_cannot_be_sampled_is_refused_before_anything_starts(world: World, settings, rates, error) -> None:
    with pytest.raises(error):
        world.run(models(1), rates, settings=settings)
    assert not world.events
