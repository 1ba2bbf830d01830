"""`headgate run`: sample until stopped; and `headgate rank`: which models come first, from few samples."""

from __future__ import annotations

import asyncio
import fnmatch
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from cyclopts import Parameter
from rich.live import Live

from headgate import orchestration, reports, storage
from headgate import run as runs
from headgate.cli.options import Choices, RunOptions, Whole, whole
from headgate.cli.output import CHECK_FAILED, INTERRUPTED, console, counted, print_json, say
from headgate.config import Settings
from headgate.core.errors import InvalidInputError
from headgate.core.status import CampaignStatus
from headgate.net import event_loop
from headgate.telemetry import setup_logging, status_document

if TYPE_CHECKING:
    import polars as pl

    from headgate.sampling import RosterSource


Repeats = Annotated[
    int | None,
    Parameter(help="Take this many samples of each task of --instances, each with another seed.", converter=whole),
]
"""The option `--repeats`."""


def run(
    choices: Choices | None = None,
    *,
    duration: Annotated[float | None, Parameter(help="Stop after this many seconds.")] = None,
    instances: Annotated[
        int | None,
        Parameter(
            help="Run this many tasks per model and environment once, instead of sampling by rates.", converter=whole
        ),
    ] = None,
    indifference: Annotated[
        float | None,
        Parameter(
            help="Stop sampling a model once it is ranked among the others, wherever means over all --instances "
            "differ by more than this."
        ),
    ] = None,
    repeats: Repeats = None,
    how: RunOptions | None = None,
    with_console: Annotated[
        bool, Parameter(name="--console", help="Serve the console of this run, in a process beside it.")
    ] = False,
    trace: Annotated[
        Path | None, Parameter(help="Write a trace for Perfetto to this file at the end; .gz compresses it.")
    ] = None,
    environment_hosts: Annotated[
        Literal["local", "ray"] | None,
        Parameter(
            help="Where environments with processes of their own run: on this machine, or on the nodes of a Ray "
            "cluster."
        ),
    ] = None,
    ray_address: Annotated[
        str | None,
        Parameter(help="Head of the Ray cluster, host:port; by default RAY_ADDRESS, then a cluster on this machine."),
    ] = None,
) -> int:
    """Sample the roster's models in every environment until stopped.

    On Ctrl-C it accepts no more work, waits for episodes in progress, stores what there is, and ends. A second Ctrl-C
    abandons the episodes in progress at once; their tasks run again next time.

    Exit status 4 when samples kept failing and it stopped early (`early_stop`), when it gave up a model whose service
    stayed down, and with `--instances` when no sample has a score, or samples that the store did not accept wait in
    the journal; 130 when it was told to stop before all of those were taken.
    """
    how = how or RunOptions()
    loaded = (choices or Choices()).load(
        enable_monitoring=True if with_console else how.enable_monitoring,
        monitor_port=how.monitor_port,
        trace_file=None if trace is None else str(trace),
        instances=instances,
        indifference=indifference,
        repeats=repeats,
        environment_hosts=environment_hosts,
        ray_address=ray_address,
    )
    is_live = logs_are_hidden(how.verbose, as_json=how.as_json)
    result = event_loop.run(_run(loaded.settings, duration, how.limits, is_live=is_live, with_console=with_console))
    matrix = event_loop.run(_matrix_of(loaded.settings)) if loaded.settings.instances is not None else None
    has_failed = result.stopped_early or bool(result.given_up)
    status = CHECK_FAILED if has_failed or (matrix is not None and is_incomplete(matrix, result)) else 0
    if matrix is not None and result.was_interrupted:
        status = INTERRUPTED
    if how.as_json:
        print_json(result_document(result))
        return status
    if is_live:
        console().print(reports.live_view(result.status))
    else:
        for line in reports.status_lines(result.status):
            say(line)
    say(f"{counted(result.samples, 'sample')}, {left_by(result, loaded.settings)}")
    ranked = reports.ranking_lines(result.ranking) if result.ranking is not None else ()
    for line in [*_remarks(result, loaded.settings), *ranked]:
        say(line)
    if matrix is not None:
        console().print(_scores(matrix, loaded.settings))
        for line in missing_from(matrix, result, loaded.settings):
            say(line)
    return status


def left_by(result: runs.RunResult, settings: Settings) -> str:
    """Return what a run stored, what all processes of its campaign leave in the journal, and why it ended."""
    left = f"{result.spooled:,} spooled, {counted(result.open_tasks, 'task')} open"
    return (
        f"{result.stored:,} stored in {settings.store}; campaign {settings.campaign} has {left} ({result.stopped_by})"
    )


def logs_are_hidden(verbose: int, *, as_json: bool) -> bool:
    """Set up logging for a command that runs; return whether the terminal shows the run instead of log lines."""
    is_live = sys.stdout.isatty() and not as_json and not verbose
    setup_logging(verbosity=0 if is_live else 1 + verbose)
    return is_live


def _remarks(result: runs.RunResult, settings: Settings) -> list[str]:
    """Return remarks on why there are not more samples, and what to do."""
    remarks = _short_of_tasks(settings)
    remarks += [
        f"{model} given up after {why}; run the same command again to take its other tasks"
        for model, why in result.given_up.items()
    ]
    if result.empty_because:
        are_paused = {model.pause_kind for model in result.status.models} == {"errors"}
        more = "`--instances 20` takes 20 tasks of each model in each environment now; --set rates=*=20000 raises rates"
        todo = "`headgate retry` ends their pauses once the cause is gone" if are_paused else more
        remarks += [f"no samples: {result.empty_because}", todo]
    return remarks


def _short_of_tasks(settings: Settings) -> list[str]:
    """Return which environments have fewer tasks than `--instances`, whose first tasks are then taken again."""
    if settings.instances is None:
        return []
    lengths = {name: one.spec.data_length for name, one in runs.sampled_environments(settings).items()}
    return [
        f"{name} has {counted(length, 'task')}: {settings.instances:,} instances take some of them more than once"
        for name, length in lengths.items()
        if length < settings.instances
    ]


async def campaign_samples(settings: Settings) -> pl.DataFrame:
    """Return the stored samples of a campaign, including those of earlier runs."""
    import polars as pl  # noqa: PLC0415 - `--help` does not load it

    columns = [*reports.LEADERBOARD_COLUMNS, "campaign", "sequence", "error_kind", "error", "finish_reason"]
    found = await storage.sample_store(settings).scan(columns=columns)
    return found.frame.filter(pl.col("campaign") == settings.campaign)


async def _matrix_of(settings: Settings) -> pl.DataFrame:
    """Return the campaign's samples in the environments of the settings."""
    import polars as pl  # noqa: PLC0415 - `--help` does not load it

    samples = await campaign_samples(settings)
    if not settings.environments:
        return samples
    sampled = samples["environment"].unique().to_list()
    chosen = [name for one in settings.environments for name in {one, *fnmatch.filter(sampled, one)}]
    return samples.filter(pl.col("environment").is_in(chosen))


def is_incomplete(matrix: pl.DataFrame, result: runs.RunResult) -> bool:
    """Return whether a matrix has no sample with a score, or lacks some of this run that the store has not accepted."""
    return matrix.height == matrix["score"].null_count() or result.status.spooled > 0


def missing_from(samples: pl.DataFrame, result: runs.RunResult, settings: Settings) -> list[str]:
    """Return why tasks of a run's models are not among the samples of its campaign, or have no score there."""
    own = {*(one.model for one in result.status.models), *result.given_up}
    samples = samples.filter(samples["model"].is_in(list(own)))
    places = {"journal": settings.journal, "store": settings.store}
    return reports.missing_lines(samples, result.left_out, **places, in_hand=result.in_hand, spooled=result.spooled)


def _scores(samples: pl.DataFrame, settings: Settings) -> reports.ScoreTable:
    sampled = samples["environment"].unique().to_list()
    patterns = any(name not in sampled for name in settings.environments)
    near = settings.indifference or reports.INDIFFERENCE
    board = reports.build_leaderboard(samples, ks=runs.repeat_ks(settings.repeats), indifference=near)
    return reports.ScoreTable(board, () if patterns else settings.environments)


async def _run(
    settings: Settings, duration: float | None, limits: str, *, is_live: bool, with_console: bool
) -> runs.RunResult:
    async with AsyncExitStack() as stack:
        given = await stack.enter_async_context(at_hand(settings, limits))
        if with_console:
            from headgate.cli.console_server import console_beside  # noqa: PLC0415 - needs an extra of its own

            await stack.enter_async_context(console_beside(settings))
        if not is_live:
            return await runs.run_campaign(settings, duration_s=duration, **given)
        live = stack.enter_context(Live(console=console(), refresh_per_second=4, transient=True))

        async def show(status: CampaignStatus) -> None:
            live.update(reports.live_view(status))

        return await runs.run_campaign(settings, duration_s=duration, on_status=show, **given)


class AtHand(TypedDict):
    """Arguments that commands pass to every run."""

    roster: RosterSource
    stop: asyncio.Event
    slots: orchestration.SlotBroker | None
    engine_hosts: runs.EngineHosts | None


@asynccontextmanager
async def at_hand(settings: Settings, limits: str) -> AsyncIterator[AtHand]:
    """Yield the models of the settings, the slots of `limits`, and the event that SIGINT and SIGTERM set.

    Meanwhile, environments print to standard error unless standard output is a terminal: a pipe gets only results.
    """
    slots = await orchestration.shared_slots(limits) if limits else None  # Prefect is imported only if needed
    stop = asyncio.Event()
    stop_on_signals(stop, settings.drain_timeout_s)
    async with runs.models_at_hand(settings) as roster, orchestration.engine_hosts(settings) as hosts:
        with redirect_stdout(sys.stdout if sys.stdout.isatty() else sys.stderr):
            yield {"roster": roster, "stop": stop, "slots": slots, "engine_hosts": hosts}


def stop_on_signals(stop: asyncio.Event, drain_s: float | None = None) -> None:
    """Drain on the first SIGINT or SIGTERM; on the second give up what is in progress.

    Args:
        stop: set by the first signal; the second cancels the current task.
        drain_s: time that work in progress has to end, printed at the first signal; None prints nothing.
    """
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()

    def stopped() -> None:
        if stop.is_set() and main is not None:
            main.cancel()
        elif drain_s is not None:
            say(
                f"stopping: work in progress has {drain_s:g} s to end (drain_timeout_s); Ctrl-C again ends at once, "
                "and loses no finished sample",
                stderr=True,
            )
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped)


def result_document(result: runs.RunResult) -> dict[str, Any]:
    """Return a campaign's result as `--json` prints it."""
    return {
        **result.ending(),
        "given_up": dict(result.given_up),
        "empty_because": result.empty_because,
        "ranking": None if result.ranking is None else asdict(result.ranking),
        "status": status_document(result.status),
    }


def rank(
    choices: Choices | None = None,
    *,
    instances: Annotated[Whole, Parameter(help="Rank the models on this many tasks of each environment.")],
    indifference: Annotated[
        float, Parameter(help="Either of two models may come first when their means differ by this at most.")
    ] = 0.02,
    repeats: Repeats = None,
    how: RunOptions | None = None,
) -> int:
    """Rank the roster's models on the same tasks, and stop sampling each one once it is ranked.

    This is `headgate run --instances` with tasks in random order. It ends when the order of every two models on all of
    the tasks is known, wherever their means differ by more than `--indifference`. The whole ranking holds with a
    probability of 95 %. Stored samples are not taken again; models that are complete help to rank new ones.

    Exit status as for `headgate run --instances`.
    """
    if not 0 < indifference < 1:
        raise InvalidInputError(
            f"--indifference must be above 0 and below 1 (got {indifference:g})",
            next_step="It is a difference of mean scores, such as 0.02; `headgate run --instances` takes all tasks.",
        )
    return run(choices, instances=instances, indifference=indifference, repeats=repeats, how=how)
