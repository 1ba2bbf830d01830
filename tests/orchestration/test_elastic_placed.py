"""Elastic workers on a real Ray with the real ledger: places, actors in them, and training that takes them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deployments.examples import elastic_pool
from headgate.cli import main
from headgate.elastic.engines import EngineSpec, Outgoing, open_engine
from headgate.elastic.errors import InvalidElasticError
from headgate.elastic.gateway import load_pool_file
from headgate.elastic.service import ElasticService, PoolStatus
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import WorkerState
from headgate.orchestration.elastic.leases import ActorOrder
from headgate.orchestration.elastic.workers import PlacedActorEngine, placed_engines
from headgate.placement import PlacedWork, Placement, PreemptionRules, amounts, connect
from headgate.simulation.engines import serve_engine
from tests.cli.conftest import Said

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # the first test of a file starts Ray

GPU = {"gpu": 1}
CANCEL_TIMEOUT_S = 20.0
WORKERS = "tests.orchestration.elastic_rollout"
CONFIG = ElasticConfig(
    min_workers=2,
    max_workers=2,
    requests_per_worker_capacity=4,
    monitoring_interval=0.2,
    confirm_interval=0.05,
    failed_retry=0.2,
    engine_attempts=1,
)


@pytest.fixture(scope="module")
def gpus(ray_cluster: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The two logical GPUs of the shared Ray, with a ledger that has the roles of a training in their order."""
    with connect(journal=tmp_path_factory.mktemp("ledger") / "journal.sqlite") as placement:
        placement.set_rules(
            PreemptionRules(
                label_rules={"role": {"train": ("reward", "rollout"), "reward": ("rollout",)}},
                cancel_timeout_s=CANCEL_TIMEOUT_S,
                budget_share=1.0,
                pair_interval_s=0.0,
            )
        )
        yield
        placement.shutdown()


class Training:
    """Takes a GPU until it is completed."""


@asynccontextmanager
async def _pool(
    engine: Mapping[str, Any], config: ElasticConfig = CONFIG, **placement: Any
) -> AsyncIterator[ElasticService]:
    async with AsyncExitStack() as exits:
        placed = await exits.enter_async_context(placed_engines(config, {"pool": "gpus", **placement}, [engine]))
        service = ElasticService("rollouts", config, placed.engines, leases=placed.leases)
        yield await exits.enter_async_context(service)


async def _asked(service: ElasticService, number: int) -> dict[str, Any]:
    outgoing = Outgoing(f"request-{number}", "/v1/chat/completions", json.dumps({"n": number}).encode())
    async with service.request(outgoing) as answer:
        body = b"".join([chunk async for chunk in answer.chunks])
        assert answer.status == 200, body
        return dict(json.loads(body))


async def _until(service: ElasticService, holds: Callable[[PoolStatus], bool]) -> PoolStatus:
    async with asyncio.timeout(60):
        return await service.until(holds)


def _both_active(status: PoolStatus) -> bool:
    return status.count(WorkerState.ACTIVE) == 2


async def test_training_takes_the_place_of_a_worker_whose_requests_another_one_answers_and_it_comes_back(
    gpus: None, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    engine = {"kind": "ray", "class": f"{WORKERS}:Rollout", "resources": GPU, "count": 2, "slots": 4}
    async with _pool({**engine, "arguments": {"gate": str(gate)}}) as service:
        await _until(service, _both_active)
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(_asked(service, number)) for number in range(4)]
            await _until(service, lambda status: [worker.requests for worker in status.workers] == [2, 2])
            with await asyncio.to_thread(connect) as placement:
                pool = placement.pool("gpus")
                work = pool.submit(
                    Training, resources=amounts(gpu=1), priority=9, labels={"role": "train"}, method=None
                )
                await asyncio.to_thread(work.wait_running, 60)
                left = await _until(service, lambda status: status.count(WorkerState.STARTING) == 1)
                assert left.counts.handed_over == 2
                assert left.counts.lost == 0
                told = [(each.event, each.fields) for each in placement.events()]
                (planned,) = [fields for event, fields in told if event == "PreemptionPlanned"]
                assert (planned["request"], planned["reason"]) == (work.request_id, "label_based_preemption")
                # The ledger hears of the free place from Ray or from the worker, whichever comes first.
                ended = {fields["request"]: fields["outcome"] for event, fields in told if event == "WorkEnded"}
                assert ended in ({planned["victims"][0]: "done"}, {planned["victims"][0]: "withdrawn"})
                took_s = [fields["took_s"] for event, fields in told if event == "WorkPreempted"]
                assert all(each < CANCEL_TIMEOUT_S for each in took_s), "it left in time, and was not killed"
                gate.touch()
                answers = [await each for each in asked]
                assert [answer["asked"]["n"] for answer in answers] == [0, 1, 2, 3]
                assert len({answer["pid"] for answer in answers}) == 1, "the worker that was left answered all"
                await asyncio.to_thread(work.complete)
                back = await _until(service, _both_active)
        assert (back.counts.served, back.counts.lost, back.counts.failures) == (4, 0, {})
    await asyncio.to_thread(_assert_all_is_free)


@pytest.mark.long
async def test_a_worker_that_does_not_leave_in_time_is_killed_and_another_one_answers_its_requests(
    gpus: None, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    engine = {"class": f"{WORKERS}:Stubborn", "resources": GPU, "count": 2, "arguments": {"gate": str(gate)}}
    with await asyncio.to_thread(connect) as placement:
        kept = placement.rules()
        placement.set_rules(replace(kept, cancel_timeout_s=0.5))
        async with _pool(engine) as service:
            await _until(service, _both_active)
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(_asked(service, number)) for number in range(4)]
                await _until(service, lambda status: status.running == 4)
                work = _training(placement)
                await asyncio.to_thread(work.wait_running, 60)
                await _until(service, lambda status: status.counts.handed_over == 2)
                gate.touch()
            assert len({(await each)["pid"] for each in asked}) == 1
            await asyncio.to_thread(work.complete)
            back = await _until(service, _both_active)
            assert (back.counts.served, back.counts.lost) == (4, 0)
        placement.set_rules(kept)
    await asyncio.to_thread(_assert_all_is_free)


@pytest.mark.long
async def test_a_worker_whose_process_dies_is_replaced_and_no_request_is_lost(gpus: None, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    engine = {"class": f"{WORKERS}:Rollout", "resources": GPU, "count": 2, "arguments": {"gate": str(gate)}}
    async with _pool(engine) as service:
        await _until(service, _both_active)
        gate.touch()
        victim = (await _asked(service, 0))["pid"]
        gate.unlink()
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(_asked(service, number)) for number in range(1, 5)]
            await _until(service, lambda status: status.running == 4)
            os.kill(victim, 9)
            gate.touch()
        assert {(await each)["asked"]["n"] for each in asked} == {1, 2, 3, 4}
        back = await _until(service, lambda status: bool(status.counts.failures) and _both_active(status))
        assert (back.counts.served, back.counts.lost) == (5, 0)
    await asyncio.to_thread(_assert_all_is_free)


@pytest.mark.long
async def test_the_place_of_an_engine_outside_of_ray_is_kept_until_it_sleeps(gpus: None) -> None:
    one = ElasticConfig(**CONFIG.model_dump() | {"min_workers": 1})
    async with AsyncExitStack() as exits:
        fake = await exits.enter_async_context(serve_engine())
        engine = await open_engine(EngineSpec(url=fake.url, kind="sglang"), one)
        placed = await exits.enter_async_context(placed_engines(one, {"pool": "gpus", "resources": {"gpu": 2}}))
        service = ElasticService("outside", one, [engine], leases=placed.leases)
        await exits.enter_async_context(service)
        fake.hang("/release_memory_occupation")
        with await asyncio.to_thread(connect) as placement:
            work = _training(placement)
            await fake.until_called("POST /release_memory_occupation")
            assert (await asyncio.to_thread(work.stage)).value == "clearing"
            fake.let_go()
            await asyncio.to_thread(work.wait_running, 60)
            assert fake.is_asleep
            await asyncio.to_thread(work.complete)
            await _until(service, lambda status: status.count(WorkerState.ACTIVE) == 1)
        assert not fake.is_asleep
    await asyncio.to_thread(_assert_all_is_free)


@pytest.mark.long
async def test_a_worker_that_stands_in_line_leaves_it_with_its_pool(gpus: None) -> None:
    with await asyncio.to_thread(connect) as placement:
        work = _training(placement, gpus=2)
        await asyncio.to_thread(work.wait_running, 60)
        async with _pool({"class": f"{WORKERS}:Plain", "resources": GPU, "count": 2}) as service:
            await _until(service, lambda status: status.count(WorkerState.STARTING) == 2)
        await asyncio.to_thread(work.complete)
    await asyncio.to_thread(_assert_all_is_free)


@pytest.mark.long
async def test_a_worker_without_async_methods_has_no_process_while_it_sleeps(gpus: None) -> None:
    one = ElasticConfig(**CONFIG.model_dump() | {"min_workers": 1, "policy": "threshold", "min_stable_period": 0})
    async with _pool({"class": f"{WORKERS}:Plain", "count": 2}, one) as service:
        service.scale(2)
        await _until(service, _both_active)
        first = await _asked(service, 1)
        assert (first["path"], first["id"]) == ("/v1/chat/completions", "request-1")
        service.drain("Plain-2")
        await _until(service, lambda status: status.workers[1].state is WorkerState.INACTIVE)
        assert await asyncio.to_thread(_held) == 1
        service.wake("Plain-2")
        await _until(service, _both_active)


async def test_a_worker_whose_place_was_lost_and_taken_again_meanwhile_starts_anew() -> None:
    class Leases:
        place, starts = object(), 0

        def place_of(self, _: str) -> object:
            return self.place

        async def start(self, *_: object) -> Any:
            self.starts += 1
            return SimpleNamespace(wake=SimpleNamespace(remote=lambda: None))

        def started(self, *_: object) -> None: ...

    leases = Leases()
    engine = PlacedActorEngine("w", ActorOrder(object), leases, CONFIG)  # type: ignore[arg-type]
    for starts in (1, 2):
        assert (await engine.check()).is_asleep
        for _ in range(2):
            await engine.wake()
        assert leases.starts == starts
        assert not (await engine.check()).is_asleep
        leases.place = object()


async def test_an_answer_in_parts_is_passed_on_and_ends_in_the_actor_when_its_client_leaves(gpus: None) -> None:
    one = ElasticConfig(**CONFIG.model_dump() | {"min_workers": 1})
    async with _pool({"class": f"{WORKERS}:Streaming"}, one) as service:
        async with service.request(Outgoing("short", "/v1/chat/completions", b"{}")) as answer:
            parts = [part async for part in answer.chunks]
        assert (answer.content_type, b"".join(parts)) == ("text/event-stream", b"data: 0\n\ndata: 1\n\ndata: 2\n\n")
        async with service.request(Outgoing("endless", "/v1/chat/completions", b"endless")) as answer:
            assert await anext(aiter(answer.chunks)) == b"data: 0\n\n"
        left = await _until(service, lambda status: (load := status.workers[0].load) is not None and load.is_idle)
        assert left.counts.withdrawn == 1
    await asyncio.to_thread(_assert_all_is_free)


@pytest.mark.long
async def test_a_class_that_cannot_be_made_fails_its_worker_with_what_it_said(gpus: None) -> None:
    engine = {"class": f"{WORKERS}:Rollout", "resources": GPU, "arguments": {"fails": "no weights in /models"}}
    one = ElasticConfig(**CONFIG.model_dump() | {"min_workers": 1})
    async with _pool(engine, one) as service:
        failed = await _until(service, lambda status: status.count(WorkerState.FAILED) == 1)
        assert "no weights in /models" in failed.workers[0].last_error
    await asyncio.to_thread(_assert_all_is_free)


@pytest.mark.long
async def test_the_example_plays_as_it_says(gpus: None) -> None:
    said: list[str] = []
    pool_file = load_pool_file(Path(elastic_pool.__file__).with_suffix(".yaml"))
    with await asyncio.to_thread(connect) as placement:
        await elastic_pool.play(placement, pool_file, said.append)
    assert said == [
        "two workers hold the two places of the pool",
        "training has one of them: its worker left",
        "8 requests were answered, 4 by the other worker, 0 lost",
        "training has ended, and both workers answer again",
    ]


@pytest.mark.parametrize(
    ("engine", "placement", "said"),
    [
        ({"class": f"{WORKERS}:Deaf"}, {}, "has no method load, wake, abort"),
        ({"class": "nowhere:Rollout"}, {}, "'nowhere:Rollout' of an engine cannot be imported: No module named"),
        ({"class": "Rollout"}, {}, "an engine of kind ray: class must be module:Class"),
        ({"klass": "a:B", "class": "a:B"}, {}, "there is no setting klass; did you mean 'class'"),
        ({"class": f"{WORKERS}:Plain", "count": 0}, {}, "an engine of kind ray: count must be greater than"),
        ({"class": f"{WORKERS}:Plain", "options": {"num_gpus": 1}}, {}, "must leave num_gpus to its place"),
        ({"class": f"{WORKERS}:Plain", "resources": {"gpus": 1}}, {}, "did you mean 'gpu'"),
        ({"class": f"{WORKERS}:Plain"}, {"priority": "high"}, "placement: priority must be a valid number"),
        ({"class": f"{WORKERS}:Plain"}, {"pol": "x"}, "placement: there is no setting pol; did you mean 'pool'"),
    ],
)
async def test_what_cannot_be_used_is_refused_before_anything_is_connected(
    engine: dict[str, Any], placement: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidElasticError) as refused:
        async with placed_engines(CONFIG, placement, [engine]):
            pass
    assert said in refused.value.message


async def test_workers_that_could_never_have_a_place_are_refused_at_the_start(gpus: None) -> None:
    wanted = {"class": f"{WORKERS}:Plain", "resources": {"gpu": 3}}
    says = r"a worker takes 3 GPU, more than the quota of pool gpus: .*\. Using .* Ray cluster"
    with pytest.raises(InvalidElasticError, match=says):
        async with placed_engines(CONFIG, {"pool": "gpus"}, [wanted]):
            pass


def _training(placement: Placement, gpus: int = 1) -> PlacedWork:
    pool = placement.pool("gpus")
    wanted = {"resources": amounts(gpu=gpus), "priority": 9, "labels": {"role": "train"}}
    return pool.submit(Training, **wanted, method=None)


def _held() -> int:
    with connect() as placement:
        return sum(view.stage.value == "running" for view in placement.requests("gpus"))


def _assert_all_is_free() -> None:
    with connect() as placement:
        for view in placement.requests("gpus"):
            placement.work(view.request_id).wait(30)
        assert placement.audit() == ()


async def test_an_engine_is_started_from_what_serves_it_when_the_first_request_comes(gpus: None) -> None:
    command = f"{sys.executable} -m headgate.cli serve-baselines --port {{port}}"
    engine = {"serve": "command", "name": "baseline-greedy", "resources": GPU, "slots": 4, "command": command}
    async with _pool(engine, CONFIG.model_copy(update={"min_workers": 0})) as service:
        assert service.status().count(WorkerState.INACTIVE) == 1
        body = b'{"model": "baseline-greedy", "messages": [{"role": "user", "content": "Hi"}]}'
        async with service.request(Outgoing("first", "/v1/chat/completions", body)) as answer:
            told = json.loads(b"".join([chunk async for chunk in answer.chunks]))
        assert told["choices"][0]["message"]["role"] == "assistant"
        (worker,) = service.status().workers
        assert worker.worker_id == "baseline-greedy-1"


@pytest.mark.long
async def test_an_engine_that_does_not_start_is_told_in_its_own_words(gpus: None) -> None:
    command = f"{sys.executable} -c \"print('CUDA out of memory'); exit(3)\" {{port}}"
    engine = {"serve": "command", "name": "broken", "resources": GPU, "command": command}
    async with _pool(engine, CONFIG.model_copy(update={"min_workers": 0})) as service:
        service.wake("broken-1")
        status = await _until(service, lambda status: bool(status.workers[0].last_error))
        assert "command has ended; its last lines: CUDA out of memory" in (status.workers[0].last_error or "")


def _file(folder: Path, **engine: object) -> str:
    path = folder / "pool.yaml"
    engines = [{"kind": "ray", "class": f"{WORKERS}:Rollout", "count": 2, "slots": 4, **engine}]
    path.write_text(json.dumps({"pool": {"engines": engines}, "placement": {"pool": "gpus"}}))
    return str(path)


def _said(capsys: pytest.CaptureFixture[str], *arguments: str) -> Said:
    capsys.readouterr()
    status = main(arguments)
    said = capsys.readouterr()
    return Said(status, said.out, said.err)


def test_actors_of_a_file_are_looked_at_without_being_started(
    gpus: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    document = _said(capsys, "elastic", "serve", _file(tmp_path), "--check", "--json").document
    assert [each["engine"] for each in document["engines"]] == ["Rollout-1", "Rollout-2"]
    assert all(each["kind"] == "ray" and each["facts"]["is_asleep"] for each in document["engines"])


def test_a_file_whose_workers_could_never_have_a_place_is_refused(
    gpus: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = _said(capsys, "elastic", "serve", _file(tmp_path, resources={"cpu": 64}), "--check")
    assert said.status == 2
    assert "a worker takes" in " ".join(said.err.split())


@pytest.mark.long
def test_actors_that_run_are_found_by_their_names(gpus: None, capsys: pytest.CaptureFixture[str]) -> None:
    import ray

    from tests.orchestration.elastic_rollout import Rollout

    actors = [
        ray.remote(Rollout).options(name="engine", namespace=namespace, num_cpus=0).remote()
        for namespace in ("one", "two")
    ]
    try:
        ray.get([actor.load.remote() for actor in actors])
        said = _said(capsys, "elastic", "check", "ray://one/engine", "ray://engine", "ray://nobody")
    finally:
        for actor in actors:
            ray.kill(actor)
    assert said.status == 4
    text = " ".join(said.out.split())
    assert "1 of 3 engines can be workers" in text
    assert "(got one/engine; two/engine)" in text
    assert "(got no actor of that name)" in text
