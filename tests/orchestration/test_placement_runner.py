"""The placement task runner on a real Ray and a real Prefect server; only the leases are a double."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import TaskRun

from headgate.orchestration import Demand, PlacementTaskRunner, placed
from headgate.orchestration.placement.tenures import TenureEnd
from headgate.placement import amounts, connect
from headgate.placement.errors import CannotFitError
from tests.orchestration import placed_tasks as tasks
from tests.orchestration.plain_leases import PlainLeases
from tests.own_ray import own_ray

TINY = Demand(resources=amounts(cpu=0.5))


pytestmark = pytest.mark.timeout(300)  # the first test of a file starts Prefect and Ray


@pytest.fixture(scope="module")
def small_ray() -> Iterator[None]:
    """A Ray of four CPUs in a folder of its own."""
    with own_ray(4):
        yield


@pytest.fixture
def leases(small_ray: None, prefect: object) -> PlainLeases:
    return PlainLeases()


@flow(name="placed", task_runner=PlacementTaskRunner(demand=TINY))
def placed_flow() -> Any:
    return tasks.BODY[0]()


async def _in_flow(leases: PlainLeases, body: Callable[[PlacementTaskRunner], Any]) -> Any:
    """Run `body` in a flow with the runner, in a thread as a script would."""
    runner = PlacementTaskRunner(demand=TINY, leasing=lambda: leases)

    def opened() -> Any:
        with runner:
            return body(runner)

    tasks.BODY[:] = [opened]
    return await asyncio.to_thread(placed_flow)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - another process ends
            await asyncio.sleep(0.02)


async def _told(run_id: Any) -> tuple[TaskRun, list[str]]:
    """Return a task run and the states that the server knows, once it is in a final one."""
    async with asyncio.timeout(30), get_client() as client:
        while True:
            found = await client.read_task_runs()
            run = next((each for each in found if each.id == run_id), None)
            if run is not None and run.state is not None and run.state.is_final():
                states = await client.read_task_run_states(run_id)
                return run, [state.name for state in states]
            await asyncio.sleep(0.1)


async def test_each_task_runs_in_a_place_of_its_own_and_gives_it_back(prefect: Any, leases: PlainLeases) -> None:
    def body(runner: PlacementTaskRunner) -> Any:
        first = runner.submit(tasks.where, {"number": 1})
        second = runner.submit(tasks.where, {"number": 2, "before": (first,)})
        many = runner.map(tasks.doubled, {"number": [1, 2]})
        assert "before" not in first.result()["before"]
        return first.result(), second.result(), many.result()

    first, second, many = await _in_flow(leases, body)
    assert many == [2, 4]
    assert first["api"] == second["api"] == prefect.api_url
    assert first["group"] != second["group"]
    assert second["before"] == (first,)
    assert (leases.taken, leases.returned, leases.held, leases.is_closed) == (4, 4, [], True)


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.long)])
async def test_a_task_whose_place_is_taken_away_runs_again_and_is_not_charged_a_retry(
    leases: PlainLeases, tmp_path: Path, times: int
) -> None:
    marks = tmp_path / "marks"

    def body(runner: PlacementTaskRunner) -> Any:
        future = runner.submit(tasks.held_up, {"marks": str(marks), "stays": times})
        for stays in range(1, times + 1):
            _wait(lambda stays=stays: marks.exists() and len(marks.read_text().split()) == stays)
            leases.held[0].take_away()
        return future.result(), future.task_run_id, list(runner.tenures)

    started, run_id, tenures = await _in_flow(leases, body)
    assert started == times + 1
    assert [t.end for t in tenures] == [*[TenureEnd.PREEMPTED] * times, TenureEnd.DONE]
    assert (leases.taken, leases.returned) == (times + 1, times + 1)
    run, states = await _told(run_id)
    assert run.run_count == 1
    assert states[-1] == "Completed"
    assert states.count("Preempted") == times


async def test_a_cancelled_task_is_killed_and_its_place_given_back(leases: PlainLeases, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    futures = []

    def body(runner: PlacementTaskRunner) -> Any:
        future = runner.submit(tasks.held_up, {"marks": str(marks), "stays": 9})
        _wait(lambda: marks.exists() and bool(marks.read_text().split()))
        future.cancel()
        future.cancel()
        future.wait()
        futures.append(future)  # returned, it would decide how the flow ends

    await _in_flow(leases, body)
    (future,) = futures
    assert future.state.is_cancelled()
    assert (leases.taken, leases.returned) == (1, 1)
    await _until(lambda: not _lives(int(marks.read_text())))
    assert (await _told(future.task_run_id))[0].state_name == "Cancelled"


async def test_a_flow_that_fails_stops_what_runs_and_what_waits(leases: PlainLeases, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    futures = []

    def body(runner: PlacementTaskRunner) -> Any:
        futures.append(runner.submit(tasks.held_up, {"marks": str(marks), "stays": 9}))
        _wait(lambda: marks.exists() and bool(marks.read_text().split()))
        leases.is_full = True
        futures.append(runner.submit(tasks.where, {"number": 1}))
        _wait(leases.waiting.is_set)
        raise KeyError("the flow")

    with pytest.raises(KeyError, match="the flow"):
        await _in_flow(leases, body)
    assert all(future.state.is_cancelled() for future in futures)
    assert (leases.taken, leases.returned, leases.held) == (1, 1, [])
    await _until(lambda: not _lives(int(marks.read_text())))


@pytest.mark.long
async def test_a_worker_that_dies_is_a_crash_told_once_and_ray_does_not_run_it_again(
    leases: PlainLeases, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    futures = []

    def body(runner: PlacementTaskRunner) -> Any:
        future = runner.submit(tasks.killed, {"marks": str(marks)})
        future.wait()
        futures.append(future)  # returned, it would decide how the flow ends

    await _in_flow(leases, body)
    (future,) = futures
    assert future.state.is_crashed()
    assert marks.read_text() == "x"
    assert (await _told(future.task_run_id))[0].state_name == "Crashed"


@pytest.mark.long
async def test_what_a_task_raises_and_what_can_never_be_placed_reach_the_caller(leases: PlainLeases) -> None:
    def body(runner: PlacementTaskRunner) -> Any:
        with pytest.raises(ValueError, match="it is Monday"):
            runner.submit(tasks.failing, {}).result()
        leases.refusal = CannotFitError("No node has 99 CPU")
        with placed(resources=amounts(cpu=99)), pytest.raises(CannotFitError, match="99 CPU"):
            runner.submit(tasks.where, {"number": 1}).result()

    await _in_flow(leases, body)
    assert leases.taken == leases.returned == 1


async def test_without_anything_said_places_come_from_the_ledger_of_the_cluster(
    prefect: object, small_ray: None
) -> None:
    @flow(name="plain", task_runner=PlacementTaskRunner(demand=TINY))
    def plain() -> Any:
        first = tasks.where.submit(1)
        with placed(priority=9, labels={"role": "urgent"}):
            return tasks.where.submit(2, first).result(), first.result()

    second, first = await asyncio.to_thread(plain)
    assert second["before"] == (first,)
    assert first["group"]

    def ended() -> list[Any]:
        with connect() as placement:
            (pool,) = placement.pools()
            assert (pool.name, pool.quota.get("CPU")) == ("main", 4_000)
            # A place that was given back may be on its way yet: its group is free once its worker has said so.
            _wait(lambda: all(view.stage.value != "stopping" for view in placement.requests("main")))
            stages = [view.stage.value for view in placement.requests("main")]
            placement.shutdown()
            return stages

    assert await asyncio.to_thread(ended) == ["done", "done"]


def test_a_runner_travels_without_its_connection_and_equals_its_copy() -> None:
    import cloudpickle

    runner = PlacementTaskRunner("10.0.0.5:6379", pool="rlhf", demand=Demand(priority=7), leasing=PlainLeases)
    there = cloudpickle.loads(cloudpickle.dumps(runner))
    assert (there.address, there.pool, there.demand.priority) == ("10.0.0.5:6379", "rlhf", 7)
    assert runner.duplicate() == runner
    assert runner != PlacementTaskRunner("10.0.0.5:6379", pool="main")


def _wait(holds: Callable[[], bool]) -> None:
    for _ in range(3_000):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not happen within half a minute")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
