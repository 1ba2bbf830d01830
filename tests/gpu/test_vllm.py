"""vLLM itself on a GPU: what it frees asleep, what it answers afterwards, new weights in place, a curve.

Runs by `make test-gpu`; `-s`, which that gives, shows how long each step took and how much memory was held then.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from headgate.core import Launch, Serving
from headgate.elastic.engines import LocalEngine, Outgoing
from headgate.elastic.service import Machine
from headgate.elastic.service.machine import gpus_here
from headgate.elastic.settings import ElasticConfig

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
asked_in_turn = pytest.mark.asyncio(loop_scope="module")
"""Of tests which share the engine that the one before leaves asleep: to start one takes longer than what is tried."""

SLOTS = 8
CONFIG = ElasticConfig()
OPTIONS: dict[str, Any] = {"max-model-len": 8192, "gpu-memory-utilization": 0.6}
CHECKPOINTS = ("step_100", "step_200", "step_300")


@pytest.fixture(scope="module", autouse=True)
def at_hand() -> None:
    """vLLM and a GPU, without which nothing here can be tried."""
    if shutil.which("vllm") is None or not gpus_here():
        pytest.skip("vLLM is not installed, or this machine has no GPU")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of checkpoints, made by the interpreter of vLLM, whose environment has what that takes."""
    folder = tmp_path_factory.mktemp("run-7")
    beside = Path(shutil.which("vllm") or "").resolve().with_name("python")
    python = beside if beside.exists() else sys.executable
    subprocess.run([python, Path(__file__).with_name("checkpoints.py"), folder, *CHECKPOINTS], check=True)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def machine() -> AsyncIterator[Machine]:
    """This machine, which keeps an engine for the next test."""
    machine = Machine(keeps_engines=True)
    try:
        yield machine
    finally:
        await machine.close()


def launch_of(weights: Path, **changes: Any) -> Launch:
    return Launch("vllm", str(weights), "policy", gpus=1, slots=SLOTS, options={**OPTIONS, **changes})


def memory_held() -> float:
    """Return the GPU memory that processes hold in all, in GB."""
    asked = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
    told = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    return sum(float(line) for line in told.split()) * 2**20 / 1e9


async def until(is_so: Callable[[], Awaitable[bool]], within_s: float = 30.0) -> None:
    async with asyncio.timeout(within_s):
        while not await is_so():  # noqa: ASYNC110 - an engine rings no bell
            await asyncio.sleep(0.02)


def output_of(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Return what a command said, which is to succeed."""
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=400)
    print(done.stdout[-3000:], done.stderr[-6000:])
    assert done.returncode == 0
    return done


@asynccontextmanager
async def engine_on(machine: Machine, name: str, launch: Launch) -> AsyncIterator[LocalEngine]:
    """Give an engine that holds a GPU, not awake yet."""
    async with AsyncExitStack() as exits:
        at_hand = await exits.enter_async_context(machine.engines(name, Serving(launch), CONFIG))
        engine = at_hand.engines[0]
        assert isinstance(engine, LocalEngine)
        lease = await at_hand.leases.take(engine.name, lambda within_s: None)
        exits.push_async_callback(lease.give_back)
        exits.push_async_callback(engine.close)
        yield engine


def chat(request_id: str, words: str, *, most: int = 48, **more: Any) -> Outgoing:
    body = {"model": "policy", "messages": [{"role": "user", "content": words}], "max_tokens": most, "temperature": 0}
    return Outgoing(request_id, "/v1/chat/completions", json.dumps({**body, **more}).encode())


async def answer_of(engine: LocalEngine, words: str = "What is 2 + 3?", request_id: str = "r-1", **more: Any) -> str:
    async with engine.answer(chat(request_id, words, ignore_eos=True, **more)) as answer:
        body = b"".join([chunk async for chunk in answer.chunks])
        assert answer.status == 200, body
        return str(json.loads(body)["choices"][0]["message"]["content"])


async def timed(what: str, doing: Any) -> None:
    """Wait for it, and print how long it took: `-s` shows the figures."""
    begun = time.perf_counter()
    await doing
    print(f"{what}: {time.perf_counter() - begun:.2f} s, {memory_held():.2f} GB held")


@asked_in_turn
async def test_an_engine_frees_the_gpu_asleep_and_answers_as_before_awake(machine: Machine, checkpoints: Path) -> None:
    before = memory_held()
    async with engine_on(machine, "policy", launch_of(checkpoints / CHECKPOINTS[0])) as engine:
        await timed("start", engine.wake())
        awake = memory_held()
        assert awake > before + 20
        said = await answer_of(engine)
        assert len(said) > 8
        address = engine._process.address
        for round_number in range(3):
            await timed("sleep", engine.sleep())
            assert (await engine.load()).is_asleep
            assert memory_held() < before + (awake - before) / 8, "the weights and the cache are not on the GPU"
            await timed("wake", engine.wake())
            assert engine._process.address == address, "it was woken, and not started again"
            assert await answer_of(engine, request_id=f"r-{round_number}") == said
        load = await engine.load()
        assert (load.slots, load.running, load.is_asleep) == (SLOTS, 0, False)
        assert load.token_slots is not None
        assert load.token_slots > 10_000


@asked_in_turn
async def test_a_request_is_let_go_of_and_the_load_is_read(machine: Machine, checkpoints: Path) -> None:
    async with engine_on(machine, "policy", launch_of(checkpoints / CHECKPOINTS[0])) as engine:
        await engine.wake()
        others = [f"long-{number}" for number in range(SLOTS + 2)]
        asking = [asyncio.create_task(answer_of(engine, "Go on.", each, most=1900)) for each in others]

        async def is_full() -> bool:
            load = await engine.load()
            return (load.running, load.waiting) == (SLOTS, 2) and bool(load.tokens)

        await until(is_full)
        for each in others:
            await engine.abort(each)

        async def is_idle() -> bool:
            load = await engine.load()
            return load.running == load.waiting == 0

        await until(is_idle, 5.0)
        await asyncio.gather(*asking)
        assert await answer_of(engine)


@asked_in_turn
async def test_the_next_checkpoint_is_loaded_in_place_and_sleeps_and_wakes_as_if_started_with(
    machine: Machine, checkpoints: Path
) -> None:
    first, second = (checkpoints / name for name in CHECKPOINTS[:2])
    async with engine_on(machine, "policy@1", launch_of(first)) as engine:
        await engine.wake()
        of_first = await answer_of(engine)
        address = engine._process.address
    assert engine._process.is_up, "its pool has ended, and it sleeps"
    async with engine_on(machine, "policy@2", launch_of(second)) as taken:
        await timed("wake with other weights", taken.wake())
        assert taken._process.address == address
        of_second = await answer_of(taken)
        assert of_second != of_first
        awake = memory_held()
        await timed("sleep with other weights", taken.sleep())
        assert memory_held() < awake / 8, "also what was loaded in place is freed"
        await timed("wake once more", taken.wake())
        assert await answer_of(taken) == of_second
    async with engine_on(machine, "policy@3", launch_of(second, seed=7)) as fresh:
        await fresh.wake()
        assert fresh._process.address != address, "it was started with other flags"
        assert await answer_of(fresh) == of_second


@asked_in_turn
async def test_models_that_take_turns_sleep_beside_each_other_and_wake(machine: Machine, checkpoints: Path) -> None:
    async with AsyncExitStack() as exits:
        pools, said = [], {}
        for weights in CHECKPOINTS[:2]:
            launch = launch_of(checkpoints / weights, **{"gpu-memory-utilization": 0.5})
            pools.append(await exits.enter_async_context(machine.engines(weights, Serving(launch), CONFIG)))
        for turn in range(3):
            for pool in pools:
                engine = pool.engines[0]
                assert isinstance(engine, LocalEngine)
                lease = await pool.leases.take(engine.name, lambda within_s: None)
                await timed(f"turn {turn} of {engine.name}", engine.wake())
                found = (engine._process.address, await answer_of(engine, request_id=f"{engine.name}-{turn}"))
                assert said.setdefault(engine.name, found) == found, "it was woken, not started again"
                await engine.sleep()
                await lease.give_back()
        for pool in pools:
            await pool.engines[0].close()


def test_checkpoints_of_a_training_become_a_curve_by_one_engine(checkpoints: Path, tmp_path: Path) -> None:
    run = [sys.executable, "-m", "headgate.cli", "follow", str(checkpoints), "--name", "policy", "--once", "--json"]
    run += ["--engine", "vllm", "--gpus", "1", "--instances", "12", "--environment", "affine:sat"]
    run += ["--option", "max_tokens=32", "--option", "temperature=0", "--output", str(tmp_path / "curve.html")]
    run += [part for name, value in OPTIONS.items() for part in ("--engine-option", f"{name}={value}")]
    begun = time.perf_counter()
    told = json.loads(output_of(run, tmp_path).stdout)
    print(f"follow: {time.perf_counter() - begun:.1f} s")
    assert [each["model"] for each in told["checkpoints"]] == [f"policy@{name}" for name in CHECKPOINTS]
    assert [each["samples"] for each in told["checkpoints"]] == [12, 12, 12]
    assert [each["scored"] for each in told["checkpoints"]] == [12, 12, 12]


ROSTER = """
defaults:
  serve:
    engine: vllm
    gpus: 1
    slots: 8
    replicas: 0-1
    options: {max-model-len: 8192, gpu-memory-utilization: 0.6}
  options: {max_tokens: 32}
models:
"""


def test_two_models_take_turns_on_one_gpu(checkpoints: Path, tmp_path: Path) -> None:
    models = [f"  - {{name: {name}, serve: {{weights: {checkpoints / name}}}}}" for name in CHECKPOINTS[:2]]
    (tmp_path / "roster.yaml").write_text(ROSTER + "\n".join(models) + "\n")
    run = [sys.executable, "-m", "headgate.cli", "run", "--roster", "roster.yaml", "--environment", "affine:sat"]
    before = memory_held()
    done = output_of([*run, "--instances", "12"], tmp_path)
    assert "samples=24" in done.stderr
    assert memory_held() < before + 1, "no engine is left"
