"""Trainer, reward model and rollouts share a pool: the important ones get room, the others go on later.

`python deployments/examples/rlhf_pool.py` uses the Ray cluster of RAY_ADDRESS, else the one of this machine, else one
that it starts with 8 CPUs. The calls are ScheduleMesh's; only the import line is Headgate's.
"""
# ruff: noqa: INP001 - a script, and no package

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import ray

from headgate.placement.schedulemesh import PreemptionAggressiveness, SimpleScheduler, SimpleTaskSpec

POOL = "rlhf"
STEPS = 30
LARGE = {"cpu": 2.0, "memory": 1024.0}
SMALL = {"cpu": 1.5, "memory": 512.0}


@ray.remote
class Worker:
    """Takes steps. Stopped between two of them, it goes on with the next one wherever it runs again."""

    def __init__(self, name: str, labels: dict[str, str], steps: int = STEPS) -> None:
        self.name, self.labels, self.steps = name, labels, steps
        self.done = 0
        self.stopped = threading.Event()

    def run(self) -> dict[str, Any]:
        """Take the steps that are left; the wait is where a real worker computes."""
        while self.done < self.steps and not self.stopped.wait(0.02):
            self.done += 1
        return {"name": self.name, "role": self.labels["role"], "pool": self.labels["pool"], "done": self.done}

    def cancel(self, task_id: str) -> None:  # noqa: ARG002 - ScheduleMesh's signature
        """Leave `run` soon; called beside it, in another thread."""
        self.stopped.set()

    def checkpoint(self) -> int:
        """Return what it takes to go on."""
        return self.done

    def restore(self, done: int) -> None:
        """Go on from there."""
        self.done = done


def rollout(number: int, priority: float = 3.0) -> SimpleTaskSpec:
    """A rollout; several share what the others leave."""
    return SimpleTaskSpec(
        task_id=f"rollout-{number:02d}",
        pool=POOL,
        actor_class=Worker,
        resources=SMALL,
        priority=priority,
        labels={"role": "rollout"},
        estimated_duration=45.0,
    )


def scenes(scheduler: SimpleScheduler) -> Iterator[str]:
    """Play the scenes one by one; each yields what has happened."""
    scheduler.configure_preemption(
        label_preemption_rules={"role": {"train": ["reward", "rollout"], "reward": ["rollout"]}},
        preemption_aggressiveness=PreemptionAggressiveness.MEDIUM,
        cancel_timeout=0.5,
        enable_cross_pool_preemption=False,
    )
    must(
        scheduler.ensure_pool(
            POOL,
            resources={"cpu": 6.0, "memory": 4096.0},
            pg_pool_config={"enable": True, "high_priority_pg_specs": [LARGE, LARGE], "max_dynamic_pgs": 2},
        )
    )
    for number in range(2):
        begin(scheduler.submit_spec(rollout(number)))
    yield "two rollouts run in groups of their own; the reserved ones stay free"

    begin(
        scheduler.submit_with_pg_preemption(
            "reward-00", POOL, Worker, LARGE, priority=8.5, labels={"role": "reward"}, estimated_duration=30.0
        )
    )
    yield "the reward model runs in a reserved group; nobody was stopped"

    trained = begin(
        scheduler.submit_with_pg_preemption(
            "train-00",
            POOL,
            Worker,
            LARGE,
            priority=9.0,
            labels={"role": "train"},
            estimated_duration=25.0,
            ray_options={"name": "trainer"},
        )
    )
    yield "the pool was full: the trainer has the place of a rollout, by the same call"

    more = begin(scheduler.submit_spec(rollout(2, priority=4.5)))
    yield "a rollout that matters more has the place of one that matters less"

    ray.get([trained, more])
    for task_id in ("train-00", "reward-00", "rollout-02"):
        must(scheduler.complete(task_id))
    for number in range(2):
        # They are in line already: submitting again waits until they run, and gives the handle that they have now.
        finished = ray.get(begin(scheduler.submit_spec(rollout(number))))
        if finished["done"] != STEPS:
            raise SystemExit(f"{finished['name']} ended after {finished['done']} of {STEPS} steps")
        must(scheduler.complete(f"rollout-{number:02d}"))
    yield "the rollouts that were stopped have finished, from the step where they were"


def begin(result: dict[str, Any]) -> Any:
    """Let a submitted worker run; returns what it will return."""
    return must(result)["agent"]["handle"].run.remote()


def must(result: dict[str, Any]) -> dict[str, Any]:
    """Return a successful answer."""
    if not result["success"]:
        raise SystemExit(f"{result['error']} ({result.get('reason')})")
    return result


def main() -> None:
    """Play all scenes, with the counts after each."""
    scheduler = SimpleScheduler()
    try:
        for said in scenes(scheduler):
            groups, preemptions = scheduler.pg_pool_stats(POOL), scheduler.stats()
            sys.stdout.write(
                f"{said}\n  groups {groups['total_pgs']}, reserved {groups['high_priority_pgs']}, "
                f"preemptions {preemptions['total_preemptions']}, running {preemptions['running_tasks']}\n"
            )
    finally:
        scheduler.shutdown()


if __name__ == "__main__":
    main()
