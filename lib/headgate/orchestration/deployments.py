"""Blocks, pool and deployments brought to a server, and runs of them followed to their end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectAlreadyExists
from prefect.states import Cancelling
from prefect.workers.process import ProcessWorker

from headgate.core import errors
from headgate.processes import ChildProcess, child_process

DRAIN_S: Final = 30.0
"""How long the flow runs of a worker may drain when it ends; Prefect's own worker gives them as much."""

POOL: Final = "headgate"
QUEUES: Final[Mapping[str, int]] = {"windows": 1, "evaluations": 2, "upkeep": 3, "placement": 4}
"""Name -> priority; 1 goes first. Windows are short and scheduled, evaluations long, upkeep can wait."""


async def ensure_pool(name: str = POOL, queues: Mapping[str, int] = QUEUES) -> None:
    """Make the process pool `name` with its queues and their priorities, where they are not there already.

    It has the template of process workers from the start, or the first worker to connect would write it, at the same
    moment as all else that a new server is told: on SQLite its connection then fails, and it comes back later.
    """
    template = ProcessWorker.get_default_base_job_template()
    async with get_client() as client:
        try:
            await client.create_work_pool(WorkPoolCreate(name=name, type="process", base_job_template=template))
        except ObjectAlreadyExists:
            await client.read_work_pool(name)
        for queue, priority in queues.items():
            try:
                await client.create_work_queue(name=queue, work_pool_name=name, priority=priority)
            except ObjectAlreadyExists:
                found = await client.read_work_queue_by_name(queue, work_pool_name=name)
                await client.update_work_queue(found.id, priority=priority)


@asynccontextmanager
async def worker(
    folder: Path, environ: Mapping[str, str], *, pool: str = POOL, drain_s: float = DRAIN_S
) -> AsyncIterator[ChildProcess]:
    """Give a running `prefect worker` for a process pool; its flow runs drain and end with it.

    It gets a client's environment, see `PrivateServer.environ`, with what the flow runs need; what is left of it after
    `drain_s` is killed.
    """
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", "process"]
    environ = dict(environ) | {"PREFECT_WORKER_QUERY_SECONDS": "1", "PYTHONUNBUFFERED": "1"}
    log = folder / "worker.log"
    async with child_process(command, environ=environ, folder=folder, log=log, grace_s=drain_s) as process:
        yield process


_LOOK_EVERY_S: Final = 0.5
_TOLD: Final = 2_000


async def deploy_all(file: Path, folder: Path, environ: Mapping[str, str]) -> None:
    """Deploy everything in a `prefect.yaml` by Prefect's own command, from `folder`, where its flows will run.

    Raises:
        HeadgateError: with what the command said, if it failed.
    """
    await output_of("prefect", ("--no-prompt", "deploy", "--all", "--prefect-file", str(file)), folder, environ)


async def output_of(module: str, arguments: Sequence[str], folder: Path, environ: Mapping[str, str]) -> bytes:
    """Return what a module that is run as a program prints in a folder; it ends with whoever waits for it.

    Raises:
        HeadgateError: with what it said, if it failed.
    """
    pipe = asyncio.subprocess.PIPE
    where: Any = {"cwd": folder, "env": dict(environ), "stdin": asyncio.subprocess.DEVNULL}
    command = (sys.executable, "-m", module, *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, **where)
    try:
        printed, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise errors.HeadgateError(
            f"`{' '.join(command[2:])}` ended with exit status {process.returncode}",
            next_step=f"It said:\n{(said or printed).decode(errors='replace')[-_TOLD:]}",
        )
    return printed


async def start_run(deployment: str, parameters: Mapping[str, Any] | None = None) -> FlowRun:
    """Start a run of `flow/deployment` with its own parameters, or some in place of them, and return it."""
    async with get_client() as client:
        found = await client.read_deployment_by_name(deployment)
        return await client.create_flow_run_from_deployment(found.id, parameters=dict(parameters or {}))


async def read_runs(ids: Sequence[UUID]) -> list[FlowRun]:
    """Return the flow runs as they are now, in the order of `ids`."""
    async with get_client() as client:
        found = await client.read_flow_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=list(ids))))
    by_id = {run.id: run for run in found}
    return [by_id[one] for one in ids]


async def awaited_runs(
    ids: Sequence[UUID],
    is_so: Callable[[Sequence[FlowRun]], bool],
    within_s: float,
    *,
    look: Callable[[], object] = lambda: None,
    every_s: float = _LOOK_EVERY_S,
) -> list[FlowRun]:
    """Return the flow runs once something is so of them; call `look` each time that it is not.

    Raises:
        HeadgateError: naming the runs that have not ended, and their states, if it is not so in time.
    """
    try:
        async with asyncio.timeout(within_s):
            while not is_so(runs := await read_runs(ids)):
                look()
                await asyncio.sleep(every_s)
            return runs
    except TimeoutError:
        late = [f"{run.name} is {run.state_name}" for run in await read_runs(ids) if not has_ended(run)]
        raise errors.HeadgateError(
            f"after {within_s:g} s {'; '.join(late)}", next_step="The worker's log says what it waits for."
        ) from None


async def completed_runs(
    ids: Sequence[UUID], within_s: float, log: Path, *, look: Callable[[], object] = lambda: None
) -> None:
    """Return once all of the flow runs have completed; call `look` each time that one has not ended.

    Args:
        ids: of the flow runs.
        within_s: seconds until all have ended.
        log: of their worker, for whoever looks for what failed.
        look: called while one runs.

    Raises:
        HeadgateError: one has ended otherwise, or some have not ended in time.
    """
    for run in await awaited_runs(ids, lambda runs: all(has_ended(run) for run in runs), within_s, look=look):
        if run.state is None or not run.state.is_completed():
            raise errors.HeadgateError(
                f"flow run {run.name!r} ended as {run.state_name}: {run.state and run.state.message}",
                next_step=f"Its log is in {log}.",
            )


async def cancel_runs(ids: Sequence[UUID]) -> None:
    """Ask for the cancellation of the flow runs that have not ended."""
    async with get_client() as client:
        for run in await read_runs(ids):
            if not has_ended(run):
                await client.set_flow_run_state(run.id, Cancelling(), force=True)


def has_ended(run: FlowRun) -> bool:
    """Return whether a flow run is in a final state."""
    return run.state is not None and run.state.is_final()
