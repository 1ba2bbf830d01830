"""A run whose environments are played on the nodes of a Ray cluster: its cost, and the share of the nodes it uses."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, TYPE_CHECKING, Final

from headgate.config import Settings
from headgate.core import Chat, ChatReply, Message, Model, Task
from headgate.core.events import Emit, EnvironmentHostStarted, Event
from headgate.environments import apart
from headgate.run import HostCluster, MatrixTaskProvider, run_source
from headgate.sampling import StaticRoster
from headgate.storage import open_store
from headgate.telemetry import Handler, Recorded
from headgate_bench.artifact import at_least, at_most
from headgate_bench.bare_turns import bare_turn_us, in_own_process
from headgate_bench.definition import Bench, Chart, Outcome
from headgate_bench.echo_environment import TURN_S, busy_apart, fleet
from headgate_bench.placement.site import ray_nodes

if TYPE_CHECKING:
    from headgate_bench.scenarios.scaleout import ScaleoutParameters

_NAME: Final = "bench:busy"
_SETTLE_S: Final = 3.0
"""Time from the start of the last host until turns are counted."""

_UP_S: Final = 180.0
_SEATS: Final = 4
"""Concurrent episodes per node."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The measurement with one number of nodes."""

    nodes: int
    turns: int
    wall_s: float
    cpu_s: float
    batches_per_s: float = 0.0

    @property
    def turn_us(self) -> float:
        """CPU time of the run per turn."""
        return 1e6 * self.cpu_s / max(1, self.turns)

    @property
    def used(self) -> float:
        """Share of the nodes' time that was spent in turns."""
        return self.turns * TURN_S / (self.nodes * self.wall_s)


class _Meter:
    """Waits for the hosts, counts for a while, and stops the run. A sink of its events, and an instant chat."""

    def __init__(self, parameters: ScaleoutParameters, nodes: int) -> None:
        self._parameters = parameters
        self._nodes = nodes
        self._started = 0
        self._are_up = asyncio.Event()
        self._answers = 0
        self.stop = asyncio.Event()

    @property
    def handlers(self) -> Mapping[type[Event], Handler]:
        """The handler of the only relevant event."""
        return {EnvironmentHostStarted: self._host_started}

    def close(self) -> None:
        """Free nothing."""

    def chat(self, model: Model, task: Task, emit: Emit, *, trace_id: str = "") -> Chat:  # noqa: ARG002
        """Return the chat of an episode."""

        async def said(messages: Sequence[Message]) -> ChatReply:  # noqa: ARG001
            self._answers += 1
            return ChatReply("on")

        return said

    def _host_started(self, _: Recorded[EnvironmentHostStarted]) -> None:
        self._started += 1
        if self._started == self._nodes:
            self._are_up.set()

    async def measured(self) -> Reading:
        """Return the measurement while all hosts are up."""
        try:
            async with asyncio.timeout(_UP_S):
                await self._are_up.wait()
            await asyncio.sleep(_SETTLE_S)
            count, cpu_s, began = self._answers, time.process_time(), time.monotonic()
            await asyncio.sleep(self._parameters.seconds)
            wall_s = time.monotonic() - began
            return Reading(self._nodes, self._answers - count, wall_s, time.process_time() - cpu_s)
        finally:
            self.stop.set()


def hosts_measured(parameters: ScaleoutParameters, bench: Bench) -> Outcome:
    """Return the cost of a run and its use of the nodes, by number of nodes, and next to a batch pipeline."""
    cases = [(nodes, False) for nodes in parameters.nodes] + [(parameters.beside, True)]
    readings = []
    for number, (nodes, has_pipeline) in enumerate(cases):
        bench.progress(number / len(cases), f"{nodes} nodes" + (" beside a batch pipeline" if has_pipeline else ""))
        readings.append(_measured(parameters, nodes, bench, has_pipeline=has_pipeline))
    alone, beside = readings[:-1], readings[-1]
    fewest = min(parameters.nodes)
    bare = {f"a bare protocol at the pace of {fewest}": bare_turn_us(fewest, _SEATS, parameters.seconds)}
    by_nodes = {f"{one.nodes} nodes": one for one in alone}
    return Outcome(
        bars=[
            at_most(
                "P13.turn",
                "CPU time of the run per turn, whatever the number of nodes",
                max(one.turn_us for one in alone),
                parameters.bar_turn_us,
                "µs/turn",
                {name: one.turn_us for name, one in by_nodes.items()} | bare,
            ),
            at_least(
                "P13.used",
                "share of the nodes' time that is spent in turns",
                min(one.used for one in alone),
                parameters.bar_used_share,
                "share",
                {name: one.used for name, one in by_nodes.items()},
            ),
            at_least(
                "P13.beside",
                "the same beside a batch pipeline of Ray Data on the same nodes",
                beside.used,
                parameters.bar_used_share,
                "share",
                {"batches per second of the pipeline": beside.batches_per_s, "CPU, µs/turn": beside.turn_us},
            ),
        ],
        samples=[asdict(one) for one in readings],
        charts=[
            Chart(
                "CPU time of the run per turn",
                "nodes",
                "µs",
                "lines",
                {"alone": [(float(one.nodes), one.turn_us) for one in alone]},
                level=parameters.bar_turn_us,
            )
        ],
        notes=[
            (
                f"Nodes are local ones of Ray, in processes of their own, with a CPU for hosts each. A turn keeps its "
                f"process busy for {1e3 * TURN_S:g} ms and sleeps meanwhile, so that more nodes than processors can be "
                "measured: the time is virtual, the processes, connections and frames are real. Models answer at once, "
                "in the run's process; its CPU time is that of all of its threads, journal, queue and events included."
            ),
        ],
    )


def _measured(parameters: ScaleoutParameters, nodes: int, bench: Bench, *, has_pipeline: bool) -> Reading:
    folder = Path(mkdtemp(dir=bench.folder))
    with ray_nodes(nodes, head_cpus=0, cpus=2 if has_pipeline else 1, gpus=0) as (cluster, _):
        if not has_pipeline:
            return in_own_process(_ran, parameters, nodes, cluster.address, folder)
        command = [sys.executable, "-m", "headgate_bench.placement.batch_pipeline", cluster.address, str(nodes)]
        with (folder / "batches").open("w+") as told, _running(command, told) as pipeline:
            _until_begun(folder / "batches", pipeline)
            reading = in_own_process(_ran, parameters, nodes, cluster.address, folder)
            told.seek(0)
            batches = [line.split() for line in told if line.count(" ") == 1 and line.endswith("\n")]
    if len(batches) < 2:
        return reading
    took_s = float(batches[-1][1]) - float(batches[0][1])
    return replace(reading, batches_per_s=int(batches[-1][0]) / max(1e-9, took_s))


@contextlib.contextmanager
def _running(command: Sequence[str], output: IO[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in the background."""
    with subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL) as process:  # noqa: S603 - fixed words
        try:
            yield process
        finally:
            process.kill()


def _until_begun(batches: Path, pipeline: subprocess.Popen[bytes]) -> None:
    """Return once the pipeline has finished a batch: while it only starts, it takes no resources.

    Raises:
        RuntimeError: if it does not start.
    """
    began = time.monotonic()
    while not batches.stat().st_size:
        if pipeline.poll() is not None or time.monotonic() - began > _UP_S:
            raise RuntimeError("the batch pipeline of Ray Data does not start")
        time.sleep(0.1)


async def _ran(parameters: ScaleoutParameters, nodes: int, address: str, folder: Path) -> Reading:
    meter = _Meter(parameters, nodes)
    settings = Settings(
        campaign="bench-hosts",
        journal=folder / "journal",
        store=str(folder / "samples"),
        num_evaluation_workers=_SEATS * nodes,
        environment_hosts="ray",
        environment_seats=_SEATS,
        drain_timeout_s=1.0,
    )
    source = apart.Source("environment", _NAME, "headgate_bench.echo_environment:busy_apart")
    environment = apart.HostedEnvironment(busy_apart().spec, apart.HOSTS.of(source, apart.ApartLimits()))
    measuring = asyncio.create_task(meter.measured())
    await run_source(
        settings,
        roster=StaticRoster(fleet(4)),
        environments={_NAME: environment},
        store=open_store(settings.store),
        source=MatrixTaskProvider([_NAME], 500),
        judging=None,
        asked=lambda _: meter,
        cluster=HostCluster(address, quota={"cpu": nodes}),
        stop=meter.stop,
        sinks=[meter],
    )
    return await measuring
