"""The demo: the main job from end to end on this machine, through Prefect deployments."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

import polars as pl
from prefect.client.schemas.objects import FlowRun
from rich.console import Console
from rich.live import Live

from blocks import ModelEndpoint, ModelRoster, ReportStore, RosterEntry, SampleStore
from headgate.core import errors
from headgate.models import LOCAL_MODEL, serve
from headgate.net.listener import free_port
from headgate.orchestration.demo.plan import (
    BLOCK,
    ENVIRONMENTS,
    LOCAL_BLOCK,
    LOCAL_MODEL_OPTIONS,
    MODELS,
    DemoChoices,
    DemoJournal,
    as_typed,
    demo_deployments,
    demo_samples,
    endpoint_options,
    faults,
    missing_local_model,
    served_local_model,
    worker_environ,
)
from headgate.orchestration.deployment_file import DeploymentFile, read_deployment_file
from headgate.orchestration.deployments import awaited_runs, cancel_runs, deploy_all, finished_runs, start_run
from headgate.orchestration.own_server import PrivateServer, clear_leftovers, private_server
from headgate.orchestration.stop_request import cancelled_by_signals
from headgate.orchestration.work_pool import ensure_pool, worker
from headgate.reports import ScoreTable, build_leaderboard
from headgate.sampling import roster_source
from headgate.storage import open_store

START_S: Final = 120.0
"""How much longer than its window a run may take on a busy machine: to be picked up, to import, to drain."""

_LOOK_EVERY_S: Final = 0.25
"""Faults of the baselines are timed from when the first window is seen to begin."""

_LINE_EVERY_S: Final = 5.0
_CANCEL_WITHIN_S: Final = 3.0
_INTERRUPTED: Final = 130
_QUERY: Final = "select model, environment, avg(score), count(*) from samples group by all order by all"


async def run_demo(choices: DemoChoices, console: Console | None = None) -> int:
    """Run the demo and return its exit status: 0 when it reached its goal, 130 when it was interrupted.

    Whatever ends it, no process, lock or sample is left behind.

    Raises:
        HeadgateError: if a part of it cannot be started, or a flow run failed.
    """
    console = console or Console()
    with cancelled_by_signals():
        try:
            return await _Demo(choices, console).run()
        except asyncio.CancelledError:
            console.print("Interrupted. What was sampled is safe; the next demo goes on from it.")
            return _INTERRUPTED


class _Demo:
    """One run of the demo."""

    def __init__(self, choices: DemoChoices, console: Console) -> None:
        self._choices = choices
        self._console = console
        self._folder = choices.folder.absolute()
        self._began, self._began_at = time.time(), time.monotonic()

    async def run(self) -> int:
        """Run it, and return the exit status."""
        await self._check_roster()
        self._folder.mkdir(parents=True, exist_ok=True)
        file = demo_deployments(_deployment_file(), self._choices)
        async with AsyncExitStack() as stack:
            self._tell("starting a Prefect server of its own")
            server = await stack.enter_async_context(private_server(self._folder / "prefect"))
            self._tell(f"Prefect server and UI: {server.url}")
            stack.enter_context(server.as_client())
            environ = worker_environ(server.environ())
            await clear_leftovers()
            await ensure_pool()
            await stack.enter_async_context(worker(self._folder, environ))
            await self._deploy(file, environ)
            port = free_port()
            await self._save_blocks(f"http://127.0.0.1:{port}/v1", await self._local_model(stack, environ))
            ids = await self._started(file)
            async with _cancelled_with_this(ids):
                await stack.enter_async_context(self._endpoint(port, ids))
                await self._follow(ids)
            self._tell("all windows are over, drained and stored")
            page = await self._report()
            return await self._conclude(server, page)

    def _tell(self, what: str) -> None:
        """Say what is being done, and when."""
        seconds = time.monotonic() - self._began_at
        self._console.print(f"[dim]{seconds:5.1f} s[/dim]  {what}", highlight=False, soft_wrap=True)

    async def _check_roster(self) -> None:
        """Read the user's own roster before anything is started."""
        if self._choices.uses_baselines():
            return
        roster = await roster_source(str(self._choices.roster or "")).load()
        self._tell(f"{len(roster)} models of your own: {', '.join(model.key for model in roster)}")

    async def _deploy(self, file: DeploymentFile, environ: dict[str, str]) -> None:
        path = self._folder / "prefect.yaml"
        path.write_text(file.as_yaml(), encoding="utf-8")
        await deploy_all(path, self._folder, environ)
        self._tell(f"{len(file.deployments)} deployments of prefect.yaml deployed, a worker waits for runs")

    @asynccontextmanager
    async def _endpoint(self, port: int, ids: Sequence[UUID]) -> AsyncIterator[None]:
        """Serve the baselines from when the first window begins: their faults are timed from then."""
        if not self._choices.uses_baselines():
            yield
            return
        await awaited_runs(ids, lambda runs: any(_runs(run) for run in runs), START_S, every_s=_LOOK_EVERY_S)
        async with serve(faults(self._choices.window_s), port=port) as endpoint:
            self._tell(f"{len(MODELS)} baseline agents (not language models) answer at {endpoint.base_url}")
            yield

    async def _local_model(self, stack: AsyncExitStack, environ: dict[str, str]) -> str:
        """Serve the small local model until the stack ends; return its address, nothing where it is left out."""
        if not self._choices.uses_local_model():
            return ""
        address = await stack.enter_async_context(served_local_model(self._folder, environ))
        self._tell(f"{LOCAL_MODEL}, a small real language model, answers at {address}")
        return address

    async def _save_blocks(self, base_url: str, local_model: str) -> None:
        await SampleStore(url=str(self._folder / "samples")).asave(BLOCK, overwrite=True)
        await ReportStore(url=str(self._folder / "reports")).asave(BLOCK, overwrite=True)
        if self._choices.roster is not None:
            await ModelRoster(location=str(self._choices.roster.absolute())).asave(BLOCK, overwrite=True)
        elif self._choices.uses_baselines():
            endpoint = ModelEndpoint(base_url=base_url, options=endpoint_options(), max_parallel=16)
            await endpoint.asave(BLOCK, overwrite=True)
            entries = [RosterEntry(name=name, served_name=served, endpoint=BLOCK) for name, served in MODELS.items()]
            await ModelRoster(models=entries).asave(BLOCK, overwrite=True)
            if local_model:
                small = ModelEndpoint(base_url=local_model, options=dict(LOCAL_MODEL_OPTIONS), max_parallel=1)
                await small.asave(LOCAL_BLOCK, overwrite=True)
                entries.append(RosterEntry(name=LOCAL_MODEL, endpoint=LOCAL_BLOCK))
            await ModelRoster(models=entries).asave(LOCAL_BLOCK, overwrite=True)

    async def _started(self, file: DeploymentFile) -> list[UUID]:
        """Start one window of each environment at once."""
        names = [f"sample-environment/{d.name}" for d in file.deployments if d.parameters.get("environment")]
        ids = [(await start_run(name)).id for name in names]
        self._tell(f"{len(ids)} flow runs started: {', '.join(ENVIRONMENTS)}")
        return ids

    async def _follow(self, ids: Sequence[UUID]) -> None:
        """Show how the windows go until all are over."""
        with DemoJournal(self._folder / "journal", time.time()) as journal, self._shown(journal) as show:
            runs = await finished_runs(ids, self._choices.window_s + START_S, look=show)
            show()
        for run in runs:
            if run.state is None or not run.state.is_completed():
                raise errors.HeadgateError(
                    f"flow run {run.name!r} ended as {run.state_name}: {run.state and run.state.message}",
                    next_step=f"Its log is in {self._folder / 'worker.log'}.",
                )

    @contextmanager
    def _shown(self, journal: DemoJournal) -> Iterator[Callable[[], None]]:
        if not self._console.is_terminal:
            told = time.monotonic()

            def tell() -> None:
                nonlocal told
                if time.monotonic() - told >= _LINE_EVERY_S:
                    told = time.monotonic()
                    self._console.print(
                        journal.progress(time.time()).line(told - self._began_at), highlight=False, soft_wrap=True
                    )

            yield tell
            return
        with Live(console=self._console, refresh_per_second=4, transient=True) as live:
            yield lambda: live.update(journal.progress(time.time()).table())

    async def _report(self) -> Path:
        run = await start_run("report/report")
        (ended,) = await finished_runs([run.id], START_S)
        if ended.state is None or not ended.state.is_completed():
            raise errors.HeadgateError(
                f"the report ended as {ended.state_name}: {ended.state and ended.state.message}",
                next_step=f"Its log is in {self._folder / 'worker.log'}.",
            )
        self._tell("report made by its own deployment")
        return max((self._folder / "reports").glob("*/report.html"), key=lambda path: path.stat().st_mtime)

    async def _conclude(self, server: PrivateServer, page: Path) -> int:
        store = open_store(str(self._folder / "samples"))
        try:
            samples = await demo_samples(store, self._began)
        finally:
            store.close()
        goal = self._choices.goal()
        scored = samples.filter(pl.col("score").is_not_null())
        is_reached = scored.height >= goal and scored["environment"].n_unique() == len(ENVIRONMENTS)
        self._console.print(ScoreTable(build_leaderboard(samples), ENVIRONMENTS))
        if self._choices.uses_local_model() and (missing := missing_local_model(scored, self._choices)):
            self._console.print(missing, highlight=False, soft_wrap=True, markup=False)
        self._tell_places(server, page)
        self._tell(
            f"{scored.height} scored samples, {goal} wanted: " + ("done" if is_reached else "[red]too few[/red]")
        )
        if self._choices.keep_serving:
            self._console.print(f"Serving {server.url} until Ctrl-C.", highlight=False)
            await _asked_to_end()
        return 0 if is_reached else 1

    def _tell_places(self, server: PrivateServer, page: Path) -> None:
        samples = self._folder / "samples"
        hint = "" if self._choices.keep_serving else f"  (keep it up: {as_typed('--keep-serving')})"
        lines = [
            f"report  {page}",
            f"data    {samples}",
            f'        headgate query --store {_near(samples)} "{_QUERY}"',
            f"UI      {server.url}{hint}",
            "",
            f"Your own models: set OPENAI_BASE_URL and OPENAI_API_KEY, or {as_typed('--roster FILE')}",
        ]
        for line in lines:
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)


async def _asked_to_end() -> None:
    """Return when the demo is cancelled: its work is done, so that is no interruption."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()


@asynccontextmanager
async def _cancelled_with_this(ids: Sequence[UUID]) -> AsyncIterator[None]:
    """Let the flow runs end as Cancelled if the demo is cancelled; the worker's end drains them in any case."""
    try:
        yield
    except asyncio.CancelledError:
        try:
            async with asyncio.timeout(_CANCEL_WITHIN_S):
                await cancel_runs(ids)
        except Exception as error:  # noqa: BLE001 - the demo is ending; what cannot be told to the server is said here
            Console(stderr=True).print(f"The flow runs could not be marked as cancelled: {error}", markup=False)
        raise


def _deployment_file() -> DeploymentFile:
    """Return `prefect.yaml` as it lies beside the flows: in the package, or in the checkout."""
    installed = importlib.util.find_spec("flows")  # found and not imported: flows stand on this package
    folders = [Path(place) for place in (installed and installed.submodule_search_locations) or ()]
    candidates = (path / "prefect.yaml" for folder in folders for path in (folder, folder.parent))
    found = next((path for path in candidates if path.exists()), None)
    if found is None:
        raise errors.InvalidInputError(
            "prefect.yaml is not beside the flows", next_step="Run the demo from a checkout of Headgate."
        )
    return read_deployment_file(found)


def _runs(run: FlowRun) -> bool:
    return run.state is not None and (run.state.is_running() or run.state.is_final())


def _near(path: Path) -> Path:
    """Return the path as one writes it from here."""
    here = Path(os.curdir).absolute()
    return path.relative_to(here) if path.is_relative_to(here) else path
