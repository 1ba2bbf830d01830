"""The flow `place-roles`: a small real training whose roles share a Ray cluster by priority."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blocks import RayCluster
from headgate.core.errors import HeadgateError
from headgate.orchestration.inputs import loaded_block
from headgate.orchestration.placement_pool_leases import PoolLeases, open_pool_leases
from headgate.orchestration.placement_runner import PlacementTaskRunner
from headgate.orchestration.placement_tenures import Stop
from headgate.orchestration.placing_artifacts import publish_placing, training_sentence
from headgate.orchestration.placing_rounds import (
    TRAIN_CPUS,
    TRAIN_PRIORITY,
    Learned,
    PlacedTraining,
    RoleStoppedError,
    Training,
)
from headgate.orchestration.run_logs import library_logs_in_run
from headgate.orchestration.run_state import ended, heed_state, run_logger
from headgate.orchestration.stopping import StopRequest, stop_on_signals
from headgate.placement import PoolSpec
from headgate.placement.roles import BATCH, Place

_HEED_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class PlacingOrder:
    """What a flow run is asked to train.

    Attributes:
        name: of the training; another name begins anew, the same one goes on where it was.
        environment: what is played.
        rounds: updates of the policy.
        rollouts: shards that play at a time.
        episodes: scored episodes per round.
        trial_episodes: episodes that tell how good the policy is before and after.
        cluster: name of a RayCluster block; RAY_ADDRESS, a running cluster or a local one when empty.
        pool: pool whose quota the roles count against; made when neither the cluster nor the block has it.
        priority: added to the priority of every role.
        folder: where trainings are kept, which every node of the cluster must see.
        seed: of all random choices.
    """

    name: str
    environment: str
    rounds: int
    rollouts: int
    episodes: int
    trial_episodes: int
    cluster: str = ""
    pool: str = "rlhf"
    priority: float = 0.0
    folder: str = ".headgate/placement"
    seed: int = 0

    def training(self) -> Training:
        """Return it as the roles take it."""
        place = Place(self.environment, str((Path(self.folder) / self.name).absolute()))
        batches = -(-self.episodes // BATCH)
        return Training(place, self.rounds, self.rollouts, batches, self.trial_episodes, self.priority, self.seed)

    def own_pool(self) -> PoolSpec:
        """Return the pool that is made where there is none: room for all rollouts, some of it lent by training."""
        return PoolSpec.model_validate(
            {
                "name": self.pool,
                "quota": {"cpu": self.rollouts + TRAIN_CPUS - 1},
                "reserved": [{"cpu": TRAIN_CPUS}],
                "reserved_from_priority": min(8.0, TRAIN_PRIORITY + self.priority),
            }
        )


async def run_placing(order: PlacingOrder) -> Any:
    """Train a policy with roles placed by priority, and return the state in which the flow run ends.

    Raises:
        HeadgateError: if something that was given cannot be used, or the cluster cannot be reached; and what a role
            raised. Everything is given back in every case, and the next run of the same name goes on.
    """
    training = order.training()
    training.place.played()
    block = RayCluster() if not order.cluster else await loaded_block(RayCluster, order.cluster)
    stop = StopRequest()
    with stop_on_signals(stop), library_logs_in_run():
        leases = await asyncio.to_thread(open_pool_leases, block, order.own_pool())
        run_logger().info("%s", leases.says)
        runner = PlacementTaskRunner(pool=order.pool, leasing=lambda: leases)
        placed = PlacedTraining(training, runner)
        stops: list[Stop] = []
        try:
            async with _running(runner, leases, stop, stops):
                await placed.run()
        except RoleStoppedError:
            run_logger().info("The roles were stopped, and their places given back")
        finally:
            await publish_placing(order.name, placed.learned, runner.tenures, stops)
        message = training_sentence(placed.learned, runner.tenures)
        run_logger().info("%s: %s", order.name, message)
        return await ended(stop, message, _data(placed.learned, runner))


@asynccontextmanager
async def _running(
    runner: PlacementTaskRunner, leases: PoolLeases, stop: StopRequest, stops: list[Stop]
) -> AsyncIterator[None]:
    """Keep a runner open; a wish to stop cancels what it holds, and nothing is held after."""
    watchers = [asyncio.create_task(_cancelled_at(stop, runner)), asyncio.create_task(_heeded(stop))]
    runner.__enter__()
    try:
        yield
    finally:
        for watcher in watchers:
            watcher.cancel()
        await asyncio.wait(watchers)
        runner.cancel_all()
        await asyncio.to_thread(runner.join)
        with suppress(HeadgateError):  # a ledger that is away now keeps its costs; how the run ends does not change
            stops += await asyncio.to_thread(leases.stops)
        await asyncio.to_thread(runner.__exit__, None, None, None)
        await asyncio.to_thread(leases.close)


async def _cancelled_at(stop: StopRequest, runner: PlacementTaskRunner) -> None:
    await stop.event.wait()
    runner.cancel_all()


async def _heeded(stop: StopRequest) -> None:
    while True:
        await asyncio.sleep(_HEED_EVERY_S)
        await heed_state(stop)


def _data(learned: Learned, runner: PlacementTaskRunner) -> dict[str, Any]:
    return {
        "rounds": len(learned.rounds),
        "episodes": learned.episodes,
        "mean_reward_before": learned.before,
        "mean_reward_after": learned.after,
        "preemptions": sum(tenure.end.value == "preempted" for tenure in runner.tenures),
    }
