"""The executor on a real cluster: start, stop, kill, and everything that can go wrong with work."""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from headgate.placement.amounts import Amounts, amounts
from headgate.placement.cluster import groups, hosts
from headgate.placement.cluster.executor import RayExecutor
from headgate.placement.outbox import CreateGroup
from headgate.placement.pool import GroupShape
from headgate.placement.service.protocol import GroupFailedError, Outcome, Running, WorkOrder
from tests.placement.cluster import works
from tests.placement.cluster.works import order
from tests.processes.alive import is_alive

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

_epochs = itertools.count(10)
_numbers = itertools.count(1)


class Room:
    """One group and the executor, for work that comes after another."""

    def __init__(self, executor: RayExecutor, group_id: str, nodes: tuple[str, ...]) -> None:
        self.executor, self.group_id, self.nodes = executor, group_id, nodes

    async def start(self, work: type, *args: Any, **options: Any) -> Running:
        return await self.executor.start(self.group_id, self.nodes, order(work, *args, epoch=next(_epochs), **options))

    async def outcome(self, work: type, *args: Any, **options: Any) -> Outcome:
        return await (await self.start(work, *args, **options)).outcome

    async def process(self) -> int:
        outcome = await self.outcome(works.Quick, method="env")
        return int(pickle.loads(outcome.payload)[0])


async def made(executor: RayExecutor, node: str, *bundles: Amounts) -> Room:
    group_id = f"headgate-test-d{next(_numbers)}"
    nodes = await executor.create_group(CreateGroup(group_id, 1, GroupShape(bundles, "PACK"), (node,) * len(bundles)))
    return Room(executor, group_id, nodes)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def room(executor: RayExecutor, gpu_node: str) -> Room:
    """A group that tests share: each leaves it free, with a host that takes work."""
    return await made(executor, gpu_node, amounts(cpu=1, gpu=1))


@pytest_asyncio.fixture(loop_scope="module")
async def own_room(executor: RayExecutor, gpu_node: str) -> AsyncIterator[Room]:
    room = await made(executor, gpu_node, amounts(cpu=1, gpu=1))
    yield room
    await executor.remove_group(room.group_id)


async def test_work_returns_and_its_host_takes_the_next(room: Room) -> None:
    outcome = await room.outcome(works.Quick, {"a": 1})
    assert (outcome.kind, pickle.loads(outcome.payload)) == ("returned", {"a": 1})
    first = pickle.loads((await room.outcome(works.Quick, method="env")).payload)
    second = pickle.loads((await room.outcome(works.Quick, method="env")).payload)
    assert first == second
    assert first[1] in {"0", "1"}  # the GPU of its bundle


async def test_a_busy_loop_is_stopped_with_its_state_and_goes_on_from_it(room: Room) -> None:
    before = await room.process()
    running = await room.start(works.Counting)
    stopped = await room.executor.stop(running, 5)
    assert stopped.dead
    assert stopped.state is not None
    state = pickle.loads(stopped.state)
    assert state["told"] == "request"
    outcome = await room.outcome(works.Counting, state=stopped.state)
    assert pickle.loads(outcome.payload) == state["count"]
    assert await room.process() == before


async def test_async_work_is_cancelled_and_saved(room: Room) -> None:
    stopped = await room.executor.stop(await room.start(works.Awaiting), 5)
    assert stopped.dead
    assert pickle.loads(stopped.state or b"") == "saved"


@pytest.mark.parametrize(
    "work", [works.Stuck, *(pytest.param(work, marks=pytest.mark.long) for work in (works.Refusing, works.Hanging))]
)
async def test_what_does_not_stop_is_killed(room: Room, work: type) -> None:
    stopped = await room.executor.stop(await room.start(work), 0.1)
    assert (stopped.dead, stopped.state) == (True, None)
    assert (await room.outcome(works.Quick)).kind == "returned"


async def test_work_that_fails_says_why(room: Room) -> None:
    failed = await room.outcome(works.Failing)
    assert failed.kind == "raised"
    assert "no weights here" in failed.why
    assert isinstance(pickle.loads(failed.payload), ValueError)
    unkept = (await room.outcome(works.Unpicklable)).why
    assert "cannot be pickled" in unkept
    too_large = await room.outcome(works.Quick, bytes(17 * 2**20))
    assert "at most 16 MiB" in too_large.why
    for why in (failed.why, unkept, too_large.why):
        assert "occupant.py" not in why, "whatever calls the work says nothing of what failed in it"
    broken = WorkOrder("request", "lease", next(_epochs), "hosted", b"\x80\x05no pickle", None, (amounts(cpu=1),))
    unread = await (await room.executor.start(room.group_id, room.nodes, broken)).outcome
    assert unread.kind == "raised"


async def test_work_that_ends_its_process_as_it_begins_is_told_as_that(room: Room) -> None:
    with pytest.raises(GroupFailedError, match=r"The work ends its process in group .* as it begins: ActorDied"):
        await room.start(works.Exiting)
    assert (await room.outcome(works.Quick)).kind == "returned"


async def test_a_process_that_is_killed_is_told_and_replaced(room: Room) -> None:
    running = await room.start(works.Serving, method="")
    (host,) = room.executor.reach(running)
    assert await host.call.remote(running.epoch, "twice", (5,), {}) == 10
    process = await host.call.remote(running.epoch, "process", (), {})
    os.kill(process, 9)
    assert (await running.outcome).kind == "died"
    assert await room.process() != process


async def test_what_is_left_behind_costs_the_host(room: Room) -> None:
    outcome = await room.outcome(works.Littering)
    process, child = pickle.loads(outcome.payload)
    assert not is_alive(child)
    assert await room.process() != process


async def test_a_thread_that_ends_a_little_later_does_not(room: Room) -> None:
    process = pickle.loads((await room.outcome(works.LateThread)).payload)
    assert await room.process() == process


async def test_a_gang_ends_together(executor: RayExecutor, gpu_node: str) -> None:
    room = await made(executor, gpu_node, amounts(cpu=1), amounts(cpu=1))
    outcome = await room.outcome(works.Ranked, members=2)
    assert [pickle.loads(each) for each in pickle.loads(outcome.payload)] == [0, 1]
    running = await room.start(works.Serving, method="", members=2)
    _, second = executor.reach(running)
    os.kill(await second.call.remote(running.epoch, "process", (), {}), 9)
    assert (await running.outcome).kind == "died"
    await executor.remove_group(room.group_id)


async def test_work_in_a_process_of_its_own_has_its_name(room: Room) -> None:
    import ray

    options = {"name": "served", "namespace": "headgate"}
    running = await room.start(works.Serving, method="", kind="own_process", options=options)
    (actor,) = room.executor.reach(running)
    assert await actor.twice.remote(2) == 4
    assert await ray.get_actor("served", namespace="headgate").twice.remote(3) == 6
    again = await made(room.executor, room.nodes[0], amounts(cpu=1))
    taken = await again.outcome(works.Serving, method="", kind="own_process", options=options)
    assert taken.kind == "raised"
    assert "served" in taken.why
    await room.executor.remove_group(again.group_id)
    assert (await room.executor.stop(running, 1)).dead
    ended = await room.outcome(works.Quick, 7, kind="own_process")
    assert pickle.loads(ended.payload) == 7


async def test_a_lease_that_is_not_given_back_is_taken(room: Room) -> None:
    import ray

    lease = WorkOrder("lease", "lease", 1, "lease", b"", None, (amounts(cpu=1, gpu=1),))
    running = await room.executor.start(room.group_id, room.nodes, lease)
    group = room.executor._groups.get(room.group_id)
    assert group is not None
    placed = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group.handle)
    holder = ray.remote(works.Serving).options(num_cpus=1, scheduling_strategy=placed).remote()
    await holder.process.remote()
    assert (await room.executor.stop(running, 0.1)).dead
    with pytest.raises(ray.exceptions.RayActorError):
        await holder.process.remote()
    assert (await room.outcome(works.Quick)).kind == "returned"


async def test_hosts_come_up_in_a_group_that_stays_free_and_not_in_one_that_a_lease_takes_at_once(
    executor: RayExecutor, gpu_node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = WorkOrder("lease", "lease", 1, "lease", b"", None, (amounts(cpu=1),))

    def has_host(room: Room) -> bool:
        return any(host.group_id == room.group_id for host in executor._hosts.found())

    monkeypatch.setattr(hosts, "_FREE_S", 600.0)
    room = await made(executor, gpu_node, amounts(cpu=1))
    assert not has_host(room)
    running = await executor.start(room.group_id, room.nodes, lease)
    monkeypatch.setattr(hosts, "_FREE_S", 0.0)
    assert (await executor.stop(running, 5)).dead
    async with asyncio.timeout(30):
        while not has_host(room):  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0)
    await executor.remove_group(room.group_id)


async def test_a_group_that_somebody_removed_is_told(own_room: Room) -> None:
    import ray

    running = await own_room.start(works.Serving, method="")
    group = own_room.executor._groups.get(own_room.group_id)
    assert group is not None
    ray.util.remove_placement_group(group.handle)
    assert (await running.outcome).kind == "died"
    with pytest.raises(GroupFailedError, match="has vanished from Ray"):
        await own_room.start(works.Quick)


async def test_of_two_groups_for_the_same_room_one_is_made(
    executor: RayExecutor, gpu_node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "FREE_S", 0.5)
    before = len(await executor.existing_groups())
    made_or_not = await asyncio.gather(
        *(made(executor, gpu_node, amounts(cpu=4)) for _ in range(2)), return_exceptions=True
    )
    assert sorted(type(each).__name__ for each in made_or_not) == ["GroupFailedError", "Room"]
    assert len(await executor.existing_groups()) == before + 1
    for each in made_or_not:
        if isinstance(each, Room):
            await executor.remove_group(each.group_id)


async def test_what_others_take_is_seen_at_the_second_look(executor: RayExecutor, gpu_node: str) -> None:
    import ray

    pinned = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(gpu_node, soft=False)
    other = ray.remote(works.Serving).options(num_cpus=2, scheduling_strategy=pinned).remote()
    await other.process.remote()
    seen = [view.foreign for _ in range(2) for view in await executor.nodes({}) if view.node_id == gpu_node]
    assert seen == [amounts(), amounts(cpu=2)]
    ray.kill(other)


async def test_a_new_ledger_takes_up_what_runs(own_room: Room) -> None:
    work = order(works.Serving, method="", epoch=next(_epochs))
    await own_room.executor.start(own_room.group_id, own_room.nodes, work)
    successor = RayExecutor()
    assert (await successor.existing_groups())[own_room.group_id] == own_room.nodes
    adopted = await successor.adopt(own_room.group_id, work)
    assert adopted is not None
    (host,) = successor.reach(adopted)
    assert await host.call.remote(adopted.epoch, "twice", (5,), {}) == 10
    assert (await successor.stop(adopted, 5)).dead
    stranger = order(works.Serving, method="", epoch=next(_epochs))
    assert await successor.adopt(own_room.group_id, stranger) is None


async def test_what_ran_on_a_node_that_dies_is_told(executor: RayExecutor, ray_cluster: Any) -> None:
    doomed = ray_cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    room = await made(executor, doomed.node_id, amounts(cpu=1))
    running = await room.start(works.Serving, method="")
    (host,) = executor.reach(running)
    await host.call.remote(running.epoch, "twice", (1,), {})
    ray_cluster.remove_node(doomed, allow_graceful=False)
    assert (await running.outcome).kind == "died"
    with pytest.raises(GroupFailedError, match="lost a node"):
        await room.start(works.Quick)
    assert doomed.node_id not in {view.node_id for view in await executor.nodes({})}
    await executor.remove_group(room.group_id)
