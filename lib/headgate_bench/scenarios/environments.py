"""Environments: the cost of making and scoring a task, and the scores of the baselines."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint
from typing import Any, Final

from headgate.core import ChatReply, Message
from headgate.core.errors import InvalidInputError
from headgate.environments import (
    GROUP,
    BaselineScore,
    Environment,
    Measurement,
    Registry,
    available,
    converse,
    environment,
    measure,
)
from headgate_bench.artifact import at_least, at_most
from headgate_bench.definition import Bench, Chart, Outcome, Scenario
from headgate_bench.echo_environment import ROUNDS, Echo

_REPLY: Final = "word " * 60
"""A reply as long as a model's short answer."""

_APART: Final = EntryPoint("bench:echo", "headgate_bench.echo_environment:echo_apart", GROUP)


@dataclass(frozen=True, slots=True)
class TurnCosts:
    """Processor time of this process per turn, in milliseconds."""

    direct: float  # the environment alone
    in_process: float  # with the episode loop
    apart: float  # with the episode loop and the environment in another process, whose time is not counted


async def turn_costs(turns: int) -> TurnCosts:
    """Return the costs over `turns` turns each, rounded up to whole episodes."""
    episodes = -(-turns // ROUNDS)
    here, apart = Echo(runs_apart=False), Registry(lambda: [_APART]).environment("bench:echo")
    await _conversed(apart, 1)  # the start of its process must not count
    return TurnCosts(
        await _cpu_ms(_called(here, episodes), episodes),
        await _cpu_ms(_conversed(here, episodes), episodes),
        await _cpu_ms(_conversed(apart, episodes), episodes),
    )


async def _cpu_ms(work: Awaitable[None], episodes: int) -> float:
    began = time.process_time()
    await work
    return 1e3 * (time.process_time() - began) / (episodes * ROUNDS)


async def _called(environment: Environment, episodes: int) -> None:
    for index in range(episodes):
        episode = await environment.open(index, index)
        for _ in range(ROUNDS):
            await episode.answer(_REPLY)
        await episode.close()


async def _conversed(environment: Environment, episodes: int) -> None:
    async def chat(messages: Sequence[Message]) -> ChatReply:
        del messages
        await asyncio.sleep(0)
        return ChatReply(_REPLY)

    for index in range(episodes):
        result = await converse(environment, index, index, chat)
        assert result.score == 1.0, result.error


@dataclass(frozen=True, slots=True)
class EnvironmentParameters:
    """Parameters of the scenario."""

    names: tuple[str, ...] = ()  # environments to measure; empty for all that can be loaded
    episodes: int = 8  # per environment and baseline
    budget_s: float = 40.0  # time after which no further environment is begun
    turns: int = 2_000  # turns of the echo to measure the harness: directly, in process, and apart
    bar_turn_ms: float = 2.0  # maximum processor time that the harness adds to a turn
    bar_solver: float = 0.0  # minimum of the solver's success rate minus the rate that its environment states
    # Maximum distance of the random baseline's score from the stated chance level, in standard errors.
    bar_sigmas: float = 4.0


def measure_environments(parameters: EnvironmentParameters, bench: Bench) -> Outcome:
    """Return costs and baseline scores of all installed environments."""
    found = [one for one in available() if not parameters.names or one.name in parameters.names]
    names = [one.name for one in found if one.spec is not None]
    if not names:
        raise InvalidInputError("no environment can be measured", next_step="`headgate environments` lists them.")
    turn = asyncio.run(turn_costs(parameters.turns))
    measured = asyncio.run(_measured(names, parameters, bench))
    solver = {one.name: _baseline(one, "solver").success_rate for one in measured}
    chance = {one.name: _baseline(one, "random").mean_score for one in measured}
    costs = {one.name: one.cpu_ms for one in measured}
    errors = sum(baseline.errors for one in measured for baseline in one.baselines)
    off = {one.name: _sigmas_off(one) for one in measured}
    left_out = [f"{one.name} ({one.problem})" for one in found if one.spec is None]
    late = [name for name in names if name not in solver]
    return Outcome(
        bars=[
            at_least(
                "environments.solver",
                "success rate of the solver baseline less the rate that the environment states, lowest",
                min(rate - environment(name).spec.solver_rate for name, rate in solver.items()),
                parameters.bar_solver,
                "share",
                solver,
            ),
            at_most(
                "environments.chance",
                "standard errors between the random baseline and the stated chance level",
                max(off.values()),
                parameters.bar_sigmas,
                "σ",
                chance,
            ),
            at_most(
                "environments.turn",
                "processor time that the harness adds to a turn, the environment in process or apart, higher of both",
                max(turn.in_process, turn.apart) - turn.direct,
                parameters.bar_turn_ms,
                "ms",
                asdict(turn),
            ),
            at_most("environments.errors", "episodes that ended without a score", errors, 0, "episodes", costs),
        ],
        samples=[_sample(one) for one in measured],
        charts=[
            Chart(
                "Mean score of the baselines",
                "",
                "score",
                "bars",
                {
                    kind: [(one.name, _baseline(one, kind).mean_score) for one in measured]
                    for kind in ("random", "greedy", "solver")
                },
            ),
            Chart(
                "Processor time per episode, baselines not counted",
                "",
                "ms",
                "bars",
                {"CPU": list(costs.items())},
                log="y",
            ),
        ],
        notes=[
            "`beside` of environments.errors is CPU time in milliseconds per episode, sandboxed programs included.",
            *(f"Left out: {what}." for what in left_out),
            *(f"Not reached within {parameters.budget_s:g} s: {name}." for name in late),
        ],
    )


async def _measured(names: list[str], parameters: EnvironmentParameters, bench: Bench) -> list[Measurement]:
    measured: list[Measurement] = []
    began = asyncio.get_running_loop().time()
    for number, name in enumerate(names):
        if measured and asyncio.get_running_loop().time() - began > parameters.budget_s:
            break
        bench.progress(number / len(names), name)
        measured.append(await measure(name, parameters.episodes))
    return measured


def _baseline(one: Measurement, kind: str) -> BaselineScore:
    return next(baseline for baseline in one.baselines if baseline.kind == kind)


def _sigmas_off(one: Measurement) -> float:
    """Return how far the random baseline is from the chance level that the environment states; 0 if it states none."""
    stated = environment(one.name).spec.chance_score
    if stated is None:
        return 0.0
    # A score in [0, 1] has at most the variance of a success; 1/(2n) avoids a variance of 0 for a stated 0 or 1.
    variance = max(stated * (1 - stated), 1 / (2 * one.episodes))
    return abs(_baseline(one, "random").mean_score - stated) / math.sqrt(variance / one.episodes)


def _sample(one: Measurement) -> dict[str, Any]:
    return asdict(one) | {"stated_chance": environment(one.name).spec.chance_score}


SCENARIO = Scenario(
    name="environments",
    quick=EnvironmentParameters(),
    full=EnvironmentParameters(episodes=200, budget_s=3_600.0),
    measure=measure_environments,
)
