"""Runs whose models are served from weights: engines wake for samples, leave, fail, and end with the roster."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.config import Settings
from headgate.core import ChatError, ErrorKind, Launch, Message, Model, Serving, SystemClock, events
from headgate.core.errors import HeadgateError
from headgate.elastic import ElasticConfig, InvalidElasticError
from headgate.elastic.service import EnginesAtHand, Machine
from headgate.environments import Continue, EnvironmentSpec, Score
from headgate.models import is_local_model_installed
from headgate.models.local_model import weights_path
from headgate.net.listener import free_port
from headgate.run import served_pool
from headgate.run.assembly import run_source
from headgate.run.matrix import MatrixTaskProvider
from headgate.run.served import ServedModels
from headgate.run.status import RunResult
from headgate.sampling import Roster, RosterSource, StaticRoster
from headgate.storage import open_store
from headgate.telemetry import MonitorClient, Recorded
from tests.elastic.engines import simulated_program

pytestmark = pytest.mark.timeout(120)

TINY = f"{sys.executable} -S {Path(__file__).with_name('tiny_engine.py')} {{port}}"
ASKED = (Message("user", "What is six times seven?"),)


@pytest.fixture(autouse=True)
def _line_is_looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_pool, "_LINE_S", 0.05)


class Question:
    """Asks once, or more often, and scores that there is an answer."""

    opening = ASKED

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    async def answer(self, reply: str) -> Continue | Score:
        self._rounds -= 1
        if self._rounds:
            return Continue((Message("user", "And again?"),))
        return Score(1.0, success=True, why=reply)

    async def close(self) -> None:
        """Nothing is open."""


class Questions:
    """An environment of one question, asked so often."""

    spec = EnvironmentSpec(name="test:asks", summary="", licence="", daily_rate=100, data_length=50, max_rounds=4)

    def __init__(self, rounds: int = 1) -> None:
        self._rounds = rounds

    async def open(self, index: int, seed: int) -> Question:
        return Question(self._rounds)

    async def baseline(self, *_: object) -> str:
        return ""


def tiny(name: str, folder: Path | None = None, **more: Any) -> Model:
    """Return a model that the tiny engine serves."""
    launch = {"gpus": more.pop("gpus", 0), "slots": 4, "command": f"{TINY} {folder or ''}", **more.pop("launch", {})}
    serving = Serving(Launch("command", name=name, **launch), **{"idle_s": 0.3, **more})
    return Model(name, serve=serving, max_parallel=4, uid=sum(name.encode()))


class Told:
    """Keeps every event. Implements `Sink`."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []

    @property
    def handlers(self) -> Mapping[type[events.Event], Callable[[Recorded[events.Event]], None]]:
        return {events.Event: lambda recorded: self.events.append(recorded.event)}

    def close(self) -> None:
        """Nothing is held."""


def settings_in(folder: Path, **more: Any) -> Settings:
    places = {"journal": folder / "journal", "store": str(folder / "samples")}
    return Settings(**places, roster_refresh_s=0.1, batch_flush_interval=0.05, **more)


async def sampled(
    folder: Path,
    roster: RosterSource,
    told: Told,
    instances: int = 4,
    settings: Settings | None = None,
    rounds: int = 1,
    **more: Any,
) -> RunResult:
    """Run a matrix to its end."""
    settings = settings or settings_in(folder)
    store = open_store(str(folder / "samples"))
    try:
        return await run_source(
            settings,
            roster=roster,
            environments={"test:asks": Questions(rounds)},
            store=store,
            source=MatrixTaskProvider(["test:asks"], instances),
            judging=None,
            stop_when_idle=True,
            sinks=[told],
            **more,
        )
    finally:
        store.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.01)


def scores(result: RunResult) -> dict[str, tuple[int, int]]:
    return {pair.model: (pair.scored, pair.errors) for pair in result.status.pairs}


async def test_engines_start_for_samples_that_are_due_and_one_that_cannot_holds_up_no_other(tmp_path: Path) -> None:
    told = Told()
    gone = Model("gone", serve=Serving(Launch("llama.cpp", "/no/such.gguf", "gone")), uid=9)
    large = tiny("large", gpus=4)
    result = await sampled(tmp_path, StaticRoster([tiny("good"), gone, large]), told, engine_hosts=Machine(gpus=["0"]))
    assert scores(result)["good@main"] == (4, 0)
    assert (result.samples, result.stored, result.open_tasks) == (4, 4, 0)
    assert "the weights /no/such.gguf are not on this node" in result.given_up["gone@main"]
    assert "an engine of large@main takes 4 GPUs, and this machine has 1" in result.given_up["large@main"]
    not_opened = next(event for event in told.events if isinstance(event, events.PoolNotOpened))
    assert "engine_hosts" in not_opened.next_step
    assert result.status.models[0].engines is not None
    assert [event for event in told.events if isinstance(event, events.RequestLost)] == []


async def test_a_model_of_higher_priority_takes_the_gpu_and_the_samples_of_the_other_go_on_later(
    tmp_path: Path,
) -> None:
    told, hold = Told(), tmp_path / "hold"
    hold.touch()
    low, high = tiny("low", tmp_path, gpus=1), tiny("high", gpus=1, priority=5.0)

    class Grows:
        """The second model joins once the first one is being asked."""

        async def load(self) -> Roster:
            began = sum(isinstance(event, events.TaskStarted) for event in told.events)
            return Roster((low, high) if began >= 4 else (low,))

    running = asyncio.create_task(sampled(tmp_path, Grows(), told, engine_hosts=Machine(gpus=["7"])))
    await until(lambda: any(isinstance(event, events.TaskDeferred) for event in told.events))
    hold.unlink()
    result = await running
    assert scores(result) == {"low@main": (4, 0), "high@main": (4, 0)}
    assert result.open_tasks == 0
    assert (tmp_path / "gpus").read_text() == "7\n7\n"
    deferred = [event for event in told.events if isinstance(event, events.TaskDeferred)]
    assert all("went before it answered" in event.reason for event in deferred)


async def test_an_engine_for_which_nothing_is_due_leaves_at_once_where_another_waits_for_its_gpu(
    tmp_path: Path,
) -> None:
    class Machines(Machine):
        """Does not know its line when it is first asked, as where Ray's ledger is away."""

        asked = 0

        async def _others_wait(self, names: Sequence[str], serving: Serving) -> bool:
            self.asked += 1
            if self.asked == 1:
                raise HeadgateError("the ledger does not answer")
            return await super()._others_wait(names, serving)

    told, idle_s = Told(), 600.0
    roster = StaticRoster([tiny(name, tmp_path, gpus=1, idle_s=idle_s) for name in ("first", "second", "third")])
    result = await sampled(tmp_path, roster, told, engine_hosts=Machines(gpus=["7"]))
    assert scores(result) == dict.fromkeys(("first@main", "second@main", "third@main"), (4, 0))
    assert (tmp_path / "gpus").read_text() == "7\n7\n7\n", "each was started once"
    left = [
        event.reason for event in told.events if isinstance(event, events.WorkerChanged) and event.after == "draining"
    ]
    assert left == ["nothing is due, and others stand in line"] * 2


async def test_models_that_always_have_samples_due_take_turns_and_no_sample_is_begun_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_pool, "TURN_S", 0.25)
    monkeypatch.setattr(served_pool, "TURN_BY_START", 0.0)
    (tmp_path / "slow").touch()
    told = Told()
    roster = StaticRoster([tiny(name, tmp_path, gpus=1, idle_s=600.0) for name in ("first", "second")])
    result = await sampled(tmp_path, roster, told, 12, rounds=3, engine_hosts=Machine(gpus=["7"]))
    assert scores(result) == {"first@main": (12, 0), "second@main": (12, 0)}
    assert [event for event in told.events if isinstance(event, events.TaskDeferred)] == []
    changes = [event for event in told.events if isinstance(event, events.WorkerChanged)]
    awake = [event.pool for event in changes if event.after == "active"]
    assert awake[:3] in (["first@main", "second@main", "first@main"], ["second@main", "first@main", "second@main"])
    left = [event.reason for event in changes if event.after == "draining"]
    assert left[:2] == ["its turn is over, and others stand in line"] * 2


async def test_why_and_models_and_metrics_tell_what_the_samples_of_a_model_wait_for(tmp_path: Path) -> None:
    told, hold = Told(), tmp_path / "hold"
    hold.touch()
    settings = settings_in(tmp_path, enable_monitoring=True, monitor_port=free_port())
    roster = StaticRoster([tiny("first", tmp_path, gpus=1), tiny("then", gpus=1)])
    running = asyncio.create_task(sampled(tmp_path, roster, told, settings=settings, engine_hosts=Machine(gpus=["0"])))
    await until(lambda: any(isinstance(event, events.TaskStarted) for event in told.events))
    async with MonitorClient(settings, f"http://127.0.0.1:{settings.monitor_port}") as monitor:
        found = await monitor.next_task("then@main", "test:asks", "main")
        waits = await monitor.task(str(found["task_id"]))
        assert waits is not None
        assert (waits["state"], waits["gate"]) == ("queued", "engine")
        assert waits["reason"] == "its engine stands in line behind first@main-1"
        metrics = (await monitor._asked("GET", "/metrics")).text
        assert 'headgate_elastic_workers{pool="first@main",state="active"} 1.0' in metrics
        stand = {
            each["model"]: each["engines"]["state"] for each in (await monitor.document("/status/models"))["models"]
        }
        assert stand == {"first": "awake", "then": "in line"}
    hold.unlink()
    assert scores(await running) == {"first@main": (4, 0), "then@main": (4, 0)}


async def test_a_model_without_an_engine_does_not_fill_the_queue_of_all(tmp_path: Path) -> None:
    never = tiny("never", launch={"command": f"{sys.executable} -c \"exit('no')\" {{port}}"})
    settings = settings_in(tmp_path, rates={"*": 8e6})
    with closing(open_store(str(tmp_path / "samples"))) as store:
        result = await run_source(
            settings,
            roster=StaticRoster([never]),
            environments={f"test:asks-{number}": Questions() for number in range(12)},
            store=store,
            source=None,
            judging=None,
            duration_s=2.0,
        )
    assert 200 <= result.open_tasks < 400
    assert result.given_up == {}


async def test_an_engine_that_ends_at_a_request_is_started_again_and_its_samples_are_taken(tmp_path: Path) -> None:
    told, crash = Told(), tmp_path / "crash"
    crash.touch()
    running = asyncio.create_task(sampled(tmp_path, StaticRoster([tiny("weak", tmp_path)]), told))
    await until(lambda: any(isinstance(event, events.WorkerFailed) for event in told.events))
    crash.unlink()
    assert scores(await running) == {"weak@main": (4, 0)}
    failed = next(event for event in told.events if isinstance(event, events.WorkerFailed))
    assert "illegal memory access" in failed.reason


async def test_an_engine_that_ends_at_every_request_has_its_model_given_up_and_leaves_nothing_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.run.served.HOPELESS", 2)
    told = Told()
    (tmp_path / "crash").touch()
    result = await sampled(tmp_path, StaticRoster([tiny("weak", tmp_path)]), told)
    assert "its engine does not run" in result.given_up["weak@main"]
    assert "illegal memory access" in result.given_up["weak@main"]
    assert (result.samples, result.open_tasks) == (0, 0)
    assert sum(isinstance(event, events.WorkerFailed) for event in told.events) == 2


@asynccontextmanager
async def served(*models: Model, due: Mapping[str, int] | None = None, **machine: Any) -> AsyncIterator[ServedModels]:
    within = {"request_s": 30.0, "retry_s": 0.1}
    async with ServedModels(Machine(**machine), clock=SystemClock(), emit=lambda _: None, **within) as engines:
        if due is not None:
            engines.due = lambda key: due.get(key, 0)
        for model in models:
            engines.follow(model)
        yield engines


async def test_engines_that_had_a_place_wait_for_a_cluster_that_has_none_just_now() -> None:
    """As when its head is started anew, and its nodes join it one after the other."""

    class Restarted(Machine):
        opened = 0

        @asynccontextmanager
        async def engines(self, name: str, serving: Serving, config: ElasticConfig) -> AsyncIterator[EnginesAtHand]:
            self.opened += 1
            if self.opened == 2:
                raise InvalidElasticError("no node has a GPU")
            async with super().engines(name, serving, config) as at_hand:
                yield replace(at_hand, gone=gone) if self.opened == 1 else at_hand

    gone, hopeless = asyncio.get_running_loop().create_future(), list[str]()
    within = {"request_s": 30.0, "retry_s": 0.1}
    async with ServedModels(hosts := Restarted(), clock=SystemClock(), emit=lambda _: None, **within) as engines:
        engines.due, engines.hopeless = lambda _: 1, lambda _, why: hopeless.append(why)
        engines.follow(model := tiny("m"))
        await until(lambda: engines.is_ready(model.key))
        gone.set_result("the head was started anew")
        await until(lambda: hosts.opened == 3 and engines.is_ready(model.key))
        assert not hopeless


def state(engines: ServedModels, model: Model) -> str:
    status = engines.status(model.key)
    return "" if status is None else status.state


async def test_engines_sleep_when_nothing_is_due_wake_when_something_is_and_end_with_their_entry() -> None:
    due = {"m@main": 9}
    model = tiny("m", most=2)
    async with served(model, due=due) as engines:
        await until(lambda: (status := engines.status(model.key)) is not None and status.awake == 2)
        await until(lambda: engines.is_ready(model.key))
        assert (await engines.chat(model, ASKED)).text == "42"
        due["m@main"] = 0
        await until(lambda: state(engines, model) == "asleep")
        with pytest.raises(ChatError) as caught:
            await engines.chat(model, ASKED)
        assert caught.value.kind is ErrorKind.ENGINE
        due["m@main"] = 1
        engines.look(model.key)
        await until(lambda: state(engines, model) == "awake")
        engines.leave(model.key)
        assert engines.status(model.key) is None


@pytest.mark.slow
async def test_models_that_take_turns_on_a_gpu_are_each_started_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f'echo started >>{tmp_path}/starts; exec {sys.executable} {simulated_program.__file__} "$@"'
    (tmp_path / "vllm").write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "vllm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    names = ("first", "second", "third")
    launches = [Launch("vllm", str(tmp_path), name, gpus=1, slots=2) for name in names]
    models = [Model(one.name, serve=Serving(one, idle_s=0.3), options=(("max_tokens", 2),)) for one in launches]
    due = dict.fromkeys((model.key for model in models), 0)
    async with served(*models, due=due, gpus=["0"]) as engines:
        for _ in range(3):
            for model in models:
                due |= {one.key: int(one is model) for one in models}
                engines.look(model.key)
                await until(lambda model=model: engines.is_ready(model.key))
                assert (await engines.chat(model, ASKED)).text
                assert [state(engines, one) for one in models if state(engines, one) == "awake"] == ["awake"]
    assert (tmp_path / "starts").read_text() == "started\n" * 3


async def test_one_that_is_to_be_awake_at_all_times_has_no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_pool, "TURN_S", 0.0)
    monkeypatch.setattr(served_pool, "TURN_BY_START", 0.0)
    first, second = tiny("first", gpus=1, least=1), tiny("second", gpus=1)
    async with served(first, second, due={"first@main": 1, "second@main": 1}, gpus=["0"]) as engines:
        await until(lambda: engines.is_ready(first.key) and state(engines, second) == "in line")
        await asyncio.sleep(0.5)  # it looks at the line meanwhile
        assert engines.is_ready(first.key)


async def test_why_names_what_an_engine_waits_for() -> None:
    first, second = tiny("first", gpus=1), tiny("second", gpus=1)
    due = {"first@main": 1, "second@main": 1}
    async with served(first, second, due=due, gpus=["0"]) as engines:
        await until(lambda: engines.is_ready(first.key) and state(engines, second) == "in line")
        assert await engines.why(first.key) == ""
        assert await engines.why(second.key) == "its engine stands in line behind first@main-1"
        due["first@main"] = 0
        await until(lambda: state(engines, second) == "awake")
        assert await engines.why(first.key) == "its engine sleeps"


async def test_an_engine_that_does_not_start_is_told_in_its_own_words_and_tried_again() -> None:
    broken = tiny("broken", launch={"command": f"{sys.executable} -c \"exit('no kernel image')\" {{port}}"})
    async with served(broken, due={"broken@main": 1}) as engines:
        await until(lambda: engines.has_failed(broken.key) and state(engines, broken) == "failed")
        why = await engines.why(broken.key)
        assert "its engine has failed: command has ended; its last lines: no kernel image" in why
        with pytest.raises(Exception, match="the engine of broken@main has failed"):
            await engines.ready(broken.key)


@pytest.mark.slow
@pytest.mark.long  # `tests/models/test_local_model.py` asks the small model, `tests/elastic/engines` serve from weights
@pytest.mark.skipif(not is_local_model_installed(), reason="needs the extra `model`")
async def test_a_small_model_is_served_by_llama_cpp_and_answers() -> None:
    launch = Launch("llama.cpp", str(weights_path()), "small", slots=1)
    model = Model("small", serve=Serving(launch), options=(("max_tokens", 3),))
    async with served(model, due={"small@main": 1}) as engines:
        await until(lambda: state(engines, model) == "awake")
        reply = await engines.chat(model, ASKED)
        assert reply.text
        assert 1 <= reply.completion_tokens <= 3
