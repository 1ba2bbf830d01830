"""Engines of this machine: their real command lines against simulated engines, their sleep, and who has which GPU."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from headgate.core import Launch, Serving
from headgate.elastic.engines import LocalEngine, Outgoing
from headgate.elastic.errors import EngineError, InvalidElasticError
from headgate.elastic.service import Machine
from headgate.elastic.service import machine as service_machine
from headgate.elastic.settings import ElasticConfig
from tests.elastic.engines import simulated_program

PROGRAM = Path(simulated_program.__file__)
CONFIG = ElasticConfig(engine_attempts=1)


def unasked(within_s: float) -> None:
    raise AssertionError(f"nobody has to leave (got {within_s})")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs with `vllm` in it, and of modules with `sglang.launch_server`."""
    vllm = tmp_path / "vllm"
    vllm.write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAM} "$@"\n')
    vllm.chmod(0o755)
    (tmp_path / "sglang").mkdir()
    launch = "import sys\nfrom tests.elastic.engines.simulated_program import main\nmain('sglang', sys.argv[1:])\n"
    (tmp_path / "sglang" / "launch_server.py").write_text(launch)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    return tmp_path


@asynccontextmanager
async def engine_on(machine: Machine, name: str, launch: Launch) -> AsyncIterator[LocalEngine]:
    serving = Serving(launch)
    async with machine.engines(name, serving, CONFIG) as at_hand:
        (engine,) = at_hand.engines
        assert isinstance(engine, LocalEngine)
        lease = await at_hand.leases.take(engine.name, unasked)
        try:
            yield engine
        finally:
            await engine.close()
            await lease()


async def answer_of(engine: LocalEngine) -> str:
    body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}).encode()
    async with engine.answer(Outgoing("r-1", "/v1/chat/completions", body)) as answer:
        assert answer.status == 200
        return str(json.loads(b"".join([chunk async for chunk in answer.chunks]))["choices"][0]["message"]["content"])


@pytest.mark.slow
@pytest.mark.parametrize("program", ["vllm", "sglang"])
async def test_an_engine_sleeps_in_its_process_by_its_own_api_also_while_another_has_the_gpu(
    program: str, programs: Path
) -> None:
    machine = Machine(gpus=["3"])
    launch = Launch(program, str(programs), "policy", gpus=1, slots=2)  # type: ignore[arg-type]
    async with engine_on(machine, "policy", launch) as engine:
        await engine.wake()
        assert await answer_of(engine)
        process = engine._process.address
        await engine.sleep()
        assert (await engine.load()).is_asleep
        with pytest.raises(EngineError, match="sleeps"):
            await answer_of(engine)
        await engine.wake()
        assert engine._process.address == process, "it was woken, and not started again"
        assert await answer_of(engine)
        await engine.sleep()
        machine.give_back(engine.name)
        await machine.take("other", 1, 1.0, unasked)
        assert machine.of("other") == ("3",)
        assert await machine.beside("other", 9) == 1
        machine.give_back("other")
        await machine.take(engine.name, 1, 1.0, unasked)
        await engine.wake()
        assert engine._process.address == process, "it slept on beside the other"
        await engine.sleep()
        machine.give_back(engine.name)
        await machine.take("other", 1, 1.0, unasked)
        assert await machine.beside("other", 0) == 0
        assert not engine._process.is_up


@asynccontextmanager
async def asleep(machine: Machine, weights: Path, *names: str) -> AsyncIterator[list[LocalEngine]]:
    """Give engines that had the GPU one after the other, and sleep, or have ended."""
    async with AsyncExitStack() as exits:
        engines = []
        for name in names:
            engine = await exits.enter_async_context(
                engine_on(machine, name, Launch("vllm", str(weights), "policy", gpus=1, slots=2))
            )
            await engine.wake()
            await engine.sleep()
            machine.give_back(engine.name)
            engines.append(engine)
        yield engines


def is_up(engines: Sequence[LocalEngine]) -> list[bool]:
    return [engine._process.is_up for engine in engines]


@pytest.mark.slow
async def test_one_that_does_not_start_beside_sleepers_starts_alone_and_no_more_than_fit_sleep_from_then_on(
    programs: Path,
) -> None:
    count, place = programs / "count", programs / "vllm"
    place.write_text(
        "#!/bin/sh\n"
        f"up=0; for each in {programs}/pid-*; do kill -0 ${{each##*-}} 2>/dev/null && up=$((up + 1)); done\n"
        f"[ $up -le 1 ] || {{ echo 'too little memory is free' >&2; exit 1; }}\n"
        f'touch {programs}/pid-$$; echo >>{count}; exec {sys.executable} {PROGRAM} "$@"\n'
    )
    machine = Machine(gpus=["3"])
    async with asleep(machine, programs, "first", "second", "third") as engines:
        assert is_up(engines) == [False, False, True], "the third did not start beside two"
        await machine.take("first-1", 1, 1.0, unasked)
        await engines[0].wake()
        await engines[0].sleep()
        machine.give_back("first-1")
        assert is_up(engines) == [True, False, True]
        await machine.take("second-1", 1, 1.0, unasked)
        await engines[1].wake()
        assert is_up(engines) == [False, True, True], "the turn of the one that slept last comes last"
        assert len(count.read_text()) == 5, "nothing was tried that cannot be any more"


@pytest.mark.slow
async def test_one_that_cannot_start_at_all_costs_sleepers_their_place_ever_more_rarely(programs: Path) -> None:
    machine = Machine(gpus=["3"])
    broken = programs / "broken"
    broken.mkdir()
    async with asleep(machine, programs, "first") as engines:
        (programs / "vllm").write_text("#!/bin/sh\nexit 1\n")
        launch = Launch("vllm", str(broken), "policy", gpus=1, slots=2)
        async with engine_on(machine, "broken", launch) as engine:
            with pytest.raises(EngineError, match="vllm has ended"):
                await engine.wake()
            assert is_up(engines) == [False]
        (programs / "vllm").write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAM} "$@"\n')
        await machine.take("first-1", 1, 1.0, unasked)
        await engines[0].wake()
        await engines[0].sleep()
        machine.give_back("first-1")
        (programs / "vllm").write_text("#!/bin/sh\nexit 1\n")
        await machine.take("broken-1", 1, 1.0, unasked)
        for others_are_up in (True, False):  # what was wrong with it may be mended by now
            with pytest.raises(EngineError, match="vllm has ended"):
                await engine.wake()
            assert is_up(engines) == [others_are_up]


@pytest.mark.slow
async def test_where_memory_is_short_the_one_that_slept_last_ends_for_the_next_and_none_sleeps_without(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, memory = programs / "weights", programs / "cgroup"
    weights.mkdir()
    with (weights / "model.safetensors").open("wb") as file:
        file.truncate(2 * 10**9)
    memory.mkdir()
    ended: list[str] = []

    def told(most_gb: float) -> None:
        (memory / "memory.max").write_text(f"{round(most_gb * 10**9)}\n")
        (memory / "memory.current").write_text(f"{10**9}\n")
        (memory / "memory.stat").write_text(f"anon 1\nactive_file {5 * 10**8}\ninactive_file {5 * 10**8}\n")

    monkeypatch.setattr(service_machine, "_CGROUP", memory)
    machine = Machine(gpus=["3"])
    told(3)
    async with asleep(machine, weights, "first", "second") as engines:
        assert is_up(engines) == [True, True]

        async def end(engine: LocalEngine) -> None:
            ended.append(engine.name)
            await engine._end()
            told(3)

        for engine in engines:
            machine.sleeps(engine.name, ("3",), partial(end, engine))
        told(2)
        async with engine_on(machine, "third", Launch("vllm", str(weights), "policy", gpus=1, slots=2)) as third:
            await third.wake()
            await third.sleep()
            assert ended == ["second-1"]
            assert is_up([*engines, third]) == [True, False, True]
            await third.wake()
            monkeypatch.setattr(machine, "_sleepers", {})
            told(2)
            await third.sleep()
            assert not third._process.is_up
            assert (await third.load()).is_asleep


# That each program sleeps and wakes by its own API is held above.
@pytest.mark.slow
@pytest.mark.parametrize("program", ["vllm", pytest.param("sglang", marks=pytest.mark.long)])
async def test_a_kept_engine_loads_the_next_weights_in_place(program: str, programs: Path) -> None:
    machine = Machine(gpus=["3"], keeps_engines=True)
    for step in ("step_1", "step_2"):
        (programs / step).mkdir()
    first, second, gone = (
        Launch(program, str(programs / step), "policy", gpus=1, slots=2)  # type: ignore[arg-type]
        for step in ("step_1", "step_2", "step_3")
    )
    async with engine_on(machine, "policy@1", first) as engine:
        await engine.wake()
        process = engine._process.address
    assert engine._process.is_up, "its pool has ended, and it sleeps"
    async with engine_on(machine, "policy@2", second) as taken:
        assert taken is engine
        await taken.wake()
        assert taken._process.address == process
        assert await answer_of(taken)
    async with engine_on(machine, "policy@3", gone) as again:
        assert again is engine
        with pytest.raises(EngineError, match="are not on this node"):
            await again.wake()
        assert not again._process.is_up
    async with engine_on(machine, "policy@4", first) as started:
        assert started is not engine
        await started.wake()
    async with engine_on(machine, "policy@5", replace(first, slots=4)) as other:
        assert other is not started, "it was started with other flags"
    await machine.close()
    assert not started._process.is_up


async def test_what_holds_the_gpus_leaves_for_a_higher_priority_and_others_wait_in_order() -> None:
    machine, asked = Machine(gpus=["0", "1"], cores=1), []
    await machine.take("low", 1, 1.0, lambda within_s: asked.append("low"))
    await machine.take("middle", 1, 2.0, lambda within_s: asked.append("middle"))
    waiting = [asyncio.create_task(machine.take(f"w{n}", 1, 1.0, unasked)) for n in range(2)]
    high = asyncio.create_task(machine.take("high", 1, 9.0, unasked))
    await asyncio.sleep(0)
    assert asked == ["low"]
    machine.give_back("low")
    await high
    waiting[0].cancel()
    machine.give_back("middle")  # before who was cancelled could leave the line
    await asyncio.gather(waiting[0], return_exceptions=True)
    await waiting[1]
    assert sorted([*machine.of("high"), *machine.of("w1")]) == ["0", "1"]
    await machine.take("small", 0, 1.0, unasked)
    assert machine.of("small") == ()
    second = asyncio.create_task(machine.take("second", 0, 1.0, unasked))
    await asyncio.sleep(0)
    assert not second.done(), "an engine without GPUs takes a core"
    machine.give_back("small")
    await second


async def test_others_wait_only_where_they_would_keep_the_gpu() -> None:
    machine = Machine(gpus=["0"], cores=1)
    async with machine.engines("m", Serving(Launch("vllm", "w", gpus=1), most=2, priority=2.0), CONFIG) as at_hand:
        lease = await at_hand.leases.take("m-1", unasked)
        own = asyncio.create_task(at_hand.leases.take("m-2", unasked))
        await asyncio.sleep(0)
        assert not await at_hand.others_wait(), "another engine of the same model is none of the others"
        own.cancel()
        core = asyncio.create_task(machine.take("on a core", 0, 3.0, unasked))
        waiting = []
        for name, priority, is_waited_for in (("behind", 1.0, False), ("alike", 2.0, True)):
            waiting.append(asyncio.create_task(machine.take(name, 1, priority, unasked)))
            await asyncio.sleep(0)
            assert await at_hand.others_wait() is is_waited_for
        await lease()
        await asyncio.gather(core, waiting[1])
        assert not await at_hand.others_wait(), "who is behind by priority would lose it again"
        machine.give_back("alike")
        await waiting[0]


async def test_more_gpus_than_the_machine_has_are_refused_with_the_next_step() -> None:
    with pytest.raises(InvalidElasticError, match="takes 2 GPUs, and this machine has 1") as refused:
        async with Machine(gpus=["0"]).engines("m", Serving(Launch("vllm", "w", gpus=2)), CONFIG):
            pass
    assert "engine_hosts" in refused.value.next_step
