"""The scheduler of a fake engine, in virtual time: exact service times, fairness, and laws that hold for any load."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.simulation import run_virtual
from headgate.simulation.engines.core import EngineCore, EngineRequest
from headgate.simulation.engines.plan import EnginePlan


def asked(request_id: str, prompt_tokens: int = 1, tokens: int = 1) -> EngineRequest:
    """Return a request of so many tokens."""
    return EngineRequest(request_id, ("word",) * prompt_tokens, tokens, tokens)


def core_of(plan: EnginePlan) -> tuple[EngineCore, list[str]]:
    """Return a core and the list that its deaths are written to."""
    deaths: list[str] = []
    return EngineCore(plan, lambda: deaths.append("dead")), deaths


async def served(core: EngineCore, request: EngineRequest) -> float:
    """Serve a request to its end; return when that was."""
    async with aclosing(core.serve(request)) as tokens:
        async for _ in tokens:
            core.validate()
    return asyncio.get_running_loop().time()


def test_a_request_takes_as_long_as_its_tokens() -> None:
    core, _ = core_of(EnginePlan(prompt_token_s=0.5, token_s=2.0))

    assert run_virtual(served(core, asked("a", prompt_tokens=6, tokens=10))) == pytest.approx(23.0)


def test_slots_are_given_in_the_order_of_arrival() -> None:
    core, _ = core_of(EnginePlan(slots=2, token_s=1.0))

    async def main() -> list[float]:
        lengths = {"a": 3, "b": 5, "c": 1, "d": 1}
        return list(await asyncio.gather(*(served(core, asked(rid, tokens=n)) for rid, n in lengths.items())))

    assert run_virtual(main()) == [3.0, 5.0, 4.0, 5.0]


def test_a_long_request_at_the_head_is_not_overtaken_by_short_ones_that_would_fit() -> None:
    core, _ = core_of(EnginePlan(token_room=12, token_s=1.0))

    async def main() -> list[float]:
        lengths = {"a": 7, "long": 9, "short": 1}
        return list(await asyncio.gather(*(served(core, asked(rid, tokens=n)) for rid, n in lengths.items())))

    assert run_virtual(main()) == [7.0, 16.0, 8.0]


def test_nothing_is_scheduled_while_memory_moves() -> None:
    core, deaths = core_of(EnginePlan(resume_s=4.0, token_s=1.0))

    async def main() -> float:
        await core.release(["weights"])
        waking = asyncio.create_task(core.take(["weights"]))
        await asyncio.sleep(1)
        ends = await served(core, asked("early"))
        await waking
        return ends

    assert run_virtual(main()) == pytest.approx(5.0)
    assert not deaths


@dataclass(frozen=True)
class Visit:
    """A request of a generated load, and when its client gives up."""

    arrives_s: int
    prompt_tokens: int
    tokens: int
    aborted_after_s: int | None
    leaves_after_s: int | None


visits = st.builds(
    Visit,
    arrives_s=st.integers(0, 20),
    prompt_tokens=st.integers(1, 5),
    tokens=st.integers(1, 8),
    aborted_after_s=st.none() | st.integers(0, 10),
    leaves_after_s=st.none() | st.integers(0, 10),
)
pauses = st.lists(st.integers(0, 30), max_size=3)


@given(st.lists(visits, max_size=12), pauses, st.integers(1, 3))
def test_every_request_ends_once_and_leaves_nothing_behind(load: list[Visit], stops: list[int], slots: int) -> None:
    core, deaths = core_of(EnginePlan(slots=slots, token_room=20, token_s=0.7, prompt_token_s=0.1))

    async def visit(number: int, each: Visit) -> None:
        await asyncio.sleep(each.arrives_s)
        request = asked(f"r{number}", each.prompt_tokens, each.tokens)
        loop = asyncio.get_running_loop()
        if each.aborted_after_s is not None:
            loop.call_later(each.aborted_after_s, core.abort, lambda known: known == request.request_id)
        try:
            async with asyncio.timeout(each.leaves_after_s):
                await served(core, request)
        except TimeoutError:
            pass
        assert request.finish is not None
        assert request.generated <= request.limit
        assert request.finish == "abort" or request.generated == request.limit

    async def pause(at: int) -> None:
        await asyncio.sleep(at)
        core.pause()
        core.validate()
        await asyncio.sleep(3)
        core.go_on()

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number, each in enumerate(load):
                tasks.create_task(visit(number, each))
            for at in stops:
                tasks.create_task(pause(at))

    run_virtual(main())
    assert sorted(rid for rid, _ in core.ended) == sorted(f"r{number}" for number in range(len(load)))
    assert core.is_idle
    assert core.used_tokens == 0
    assert not deaths
