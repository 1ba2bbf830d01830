"""The demo: the main job end to end on this machine, through Prefect deployments."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from uuid import UUID

import polars as pl
from rich.console import Console
from rich.live import Live
from rich.table import Table

from blocks import ModelEndpoint, ModelRoster, ReportStore, RosterEntry, SampleStore
from headgate.config import setting_fields, variables_of
from headgate.core import DAY_S, errors
from headgate.models import (
    LOCAL_MODEL,
    TASK_HEADER_OPTION,
    Failure,
    FaultPlan,
    RateLimit,
    Slow,
    is_local_model_installed,
    serve,
)
from headgate.net.listener import free_port
from headgate.orchestration.deployment_file import Deployment, DeploymentFile, read_deployment_file
from headgate.orchestration.deployments import (
    POOL,
    awaited_runs,
    cancel_runs,
    completed_runs,
    deploy_all,
    ensure_pool,
    start_run,
    worker,
)
from headgate.orchestration.own_server import PrivateServer, clear_leftovers, private_server, start_problem
from headgate.orchestration.stop_request import cancelled_by_signals
from headgate.processes import child_process
from headgate.reports import LEADERBOARD_COLUMNS, ScoreTable, build_leaderboard
from headgate.sampling import roster_source
from headgate.storage import Journal, open_store

CAMPAIGN: Final = "demo"
BLOCK: Final = "demo"
"""Name of every block that the demo saves."""

ENVIRONMENTS: Final = ("affine:sat", "affine:abd", "affine:ded", "agentgym:babyai")
BASELINE_INTERVAL_S: Final = 1.5
OWN_MODEL_SAMPLES: Final = 5
"""Of each of the user's models in each environment: enough to see it work, few enough to pay for."""

_SCORED_PER_SECOND: Final = 10.0
"""At these rates the baselines give about 14; a lower figure has a cause."""

MODELS: Final[Mapping[str, str]] = {
    "solver": "baseline-solver",
    "greedy": "baseline-greedy",
    "random": "baseline-random",
    "greedy-slow": "baseline-greedy-slow",
    "greedy-limited": "baseline-greedy-limited",
    "solver-failing": "baseline-solver-failing",
}
"""Name in the roster -> name at the endpoint. None of them is a language model."""

LOCAL_BLOCK: Final = "demo-local-model"
"""Name of two blocks for the small language model: its endpoint, and a roster of it and the baselines."""

LOCAL_ENVIRONMENTS: Final = frozenset({"affine:abd", "affine:ded"})
"""Where it is sampled: a busy core reads their prompts of about 1,000 tokens in seconds; others have longer ones."""


@dataclass(frozen=True, slots=True)
class DemoChoices:
    """The user's choices for the demo.

    Attributes:
        folder: where the demo keeps its server, data and reports.
        roster: sample these models instead of the baselines.
        window_s: how long each environment is sampled.
        keep_serving: keep the Prefect server and its UI up until Ctrl-C.
        local_model: sample the small local model beside the baselines if it is installed.
    """

    folder: Path = Path(".headgate/demo")
    roster: Path | None = None
    window_s: float = 30.0
    keep_serving: bool = False
    local_model: bool = True

    def uses_local_model(self, environ: Mapping[str, str] = os.environ) -> bool:
        """Return whether the small local model is sampled beside the baselines."""
        return self.local_model and self.uses_baselines(environ) and is_local_model_installed()

    def uses_baselines(self, environ: Mapping[str, str] = os.environ) -> bool:
        """Return whether the models are the built-in baselines: no roster is given and no endpoint is set."""
        return self.roster is None and not environ.get("OPENAI_BASE_URL")

    def goal(self, environ: Mapping[str, str] = os.environ) -> int:
        """Return how many scored samples the demo needs to succeed."""
        return int(_SCORED_PER_SECOND * self.window_s) if self.uses_baselines(environ) else 1


def faults(window_s: float) -> FaultPlan:
    """Return the faults of the baselines' endpoint: one model is rate-limited, one fails for half the window."""
    return FaultPlan(
        rules=(
            Slow(mean_s=0.15, cv=0.5),
            Slow(model="baseline-greedy-slow", mean_s=1.0, cv=0.3),
            RateLimit(model="baseline-greedy-limited", per_second=4.0, retry_after_s=0.5),
            Failure(model="baseline-solver-failing", status=503, until_s=3.0 + 0.4 * window_s),
        )
    )


def window_parameters(
    choices: DemoChoices, environment: str, environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Return the parameters of one environment's deployment in the demo."""
    is_own = not choices.uses_baselines(environ)
    interval_s = choices.window_s / OWN_MODEL_SAMPLES if is_own else BASELINE_INTERVAL_S
    roster = BLOCK if choices.roster is not None else ""
    return {
        "environment": environment,
        "duration_s": choices.window_s,
        "roster": roster if is_own else LOCAL_BLOCK if environment in LOCAL_ENVIRONMENTS else BLOCK,
        "store": BLOCK,
        "campaign": CAMPAIGN,
        "rate_per_day": DAY_S / interval_s,
        "settings": {
            "journal": str(choices.folder.absolute() / "journal"),
            "low_sample_multiplier": 1,
            "catch_up_horizon_s": 5,
            "batch_flush_interval": 0.5,
            "sink_max_wait": 5,
            "drain_timeout_s": 20 if is_own else 4,
            "error_pause_s": 4,
            "max_pause_s": 8,
            "request_attempts": 2,
            "status_interval_s": 5,
        },
    }


def demo_deployments(
    real: DeploymentFile, choices: DemoChoices, environ: Mapping[str, str] = os.environ
) -> DeploymentFile:
    """Return the deployments of `prefect.yaml` that the demo runs, with its parameters and their schedules off."""
    chosen = [d for d in real.deployments if _environment_of(d) in ENVIRONMENTS or d.name == "report"]
    return real.model_copy(update={"definitions": {}, "deployments": [_for_demo(d, choices, environ) for d in chosen]})


def _for_demo(deployment: Deployment, choices: DemoChoices, environ: Mapping[str, str]) -> Deployment:
    environment = _environment_of(deployment)
    if environment:
        parameters = window_parameters(choices, environment, environ)
    else:
        parameters = {"hours": 24, "store": BLOCK, "reports": BLOCK, "title": "Headgate demo"}
    schedules = [schedule.model_copy(update={"active": False}) for schedule in deployment.schedules]
    # Without a command, Prefect starts two interpreters per run, one of them only to prepare a working directory.
    command = {"command": f"{sys.executable} -m prefect.engine"}
    pool = deployment.work_pool.model_copy(update={"name": POOL, "job_variables": command})
    # Each runs once. A busy server on SQLite has been seen to cancel a deployment's only run for the deployment's own
    # limit: the database was locked between taking the slot and reporting it.
    own = {"parameters": parameters, "schedules": schedules, "work_pool": pool, "concurrency_limit": None}
    return deployment.model_copy(update=own)


def _environment_of(deployment: Deployment) -> str:
    return str(deployment.parameters.get("environment", ""))


def worker_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for the demo's flow runs: API keys stay, Headgate settings are removed."""
    ours = {name for setting in setting_fields() for name in variables_of(setting)} | {"HEADGATE_CONFIG"}
    return {name: value for name, value in environ.items() if name not in ours}


def as_typed(option: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the demo's command with an option, as the user types it: `make` takes options in ARGS."""
    return f"make demo ARGS='{option}'" if "MAKELEVEL" in environ else f"headgate demo {option}"


LOCAL_MODEL_OPTIONS: Final[Mapping[str, Any]] = {"max_tokens": 48, "temperature": 0}
"""Short answers: one processor, busy with everything else, generates a few hundred of its tokens in the window."""

_UP_S: Final = 30.0
_GRACE_S: Final = 5.0


@asynccontextmanager
async def served_local_model(folder: Path, environ: Mapping[str, str]) -> AsyncIterator[str]:
    """Serve the local model in its own process; yield its address.

    Raises:
        HeadgateError: if it does not answer in time; the message quotes its output.
    """
    port = free_port()
    command = [sys.executable, "-m", "headgate.cli", "serve-model", "--port", str(port), "--parallel", "1"]
    log = folder / "local-model.log"
    address = f"http://127.0.0.1:{port}"
    async with child_process(command, environ=environ, folder=folder, log=log, grace_s=_GRACE_S) as child:
        if problem := await start_problem(f"{address}/health", lambda: child.has_ended, _UP_S):
            raise errors.HeadgateError(
                f"the local model {LOCAL_MODEL} {problem}: {child.last_lines(3)}",
                next_step=f"Its log is in {log}; --no-local-model leaves it out.",
            )
        yield f"{address}/v1"


@dataclass(frozen=True, slots=True)
class DemoProgress:
    """The demo's counts at one moment.

    Attributes:
        scored: scored samples since the demo began, by (model, environment).
        paused: seconds until each paused model resumes.
        open_tasks: tasks handed out that have no sample yet.
        spooled: samples that are durable but not in the store yet.
    """

    scored: Mapping[tuple[str, str], int]
    paused: Mapping[str, float]
    open_tasks: int
    spooled: int

    @property
    def total(self) -> int:
        """All scored samples."""
        return sum(self.scored.values())

    def line(self, seconds: float) -> str:
        """Return the counts in one line, for a terminal that cannot redraw."""
        if not self.total and not self.open_tasks:
            return f"{seconds:5.1f} s  the flow runs are starting"
        by_environment = ", ".join(
            f"{environment} {sum(n for (_, e), n in self.scored.items() if e == environment)}"
            for environment in ENVIRONMENTS
        )
        paused = f"; paused: {', '.join(sorted(self.paused))}" if self.paused else ""
        return f"{seconds:5.1f} s  {self.total} scored ({by_environment}); {self.open_tasks} open{paused}"

    def table(self) -> Table:
        """Return the counts as a table."""
        is_starting = not self.total and not self.open_tasks
        table = Table(title="The flow runs are starting" if is_starting else "Sampling", title_justify="left")
        table.add_column("model", overflow="fold")
        for environment in ENVIRONMENTS:
            table.add_column(environment, justify="right", overflow="fold")
        table.add_column("state")
        for model in sorted({model for model, _ in self.scored} | set(self.paused)):
            left_s = self.paused.get(model)
            state = "sampled" if left_s is None else f"paused, service errors ({left_s:.0f} s)"
            counts = [str(self.scored.get((model, environment), 0)) for environment in ENVIRONMENTS]
            table.add_row(model, *counts, state)
        table.caption = f"{self.total} scored, {self.open_tasks} open, {self.spooled} spooled"
        return table


class DemoJournal:
    """Reads the progress of the demo's campaign from its journal, which the flow runs share. A context manager."""

    def __init__(self, folder: Path, now: float) -> None:
        self._journal = Journal(folder, CAMPAIGN)
        self._before = self._scored(now)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()

    def progress(self, now: float) -> DemoProgress:
        """Return the counts since this journal was opened."""
        history = self._journal.history(now)
        scored = {pair: n - self._before.get(pair, 0) for pair, n in self._scored(now).items()}
        return DemoProgress(
            scored={pair: n for pair, n in scored.items() if n > 0},
            paused={model: until - now for model, (_, until) in history.pauses.items() if until > now},
            open_tasks=self._journal.open_count(),
            spooled=self._journal.spool_count(),
        )

    def _scored(self, now: float) -> dict[tuple[str, str], int]:
        counts = self._journal.history(now).counts
        return {pair: sum(n for _, n in minutes) for pair, minutes in counts.items()}


def missing_local_model(samples: pl.DataFrame, choices: DemoChoices) -> str:
    """Return why the local model is in no table, and what to do; empty if it has a score."""
    if LOCAL_MODEL in {key.partition("@")[0] for key in samples["model"]}:
        return ""
    busy = f"{LOCAL_MODEL} has no score: this machine was too busy for an answer within {choices.window_s:g} s."
    return f"{busy} Give it longer: {as_typed('--duration 90')}"


START_S: Final = 120.0
"""How much longer than its window a run may take on a busy machine, to be picked up, import and drain."""

_LOOK_EVERY_S: Final = 0.25
"""How often the demo checks whether the first window has begun, which starts the clock of the baselines' faults."""

_LINE_EVERY_S: Final = 5.0
_CANCEL_WITHIN_S: Final = 3.0
_INTERRUPTED: Final = 130
_QUERY: Final = "select model, environment, avg(score), count(*) from samples group by all order by all"


async def run_demo(choices: DemoChoices) -> int:
    """Run the demo and return its exit status: 0 when it reached its goal, 130 when it was interrupted.

    No process, lock or sample is left behind, however it ends.

    Raises:
        HeadgateError: if a part of it cannot be started, or a flow run failed.
    """
    console = Console()
    with cancelled_by_signals():
        try:
            return await _Demo(choices, console).run()
        except asyncio.CancelledError:
            console.print("Interrupted. The samples taken so far are safe; the next demo continues from them.")
            return _INTERRUPTED


class Narrator:
    """Prints what a demo does, and when. Owned by the demo from its start."""

    def __init__(self, console: Console, folder: Path) -> None:
        self._console = console
        self._folder = folder.absolute()
        self._began, self._began_at = time.time(), time.monotonic()

    def tell(self, what: str) -> None:
        """Print one step with the time since the start."""
        seconds = time.monotonic() - self._began_at
        self._console.print(f"[dim]{seconds:5.1f} s[/dim]  {what}", highlight=False, soft_wrap=True)

    def tell_lines(self, lines: Sequence[str]) -> None:
        """Print lines unchanged."""
        for line in lines:
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)


class _Demo(Narrator):
    """One run of the demo."""

    def __init__(self, choices: DemoChoices, console: Console) -> None:
        super().__init__(console, choices.folder)
        self._choices = choices

    async def run(self) -> int:
        """Run the demo and return the exit status."""
        await self._check_roster()
        self._folder.mkdir(parents=True, exist_ok=True)
        file = demo_deployments(_deployment_file(), self._choices)
        async with AsyncExitStack() as stack:
            self.tell("starting a Prefect server of its own")
            server = await stack.enter_async_context(private_server(self._folder / "prefect"))
            self.tell(f"Prefect server and UI: {server.url}")
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
                with DemoJournal(self._folder / "journal", time.time()) as journal, self._shown(journal) as show:
                    within_s, log = self._choices.window_s + START_S, self._folder / "worker.log"
                    await completed_runs(ids, within_s, log, look=show)
                    show()
            self.tell("all windows are over, drained and stored")
            page = await self._report()
            return await self._conclude(server, page)

    async def _check_roster(self) -> None:
        """Read the user's own roster before starting anything."""
        if self._choices.uses_baselines():
            return
        roster = await roster_source(str(self._choices.roster or "")).load()
        self.tell(f"{len(roster)} models of your own: {', '.join(model.key for model in roster)}")

    async def _deploy(self, file: DeploymentFile, environ: dict[str, str]) -> None:
        path = self._folder / "prefect.yaml"
        path.write_text(file.as_yaml(), encoding="utf-8")
        await deploy_all(path, self._folder, environ)
        self.tell(f"{len(file.deployments)} deployments of prefect.yaml deployed, a worker waits for runs")

    @asynccontextmanager
    async def _endpoint(self, port: int, ids: Sequence[UUID]) -> AsyncIterator[None]:
        """Serve the baselines from the start of the first window, which also starts the clock of their faults."""
        if not self._choices.uses_baselines():
            yield
            return
        await awaited_runs(
            ids,
            lambda runs: any(run.state and (run.state.is_running() or run.state.is_final()) for run in runs),
            START_S,
            every_s=_LOOK_EVERY_S,
        )
        async with serve(faults(self._choices.window_s), port=port) as endpoint:
            self.tell(f"{len(MODELS)} baseline agents (not language models) answer at {endpoint.base_url}")
            yield

    async def _local_model(self, stack: AsyncExitStack, environ: dict[str, str]) -> str:
        """Serve the small local model until the stack closes; return its address, empty if it is left out."""
        if not self._choices.uses_local_model():
            return ""
        address = await stack.enter_async_context(served_local_model(self._folder, environ))
        self.tell(f"{LOCAL_MODEL}, a small real language model, answers at {address}")
        return address

    async def _save_blocks(self, base_url: str, local_model: str) -> None:
        await SampleStore(url=str(self._folder / "samples")).asave(BLOCK, overwrite=True)
        await ReportStore(url=str(self._folder / "reports")).asave(BLOCK, overwrite=True)
        if self._choices.roster is not None:
            await ModelRoster(location=str(self._choices.roster.absolute())).asave(BLOCK, overwrite=True)
        elif self._choices.uses_baselines():
            endpoint = ModelEndpoint(base_url=base_url, options={TASK_HEADER_OPTION: True}, max_parallel=16)
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
        self.tell(f"{len(ids)} flow runs started: {', '.join(ENVIRONMENTS)}")
        return ids

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
        await completed_runs([run.id], START_S, self._folder / "worker.log")
        self.tell("report made by its own deployment")
        return max((self._folder / "reports").glob("*/report.html"), key=lambda path: path.stat().st_mtime)

    async def _conclude(self, server: PrivateServer, page: Path) -> int:
        with closing(open_store(str(self._folder / "samples"))) as store:
            scan = await store.scan(since=self._began, columns=["campaign", *LEADERBOARD_COLUMNS])
        samples = scan.frame.filter(pl.col("campaign") == CAMPAIGN)
        goal = self._choices.goal()
        scored = samples.filter(pl.col("score").is_not_null())
        is_reached = scored.height >= goal and scored["environment"].n_unique() == len(ENVIRONMENTS)
        self._console.print(ScoreTable(build_leaderboard(samples), ENVIRONMENTS))
        if self._choices.uses_local_model() and (missing := missing_local_model(scored, self._choices)):
            self.tell_lines([missing])
        self._tell_places(server, page)
        self.tell(f"{scored.height} scored samples, {goal} wanted: " + ("done" if is_reached else "[red]too few[/red]"))
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
        self.tell_lines(lines)


async def _asked_to_end() -> None:
    """Return when the demo is cancelled: its work is done, so this is not an interruption."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()


@asynccontextmanager
async def _cancelled_with_this(ids: Sequence[UUID]) -> AsyncIterator[None]:
    """Mark the flow runs as Cancelled if the demo is cancelled; in any case they drain when the worker ends."""
    try:
        yield
    except asyncio.CancelledError:
        try:
            async with asyncio.timeout(_CANCEL_WITHIN_S):
                await cancel_runs(ids)
        except Exception as error:  # noqa: BLE001 - the demo is ending; what the server cannot learn is printed
            Console(stderr=True).print(f"The flow runs could not be marked as cancelled: {error}", markup=False)
        raise


def _deployment_file() -> DeploymentFile:
    """Return the `prefect.yaml` beside the flows, in the package or in the checkout."""
    installed = importlib.util.find_spec("flows")  # found, not imported: the flows import this package
    folders = [Path(place) for place in (installed and installed.submodule_search_locations) or ()]
    candidates = (path / "prefect.yaml" for folder in folders for path in (folder, folder.parent))
    found = next((path for path in candidates if path.exists()), None)
    if found is None:
        raise errors.InvalidInputError(
            "prefect.yaml is not beside the flows", next_step="Run the demo from a checkout of Headgate."
        )
    return read_deployment_file(found)


def _near(path: Path) -> Path:
    """Return the path relative to the working directory if it is inside it."""
    here = Path(os.curdir).absolute()
    return path.relative_to(here) if path.is_relative_to(here) else path
