"""Carrying out: what becomes of work that ends while it is being stopped, and what is kept of work that is over."""

from __future__ import annotations

import asyncio

import pytest

from headgate.placement.service.protocol import Outcome, Running, Stopped
from tests.placement.service.conftest import Opens, pool, virtual, work


def test_the_answer_of_a_late_stop_does_not_blind_the_next_start(opens: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool(cpu=2))
            desk.service.submit(work("victim", priority=1), "d1")
            await desk.settle()
            died = desk.executor.outcomes["victim"]

            async def slow_stop(running: Running, timeout_s: float) -> Stopped:
                del timeout_s
                del desk.cluster.works[running.group_id]
                died.set_result(Outcome("died", why="its node went"))
                await asyncio.sleep(5)
                return Stopped(None, dead=True)

            monkeypatch.setattr(desk.executor, "stop", slow_stop)
            desk.service.submit(work("urgent", priority=9), "d1")
            await desk.settle()
            desk.executor.end("urgent")
            await desk.settle()
            assert desk.stage("victim") == "running"
            await desk.settle(6)  # the stop of its first start answers only now
            desk.executor.end("victim")
            await desk.settle()
            assert desk.stage("victim") == "done"

    virtual(main)


def test_nothing_is_kept_in_hand_of_work_that_is_over(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool())
            for number in range(5):
                desk.service.submit(work(f"t{number}"), "d1")
                await desk.settle()
                if number % 2:
                    desk.service.withdraw(f"t{number}")
                else:
                    desk.executor.end(f"t{number}")
                await desk.settle()
            supervisor = desk.service._supervisor
            assert (supervisor.running, supervisor._starts, supervisor._watches, supervisor._tasks) == (
                {},
                {},
                {},
                set(),
            )

    virtual(main)
