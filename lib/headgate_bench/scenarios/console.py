"""P16: the console over a million samples: how soon screens show, what watching costs a run, fifty viewers at once."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

import httpx

from headgate.config import Settings
from headgate.console import RunSource
from headgate.models import SimulationPlan
from headgate.storage import StoreLocation, open_store
from headgate.telemetry import MonitorClient
from headgate_bench.artifact import at_most
from headgate_bench.definition import Bench, Outcome, Scenario, percentile, spread_of
from headgate_bench.large_store import LargeStore
from headgate_bench.provider import provider, served_apart
from headgate_bench.watched_run import cpu_s

_CLI: Final = "headgate.cli"
_SAYS: Final = "Console at "
_SCREENS: Final = {
    "newest samples": "/samples",
    "worst samples of a model": "/samples?model=large/model-0003&order=worst",
    "slow failures": "/samples?error=any&min_latency_s=5&order=longest",
    "samples of an environment since a day": "/samples?environment=large:env-03&since=2026-01-20",
    "samples with a text": "/samples?text=clause%203&order=worst",
    "leaderboard of an environment": "/leaderboard?environment=large:env-03",
    "leaderboard": "/leaderboard",
    "scores over time": "/scores?model=large/model-0003,large/model-0004",
}
_BEING_READ, _BEING_MADE = "is being read", "being computed"


@dataclass(frozen=True, slots=True)
class ConsoleParameters:
    """Parameters of the scenario."""

    samples: int = 100_000  # in the store
    models: int = 1_000  # in the store
    environments: int = 64  # in the store
    days: int = 10  # days over which the samples are spread, with a part for each environment and day
    run_models: int = 16  # models of the watched run
    run_environments: int = 8  # environments of the watched run
    per_s: float = 150.0  # samples per second of the watched run
    pairs: int = 5  # pairs of windows, watched and unwatched, in turns
    window_s: float = 4.0  # length of a window: a multiple of the console's polling interval of 2 s
    viewers: int = 50  # concurrent viewers
    viewers_s: float = 4.0  # how long they view
    asked_times: int = 20  # polls per poll of one console; the measured cost, and its noise, is divided by this
    bar_first_s: float = 1.0  # bar of the first screen, of each other one, and of 95 % of viewers' answers
    bar_watched: float = 1.02  # maximum CPU time of a watched run relative to an unwatched one


async def measure(parameters: ConsoleParameters, bench: Bench) -> Outcome:
    """Return how soon screens show, what being watched costs a run, and how fast fifty viewers are served."""
    folder = bench.folder / "large"
    folder.mkdir()
    store = open_store(StoreLocation(str(folder)))
    bench.progress(0.0, "making the store")
    made = LargeStore(parameters.samples, parameters.models, parameters.environments, parameters.days)
    await made.write(store, bench.seed)
    store.close()
    outcome = Outcome()
    bench.progress(0.4, "looking at the store")
    async with served_apart(_CLI, "console", "--store", str(folder), "--port", "0", says=_SAYS) as (address, process):
        outcome.add(await _screens(parameters, address))
        bench.progress(0.6, f"{parameters.viewers} viewers")
        outcome.add(await _viewers(parameters, address, process))
    bench.progress(0.7, "watching a run")
    outcome.add(await _watched(parameters, bench))
    return outcome


async def _get(client: httpx.AsyncClient, path: str) -> tuple[float, str]:
    begun = time.perf_counter()
    answer = await client.get(path)
    answer.raise_for_status()
    return time.perf_counter() - begun, answer.text


async def _screens(parameters: ConsoleParameters, address: str) -> Outcome:
    """Return how soon each screen shows: the first one of a console that has read nothing yet, then each one alone."""
    async with httpx.AsyncClient(base_url=address, timeout=120.0) as client:
        begun = time.perf_counter()
        first_s, text = await _get(client, "/samples")
        while _BEING_READ in text:
            await asyncio.sleep(0.2)
            _, text = await _get(client, "/samples")
        read_s = time.perf_counter() - begun
        samples: list[dict[str, Any]] = [{"screen": "first, before anything is read", "s": first_s}]
        for name, path in _SCREENS.items():
            shown_s, text = await _get(client, path)
            begun = time.perf_counter()
            while _BEING_MADE in text:
                await asyncio.sleep(0.2)
                _, text = await _get(client, path)
            whole_s, (again_s, _) = shown_s + time.perf_counter() - begun, await _get(client, path)
            samples.append({"screen": name, "s": shown_s, "whole_s": whole_s, "again_s": again_s})
    slowest = max(samples[1:], key=lambda one: float(one["s"]))
    size = f"{parameters.samples:,} samples"
    return Outcome(
        bars=[
            at_most("P16.first", f"first screen over {size}", first_s, parameters.bar_first_s, "s"),
            at_most("P16.screens", f"slowest screen, {slowest['screen']}", slowest["s"], parameters.bar_first_s, "s"),
        ],
        samples=samples,
        notes=[
            f"All {size} are read {read_s:.1f} s after the first look; until then pages show the newest, and say so.",
            "A screen that takes longer than 0.6 s to make says that it is being computed: `whole_s` is when it stood.",
        ],
    )  # fmt: skip


async def _viewers(parameters: ConsoleParameters, address: str, process: int) -> Outcome:
    """Return whether all viewers are answered, and their cost to the console compared with one viewer's."""
    spent, answers = [], []
    for viewers in (1, parameters.viewers):
        before, begun = cpu_s(process), time.perf_counter()
        told = await asyncio.gather(*(_look(address, number, parameters.viewers_s) for number in range(viewers)))
        spent.append((cpu_s(process) - before) / (time.perf_counter() - begun))
        answers = [one for own in told for one in own]
    failed = sum(1 for status, _ in answers if status != httpx.codes.OK)
    waits = [wait_s for _, wait_s in answers]
    return Outcome(
        bars=[
            at_most("P16.viewers", f"answers that {parameters.viewers} viewers did not get", failed, 0, "answers"),
            at_most(
                "P16.viewer_s", "95 % of their answers within", percentile(waits, 0.95), parameters.bar_first_s, "s"
            ),
        ],
        samples=[{"viewers": parameters.viewers, "answers": len(answers), "slowest_s": max(waits)}],
        notes=[
            f"On one viewer, who loads a screen a second, the console spends {100 * spent[0]:.1f} % of a core.",
            f"On {parameters.viewers} of them it spends {100 * spent[1]:.1f} %.",
        ],
    )


async def _look(address: str, number: int, lasts_s: float) -> list[tuple[int, float]]:
    """View one screen per second, subscribed to changes; return the status and time of each answer."""
    found = []
    paths = [path for name, path in _SCREENS.items() if "text" not in name]
    async with httpx.AsyncClient(base_url=address, timeout=60.0) as client, client.stream("GET", "/live") as stream:
        found.append((stream.status_code, 0.0))
        ends_at, turn = time.monotonic() + lasts_s, number
        while time.monotonic() < ends_at:
            begun = time.perf_counter()
            answer = await client.get(paths[turn % len(paths)])
            found.append((answer.status_code, time.perf_counter() - begun))
            turn += 1
            await asyncio.sleep(max(0.0, 1.0 - found[-1][1]))
    return found


async def _watched(parameters: ConsoleParameters, bench: Bench) -> Outcome:
    """Return the CPU time of a run while a console polls it, relative to that of the unwatched run."""
    plan = SimulationPlan(cap=64, mean_s=0.05, cv=0.5, retry_after_s=1.0, seed=bench.seed, reply="right")
    sizes = [str(value) for value in (parameters.run_models, parameters.run_environments, parameters.per_s)]
    folder = bench.folder / "run"
    samples, ratios = [], []
    async with (
        provider(plan) as endpoint,
        served_apart("headgate_bench.watched_run", endpoint.base_url, *sizes, str(folder), says="Run at ") as (
            run,
            process,
        ),
        MonitorClient(Settings(), run) as monitor,
    ):
        source = RunSource(monitor)
        # The first answers of the API pay for imports and compilation.
        await _window(parameters, source, process, is_watched=True)
        for pair in range(parameters.pairs):
            spent = {}
            for is_watched in (True, False) if pair % 2 else (False, True):
                spent[is_watched] = await _window(parameters, source, process, is_watched=is_watched)
            ratios.append(1 + (spent[True] / spent[False] - 1) / parameters.asked_times)
            samples.append({"pair": pair, "watched_s": spent[True], "unwatched_s": spent[False]})
    spread = spread_of(ratios)
    return Outcome(
        bars=[at_most("P16.watched", "CPU of a run, watched / not", spread.median, parameters.bar_watched, "×")],
        samples=samples,
        ratios={"CPU of a run, watched / not": spread},
        notes=[
            f"The run takes {parameters.per_s:g} samples a second; {parameters.pairs} pairs of windows.",
            f"It is asked {parameters.asked_times} times as often as a console asks; what that costs is divided by it.",
        ],
    )


async def _window(parameters: ConsoleParameters, source: RunSource, process: int, *, is_watched: bool) -> float:
    """Return the run's CPU seconds per sample within a window, polled as if by many consoles or not at all."""
    await source.poll(now=True)
    taken, before = int(source.said["samples"]), cpu_s(process)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(_ask(source, parameters.asked_times)) if is_watched else None
        await asyncio.sleep(parameters.window_s)
        if asking is not None:
            asking.cancel()
    spent = cpu_s(process) - before
    await source.poll(now=True)
    return spent / max(1, int(source.said["samples"]) - taken)


async def _ask(source: RunSource, times: int) -> None:
    next_at = time.monotonic()
    while True:
        await source.poll(now=True)
        assert source.is_up, source.problem
        next_at += source.wait_s / times  # by the clock, so that slow answers do not reduce the rate of polls
        await asyncio.sleep(next_at - time.monotonic())


SCENARIO = Scenario(
    name="console",
    quick=ConsoleParameters(),
    full=ConsoleParameters(samples=1_000_000, days=30, pairs=12, window_s=10.0, viewers_s=20.0, run_models=64),
    measure=measure,
)
