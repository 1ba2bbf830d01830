"""Neighbours: how long a model's samples take beside models that misuse what episodes share."""

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

    kinds: tuple[str, ...]  # of misuse, among `KINDS`; those whose environment is not installed are left out
    others: int = 9  # models beside the one that is measured
    at_once: int = 4  # episodes of each of them that are played at once; of the one that is measured there are two
    samples: int = 40  # of the model that is measured, beside each kind of others
    settle_s: float = 2.0  # for the others to hold what they can, before the first sample is measured
    rival_s: float = 5.0  # seconds for those beside hostile ones once more, first come, first served
    # Its 95th percentile beside models that misuse something by that beside ordinary ones, at most.
    bar_ratio: float = 2.0


@dataclass(frozen=True, slots=True)
class Replies:
    """What a model says, again and again, and how long it thinks before."""

    says: Sequence[str]
    thinks_s: float = 0.05

    async def to(self, messages: Sequence[Message]) -> ChatReply:
        """Return the next reply of an episode."""
        await asyncio.sleep(self.thinks_s)
        turn = sum(message.role == "assistant" for message in messages)
        return ChatReply(self.says[min(turn, len(self.says) - 1)])


@dataclass(frozen=True, slots=True)
class Kind:
    """An environment whose episodes share something, and replies of models that do not misuse it, and that do."""

    shared: str
    ordinary: Replies
    hostile: Replies


@dataclass(frozen=True, slots=True)
class Slots:
    """What a run has few of, in simulated time: how many, and for how long each model holds one, give or take half."""

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
    """Return how long samples take beside ordinary and hostile models, by kind of misuse."""
    unknown = sorted(set(parameters.kinds) - set(KINDS))
    if unknown:
        raise InvalidInputError(f"there is no misuse {unknown[0]!r}", next_step=f"There are: {', '.join(KINDS)}.")
    usable = {one.name for one in available() if one.spec is not None} | {"bench:echo"}
    kinds = [name for name in parameters.kinds if KINDS[name].shared in usable or isinstance(KINDS[name], Slots)]
    measured = functools.cache(functools.partial(_took, parameters, bench.seed))  # kinds share what is ordinary
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
    """Return how long samples of a model took that shares an environment, or a number of slots, with others."""
    if isinstance(shared, int):
        return _simulated(Slots(shared, ordinary, others), parameters, is_in_order, random.Random(seed))
    return asyncio.run(_latencies(Kind(shared, ordinary, others), parameters, is_in_order))


def _simulated(slots: Slots, parameters: NeighbourParameters, is_in_order: bool, rng: random.Random) -> list[float]:
    """Return how long ten times the samples took from when they were ready; in order when all are of one group."""
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
    arrives_at = 3 * slots.hostile  # by then those who were first do not end together any more
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
    """Return how long the samples of one model took beside hostile ones, in order.

    First come, first served is what those get who go by the same name.
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

    await converse(known, 0, 0, kind.ordinary.to)  # starts and imports are no part of what is measured
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
