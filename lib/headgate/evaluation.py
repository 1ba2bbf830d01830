"""Evaluations from Python, without Prefect: coroutines for a notebook, and the scores that it displays."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any, Final

import polars as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headgate.config import Settings, load_settings
from headgate.core import Model
from headgate.core.errors import EnvironmentFailedError, InvalidInputError
from headgate.core.status import CampaignStatus
from headgate.environments import Environment, checked_environment, environments_at_hand
from headgate.orchestration import engine_hosts
from headgate.reports import LEADERBOARD_COLUMNS, Leaderboard, MissingRule, ScoreTable, build_leaderboard, missing_lines
from headgate.run import MatrixTasks, RunResult, models_at_hand, repeat_ks, run_campaign, sampled_environments
from headgate.sampling import RosterSource, StaticRoster, mapped_roster
from headgate.storage import SampleStore, open_store, sample_store

Models = str | Path | Model | Mapping[str, Any] | Iterable[Model]
"""The models to sample: a roster (a file, an http(s) URL, or `baselines`), models, or a mapping of names to roster
entries or plain addresses."""

Environments = str | Environment | Iterable[str | Environment]
"""The environments: names, patterns such as `reasoning-gym:*`, or objects. None: all installed ones without a judge."""

_COLUMNS: Final = (
    *LEADERBOARD_COLUMNS,
    "campaign",
    "sequence",
    "error_kind",
    "error",
    "prompt_tokens",
    "completion_tokens",
    "latency_s",
    "finish_reason",
)
_SHOWN_WIDTH: Final = 120


@dataclass(frozen=True)
class Scores:
    """The scores of samples, by model; displays itself as a table.

    Attributes:
        samples: one row each, without the conversations.
        against: the model that the others are compared with; the best by mean when empty.
        ks: the values of k for pass@k and maj@k.
        missing: what samples without a score count as; see `headgate.reports.build_leaderboard`.
    """

    samples: pl.DataFrame
    against: str = ""
    ks: tuple[int, ...] = ()
    missing: MissingRule = "bound"

    @cached_property
    def leaderboard(self) -> Leaderboard:
        """Ranks, intervals and comparisons of the models."""
        return build_leaderboard(self.samples, against=self.against, ks=self.ks, missing=self.missing)

    @property
    def summary(self) -> pl.DataFrame:
        """One row per model and environment: samples, those with a score, mean, its 95 % interval, pass@k and maj@k."""
        pair = ["model", "environment"]
        means = pl.DataFrame(
            [
                (
                    *(cell.model, cell.environment, cell.estimate.mean, cell.estimate.low, cell.estimate.high),
                    *(getattr(made[k], "mean", None) for made in (cell.passes, cell.majorities) for k in self.ks),
                )
                for cell in self.leaderboard.cells
            ],
            schema={"model": pl.String, "environment": pl.String}
            | dict.fromkeys(("mean_score", "low", "high"), pl.Float64)
            | dict.fromkeys((f"{measure}@{k}" for measure in ("pass", "maj") for k in self.ks), pl.Float64),
            orient="row",
        )
        counts = self.samples.group_by(pair).agg(pl.len().alias("samples"), pl.col("score").count().alias("scored"))
        return counts.join(means, on=pair, how="left").sort(pair)

    def __repr__(self) -> str:
        return self._drawn().export_text().rstrip()

    def _repr_html_(self) -> str:
        return self._drawn().export_html(inline_styles=True, code_format="<pre>{code}</pre>")

    def _drawn(self) -> Console:
        console = Console(file=StringIO(), record=True, width=_SHOWN_WIDTH, force_jupyter=False)
        console.print(ScoreTable(self.leaderboard))
        return console


@dataclass(frozen=True, repr=False)
class Evaluation(Scores):
    """The scores at the end of a run.

    Attributes:
        result: what the run did: how many samples it took, why it ended, which models it gave up.
        remarks: why samples are missing, or have no score; shown below the table.
    """

    result: RunResult | None = None
    remarks: tuple[str, ...] = ()

    def _drawn(self) -> Console:
        console = super()._drawn()
        for line in self.remarks:
            console.print(line, markup=False, highlight=False)
        return console


async def evaluate(
    models: Models, environments: Environments | None = None, *, instances: int, progress: bool = True, **settings: Any
) -> Evaluation:
    """Score models on the same tasks of each environment, and return the scores.

    Samples that the store already has are not taken again: the same call continues where it was stopped. Ctrl-C lets
    episodes in progress end, stores them, and returns what there is; a second one abandons them.

    Args:
        models: see `Models`.
        environments: see `Environments`.
        instances: tasks per model and environment; the setting `repeats` takes several samples of each, and adds pass@k
            and maj@k to the scores.
        progress: show a progress bar.
        settings: any setting of `headgate run`, such as `store="s3://bucket/prefix"`, `campaign="tuesday"` or
            `num_evaluation_workers=64`; others come from variables `HEADGATE_…` or their defaults.

    Raises:
        InvalidInputError: if a model, environment or setting cannot be used.
        StoreNotWritableError: if the samples cannot be stored.
    """
    return await _sampled(models, environments, progress, {**settings, "instances": instances}, None)


async def keep_sampling(
    models: Models,
    environments: Environments | None = None,
    *,
    duration_s: float | None = None,
    progress: bool = True,
    **settings: Any,
) -> Evaluation:
    """Sample models at their daily rates until Ctrl-C or for `duration_s`, and return the scores of these samples.

    Models, environments and settings are as in `evaluate`, for example `rates="*=2000"`.

    Raises:
        InvalidInputError: if a model, environment or setting cannot be used.
        StoreNotWritableError: if the samples cannot be stored.
    """
    if settings.get("instances") is not None:
        raise InvalidInputError("keep_sampling takes no instances", next_step="`headgate.evaluate` takes them.")
    return await _sampled(models, environments, progress, settings, duration_s)


async def leaderboard(
    samples: SampleStore | pl.DataFrame | str | Path,
    *,
    against: str = "",
    ks: Sequence[int] = (),
    missing: MissingRule = "bound",
) -> Scores:
    """Return the scores of all samples in a store: a `SampleStore`, its folder, `s3://bucket/prefix`, or a frame.

    Raises:
        InvalidInputError: if there is no model `against`, or columns are missing.
        StoreError: if the store cannot be read.
    """
    if not isinstance(samples, pl.DataFrame):
        store = samples if isinstance(samples, SampleStore) else open_store(str(samples))
        samples = (await store.scan(columns=_COLUMNS)).frame
    return Scores(samples, against, tuple(ks), missing)


def _checked(made: object) -> Environment:
    try:
        return checked_environment(getattr(getattr(made, "spec", None), "name", repr(made)), made)
    except EnvironmentFailedError as error:
        raise InvalidInputError(error.message, next_step=error.next_step) from None


async def _sampled(
    models: Models,
    environments: Environments | None,
    progress: bool,
    given: Mapping[str, Any],
    duration_s: float | None,
) -> Evaluation:
    if environments is not None and (isinstance(environments, str) or not isinstance(environments, Iterable)):
        environments = (environments,)
    if environments is not None and not (environments := list(environments)):
        raise InvalidInputError(
            "environments names none (got an empty list)",
            next_step="Name some, or leave it out for all that are installed and need no judge.",
        )
    chosen = list(environments or ())
    objects = [_checked(one) for one in chosen if not isinstance(one, str)]
    flags = {**given, "environments": tuple(one if isinstance(one, str) else one.spec.name for one in chosen) or None}
    if isinstance(models, str | Path):
        flags["roster"] = str(models)
    settings = load_settings(flags, environ=os.environ).settings
    began = time.time()
    with environments_at_hand(objects):
        sampled = await asyncio.to_thread(sampled_environments, settings)
        async with _roster_of(models, settings) as roster, engine_hosts(settings) as hosts:
            store, keys = sample_store(settings), [model.key for model in await roster.load()]
            tasks = None
            if settings.instances is not None:
                tasks = MatrixTasks.among(sampled, settings.instances, settings.repeats)
            wanted = _Wanted(settings, keys, list(sampled), began, tasks)
            bar = _Bar(wanted.size, wanted.done(await wanted.frame(store)) if wanted.size else 0, is_shown=progress)
            stop = asyncio.Event()
            with bar, _stopped_by_ctrl_c(stop):
                result = await run_campaign(
                    settings,
                    roster=roster,
                    store=store,
                    duration_s=duration_s,
                    stop=stop,
                    on_status=bar.show,
                    engine_hosts=hosts,
                )
            frame = await wanted.frame(store)
            places = {"journal": settings.journal, "store": settings.store}
            remarks = missing_lines(frame, result.left_out, **places, in_hand=result.in_hand, spooled=result.spooled)
            return Evaluation(frame, ks=repeat_ks(settings.repeats), result=result, remarks=tuple(remarks))


@asynccontextmanager
async def _roster_of(models: Models, settings: Settings) -> AsyncIterator[RosterSource]:
    if isinstance(models, str | Path):
        async with models_at_hand(settings) as source:
            yield source
        return
    if isinstance(models, Mapping):
        yield mapped_roster(models, environ=os.environ)
        return
    listed = [models] if isinstance(models, Model) or not isinstance(models, Iterable) else list(models)
    if strangers := [one for one in listed if not isinstance(one, Model)]:
        raise InvalidInputError(
            f"a model is a headgate.Model (got {strangers[0]!r})",
            next_step="Give models, a mapping of names to addresses, or the path of a roster.",
        )
    if max(Counter(model.uid for model in listed).values(), default=0) > 1:  # in a notebook, uids are rarely given
        listed = [replace(model, uid=number) for number, model in enumerate(listed)]
    yield StaticRoster(listed)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which samples in the store belong to an evaluation."""

    settings: Settings
    models: Sequence[str]
    environments: Sequence[str]
    began: float
    tasks: MatrixTasks | None

    @property
    def size(self) -> int | None:
        """Return the number of tasks, or None where sampling has no end."""
        return None if self.tasks is None else self.tasks.size * len(self.models) * len(self.environments)

    async def frame(self, store: SampleStore) -> pl.DataFrame:
        """Return the stored samples: of a matrix all, else those that ended since the start."""
        since = self.began if self.tasks is None else None
        rows = (await store.scan(environments=self.environments, since=since, columns=_COLUMNS)).frame
        rows = rows.filter(pl.col("campaign") == self.settings.campaign, pl.col("model").is_in(self.models))
        return rows if self.tasks is None else self.tasks.of(rows)

    def done(self, rows: pl.DataFrame) -> int:
        """Return how many tasks have a score."""
        return rows.filter(pl.col("score").is_not_null()).select("model", "environment", "sequence").n_unique()


class _Bar:
    """A progress bar on standard error; only a count where there is no end. A context manager."""

    def __init__(self, total: int | None, done: int, *, is_shown: bool) -> None:
        columns = ("[progress.description]{task.description}", BarColumn(), TextColumn("{task.fields[count]}"))
        self._progress = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), disable=not is_shown)
        self._total, self._done = total, done
        self._task = self._progress.add_task("sampling", total=total, completed=done, count="")

    def __enter__(self) -> None:
        self._progress.start()

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    async def show(self, status: CampaignStatus) -> None:
        """Show the progress; a task that failed and is retried counts once."""
        done = self._done + status.samples
        if self._total is None:
            self._progress.update(self._task, completed=done, count=f"{done} samples")
        else:
            done = min(done, self._total)
            self._progress.update(self._task, completed=done, count=f"{done} of {self._total}")


@contextmanager
def _stopped_by_ctrl_c(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` at the first Ctrl-C, cancel the caller at the second; outside the main thread, change nothing."""
    loop, task, before = asyncio.get_running_loop(), asyncio.current_task(), signal.getsignal(signal.SIGINT)

    def interrupted() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
        stop.set()

    try:
        loop.add_signal_handler(signal.SIGINT, interrupted)
    except (RuntimeError, ValueError):  # not the main thread, or a loop without signals
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
