"""Groups in the cluster that the journal does not know."""

from __future__ import annotations

import logging

import pytest

from headgate.placement.service.reconciler import TRIES
from tests.placement.service.conftest import Opens, pool, virtual, work
from tests.placement.service.fake_executor import FakeCluster

STRAY = "headgate-gone-d-9.9"


def _with_a_stray() -> FakeCluster:
    return FakeCluster(groups={STRAY: ("n1",)}, unremovable={STRAY})


def _said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    words = ("trying again", "is removed", "its resources are lost")
    lines = [each for each in caplog.records if STRAY in each.getMessage()]
    return [(each.levelname, next(word for word in words if word in each.getMessage())) for each in lines]


def test_a_group_that_nobody_knows_goes_as_soon_as_it_can_be_removed(
    opens: Opens, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        cluster = _with_a_stray()
        async with opens(cluster) as desk:
            await desk.settle(20)
            assert STRAY in cluster.groups
            cluster.unremovable.clear()
            await desk.settle(6)
            assert STRAY not in cluster.groups
            tries = len(cluster.log)
            await desk.settle(60)
            assert len(cluster.log) == tries, "what is gone is tried no more"

    with caplog.at_level(logging.INFO, "headgate.placement"):
        virtual(main)
    assert _said(caplog) == [("WARNING", "trying again"), ("INFO", "is removed")]


def test_a_group_that_never_goes_is_told_twice_and_given_up(opens: Opens, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        cluster = _with_a_stray()
        async with opens(cluster) as desk:
            await desk.settle(3_600)
            assert cluster.log == [f"keep {STRAY}"] * TRIES

    virtual(main)
    assert _said(caplog) == [("WARNING", "trying again"), ("ERROR", "its resources are lost")]


def test_work_is_placed_beside_a_group_that_cannot_be_removed(opens: Opens) -> None:
    async def main() -> None:
        async with opens(_with_a_stray()) as desk:
            desk.service.open_pool(pool())
            desk.service.submit(work("a"), "d1")
            await desk.settle(10)
            assert desk.stage("a") == "running"

    virtual(main)
