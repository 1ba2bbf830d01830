"""P9: 256 models × 64 environments in one process: CPU time per sample and memory."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from headgate.config import Settings
from headgate.core import DAY_S, ChatReply, Message, Model, SystemClock, sample_task
from headgate.core.events import BatchStored, Event, SampleAccepted
from headgate.environments import Environment, converse
from headgate.net import event_loop
from headgate.run import ChatSource, EndpointChats, RequestSide, Run, RunResult, rare_collections
from headgate.simulation import ScriptedChats, ServiceTime, free_environments
from headgate.telemetry import Handler, PrometheusSink, Recorded, new_registry
from headgate_bench.artifact import at_most
from headgate_bench.campaign import log_stream, measured_run
from headgate_bench.definition import Bench, Chart, Outcome, Progress, Scenario, spread_of
from headgate_bench.echo_environment import fleet, free_names, memory_bytes


@dataclass(frozen=True, slots=True)
class ScaleParameters:
    """Parameters of the scenario."""

    models: int = 256  # models of the roster
    environments: int = 64  # environments in which each model is sampled; they cost nothing
    samples: int = 100_000  # samples after which the campaign stops
    workers: int = 256  # maximum number of episodes in progress
    service_s: float = 0.01  # mean of the models' service times, drawn from a log-normal distribution of cv 0.5
    demand_per_s: float = 4_000.0  # samples due per second, over all pairs
    # See the setting of that name; a batch has a Parquet file per environment, so many environments need larger batches
    # than the default of 300.
    sink_batch_size: int = 10_000
    sink_max_wait_s: float = 300.0  # see the setting `sink_max_wait`
    reading_s: float = 0.5  # seconds between two readings of CPU time and memory
    bare_episodes: int = 20_000  # episodes to measure the cost of an episode alone
    bar_us: float = 150.0  # maximum CPU time per sample
    bar_request_us: float = 50.0  # maximum CPU time that admission, executor and their events add to a request
    bar_bytes: int = 500_000_000  # maximum memory
    bar_growth: float = 1.1  # maximum memory of the second half after warm-up, relative to that of the first


@dataclass(frozen=True, slots=True)
class _Reading:
    """Work done and resources used up to one moment."""

    samples: int
    stored: int
    cpu_s: float
    wall_s: float
    memory_bytes: int


class _SimulatedEndpoint:
    """Answers the requests that the campaign's admission lets through. Implements `ChatSender`."""

    def __init__(self, chats: ScriptedChats) -> None:
        self._chats = chats

    async def chat(
        self,
        model: Model,
        messages: Sequence[Message],  # noqa: ARG002
        *,
        task_header: str | None = None,  # noqa: ARG002
    ) -> ChatReply:
        """Return the scripted reply of a model."""
        return await self._chats.reply(model)


class _Meter:
    """Takes readings at regular intervals, and signals when the campaign has its samples. A sink of its events."""

    def __init__(self, parameters: ScaleParameters, progress: Progress) -> None:
        self._parameters = parameters
        self._progress = progress
        self._accepted = 0
        self._stored = 0
        self._began = time.monotonic()
        self.enough = asyncio.Event()
        self.readings: list[_Reading] = []

    @property
    def handlers(self) -> Mapping[type[Event], Handler]:
        """The handlers of the counted events."""
        return {SampleAccepted: self._sample_accepted, BatchStored: self._batch_stored}

    def close(self) -> None:
        """Free nothing."""

    def _sample_accepted(self, _: Recorded[SampleAccepted]) -> None:
        self._accepted += 1
        if self._accepted >= self._parameters.samples:
            self.enough.set()

    def _batch_stored(self, recorded: Recorded[BatchStored]) -> None:
        self._stored += recorded.event.rows

    async def run(self) -> None:
        """Take readings until cancelled."""
        while True:
            await asyncio.sleep(self._parameters.reading_s)
            self.read()
            share = min(self._accepted, self._parameters.samples) / self._parameters.samples
            self._progress(share, f"{self._accepted:,} samples, {self._stored:,} stored")

    def read(self) -> _Reading:
        """Take one reading now."""
        wall_s = time.monotonic() - self._began
        reading = _Reading(self._accepted, self._stored, time.process_time(), wall_s, memory_bytes())
        self.readings.append(reading)
        return reading


def measure(parameters: ScaleParameters, bench: Bench) -> Outcome:
    """Return CPU time per sample without the cost of a bare episode, and memory over the run."""
    roster = fleet(parameters.models)
    environments = free_environments(dict.fromkeys(free_names(parameters.environments), 100.0))
    bare_us = 1e6 * event_loop.run(_episode_s(parameters, roster, environments, bench.seed, is_admitted=False))
    episode_us = 1e6 * event_loop.run(_episode_s(parameters, roster, environments, bench.seed, is_admitted=True))
    meter = _Meter(parameters, bench.progress)
    result = event_loop.run(_campaign(parameters, roster, environments, bench.folder, meter, bench.seed))
    end = meter.read()
    # The campaign has drained by now: the samples in the spool have been stored, and their cost is included.
    warm = _warm(meter.readings, parameters.samples)
    steady = [r for r in meter.readings if warm.samples <= r.samples < parameters.samples] or [warm, end]
    cost_us = 1e6 * (end.cpu_s - warm.cpu_s) / max(1, end.samples - warm.samples) - episode_us
    half = max(1, len(steady) // 2)
    early, late = (median(r.memory_bytes for r in part) for part in (steady[:half], steady[-half:]))
    peak = max(r.memory_bytes for r in meter.readings)
    last = steady[-1]
    rate = (last.samples - warm.samples) / max(1e-9, last.wall_s - warm.wall_s)
    segments = _segments_us(steady, parameters.samples, episode_us)
    return Outcome(
        bars=[
            at_most(
                "P9.cpu",
                "CPU time per sample for everything but the episode, after warm-up",
                cost_us,
                parameters.bar_us,
                "µs/sample",
                {"an episode costs": episode_us},
            ),
            at_most(
                "P9.request",
                "CPU time that admission, executor and their events add to a request",
                episode_us - bare_us,
                parameters.bar_request_us,
                "µs/request",
                {"an episode without them costs": bare_us},
            ),
            at_most("P9.memory", "resident memory at most", peak / 1e6, parameters.bar_bytes / 1e6, "MB"),
            at_most(
                "P9.flat",
                "memory of the second half over that of the first, after warm-up",
                late / early,
                parameters.bar_growth,
                "×",
            ),
            at_most(
                "P9.spool", "samples that the store had not taken when the campaign ended", result.spooled, 0, "samples"
            ),
        ],
        samples=[asdict(reading) for reading in meter.readings],
        ratios={"samples per second": spread_of([rate])}
        | ({"CPU time per sample, by tenth of the run, µs": spread_of([us for _, us in segments])} if segments else {}),
        charts=[
            Chart(
                "Memory over the run",
                "samples",
                "MB",
                "lines",
                {"resident": [(float(r.samples), r.memory_bytes / 1e6) for r in meter.readings]},
                level=parameters.bar_bytes / 1e6,
            ),
            Chart(
                "CPU time per sample for everything but the episode",
                "samples",
                "µs",
                "lines",
                {"by tenth of the run": segments},
                level=parameters.bar_us,
            ),
        ],
        notes=[
            (
                "CPU time is that of all threads of the process: samplers, queue, journal with fsync, sink, Parquet, "
                "manifests, events with the log's and the Prometheus sink. It runs until everything is stored. An "
                "episode is its conversation with its one request, admitted and executed as in any campaign; what that "
                "costs is measured alone, and P9.request says how much of it is Headgate's."
            ),
        ],
    )


def _segments_us(steady: Sequence[_Reading], wanted: int, bare_us: float) -> list[tuple[float, float]]:
    """Return CPU microseconds per sample for each tenth of the run, by the number of samples at its end.

    Samples are accepted in batches, so any number of them may lie between two consecutive readings.
    """
    segments: list[tuple[float, float]] = []
    before = steady[0]
    for reading in steady[1:]:
        done = reading.samples - before.samples
        if done >= wanted / 10:
            segments.append((float(reading.samples), 1e6 * (reading.cpu_s - before.cpu_s) / done - bare_us))
            before = reading
    return segments


def _warm(readings: Sequence[_Reading], wanted: int) -> _Reading:
    """Return the reading at the end of the warm-up, which is a fifth of the samples."""
    return next((reading for reading in readings if reading.samples >= wanted / 5), readings[0])


async def _episode_s(
    parameters: ScaleParameters,
    roster: Sequence[Model],
    environments: dict[str, Environment],
    seed: int,
    *,
    is_admitted: bool,
) -> float:
    """Return the CPU seconds of one episode alone, with as many in parallel as in the campaign.

    With `is_admitted` its request passes admission and executor, and the sinks get their events, as in a campaign.
    """
    clock = SystemClock()
    stream = log_stream(clock)
    stream.add(PrometheusSink(new_registry()))
    scripted = _scripted(parameters, clock, seed)
    chats: ChatSource = scripted
    if is_admitted:
        requests = RequestSide(Settings(), clock=clock, emit=stream.emit)
        for model in roster:
            requests.register(model)
        chats = EndpointChats(_SimulatedEndpoint(scripted), requests, clock=clock)
    environment = next(iter(environments.values()))
    share = math.ceil(parameters.bare_episodes / parameters.workers)

    async def worker(model: Model) -> None:
        task = sample_task(
            campaign="bare", model=model.key, environment=environment.spec.name, sequence=0, data_length=1, due_at=0.0
        )
        for index in range(share):
            await converse(environment, index, 0, chats.chat(model, task, stream.emit))

    with rare_collections():  # as in a campaign, since this cost is subtracted from the campaign's
        began = time.process_time()
        async with asyncio.TaskGroup() as group:
            for number in range(parameters.workers):
                group.create_task(worker(roster[number % len(roster)]))
        return (time.process_time() - began) / (share * parameters.workers)


async def _campaign(
    parameters: ScaleParameters,
    roster: Sequence[Model],
    environments: dict[str, Environment],
    folder: Path,
    meter: _Meter,
    seed: int,
) -> RunResult:
    pairs = parameters.models * parameters.environments
    rate = min(parameters.demand_per_s * DAY_S / pairs, 8_640_000.0)
    settings = Settings(
        campaign="bench-scale",
        journal=folder / "journal",
        store=str(folder / "samples"),
        rates=dict.fromkeys(environments, rate),
        low_sample_threshold=0,
        num_evaluation_workers=parameters.workers,
        sink_batch_size=parameters.sink_batch_size,
        sink_max_wait=parameters.sink_max_wait_s,
        batch_flush_interval=1.0,
    )
    endpoint = _SimulatedEndpoint(_scripted(parameters, SystemClock(), seed))
    async with (
        measured_run(settings, roster, environments, endpoint, sinks=[meter]) as campaign,
        asyncio.TaskGroup() as group,
    ):
        beside = [group.create_task(meter.run()), group.create_task(_stopped(campaign, meter.enough))]
        result = await campaign.run()
        for task in beside:
            task.cancel()
    return result


def _scripted(parameters: ScaleParameters, clock: SystemClock, seed: int) -> ScriptedChats:
    return ScriptedChats(clock, service=ServiceTime(parameters.service_s, 0.5), seed=seed)


async def _stopped(campaign: Run, enough: asyncio.Event) -> None:
    await enough.wait()
    campaign.stop("the benchmark has its samples")


SCENARIO = Scenario(
    name="scale",
    quick=ScaleParameters(),
    full=ScaleParameters(samples=1_000_000),
    measure=measure,
)
