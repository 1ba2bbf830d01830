"""The demo on a cluster: checkpoints become a curve on Ray while a training takes the GPU, beside outside workers."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

from headgate import placement, reports
from headgate.config import Settings, load_settings
from headgate.core import Model, errors, events
from headgate.models import TASK_HEADER_OPTION, FaultPlan, Slow, serve, weights_path
from headgate.net.listener import free_port
from headgate.orchestration.demo.demo import Narrator, worker_environ
from headgate.orchestration.engines import engine_hosts
from headgate.orchestration.own_server import start_problem
from headgate.orchestration.stop_request import cancelled_by_signals
from headgate.processes import ChildProcess, child_process
from headgate.run import FollowOrder, follow_checkpoints, run_campaign
from headgate.sampling import StaticRoster
from headgate.storage import Journal, open_store
from headgate.telemetry import Handler, Recorded, setup_logging

if TYPE_CHECKING:
    from headgate.placement import Placement  # Ray reads its variables when it is imported, and some are set here

CHECKPOINTS: Final = ("step_100", "step_200")
INSTANCES: Final = 5
"""Per checkpoint: one core reads and answers a prompt within seconds."""

OUTSIDE_INSTANCES: Final = 20
TRAINING_S: Final = 8

_MODEL: Final = "policy"
_BASELINE: Final = "greedy"
_ON_RAY: Final = "affine:abd"
_OUTSIDE: Final = "affine:sat"
_POOL: Final = "main"
_SHOWN: Final = ("step", "checkpoint", "mean", "95 % interval", "difference", "verdict")
_LONGEST_S: Final = 600.0
_UP_S: Final = 60.0
_INTERRUPTED: Final = 130


async def run_cluster_demo(folder: Path) -> int:
    """Run the cluster demo and return its exit status: 0 if each due sample is stored once, 130 when interrupted.

    No process survives it, however it ends.

    Raises:
        HeadgateError: if a part of it cannot be started, or it takes longer than ten minutes.
    """
    demo = _ClusterDemo(folder)
    with cancelled_by_signals():
        try:
            async with asyncio.timeout(_LONGEST_S):
                return await demo.run()
        except asyncio.CancelledError:
            demo.tell("interrupted; nothing is left running")
            return _INTERRUPTED
        except TimeoutError:
            late = f"the demo was not done within {_LONGEST_S:g} s"
            raise errors.HeadgateError(late, next_step=f"Its logs are in {folder}.") from None


class _ClusterDemo(Narrator):
    """One run of the cluster demo. Implements `Sink`, for both of its campaigns."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Console(), folder)
        self._campaign = f"cluster-{self._began:.0f}"  # keeps samples of earlier demos apart
        self._counts: dict[str, int] = {}
        self._loop = asyncio.get_running_loop()
        self._has_sample = asyncio.Event()
        self.handlers: dict[type[events.Event], Handler] = {
            events.EnvironmentHostStarted: lambda one: self.tell(f"{one.event.host} plays {_ON_RAY} on a node of Ray"),
            events.WorkerChanged: self._engine_changed,
            events.SampleAccepted: self._sampled,
        }

    def close(self) -> None:
        """Do nothing: several runs share this sink."""

    async def run(self) -> int:
        """Run the demo and return the exit status."""
        weights, checkpoints = weights_path(), self._folder / "checkpoints"
        shutil.rmtree(checkpoints, ignore_errors=True)
        checkpoints.mkdir(parents=True)
        saves = [partial(_save, weights, checkpoints / f"{name}.gguf") for name in CHECKPOINTS]
        async with AsyncExitStack() as stack:
            setup_logging(stream=stack.enter_context((self._folder / "demo.log").open("w")))
            stack.callback(setup_logging)
            self.tell("starting Ray with two nodes, one logical GPU on the second")
            ledger = await stack.enter_async_context(_ray_cluster(self._folder / "ray.log"))
            self.tell(f"{ledger.says}, {len(ledger.nodes())} nodes")
            async with asyncio.TaskGroup() as group:
                group.create_task(self._sampled_outside())
                following = group.create_task(self._followed(ledger.connection.address, checkpoints))
                await asyncio.to_thread(saves[0])
                self.tell(f"a training job has saved {CHECKPOINTS[0]}")
                await self._has_sample.wait()
                await self._trained(ledger, saves[1])
            self.tell("everything is sampled and stored")
            gpu = list(_gpu_tenures(ledger, self._began))
        return await self._conclude(following.result(), gpu)

    async def _followed(self, address: str, checkpoints: Path) -> reports.CheckpointCurve:
        """Evaluate both checkpoints, with engines and an environment on Ray."""
        stop, told = asyncio.Event(), set[str]()

        async def scored(_: reports.CheckpointCurve, point: reports.CheckpointScore | None) -> None:
            if point is not None:
                self.tell(f"{point.model} is evaluated" if point.mean else f"[red]{point.model} has no score[/red]")
                told.add(point.model)
            if len(told) == len(CHECKPOINTS):
                stop.set()

        on_ray = {"engine_hosts": "ray", "environment_hosts": "ray", "ray_address": address, "ray_pool": _POOL}
        settings = self._settings(_ON_RAY, episodes_apart="all", environment_seats=3, **on_ray)
        order = FollowOrder(
            str(checkpoints),
            serve={"engine": "llama.cpp", "gpus": 1, "slots": 1, "priority": 3},
            instances=INSTANCES,
            name=_MODEL,
            entry={"options": {"max_tokens": 48, "temperature": 0}},
        )
        async with engine_hosts(settings) as hosts:
            watch: Any = {"stop": stop, "sinks": [self], "engine_hosts": hosts}
            return (await follow_checkpoints(settings, order, on_curve=scored, **watch)).curve

    async def _sampled_outside(self) -> None:
        """Have an outside worker play the environment of a baseline."""
        port = free_port()
        queue = f"http://127.0.0.1:{port}"
        beside = partial(child_process, environ=worker_environ(os.environ), folder=self._folder, grace_s=5.0)
        command = [sys.executable, "-m", "headgate.cli", "jobqueue"]
        serving = [*command, "serve", "--database", "memory:", "--port", str(port)]
        working = [*command, "work", "--samples", "--count", "2", "--url", queue]
        async with (
            beside(serving, log=self._folder / "queue.log") as server,
            serve(FaultPlan(rules=(Slow(mean_s=1.0),))) as endpoint,
        ):
            if problem := await start_problem(f"{queue}/health", lambda: server.has_ended, _UP_S):
                raise errors.HeadgateError(f"the job queue {problem}: {server.last_lines(3)}")
            options = ((TASK_HEADER_OPTION, True),)
            baseline = Model(_BASELINE, "main", endpoint.base_url, f"baseline-{_BASELINE}", options=options)
            settings = self._settings(_OUTSIDE, executors={_OUTSIDE: "jobqueue"}, jobqueue_url=queue)
            async with beside(working, log=self._folder / "worker.log"):
                self.tell(f"a job queue is up; an outside worker plays {_OUTSIDE}")
                roster = StaticRoster([baseline])
                await run_campaign(settings, roster=roster, instances=OUTSIDE_INSTANCES, sinks=[self])

    async def _trained(self, ledger: Placement, save: Callable[[], None]) -> None:
        """Let higher-priority work take the GPU for a while and save the next checkpoint."""
        place: Any = {"resources": placement.amounts(gpu=1), "priority": 9, "labels": {"role": "train"}}
        command = ["sleep", str(TRAINING_S)]
        training = ledger.pool(_POOL).submit(placement.CommandWork, command, {}, request_id="training", **place)
        await asyncio.to_thread(training.wait_running, _UP_S)
        self.tell("a training job of priority 9 has taken the GPU; the samples of the model wait")
        await asyncio.to_thread(save)
        self.tell(f"the training job has saved {CHECKPOINTS[1]}")
        await asyncio.to_thread(training.wait, _UP_S)
        self.tell("the training job has ended")

    def _settings(self, environment: str, **changes: object) -> Settings:
        own = {
            "campaign": f"{self._campaign}-{environment.partition(':')[2]}",
            "environments": (environment,),
            "store": str(self._folder / "samples"),
            "journal": str(self._folder / "journal"),
            "batch_flush_interval": 0.2,
        }
        return load_settings(own | changes, environ={}).settings

    def _engine_changed(self, recorded: Recorded[events.WorkerChanged]) -> None:
        if recorded.event.after in {"active", "failed"}:
            self.tell(f"engine {recorded.event.worker} is {recorded.event.after}")

    def _sampled(self, recorded: Recorded[events.SampleAccepted]) -> None:
        sample = recorded.event.sample
        self._counts[sample.model] = number = self._counts.get(sample.model, 0) + 1
        self.tell(f"{sample.model} in {sample.environment}: sample {number}")
        if sample.environment == _ON_RAY:
            self._loop.call_soon_threadsafe(self._has_sample.set)

    async def _conclude(self, curve: reports.CheckpointCurve, gpu: list[str]) -> int:
        page = self._folder / "curve.html"
        page.write_text(reports.curve_view(curve, title=f"Checkpoints of {_MODEL}").page(), encoding="utf-8")
        table = Table(*_SHOWN, title="Curve of the checkpoints")
        for row in reports.curve_rows(curve):
            table.add_row(*(row[name] for name in _SHOWN))
        self._console.print(table)
        self.tell_lines(["The GPU was held by", *gpu, f"page  {page}", f"data  {self._folder / 'samples'}"])
        account, is_whole = await self._account()
        is_done = is_whole and sum(point.mean is not None for point in curve.points) == len(CHECKPOINTS)
        self.tell(f"{account}: " + ("done" if is_done else "[red]not done[/red]"))
        return 0 if is_done else 1

    async def _account(self) -> tuple[str, bool]:
        """Return a sentence that accounts for every due sample, and whether each is stored exactly once."""
        with closing(open_store(str(self._folder / "samples"))) as store:
            columns = ["campaign", "model", "environment", "sequence"]
            found = (await store.scan(since=self._began, columns=columns)).frame
        rows = found.filter(found["campaign"].str.starts_with(self._campaign))
        due, stored = len(CHECKPOINTS) * INSTANCES + OUTSIDE_INSTANCES, rows.unique().height
        left = 0
        for environment in (_ON_RAY, _OUTSIDE):
            with closing(Journal(self._folder / "journal", self._settings(environment).campaign)) as journal:
                left += journal.open_count() + journal.spool_count()
        lost, twice = due - stored - left, rows.height - stored
        says = f"{due} samples due, {stored} stored, {left} open, {lost} lost, {twice} stored twice"
        return says, stored == due and left == lost == twice == 0


def _save(weights: Path, place: Path) -> None:
    """Write a checkpoint as training code does: under a temporary name until it is complete."""
    part = place.with_suffix(".part")
    shutil.copyfile(weights, part)
    part.replace(place)


def _gpu_tenures(ledger: Placement, began: float) -> Iterator[str]:
    """Yield which work held the GPU, from when to when in seconds since the demo began, from placement's events."""
    names = {view.request_id: view.labels.get("worker") for view in ledger.requests(_POOL)} | {"training": "training"}
    since: dict[str, float] = {}
    for told in ledger.events():
        request = told.fields.get("request", "")
        if told.event == "WorkStarted":
            since[request] = told.wall - began
        elif told.event in {"WorkPreempted", "WorkEnded", "WorkLost"} and request in since:
            held = f"{since.pop(request):5.1f} s to {told.wall - began:5.1f} s"
            if name := names.get(request):  # hosts of environments have no GPU
                yield f"  {held}  {name}"


@asynccontextmanager
async def _ray_cluster(log: Path) -> AsyncIterator[Placement]:
    """Start a private Ray cluster of two nodes and yield a connection; it ends with the context or this process."""
    # Ray's socket paths have a length limit, so the folder's path is short.
    with tempfile.TemporaryDirectory(prefix="hg", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ |= {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0"}
        address = Path(folder, "address")
        command = [sys.executable, "-m", "headgate.orchestration.demo.nodes", str(address)]
        async with child_process(command, environ=os.environ, folder=Path(folder), log=log, grace_s=10.0) as nodes:
            joining = asyncio.create_task(asyncio.to_thread(_joined, address, nodes))
            try:
                ledger = await asyncio.shield(joining)
                placement.take_signals_back()
                yield ledger
            finally:
                await asyncio.wait([joining])  # disconnect from Ray before its nodes stop
                if joining.exception() is None:
                    await asyncio.to_thread(joining.result().shutdown)


def _joined(address: Path, nodes: ChildProcess) -> Placement:
    while not address.exists():
        if nodes.has_ended:
            raise errors.HeadgateError(f"Ray does not start: {nodes.last_lines(3)}", next_step=f"See {nodes.log}.")
        time.sleep(0.1)
    # Ray warns that it installs no signal handlers in a thread, which is intended here.
    logging.getLogger("ray._private.worker").setLevel(logging.ERROR)
    ledger = placement.connect(address.read_text(), log_to_driver=False)
    label_rules = {"role": {"train": ("rollout",)}}
    ledger.set_rules(
        placement.PreemptionRules(label_rules=label_rules, min_runtime_s=0.0, budget_share=1.0, cancel_timeout_s=5.0)
    )
    ledger.pool_or_whole(_POOL)
    return ledger
