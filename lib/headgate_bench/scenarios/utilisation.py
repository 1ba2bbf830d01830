"""P1: how busy continuous sampling keeps a provider, over real sockets, next to batch rounds."""

from __future__ import annotations

import asyncio
import math
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headgate.config import Settings
from headgate.core import DAY_S
from headgate.models import ChatClient, SimulationPlan
from headgate.simulation import free_environments
from headgate_bench.artifact import at_least
from headgate_bench.campaign import measured_run
from headgate_bench.definition import Bench, Chart, Outcome, Scenario, spread_of
from headgate_bench.echo_environment import fleet, free_names
from headgate_bench.provider import Provider, Window, provider
from headgate_bench.rivals.batch_rounds import BatchRounds, expected_utilisation
from headgate_bench.rivals.inspect_tasks import NOT_INSTALLED, RivalFailedError, inspect_is_installed, inspect_sampled


@dataclass(frozen=True, slots=True)
class UtilisationParameters:
    """Parameters of the scenario."""

    models: int = 64  # models of the roster, all behind one provider
    environments: int = 8  # environments in which each model is sampled; they cost nothing
    # Requests that the provider serves at once; also Headgate's workers, and the rivals' requests in flight.
    cap: int = 64
    # Mean service time; long enough that two cores are not the bottleneck (cap / mean_s requests per s).
    mean_s: float = 0.6
    cv: float = 1.0  # coefficient of variation of the log-normal service times
    overload: float = 2.0  # due samples relative to the provider's capacity
    warm_up_s: float = 2.0  # time before the window
    # Time over which the provider's busy time is measured; for batch rounds, whole rounds of at least this in total.
    window_s: float = 6.0
    iterations: int = 2  # repetitions; Headgate and the rivals take turns
    rivals: bool = True  # whether rivals run
    bar: float = 0.97  # minimum share of the provider's capacity

    @property
    def sigma(self) -> float:
        """Sigma of the log-normal distribution."""
        return math.sqrt(math.log1p(self.cv**2))


async def measure(parameters: UtilisationParameters, bench: Bench) -> Outcome:
    """Return the provider's utilisation under Headgate and under the rivals, which take turns on one provider."""
    plan = SimulationPlan(
        cap=parameters.cap,
        mean_s=parameters.mean_s,
        cv=parameters.cv,
        retry_after_s=1.0,
        seed=bench.seed,
        reply="right",
    )
    contenders = ["headgate"]
    if parameters.rivals:
        contenders += ["batch rounds"]
        contenders += ["inspect_ai"] if inspect_is_installed() else []
    samples: list[dict[str, Any]] = []
    failed: dict[str, float | str] = {} if "inspect_ai" in contenders else {"inspect_ai": NOT_INSTALLED}
    async with provider(plan) as endpoint:
        for iteration in range(parameters.iterations):
            for number, name in enumerate(contenders):
                share = (iteration + number / len(contenders)) / parameters.iterations
                bench.progress(share, f"{name}, {iteration + 1} of {parameters.iterations}")
                began, cpu = time.monotonic(), time.process_time()
                try:
                    window = await _run(name, parameters, endpoint, bench, iteration)
                except RivalFailedError as error:
                    failed[name] = str(error)
                    continue
                cpu_share = (time.process_time() - cpu) / (time.monotonic() - began)
                samples.append(
                    {"iteration": iteration, "contender": name} | asdict(window) | {"client_cpu_share": cpu_share}
                )
                await _idle(endpoint)
    return _outcome(parameters, samples, failed)


async def _run(
    name: str, parameters: UtilisationParameters, endpoint: Provider, bench: Bench, iteration: int
) -> Window:
    folder = bench.folder / f"{name}-{iteration}".replace(" ", "-")
    match name:
        case "headgate":
            return await _ours(parameters, endpoint, folder, bench.seed + iteration)
        case "batch rounds":
            return await _rounds(parameters, endpoint)
        case _:
            lasts_s = 3 * (parameters.warm_up_s + parameters.window_s)
            return await inspect_sampled(
                endpoint,
                models=parameters.models,
                at_once=parameters.cap,
                samples=round(lasts_s * parameters.cap / parameters.mean_s),
                folder=folder,
                warm_up_s=parameters.warm_up_s,
                window_s=parameters.window_s,
            )


async def _ours(parameters: UtilisationParameters, endpoint: Provider, folder: Path, seed: int) -> Window:
    names = free_names(parameters.environments)
    per_second = parameters.overload * parameters.cap / parameters.mean_s
    rate = per_second * DAY_S / (parameters.models * parameters.environments)
    settings = Settings(
        campaign="bench-utilisation",
        journal=folder / "journal",
        store=str(folder / "samples"),
        rates=dict.fromkeys(names, rate),
        low_sample_threshold=0,
        num_evaluation_workers=parameters.cap,
        batch_flush_interval=0.5,
        drain_timeout_s=0.0,
    )
    models, environments = fleet(parameters.models, endpoint.base_url), free_environments(dict.fromkeys(names, rate))
    async with (
        ChatClient() as client,
        measured_run(settings, models, environments, client, rng=random.Random(seed)) as campaign,
        asyncio.TaskGroup() as group,
    ):
        running = group.create_task(campaign.run())
        await asyncio.sleep(parameters.warm_up_s)
        await endpoint.reset()
        await asyncio.sleep(parameters.window_s)
        window = await endpoint.window()
        campaign.stop("the benchmark has its window")
        await running
    return window


async def _rounds(parameters: UtilisationParameters, endpoint: Provider) -> Window:
    async with ChatClient() as client:
        models = fleet(parameters.models, endpoint.base_url)
        rounds = BatchRounds(client, models, parameters.environments, parameters.cap)
        await endpoint.reset()
        ends = time.monotonic() + parameters.window_s
        while time.monotonic() < ends:
            await rounds.round()
        return await endpoint.window()


async def _idle(endpoint: Provider) -> None:
    """Wait until the provider is idle, so that no contender meets requests of another."""
    while await endpoint.in_flight():  # noqa: ASYNC110 - it is in another process, which can only be polled
        await asyncio.sleep(0.05)


def _outcome(
    parameters: UtilisationParameters, samples: list[dict[str, Any]], failed: dict[str, float | str]
) -> Outcome:
    names = list(dict.fromkeys(s["contender"] for s in samples))
    by_name = {name: [s["utilisation"] for s in samples if s["contender"] == name] for name in names}
    ours = by_name["headgate"]
    beside = {name: spread_of(values).median for name, values in by_name.items() if name != "headgate"} | failed
    if parameters.rivals:
        in_theory = {
            "batch rounds, in theory": parameters.models * parameters.environments,
            "rounds of one task per slot, in theory": parameters.cap,
        }
        for label, tasks in in_theory.items():
            beside[label] = expected_utilisation(tasks, parameters.cap, parameters.sigma)
    ratios = {f"{name}: utilisation": spread_of(values) for name, values in by_name.items()} | {
        f"headgate / {name}": spread_of([mine / theirs for mine, theirs in zip(ours, values, strict=True)])
        for name, values in by_name.items()
        if len(values) == len(ours) and name != "headgate"
    }
    refused = sum(s["refused"] for s in samples if s["contender"] == "headgate")
    return Outcome(
        bars=[
            at_least(
                "P1",
                "provider utilisation in steady state, share of its capacity",
                spread_of(ours).median,
                parameters.bar,
                "share",
                beside,
            )
        ],
        samples=samples,
        ratios=ratios,
        charts=[
            Chart(
                "Busy share of the provider's slots",
                "",
                "share of capacity",
                "bars",
                {"measured": [(name, spread_of(values).median) for name, values in by_name.items()]},
                level=parameters.bar,
            )
        ],
        notes=[
            (
                f"Service times are log-normal with mean {parameters.mean_s:g} s and cv {parameters.cv:g}: "
                f"{parameters.cap / parameters.mean_s:.0f} requests per second at full capacity."
            ),
            f"{refused} requests of ours were answered 429.",
        ],
    )


SCENARIO = Scenario(
    name="utilisation",
    quick=UtilisationParameters(),
    full=UtilisationParameters(mean_s=1.0, warm_up_s=5.0, window_s=30.0, iterations=5),
    measure=measure,
)
