"""Models that come, go and change while a campaign runs."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter

import pytest

from headgate.core import Model
from headgate.core.errors import InvalidRosterError
from headgate.core.events import Event, RosterRefreshed, RosterRefreshFailed, TaskReturned, TaskSelected
from headgate.run import MatrixTaskProvider, Run
from headgate.sampling import Roster
from headgate.simulation import LoopClock, ServiceTime
from tests.run.run_world import World, models

RATES = {"affine:sat": 8_640.0}
REFRESH = {"roster_refresh_s": 60, "low_sample_threshold": 0}


class ChangingRoster:
    """Gives one roster after the other, the last one for ever; an exception is raised."""

    def __init__(self, *rosters: list[Model] | Exception) -> None:
        self._rosters = list(rosters)

    async def load(self) -> Roster:
        roster = self._rosters.pop(0) if len(self._rosters) > 1 else self._rosters[0]
        if isinstance(roster, Exception):
            raise roster
        return Roster(tuple(roster))


def test_a_new_model_is_sampled_after_the_next_refresh(world: World) -> None:
    world.run(ChangingRoster(models(1), models(2)), RATES, duration_s=300, settings=REFRESH)
    assert world.of(RosterRefreshed)[0].added == ("m001@main",)
    assert min(s.started_at for s in world.samples_of("m001@main")) >= 1_767_225_600.0 + 60


def test_a_removed_model_stops_and_its_queued_tasks_are_withdrawn(world: World) -> None:
    result = world.run(
        ChangingRoster(models(2), models(1)),
        RATES,
        duration_s=300,
        service=ServiceTime(100.0),
        settings={**REFRESH, "num_evaluation_workers": 1},
    )
    assert world.of(RosterRefreshed)[0].removed == ("m001@main",)
    withdrawn = [e for e in world.of(TaskReturned) if e.reason == "its model left the roster"]
    assert withdrawn
    assert {e.model for e in withdrawn} == {"m001@main"}
    assert world.of(RosterRefreshed)[0].withdrawn_tasks == len(withdrawn)
    left = world.of(TaskReturned)
    assert result.open_tasks < len(left) + 40


def test_withdrawn_tasks_do_not_come_back_after_a_restart(world: World) -> None:
    slow = {"service": ServiceTime(100.0), "settings": {**REFRESH, "num_evaluation_workers": 1}}
    world.run(ChangingRoster(models(2), models(1)), RATES, duration_s=150, **slow)
    gone = {e.task_id for e in world.of(TaskReturned) if e.reason == "its model left the roster"}
    world.run(models(2), RATES, start_s=200, duration_s=2_000, settings={**REFRESH, "num_evaluation_workers": 8})
    assert gone
    assert not gone & {s.task_id for s in world.store.samples}


def test_a_new_revision_is_a_new_model_with_its_own_sequence(world: World) -> None:
    first, second = [Model("m", "v1", "http://h/v1")], [Model("m", "v2", "http://h/v1")]
    world.run(ChangingRoster(first, second), RATES, duration_s=300, settings=REFRESH)
    sequences = world.sequences()
    assert sequences["m@v1", "affine:sat"][0] == 0
    assert sequences["m@v2", "affine:sat"][0] == 0


def test_a_failed_refresh_keeps_the_last_good_roster_and_says_so(world: World) -> None:
    error = InvalidRosterError("roster.yaml has no models")
    world.run(ChangingRoster(models(2), error), RATES, duration_s=300, settings=REFRESH)
    assert world.of(RosterRefreshFailed)[0].kept_models == 2
    last = max(s.finished_at for s in world.samples_of("m001@main"))
    assert last > 1_767_225_600.0 + 280, "sampling went on"


def test_a_changed_parallel_limit_takes_effect_at_the_next_refresh(world: World) -> None:
    world.run(
        ChangingRoster(models(1, max_parallel=1), models(1, max_parallel=4)),
        {"affine:sat": 86_400.0},
        duration_s=300,
        service=ServiceTime(10.0),
        settings=REFRESH,
    )
    before = [s for s in world.store.samples if s.started_at < 1_767_225_600.0 + 55]
    assert len(before) <= 6
    assert world.chats is not None
    assert world.chats.peak == 4


def test_a_roster_that_stays_the_same_is_no_event_until_it_could_not_be_read(world: World) -> None:
    same = models(1)
    rosters = ChangingRoster(same, same, same, InvalidRosterError("gone"), same, same, same)
    world.run(rosters, RATES, duration_s=600, settings=REFRESH)
    assert len(world.of(RosterRefreshFailed)) == 1
    assert [event.added for event in world.of(RosterRefreshed)] == [()]


class Selecting(list):
    """Events; the first task of a model that is chosen after `is_watched` was set lets whoever waits go on."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.is_watched = False
        self.selected = asyncio.Event()

    def append(self, event: Event) -> None:
        super().append(event)
        if self.is_watched and isinstance(event, TaskSelected) and event.group == self.model:
            self.selected.set()


class LeavingRoster:
    """Loses its second model between the choice of a task of it and the beginning of its work."""

    def __init__(self, events: Selecting) -> None:
        self._events = events
        self._looks = 0

    async def load(self) -> Roster:
        self._looks += 1
        if self._looks == 1:
            return Roster(tuple(models(2)))
        self._events.is_watched = True
        await self._events.selected.wait()
        return Roster(tuple(models(1)))


def test_a_model_may_leave_between_the_choice_of_a_task_and_its_beginning(world: World) -> None:
    world.events = events = Selecting("m001@main")
    settings = {**REFRESH, "roster_refresh_s": 5}
    result = world.run(LeavingRoster(events), RATES, duration_s=300, settings=settings, plan={"is_traced": True})
    assert result.stopped_by == "the window is over"
    (left,) = [event for event in world.of(TaskReturned) if event.reason == "its model left the roster"]
    assert left.model == "m001@main"
    assert left.task_id not in {sample.task_id for sample in world.store.samples}
    assert result.open_tasks == 0


def test_a_model_that_left_is_forgotten_after_a_day_and_not_before(world: World) -> None:
    known: list[set[str]] = []

    async def look(campaign: Run, clock: LoopClock) -> None:
        for hours in (1, 22, 3):
            await clock.sleep(hours * 3_600)
            known.append({pair.model for pair in campaign.status().pairs})

    world.run(
        ChangingRoster(models(3), models(3), models(2), [*models(1), *models(3)[2:]], models(1)),
        {"affine:sat": 24.0},
        duration_s=27 * 3_600,
        during=look,
        settings={"roster_refresh_s": 300, "low_sample_threshold": 0},
    )
    assert known == [{"m000@main", "m001@main", "m002@main"}] * 2 + [{"m000@main"}]


def test_a_model_that_comes_back_is_not_forgotten(world: World) -> None:
    known: list[set[str]] = []

    async def look(campaign: Run, clock: LoopClock) -> None:
        await clock.sleep(26 * 3_600)
        known.append({pair.model for pair in campaign.status().pairs if pair.done > 20})

    world.run(
        ChangingRoster(models(2), models(1), models(2)),
        {"affine:sat": 24.0},
        duration_s=27 * 3_600,
        during=look,
        settings={"roster_refresh_s": 300, "low_sample_threshold": 0},
    )
    assert known == [{"m000@main", "m001@main"}]


def test_a_model_that_comes_back_to_an_evaluation_takes_the_tasks_that_it_has_not_had(world: World) -> None:
    roster = ChangingRoster(models(2), models(1), models(2))
    matrix = MatrixTaskProvider(["test:one"], 400)
    result = world.run(
        roster,
        {"test:one": 100.0},
        duration_s=None,
        service=ServiceTime(4.0),
        settings=REFRESH | {"num_evaluation_workers": 16},
        plan={"provider": matrix, "stop_when_idle": True},
    )
    assert result.stopped_by == "everything is done"
    assert world.counts()["test:one"] == {"m000@main": 400, "m001@main": 400}
    assert len({sample.task_id for sample in world.store.samples}) == 800
    assert not result.left_out, "no other run has its tasks"


def test_a_run_is_steered_while_it_follows_a_new_roster(world: World) -> None:
    steered = 0

    async def steer_within_writes(campaign: Run, clock: LoopClock) -> None:
        write = campaign.journal.write

        async def written(function, *given, **named):
            nonlocal steered
            if function == campaign.journal.journal.withdraw:
                campaign._membership.steered()
                steered += 1
            return await write(function, *given, **named)

        campaign.journal.write = written
        await clock.sleep(3_600)

    settings = {"roster_refresh_s": 60, "low_sample_threshold": 0, "num_evaluation_workers": 1}
    rosters = ChangingRoster(models(3), models(1))
    result = world.run(
        rosters, RATES, duration_s=300, service=ServiceTime(100.0), during=steer_within_writes, settings=settings
    )
    assert steered
    assert result.stopped_by == "the window is over"


class PassingRoster:
    """Has ten models at each look, two of which are new."""

    def __init__(self) -> None:
        self.looks = 0

    async def load(self) -> Roster:
        self.looks += 1
        return Roster(tuple(models(2 * self.looks + 10)[-10:]))


def _held() -> Counter[str]:
    """What a run holds: objects of its rooms, by class; not of events and samples, which this world keeps."""
    gc.collect()
    rooms = tuple(f"headgate.{room}." for room in ("run", "scheduling", "sampling", "admission", "statistics"))
    names = (f"{type(one).__module__}.{type(one).__name__}" for one in gc.get_objects())
    return Counter(name for name in names if name.startswith(rooms))


@pytest.mark.long
def test_a_run_whose_roster_changes_for_days_holds_no_more_than_it_did(world: World) -> None:
    held: list[Counter[str]] = []

    async def look(_: Run, clock: LoopClock) -> None:
        for hours in (30, 30):
            await clock.sleep(hours * 3_600)
            held.append(_held())

    roster = PassingRoster()
    settings = {"roster_refresh_s": 600, "low_sample_threshold": 0}
    world.run(roster, {"affine:sat": 96.0, "affine:abd": 96.0}, duration_s=61 * 3_600, during=look, settings=settings)
    replaced = 2 * 30 * 6
    grown = {kind: count for kind, count in (held[1] - held[0]).items() if count > replaced / 10}
    assert not grown
