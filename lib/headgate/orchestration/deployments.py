"""Creates blocks, pool and deployments on a server, and follows their runs to the end."""

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
"""How long a worker's flow runs may drain when it ends; the same as in Prefect's own worker."""

POOL: Final = "headgate"
QUEUES: Final[Mapping[str, int]] = {"windows": 1, "evaluations": 2, "upkeep": 3, "placement": 4}
"""Name -> priority; 1 goes first. Windows are short and scheduled, evaluations long, upkeep can wait."""


async def ensure_pool(name: str = POOL, queues: Mapping[str, int] = QUEUES) -> None:
    """Create the process pool `name` with its queues and their priorities, where they do not exist yet.

    It gets the template of process workers at once. Otherwise the first worker to connect would write it while a new
    server is busy with its other first writes: on SQLite the worker's connection then fails, and it retries later.
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
    """Yield a running `prefect worker` for a process pool; its flow runs drain and end with it.

    It needs a client's environment (see `PrivateServer.environ`) with whatever the flow runs need; processes left
    after `drain_s` are killed.
    """
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", "process"]
    environ = dict(environ) | {"PREFECT_WORKER_QUERY_SECONDS": "1", "PYTHONUNBUFFERED": "1"}
    log = folder / "worker.log"
    async with child_process(command, environ=environ, folder=folder, log=log, grace_s=drain_s) as process:
        yield process


_LOOK_EVERY_S: Final = 0.5
_TOLD: Final = 2_000


async def deploy_all(file: Path, folder: Path, environ: Mapping[str, str]) -> None:
    """Deploy a whole `prefect.yaml` with Prefect's own command, from `folder`, where its flows will run.

    Raises:
        HeadgateError: with the command's output, if it failed.
    """
    await output_of("prefect", ("--no-prompt", "deploy", "--all", "--prefect-file", str(file)), folder, environ)


async def output_of(module: str, arguments: Sequence[str], folder: Path, environ: Mapping[str, str]) -> bytes:
    """Return what `python -m MODULE` prints, run in `folder`; the process is killed if the call is cancelled.

    Raises:
        HeadgateError: with the end of its output, if it failed.
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
    """Start a run of `flow/deployment` with the deployment's parameters, overridden by `parameters`, and return it."""
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
    """Return the flow runs once `is_so` holds for them; call `look` after each check that fails.

    Raises:
        HeadgateError: naming the unfinished runs and their states, if it does not hold in time.
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
    """Return once all flow runs have completed; call `look` after each check that finds one unfinished.

    Args:
        ids: ids of the flow runs.
        within_s: seconds until all must have ended.
        log: their worker's log, named in the error when a run fails.
        look: called while a run is unfinished.

    Raises:
        HeadgateError: if a run has ended in another state, or some have not ended in time.
    """
    for run in await awaited_runs(ids, lambda runs: all(has_ended(run) for run in runs), within_s, look=look):
        if run.state is None or not run.state.is_completed():
            raise errors.HeadgateError(
                f"flow run {run.name!r} ended as {run.state_name}: {run.state and run.state.message}",
                next_step=f"Its log is in {log}.",
            )


async def cancel_runs(ids: Sequence[UUID]) -> None:
    """Request cancellation of the flow runs that have not ended."""
    async with get_client() as client:
        for run in await read_runs(ids):
            if not has_ended(run):
                await client.set_flow_run_state(run.id, Cancelling(), force=True)


def has_ended(run: FlowRun) -> bool:
    """Return whether a flow run is in a final state."""
    return run.state is not None and run.state.is_final()
