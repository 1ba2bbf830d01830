"""Models that a run serves on a real Ray with the real ledger: engines stand in places, and training takes one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from headgate.config import Settings
from headgate.core import events
from headgate.elastic.errors import InvalidElasticError
from headgate.orchestration import engine_hosts
from headgate.placement import PreemptionRules, amounts, connect
from headgate.run import served_pool
from headgate.run.assembly import run_source
from headgate.run.matrix import MatrixTaskProvider
from headgate.run.served_pool import pool_config
from headgate.run.status import RunResult
from headgate.sampling import RosterSource, StaticRoster
from headgate.storage import open_store
from tests.run.test_served_models import Questions, Told, scores, tiny, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # the first test of a file starts Ray

ON_RAY = Settings(engine_hosts="ray")


@pytest.fixture(scope="module")
def gpus(ray_cluster: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The two logical GPUs of the shared Ray, with a ledger that lets training take the place of engines."""
    with connect(journal=tmp_path_factory.mktemp("ledger") / "journal.sqlite") as placement:
        rules = PreemptionRules(
            label_rules={"role": {"train": ("rollout",)}}, cancel_timeout_s=5.0, budget_share=1.0, pair_interval_s=0.0
        )
        placement.set_rules(rules)
        yield
        placement.shutdown()


class Training:
    """Takes both GPUs until it is completed."""


@asynccontextmanager
async def running(folder: Path, roster: RosterSource, told: Told) -> AsyncIterator[asyncio.Task[RunResult]]:
    settings = Settings(journal=folder / "journal", store=str(folder / "samples"), batch_flush_interval=0.05)
    async with engine_hosts(ON_RAY) as hosts:
        with closing(open_store(str(folder / "samples"))) as store:
            task = asyncio.create_task(
                run_source(
                    settings,
                    roster=roster,
                    environments={"test:asks": Questions()},
                    store=store,
                    source=MatrixTaskProvider(["test:asks"], 6),
                    judging=None,
                    stop_when_idle=True,
                    sinks=[told],
                    engine_hosts=hosts,
                )
            )
            try:
                yield task
            finally:
                await asyncio.gather(task, return_exceptions=True)


def has(told: Told, kind: type[events.Event], holds: Callable[[events.Event], bool] = lambda _: True) -> bool:
    return any(isinstance(event, kind) and holds(event) for event in told.events)


async def test_a_training_takes_the_gpus_and_the_samples_of_the_model_go_on_when_it_has_ended(
    gpus: None, tmp_path: Path
) -> None:
    told, hold = Told(), tmp_path / "hold"
    hold.touch()
    async with running(tmp_path, StaticRoster([tiny("policy", tmp_path, gpus=2)]), told) as run:
        await until(lambda: has(told, events.TaskStarted))
        with await asyncio.to_thread(connect) as placement:
            pool = placement.pool("main")
            training = {"resources": amounts(gpu=2), "priority": 9, "labels": {"role": "train"}, "method": None}
            work = pool.submit(Training, **training)
            await asyncio.to_thread(work.wait_running, 60)
            await until(lambda: has(told, events.TaskDeferred))
            hold.unlink()
            assert not run.done()
            await asyncio.to_thread(work.complete)
            result = await run
    assert scores(result) == {"policy@main": (6, 0)}
    assert (result.samples, result.open_tasks, dict(result.given_up)) == (6, 0, {})
    assert (tmp_path / "gpus").read_text() == "0,1\n0,1\n"
    with await asyncio.to_thread(connect) as placement:
        assert [view for view in placement.requests("main") if not view.stage.has_ended] == []


async def test_an_engine_for_which_nothing_is_due_leaves_the_gpus_to_one_that_stands_in_line(
    gpus: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_pool, "_LINE_S", 0.1)
    roster = StaticRoster([tiny(name, tmp_path, gpus=2, idle_s=600.0) for name in ("first", "second")])
    async with running(tmp_path, roster, Told()) as run:
        assert scores(await run) == {"first@main": (6, 0), "second@main": (6, 0)}
    assert (tmp_path / "gpus").read_text() == "0,1\n0,1\n"


@pytest.mark.long
async def test_what_an_engine_stands_behind_is_named(gpus: None, tmp_path: Path) -> None:
    first, second = tiny("first", gpus=2, least=1), tiny("second", gpus=2, least=1)
    async with engine_hosts(ON_RAY) as hosts:
        assert hosts is not None
        from headgate.core import SystemClock
        from headgate.run.served import ServedModels

        async with ServedModels(hosts, clock=SystemClock(), emit=lambda _: None, request_s=30, retry_s=0.2) as engines:
            engines.follow(first)
            await until(lambda: engines.is_ready(first.key))
            engines.follow(second)
            await until(lambda: getattr(engines.status(second.key), "state", "") == "in line")
            why = await engines.why(second.key)
            assert why == "its engine stands in line behind first@main-1 (priority 1)"
            engines.leave(first.key)
            await until(lambda: engines.is_ready(second.key))


async def test_more_gpus_than_any_node_has_are_refused_in_a_sentence(gpus: None) -> None:
    many = tiny("many", gpus=3)
    assert many.serve is not None
    async with engine_hosts(ON_RAY) as hosts:
        assert hosts is not None
        with pytest.raises(InvalidElasticError, match="a worker takes 3 GPU, more than"):
            async with hosts.engines("many", many.serve, pool_config(many.serve, 30, 0.2)):
                pass
