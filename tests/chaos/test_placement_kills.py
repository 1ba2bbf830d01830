"""Placement on real Ray while its driver, its ledger and its nodes are killed: nothing is lost, nothing leaks."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from headgate.placement import amounts
from tests.chaos.placement_work import Counting
from tests.house.tree import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

ONE = amounts(cpu=1, gpu=1)
PATIENCE_S = 90.0


def _until(what: str, holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.1)


def _kill_ledger(there: Any) -> None:
    generation = there.placement.about()["generation"]
    os.kill(there.placement.about()["process_id"], signal.SIGKILL)
    _until("the ledger is back", lambda: there.placement.about()["generation"] == generation + 1)


def _kill_driver(there: Any, name: str) -> None:
    command = [sys.executable, "-m", "tests.chaos.placement_driver", there.cluster.address, name]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "submitted\n"
        driver.kill()
    theirs = [f"{name}-{number}" for number in range(3)]
    _until(
        "the work of a dead driver is withdrawn",
        lambda: all(there.placement.work(each).view().stage == "withdrawn" for each in theirs),
    )


def _kill_node(there: Any, rng: random.Random) -> None:
    node = rng.choice(list(there.cluster.worker_nodes))
    there.cluster.remove_node(node, allow_graceful=False)
    there.cluster.add_node(num_cpus=4, num_gpus=2, object_store_memory=80_000_000)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_nothing_is_lost_or_left_when_driver_ledger_and_nodes_are_killed(kills: int, chaos_seed: int) -> None:
    from headgate_bench.placement.site import site

    rng = random.Random(chaos_seed)
    with site(2, cancel_timeout_s=0.5) as there:
        pool = there.placement.pool("chaos", quota=amounts(cpu=4, gpu=4), reserved=(ONE, ONE))
        asked: dict[str, int] = {}
        works = []
        rounds = max(1, kills // 2)
        for number in range(rounds):
            for kind, priority, target in (("rollout", 3, 400), ("rollout", 3, 300), ("train", 9, 100)):
                name = f"{kind}-{number}-{len(works)}"
                asked[name] = target
                works.append(pool.submit(Counting, target, resources=ONE, request_id=name, priority=priority))
            for kill in rng.sample([_kill_ledger, lambda at: _kill_node(at, rng)], 2):
                time.sleep(rng.uniform(0, 0.5))
                kill(there)
            if number % 3 == 0:
                _kill_driver(there, f"driver-{number}")
        assert {work.request_id: work.result(PATIENCE_S) for work in works} == asked
        _until(
            "the reserved groups are back",
            lambda: sum(group.reserved for group in there.placement.groups("chaos")) == 2,
        )
        _until("everything is quiet", lambda: there.placement.audit() == ())
        there.placement.close_pool("chaos")
        _until("the groups of a closed pool are gone", lambda: there.placement.groups("chaos") == ())
        assert there.placement.audit() == ()
