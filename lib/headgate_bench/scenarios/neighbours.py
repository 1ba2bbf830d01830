"""Neighbours: how long a model's samples take next to models that misuse the resources that episodes share."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import heapq
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, Final

from headgate.core import ChatReply, ErrorKind, HolderId, Message, Task, TaskId
from headgate.core.errors import InvalidInputError
from headgate.environments import GROUP, Registry, available, converse, environment, tools
from headgate.scheduling import Dispatch, Dispatcher
from headgate_bench.artifact import Bar, at_most
from headgate_bench.definition import Bench, Outcome, Scenario
from headgate_bench.echo_environment import BLOCK, ROUNDS

_HOW: Final = ("ordinary_s", "hostile_s", "in_order_s")


@dataclass(frozen=True, slots=True)
class NeighbourParameters:
    """Parameters of the scenario."""

    kinds: tuple[str, ...]  # kinds of misuse, keys of `KINDS`; those whose environment is not installed are left out
    others: int = 9  # models besides the measured one
    at_once: int = 4  # concurrent episodes of each of them; the measured model has two
    samples: int = 40  # samples of the measured model, next to each kind of others
    settle_s: float = 2.0  # time for the others to occupy what they can, before the first measured sample
    rival_s: float = 5.0  # time of the repetition next to hostile models with a first-come-first-served order
    # Maximum 95th percentile next to misusing models, relative to that next to ordinary ones.
    bar_ratio: float = 2.0


@dataclass(frozen=True, slots=True)
class Replies:
    """The replies of a model in each episode, and its thinking time before each."""

    says: Sequence[str]
    thinks_s: float = 0.05

    async def to(self, messages: Sequence[Message]) -> ChatReply:
        """Return the next reply of an episode."""
        await asyncio.sleep(self.thinks_s)
        turn = sum(message.role == "assistant" for message in messages)
        return ChatReply(self.says[min(turn, len(self.says) - 1)])


@dataclass(frozen=True, slots=True)
class Kind:
    """An environment whose episodes share a resource, with replies of ordinary models and of misusing ones."""

    shared: str
    ordinary: Replies
    hostile: Replies


@dataclass(frozen=True, slots=True)
class Slots:
    """A scarce resource of a run, in simulated time: its size, and how long models hold a unit, plus or minus half."""

    shared: int
    ordinary: float
    hostile: float


def _program(code: str) -> Replies:
    return Replies((tools.tool_call("python", code=code), "<answer>1</answer>"))


_APART: Final = EntryPoint("bench:echo", "headgate_bench.echo_environment:echo_apart", GROUP)
_PROGRAM: Final = _program("print(sum(range(100_000)))")
_GAME: Final = ("Action: look around",) * 5 + ("Action: focus on picture",)
_SHORT: Final = "x1=True"

KINDS: Final[Mapping[str, Kind | Slots]] = {
    "worker slots": Slots(20, 5.0, 200.0),
    "judges": Slots(8, 3.0, 40.0),
    "sleeping programs": Kind("headgate:tables", _PROGRAM, _program("import time\ntime.sleep(29)")),
    "computing programs": Kind("headgate:tables", _PROGRAM, _program("while True: pass")),
    "allocating programs": Kind(
        "headgate:tables", _PROGRAM, _program("x = []\nwhile True: x.append(bytearray(10**6))")
    ),
    "printing programs": Kind("headgate:tables", _PROGRAM, _program("while True: print('x' * 1000)")),
    "forking programs": Kind(
        "headgate:tables", _PROGRAM, _program("import os\nwhile True:\n try: os.fork()\n except OSError: pass")
    ),
    "blocked processes": Kind("bench:echo", Replies(("x",) * ROUNDS, 0.01), Replies((BLOCK,))),
    "held games": Kind("agentgym:sciworld", Replies(_GAME, 0.2), Replies(_GAME, 20.0)),
    "long replies": Kind("affine:sat", Replies((_SHORT,), 0.5), Replies((f"{_SHORT} " * 120_000,), 10.0)),
}


def measure_neighbours(parameters: NeighbourParameters, bench: Bench) -> Outcome:
    """Return how long samples take next to ordinary and to hostile models, by kind of misuse."""
    unknown = sorted(set(parameters.kinds) - set(KINDS))
    if unknown:
        raise InvalidInputError(f"there is no misuse {unknown[0]!r}", next_step=f"There are: {', '.join(KINDS)}.")
    usable = {one.name for one in available() if one.spec is not None} | {"bench:echo"}
    kinds = [name for name in parameters.kinds if KINDS[name].shared in usable or isinstance(KINDS[name], Slots)]
    measured = functools.cache(functools.partial(_took, parameters, bench.seed))  # kinds share the ordinary case
    samples: list[dict[str, Any]] = []
    for number, name in enumerate(kinds):
        bench.progress(number / len(kinds), name)
        kind = KINDS[name]
        cases = ((kind.ordinary, False), (kind.hostile, False), (kind.hostile, True))
        took = [measured(kind.shared, kind.ordinary, *case) for case in cases]
        samples.append({"kind": name} | dict(zip(_HOW, took, strict=True)))
    return Outcome(
        bars=list(_bars(samples, parameters)),
        samples=samples,
        notes=[
            f"Left out, its environment is not installed: {name}." for name in parameters.kinds if name not in kinds
        ],
    )


def _bars(samples: Sequence[Mapping[str, Any]], parameters: NeighbourParameters) -> Iterator[Bar]:
    for one in samples:
        ordinary, hostile, in_order = (_p95(one[how]) for how in _HOW)
        what = f"95th percentile of a model's samples beside {one['kind']} of others, by that beside ordinary ones"
        beside: dict[str, float | str] = {"ordinary, s": ordinary, "hostile, s": hostile}
        beside["first come, first served, s"] = in_order if in_order < math.inf else f"over {parameters.rival_s:g}"
        name = f"P14.{one['kind'].replace(' ', '_')}"
        yield at_most(name, what, hostile / ordinary, parameters.bar_ratio, "ratio", beside)


def _took(
    parameters: NeighbourParameters, seed: int, shared: Any, ordinary: Any, others: Any, is_in_order: bool
) -> list[float]:
    """Return how long the samples of a model took that shares an environment, or slots, with others."""
    if isinstance(shared, int):
        return _simulated(Slots(shared, ordinary, others), parameters, is_in_order, random.Random(seed))
    return asyncio.run(_latencies(Kind(shared, ordinary, others), parameters, is_in_order))


def _simulated(slots: Slots, parameters: NeighbourParameters, is_in_order: bool, rng: random.Random) -> list[float]:
    """Return the times from ready to finished of ten times the samples; in order of arrival if all are in one group."""
    dispatcher = Dispatcher({"slots": slots.shared}, holder=HolderId("bench"), is_roster_open=True)
    running: list[tuple[float, int, Dispatch]] = []
    took: list[float] = []
    number, now = 0, 0.0

    def ask(model: str) -> None:
        nonlocal number
        number += 1
        group = "" if is_in_order else model
        task = Task(TaskId(f"{number}"), model, "bench", number, 0, 0, group, now, resources={"slots": 1})
        dispatcher.enqueue((task,), now)

    for model in range(parameters.others * parameters.at_once):
        ask(f"other-{model % parameters.others}")
    arrives_at = 3 * slots.hostile  # by then the first tasks no longer end at the same time
    while len(took) < 10 * parameters.samples:
        while (granted := dispatcher.take(now)) is not None:
            held_s = slots.ordinary if granted.task.model == "measured" else slots.hostile
            heapq.heappush(running, (now + held_s * rng.uniform(0.5, 1.5), granted.lease.epoch, granted))
        if now < arrives_at <= running[0][0]:
            now = arrives_at
            ask("measured")
            ask("measured")
            continue
        now, _, ended = heapq.heappop(running)
        dispatcher.finished(ended.task, ended.lease, now)
        ask(ended.task.model)
        if ended.task.model == "measured":
            took.append(now - ended.task.due_at)
    return took


async def _latencies(kind: Kind, parameters: NeighbourParameters, is_in_order: bool) -> list[float]:
    """Return how long the samples of one model took next to hostile ones, in order.

    Models with the same name are served in order of arrival.
    """
    known = Registry(lambda: [_APART]).environment(kind.shared) if kind.shared == "bench:echo" else None
    known = known or environment(kind.shared)
    now = asyncio.get_running_loop().time
    took: list[float] = []

    async def endless(model: str, first: int) -> None:
        for index in range(first, known.spec.data_length):
            await converse(known, index, index, kind.hostile.to, model=model)

    async def measured(indices: range) -> None:
        for index in indices:
            began = now()
            result = await converse(known, index, index, kind.ordinary.to, model="" if is_in_order else "measured")
            took.append(math.inf if result.error_kind is ErrorKind.ENVIRONMENT else now() - began)

    await converse(known, 0, 0, kind.ordinary.to)  # starts and imports must not count
    starts = [(f"other-{n}", 10 * m) for n in range(parameters.others) for m in range(parameters.at_once)]
    beside = [asyncio.ensure_future(endless("" if is_in_order else model, first)) for model, first in starts]
    await asyncio.sleep(2 * kind.ordinary.thinks_s + parameters.settle_s)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(parameters.rival_s if is_in_order else None):
            await asyncio.gather(*(measured(range(first, parameters.samples, 2)) for first in range(2)))
    for one in beside:
        one.cancel()
    await asyncio.gather(*beside, return_exceptions=True)
    return took + [math.inf] * (parameters.samples - len(took))


def _p95(took_s: Sequence[float]) -> float:
    return sorted(took_s)[math.ceil(0.95 * len(took_s)) - 1]


SCENARIO = Scenario(
    name="neighbours",
    quick=NeighbourParameters(
        kinds=("worker slots", "judges", "sleeping programs", "computing programs", "blocked processes")
    ),
    full=NeighbourParameters(kinds=tuple(KINDS), samples=60, rival_s=60.0),
    measure=measure_neighbours,
)
