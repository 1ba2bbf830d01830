"""The checkpoints of a training, evaluated one after the other as they appear, each on the same tasks."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Unpack

import polars as pl

from headgate.config import Settings
from headgate.core import Model, SystemClock, new_run_id, until_set
from headgate.core.errors import InvalidInputError, StoreError
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
from headgate.durable.locks import FileLock, LockHeldError
from headgate.elastic.service import Machine
from headgate.reports import (
    LEADERBOARD_COLUMNS,
    CheckpointCurve,
    CheckpointScore,
    build_curve,
    curve_document,
    step_of,
)
from headgate.run.assembly import Watch, run_campaign
from headgate.run.checkpoints import SETTLE_FOLDER_S, Checkpoint, CheckpointFolder, revision_of
from headgate.run.controls import DRAINED
from headgate.run.environments import sampled_environments
from headgate.run.matrix import MatrixTasks
from headgate.run.observers import observe
from headgate.sampling import RosterSource, mapped_roster
from headgate.storage import SampleStore, sample_store
from headgate.telemetry import EventStream, LogSink

if TYPE_CHECKING:
    from headgate.durable.postgres import PostgresLock
    from headgate.run.status import RunResult

LOOK_EVERY_S: Final = 0.5
LOOK_EVERY_REMOTE_S: Final = 2.0
"""A listing of a bucket is a request that costs."""

RETRY_S: Final = 60.0
"""A checkpoint that was given up is tried again after so long, and then three times as long each time: what kept its
engine from starting may be no fault of its own, such as a cluster that was away."""

OnCurve = Callable[[CheckpointCurve, CheckpointScore | None], Awaitable[None]]
"""Told of the curve and its new checkpoint, None at the start."""


@dataclass(frozen=True, slots=True)
class FollowOrder:
    """What is followed, and how each checkpoint is evaluated.

    Attributes:
        place: folder or `s3://bucket/prefix` in which the training writes.
        serve: how each checkpoint is served: a roster entry's `serve` without its weights.
        instances: tasks per environment, the same for every checkpoint.
        name: of the model; the folder's when empty. A checkpoint is a revision of it.
        pattern: that names of checkpoints match, with `*` and `?`.
        marker: file that says that one is whole; empty goes by sizes.
        newest: so many are evaluated, the older ones left out.
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
        """Return a checkpoint as the only model of a roster.

        Raises:
            InvalidRosterError: if `serve` or `entry` break a rule of rosters.
        """
        served = {"serve": {**self.serve, "weights": checkpoint.path}}
        return mapped_roster({self.model_name: {**self.entry, "revision": checkpoint.name, **served}})


@dataclass(frozen=True, slots=True)
class FollowResult:
    """What a run that follows checkpoints did.

    Attributes:
        curve: of all checkpoints that have samples, those of earlier runs included.
        evaluated: revisions that this run evaluated, in order.
        failed: revisions without a score, and why.
        skipped: checkpoints that were left out for newer ones.
        stopped_by: why it ended.
    """

    curve: CheckpointCurve
    evaluated: tuple[str, ...]
    failed: Mapping[str, str]
    skipped: int
    stopped_by: str

    def document(self) -> dict[str, Any]:
        """Return it as JSON values, as `--json` and the flow tell it."""
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
    """Evaluate each checkpoint once it is whole, oldest first, until stopped; return what was done.

    Each is a fixed matrix of environments × instances, and so the same tasks for all; what the store has is not sampled
    again. One that gets no score is told of and left behind, and looked at again when its files change.

    Args:
        settings: of the campaign; its roster is not read.
        order: what to follow.
        until_idle: end when every checkpoint that is whole has been evaluated.
        duration_s: end after so long, when the checkpoint in progress is done; None until stopped.
        store: in place of the one that the settings name.
        judge: who reads answers that need it.
        on_curve: told of every new checkpoint; what it raises ends the run.
        environ: where keys of buckets come from.
        **watch: who follows each evaluation; see `Watch`.

    Raises:
        InvalidInputError: if the folder is not there, another run follows it for this campaign, or the order cannot
            be carried out.
        HeadgateError: if something that was given cannot be used; nothing was started then.
    """
    for name in ("newest", "instances"):
        if (given := getattr(order, name)) < 1:
            raise InvalidInputError(f"{name} must be >= 1 (got {given})")
    order.roster(Checkpoint(0, "0", "/", 0))
    store = store if store is not None else sample_store(settings)
    environments = sampled_environments(settings, judge)
    folder = CheckpointFolder(order.place, pattern=order.pattern, marker=order.marker, environ=environ)
    machine = Machine(keeps_engines=True)
    watch["engine_hosts"] = watch.get("engine_hosts") or machine
    tasks = MatrixTasks.among(environments, order.instances, settings.repeats)
    with closing(folder), closing(_Sole(settings, order)) as sole:
        sole.take()
        follower = _Follower(settings, order, store, judge, tasks, watch, folder, sole, on_curve)
        stop = watch.get("stop") or asyncio.Event()
        try:
            return await follower.run(until_idle=until_idle, duration_s=duration_s, stop=stop)
        finally:
            await machine.close()


@dataclass(slots=True)
class _Follower:
    """The loop over checkpoints, each of which is evaluated on the same tasks. Owned by one run."""

    settings: Settings
    order: FollowOrder
    store: SampleStore
    judge: Model | None
    tasks: MatrixTasks
    watch: Watch
    folder: CheckpointFolder
    sole: _Sole
    on_curve: OnCurve | None
    _tried: dict[str, Checkpoint] = field(default_factory=dict)
    _retries: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When what was given up is tried again, and how long it rests if it is given up then."""
    _failed: dict[str, str] = field(default_factory=dict)
    _evaluated: list[str] = field(default_factory=list)
    _skipped: set[str] = field(default_factory=set)
    _was_read: bool = False
    _is_unread: bool = False

    async def run(self, *, until_idle: bool, duration_s: float | None, stop: asyncio.Event) -> FollowResult:
        now = asyncio.get_running_loop().time
        began = now()
        every_s = LOOK_EVERY_REMOTE_S if self.folder.is_remote else LOOK_EVERY_S
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
                curve = await self._evaluate(due, stop)
            elif until_idle and (not self.folder.watch.is_settling or now() - began > SETTLE_FOLDER_S + every_s):
                stopped_by = await asyncio.to_thread(self._nothing_left)
                break
            else:
                await until_set(stop, every_s)
        return FollowResult(curve, tuple(self._evaluated), dict(self._failed), len(self._skipped), stopped_by)

    async def _whole(self, now: float, *, can_wait: bool) -> list[Checkpoint]:
        """Return the checkpoints that are whole; none, told once, while what was read is away."""
        try:
            await asyncio.to_thread(self.sole.take)
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
        """Return the oldest of the newest checkpoints that was not tried as it is, else one that is to be tried again.

        Those that are left out are told of.
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

    async def _evaluate(self, checkpoint: Checkpoint, stop: asyncio.Event) -> CheckpointCurve:
        """Evaluate a checkpoint, unless its scores are there; tell and return the curve with it."""
        key = f"{self.order.model_name}@{checkpoint.name}"
        self._tried[checkpoint.name] = checkpoint
        samples = await self._samples()
        if self._is_whole(samples, key):
            return _curve_of(samples)
        await self._tell(CheckpointFound(key, checkpoint.step, checkpoint.path, checkpoint.size_bytes))
        scored = _scored(samples, key)
        result = await self._sampled(checkpoint)
        if result.in_hand:
            # Nobody else follows it: a run has them that was killed, until the journal counts it as dead.
            await until_set(stop, self.settings.journal_lease_s)
            result = await self._sampled(checkpoint)
        _, rest_s = self._retries.pop(checkpoint.name, (0.0, RETRY_S))
        if key in result.given_up or result.in_hand:
            self._retries[checkpoint.name] = (asyncio.get_running_loop().time() + rest_s, 3 * rest_s)
        samples = await self._samples()
        curve = _curve_of(samples)
        if result.stopped_by.startswith(DRAINED):
            stop.set()
        if stop.is_set() and not self._is_whole(samples, key):
            return curve  # the next run goes on with it
        point = curve.point(key)
        if point is None or point.mean is None:
            why = result.given_up.get(key) or _last_error(samples, key) or result.stopped_by
            self._failed[checkpoint.name] = why
            await self._tell(CheckpointFailed(key, checkpoint.step, checkpoint.path, why))
            self.folder.look_again(checkpoint)
        elif _scored(samples, key) == scored:
            return curve  # what failed before has failed again, and all else was told of then
        else:
            self._evaluated.append(checkpoint.name)
            self._failed.pop(checkpoint.name, None)
            await self._tell(*_events_of(point))
        if self.on_curve is not None:
            await self.on_curve(curve, point)
        return curve

    async def _sampled(self, checkpoint: Checkpoint) -> RunResult:
        """Take the samples of a checkpoint that the store does not have."""
        return await run_campaign(
            self.settings,
            roster=self.order.roster(checkpoint),
            store=self.store,
            instances=self.order.instances,
            judge=self.judge,
            **self.watch,
        )

    async def _samples(self) -> pl.DataFrame:
        """Return the samples of this model's checkpoints in this campaign, on the tasks of the order."""
        columns = [*LEADERBOARD_COLUMNS, "campaign", "sequence", "error"]
        found = (await self.store.scan(columns=columns)).frame
        ours = pl.col("model").str.starts_with(f"{self.order.model_name}@")
        return self.tasks.of(found.filter(pl.col("campaign") == self.settings.campaign, ours))

    def _is_whole(self, samples: pl.DataFrame, model: str) -> bool:
        """Return whether a checkpoint has a score for each of its tasks."""
        ours = samples.filter(pl.col("model") == model, pl.col("score").is_not_null())
        return ours.select("environment", "sequence").n_unique() >= len(self.tasks.lengths) * self.tasks.size

    async def _tell(self, *events: Event) -> None:
        """Tell events to the log and to the sinks that the settings ask for."""
        async with AsyncExitStack() as stack:
            stream = EventStream(SystemClock(), [LogSink()])
            observe(stack, stream, self.settings.model_copy(update={"trace_file": ""}), new_run_id())
            for event in events:
                stream.emit(event)


def _curve_of(samples: pl.DataFrame) -> CheckpointCurve:
    """Return the curve of all checkpoints that have samples, also of those whose files are gone by now."""
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


class _Sole:
    """Makes a run the only one that follows a model for a campaign: on this machine, or of all that share a journal."""

    def __init__(self, settings: Settings, order: FollowOrder) -> None:
        self._what = f"the checkpoints of {order.model_name} are followed already in campaign {settings.campaign}"
        self._me = f"process {os.getpid()} on {socket.gethostname()}, which follows {order.place}"
        name = f"{settings.campaign}\0{order.model_name}"
        self._lock: FileLock | PostgresLock
        if isinstance(settings.journal, Path):
            digest = hashlib.sha256(name.encode()).hexdigest()[:16]
            self._lock = FileLock(settings.journal / f"follow-{digest}.lock")
        else:
            from headgate.durable.postgres import PostgresLock  # noqa: PLC0415 - of an optional extra

            self._lock = PostgresLock(settings.journal, f"headgate follow {name}")

    def close(self) -> None:
        """Let another one be it; legal also for who was none."""
        self._lock.give_back()

    def take(self) -> None:
        """Be the only one, or still be: what a database forgot when its connection was cut is taken again.

        Raises:
            InvalidInputError: if another one is.
            DatabaseAwayError: the database does not answer.
        """
        if isinstance(self._lock, FileLock) and self._lock.is_held:
            return
        try:
            self._lock.take(self._me)
        except LockHeldError as error:
            raise InvalidInputError(
                f"{self._what}, by {error.holder}",
                next_step="Stop that one first, or give this one another --name or --campaign.",
            ) from None
