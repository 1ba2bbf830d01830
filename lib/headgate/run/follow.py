"""Evaluates the checkpoints of a training one by one as they appear, each on the same tasks."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Unpack

import polars as pl

from headgate.config import Settings
from headgate.core import Model, SystemClock, new_run_id, until_set
from headgate.core.errors import HeadgateError, InvalidInputError, JournalError, StoreError
from headgate.core.events import (
    CheckpointFailed,
    CheckpointFound,
    CheckpointRegressed,
    CheckpointScored,
    CheckpointsSkipped,
    CheckpointsUnread,
    Event,
)
from headgate.durable.databases import DatabaseAwayError
from headgate.elastic.service import Machine
from headgate.reports import (
    LEADERBOARD_COLUMNS,
    CheckpointCurve,
    CheckpointScore,
    build_curve,
    curve_document,
    step_of,
)
from headgate.run.assembly import Watch, run_campaign, sole_run
from headgate.run.checkpoints import SETTLE_FOLDER_S, Checkpoint, CheckpointFolder, revision_of
from headgate.run.controls import DRAINED
from headgate.run.environments import sampled_environments
from headgate.run.matrix import MatrixTasks
from headgate.run.observers import notice_senders, observe
from headgate.sampling import RosterSource, mapped_roster
from headgate.storage import SampleStore, sample_store
from headgate.telemetry import EventStream, LogSink, Notices, counted

if TYPE_CHECKING:
    from headgate.run.status import RunResult

LOOK_EVERY_S: Final = 0.5
LOOK_EVERY_REMOTE_S: Final = 2.0
"""Longer for buckets: each listing is a paid request."""

RETRY_S: Final = 60.0
"""First wait before a checkpoint that was given up is tried again; each further wait is three times as long. What kept
its engine from starting may be no fault of its own, such as an unreachable cluster."""

OnCurve = Callable[[CheckpointCurve, CheckpointScore | None], Awaitable[None]]
"""Called with the curve and its new checkpoint, which is None at the start."""


@dataclass(frozen=True, slots=True)
class FollowOrder:
    """What to follow, and how to evaluate each checkpoint.

    Attributes:
        place: folder or `s3://bucket/prefix` to which the training writes.
        serve: how to serve each checkpoint: a roster entry's `serve` without its weights.
        instances: tasks per environment, the same for every checkpoint.
        name: name of the model; the folder's when empty. A checkpoint is a revision of it.
        pattern: pattern of checkpoint names, with `*` and `?`.
        marker: file that marks a checkpoint as complete; if empty, sizes that no longer change do.
        newest: number of newest checkpoints to evaluate; older ones are skipped.
        entry: further fields of the roster entry, such as `options`.
    """

    place: str
    serve: Mapping[str, Any]
    instances: int = 20
    name: str = ""
    pattern: str = "*"
    marker: str = ""
    newest: int = 20
    entry: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model_name(self) -> str:
        """The name of the model."""
        return self.name or PurePosixPath(self.place.rstrip("/")).name

    def roster(self, checkpoint: Checkpoint) -> RosterSource:
        """Return a roster whose only model is this checkpoint.

        Raises:
            InvalidRosterError: if `serve` or `entry` break a rule of rosters.
        """
        served = {"serve": {**self.serve, "weights": checkpoint.path}}
        return mapped_roster({self.model_name: {**self.entry, "revision": checkpoint.name, **served}})


@dataclass(frozen=True, slots=True)
class FollowResult:
    """What a run that follows checkpoints did.

    Attributes:
        curve: the curve of all checkpoints with samples, including those of earlier runs.
        evaluated: revisions that this run evaluated, in order.
        failed: revisions that lack scores, and why.
        skipped: number of checkpoints that were skipped for newer ones.
        stopped_by: why the run ended.
    """

    curve: CheckpointCurve
    evaluated: tuple[str, ...]
    failed: Mapping[str, str]
    skipped: int
    stopped_by: str

    def document(self) -> dict[str, Any]:
        """Return it as JSON values, as `--json` and the flow report it."""
        counts = {"skipped": self.skipped, "stopped_by": self.stopped_by}
        return curve_document(self.curve) | {"evaluated": list(self.evaluated), "failed": dict(self.failed)} | counts


async def follow_checkpoints(
    settings: Settings,
    order: FollowOrder,
    *,
    until_idle: bool = False,
    duration_s: float | None = None,
    store: SampleStore | None = None,
    judge: Model | None = None,
    on_curve: OnCurve | None = None,
    environ: Mapping[str, str] = os.environ,
    **watch: Unpack[Watch],
) -> FollowResult:
    """Evaluate each checkpoint once it is complete, oldest first, until stopped; return what was done.

    Each is a fixed matrix of environments × instances, so all get the same tasks; samples in the store are not taken
    again. A checkpoint that gets no score is reported and passed over, and tried again when its files change.

    Args:
        settings: the campaign's settings; their roster is not read.
        order: what to follow.
        until_idle: end once every complete checkpoint has been evaluated.
        duration_s: end after this many seconds, once the checkpoint in progress is done; None until stopped.
        store: used in place of the one that the settings name.
        judge: the model that reads answers in environments that need it.
        on_curve: called for every new checkpoint; an error that it raises ends the run.
        environ: source of the keys of buckets.
        **watch: what follows each evaluation; see `Watch`.

    Raises:
        InvalidInputError: if the folder does not exist, another run follows it for this campaign, or the order cannot
            be carried out.
        HeadgateError: if an argument cannot be used; then nothing was started.
    """
    for name in ("newest", "instances"):
        if (given := getattr(order, name)) < 1:
            raise InvalidInputError(f"{name} must be >= 1 (got {given})")
    order.roster(Checkpoint(0, "0", "/", 0))
    settings = settings.model_copy(update={"indifference": 0.0})  # each run has one checkpoint: there is none to rank
    store = store if store is not None else sample_store(settings)
    environments = sampled_environments(settings, judge)
    folder = CheckpointFolder(order.place, pattern=order.pattern, marker=order.marker, environ=environ)
    machine = Machine(keeps_engines=True)
    watch["engine_hosts"] = watch.get("engine_hosts") or machine
    tasks = MatrixTasks.among(environments, order.instances, settings.repeats)
    name, further = order.model_name, "Stop that one first, or give this one another --name or --campaign."
    held = f"the checkpoints of {name} are already being followed in campaign {settings.campaign}"
    about = settings.journal, "follow", f"{settings.campaign}\0{name}", held
    async with AsyncExitStack() as stack:
        stack.enter_context(closing(folder))
        keep_sole = stack.enter_context(sole_run(*about, next_step=further, doing=f"follows {order.place}"))
        notices = Notices(notice_senders(stack, settings))
        follower = _Follower(settings, order, store, judge, tasks, watch, folder, keep_sole, notices, on_curve)
        stop = watch.get("stop") or asyncio.Event()
        try:
            return await follower.run(until_idle=until_idle, duration_s=duration_s, stop=stop)
        finally:
            await machine.close()


@dataclass(slots=True)
class _Follower:
    """The loop over the checkpoints, which are evaluated on the same tasks. Owned by one run."""

    settings: Settings
    order: FollowOrder
    store: SampleStore
    judge: Model | None
    tasks: MatrixTasks
    watch: Watch
    folder: CheckpointFolder
    keep_sole: Callable[[], None]
    notices: Notices
    on_curve: OnCurve | None
    _tried: dict[str, Checkpoint] = field(default_factory=dict)
    _retries: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When a given-up checkpoint is tried again, and the wait after that if it is given up again."""
    _failed: dict[str, str] = field(default_factory=dict)
    _evaluated: dict[str, None] = field(default_factory=dict)
    _skipped: set[str] = field(default_factory=set)
    _damaged: set[str] = field(default_factory=set)
    _away: set[str] = field(default_factory=set)
    _was_read: bool = False
    _was_sampled: bool = False
    _is_unread: bool = False

    async def run(self, *, until_idle: bool, duration_s: float | None, stop: asyncio.Event) -> FollowResult:
        now = asyncio.get_running_loop().time
        began = now()
        every_s = LOOK_EVERY_REMOTE_S if self.folder.is_remote else LOOK_EVERY_S
        until = -math.inf if until_idle else math.inf if duration_s is None else began + duration_s
        curve = _curve_of(await self._samples())
        if self.on_curve is not None and curve.points:
            await self.on_curve(curve, None)
        stopped_by = "stopped by request"
        while not stop.is_set():
            if duration_s is not None and now() - began >= duration_s:
                stopped_by = "the window is over"
                break
            whole = await self._whole(now(), can_wait=not until_idle)
            due = await self._next(whole, -math.inf if until_idle else now())
            if due is not None:
                curve = await self._evaluate(due, stop, until)
            elif until_idle and (not self.folder.watch.is_settling or now() - began > SETTLE_FOLDER_S + every_s):
                stopped_by = await asyncio.to_thread(self._nothing_left)
                break
            else:
                await until_set(stop, every_s)
        return FollowResult(curve, tuple(self._evaluated), dict(self._failed), len(self._skipped), stopped_by)

    async def _whole(self, now: float, *, can_wait: bool) -> list[Checkpoint]:
        """Return the complete checkpoints; while their place is unreachable, report that once and return none."""
        try:
            await asyncio.to_thread(self.keep_sole)
            found = await asyncio.to_thread(self.folder.whole, now)
        except (StoreError, DatabaseAwayError) as error:
            if not (can_wait and self._was_read):
                raise
            if not self._is_unread:
                await self._tell(CheckpointsUnread(self.folder.place, error.message))
            self._is_unread = True
            return []
        self._was_read, self._is_unread = True, False
        return found

    def _nothing_left(self) -> str:
        """Return why there is nothing to evaluate."""
        unfinished = [name for name in self.folder.watch.unfinished if revision_of(name) not in self._tried][:5]
        others = f"; not complete: {', '.join(unfinished)}" if unfinished else ""
        if self._failed:
            return f"every checkpoint was tried{others}"
        if self._tried:
            return f"every checkpoint is evaluated{others}"
        if not others and (names := self.folder.unlike()):
            others = f"; what is there has no number, or another name: {', '.join(names)}"
        return f"no checkpoint is in {self.folder.place}{others}"

    async def _next(self, whole: list[Checkpoint], now: float) -> Checkpoint | None:
        """Return the oldest of the newest checkpoints that was not tried in its present state, else one to try again.

        Skipped checkpoints are reported.
        """
        order = self.order
        newest = whole[-order.newest :]
        left_out = {one.name for one in whole[: -order.newest]} - self._tried.keys()
        if left_out - self._skipped:
            self._skipped |= left_out
            await self._tell(CheckpointsSkipped(order.place, len(self._skipped), order.newest))
        due = [one for one in newest if self._tried.get(one.name) != one]
        due += [one for one in newest if self._retries.get(one.name, (math.inf,))[0] <= now]
        return due[0] if due else None

    async def _evaluate(self, checkpoint: Checkpoint, stop: asyncio.Event, until: float) -> CheckpointCurve:
        """Evaluate a checkpoint unless its scores are complete; report and return the curve with it."""
        key = f"{self.order.model_name}@{checkpoint.name}"
        self._tried[checkpoint.name] = checkpoint
        samples = await self._samples(stop, until)
        if self._is_whole(samples, key):
            return _curve_of(samples)
        await self._tell(CheckpointFound(key, checkpoint.step, checkpoint.path, checkpoint.size_bytes))
        scored = _scored(samples, key)
        result = await self._sampled(checkpoint, stop, until)
        if result.in_hand:
            # This run alone follows it: the tasks are a killed run's until the journal counts that as dead.
            await until_set(stop, self.settings.journal_lease_s)
            result = await self._sampled(checkpoint, stop, until)
        _, rest_s = self._retries.pop(checkpoint.name, (0.0, RETRY_S))
        if key in result.given_up or result.in_hand:
            self._retries[checkpoint.name] = (asyncio.get_running_loop().time() + rest_s, 3 * rest_s)
        samples = await self._samples(stop, until)
        curve = _curve_of(samples)
        if result.stopped_by.startswith(DRAINED):
            stop.set()
        if stop.is_set() and not self._is_whole(samples, key):
            return curve  # the next run continues with it
        point, why = curve.point(key), result.given_up.get(key, "")
        has_score = point is not None and point.mean is not None
        has_news = not has_score or _scored(samples, key) != scored  # else what it has was reported then
        self._failed.pop(checkpoint.name, None)
        if has_news and has_score and point is not None:
            self._evaluated[checkpoint.name] = None
            await self._tell(*_events_of(point))
        if why or not has_score:
            unread = f"{counted(len(self._damaged), 'part')} of the store cannot be read" if self._damaged else ""
            why = why or _last_error(samples, key) or unread or result.stopped_by
            self._failed[checkpoint.name] = why
            await self._tell(CheckpointFailed(key, checkpoint.step, checkpoint.path, why))
            self.folder.look_again(checkpoint)
        if has_news and self.on_curve is not None:
            await self.on_curve(curve, point)
        return curve

    async def _sampled(self, checkpoint: Checkpoint, stop: asyncio.Event, until: float) -> RunResult:
        """Take samples that are not in the store; try again while a journal that was opened before cannot be."""
        while True:
            try:
                result = await run_campaign(
                    self.settings,
                    roster=self.order.roster(checkpoint),
                    store=self.store,
                    instances=self.order.instances,
                    judge=self.judge,
                    **self.watch,
                )
            except JournalError as error:
                await self._rest(error, "the journal", stop if self._was_sampled else None, until)
            else:
                self._was_sampled = True
                self._away.clear()
                return result

    async def _rest(self, error: HeadgateError, place: str, stop: asyncio.Event | None, until: float) -> None:
        """Report an error once and wait before the next attempt; raise it instead if there is to be none."""
        if stop is None or stop.is_set() or asyncio.get_running_loop().time() >= until:
            raise error
        if place not in self._away:
            self._away.add(place)
            await self._tell(CheckpointsUnread(place, error.message))
        await until_set(stop, RETRY_S)

    async def _samples(self, stop: asyncio.Event | None = None, until: float = -math.inf) -> pl.DataFrame:
        """Return this campaign's samples of this model's checkpoints, on the tasks of the order.

        While the store cannot be read, try again until `stop` or the event loop's time `until`; then raise StoreError.
        A part that is damaged is left out, and reported once.
        """
        columns = [*LEADERBOARD_COLUMNS, "campaign", "sequence", "error"]
        while True:
            try:
                scan = await self.store.scan(columns=columns)
                self._away.discard(self.store.url)
                break
            except StoreError as error:
                await self._rest(error, self.store.url, stop, until)
        if new := [one for one in scan.problems if one.path not in self._damaged]:
            self._damaged |= {one.path for one in new}
            await self._tell(*(CheckpointsUnread(one.path, f"its samples are left out: {one.reason}") for one in new))
        ours = pl.col("model").str.starts_with(f"{self.order.model_name}@")
        return self.tasks.of(scan.frame.filter(pl.col("campaign") == self.settings.campaign, ours))

    def _is_whole(self, samples: pl.DataFrame, model: str) -> bool:
        """Return whether a checkpoint has a score for each of its tasks."""
        ours = samples.filter(pl.col("model") == model, pl.col("score").is_not_null())
        return ours.select("environment", "sequence").n_unique() >= len(self.tasks.lengths) * self.tasks.size

    async def _tell(self, *events: Event) -> None:
        """Send events to the log and to the sinks in the settings, and their notices."""
        async with AsyncExitStack() as stack:
            stream = EventStream(SystemClock(), [LogSink()])
            observe(stack, stream, self.settings.model_copy(update={"trace_file": ""}), new_run_id())
            for event in events:
                stream.emit(event)
                self.notices.tell(event)


def _curve_of(samples: pl.DataFrame) -> CheckpointCurve:
    """Return the curve of all checkpoints with samples, including those whose files are gone."""
    models = samples["model"].unique().to_list()
    steps = {model: step_of(model.partition("@")[2]) for model in models}
    return build_curve(samples, {model: step for model, step in steps.items() if step is not None})


def _scored(samples: pl.DataFrame, model: str) -> int:
    return samples.filter(pl.col("model") == model)["score"].count()


def _last_error(samples: pl.DataFrame, model: str) -> str:
    told = samples.filter(pl.col("model") == model, pl.col("error").is_not_null()).sort("finished_at")["error"]
    return str(told[-1]) if len(told) else ""


def _events_of(point: CheckpointScore) -> list[Event]:
    assert point.mean is not None
    assert point.missing is not None
    mean, counts, made = point.mean, point.missing, point.difference
    against = point.versus.against if point.versus is not None else ""
    apart = (made.difference, made.low, made.high) if made is not None else (None, None, None)
    told: list[Event] = [
        CheckpointScored(
            point.model, point.step, mean.mean, mean.low, mean.high, counts.scored, counts.samples, against, *apart
        )
    ]
    if point.is_regression and made is not None:
        told.append(CheckpointRegressed(point.model, point.step, against, made.difference, made.low, made.high))
    return told
