"""A run's answers about itself: where a task is, its open tasks, its health, its capacity plan."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from headgate.config import Settings
from headgate.core import Model, Task, TaskId, events
from headgate.core.errors import NotFoundError
from headgate.core.events import CapacityPlan, CapacitySource, CapacityValue, HealthReported, RequestKeyHealth
from headgate.core.status import RateStatus, RequestStatus
from headgate.run.dispatch import JOBS, JUDGE, SEATS, WORKERS
from headgate.run.outside_workers import Executor
from headgate.run.parts import Parts
from headgate.run.request_side import DAILY_BUDGET, ENGINE
from headgate.run.rows import Row
from headgate.run.settlement import Settling
from headgate.run.stages import Stages
from headgate.sampling import ModelSampler
from headgate.scheduling import DispatchLoop, Explanation
from headgate.storage import TaskState, control_words
from headgate.telemetry import Handler, Recorded

CAPACITY_SETTINGS: Final = (
    "num_evaluation_workers",
    "queue_max_size",
    "queue_pause_threshold",
    "queue_resume_threshold",
    "batch_size",
    "sink_batch_size",
    "request_timeout_s",
    "request_attempts",
    "request_queue_wait_s",
    "retry_budget",
    "limit_law",
    "startup_ramp_seconds",
    "cooldown_seconds",
    "task_admission",
    "group_cap",
    "borrow_ceiling",
    "borrow_reserve",
)
"""The settings that limit how much runs at once."""

MAX_NAMED: Final = 100
"""The most models, and the most request keys, that a plan names; `left_out` counts the others."""

_DEFAULT_PARALLEL: Final = next(field.default for field in fields(Model) if field.name == "max_parallel")


@dataclass(slots=True)
class CapacityPeaks:
    """Peak use of each resource since a campaign started. Owned by the campaign."""

    workers: int = 0
    queued: int = 0
    buffered: int = 0
    spooled: int = 0


def capacity_plan(
    settings: Settings,
    models: Iterable[Model],
    requests: Sequence[RequestStatus] = (),
    *,
    workers_busy: int | None = None,
    queued: int | None = None,
    peaks: CapacityPeaks | None = None,
) -> CapacityPlan:
    """Return the capacity plan; if no campaign runs, values in force and observed peaks are marked as missing."""
    listed = sorted(models, key=lambda model: model.key)
    configured = {name: _setting(settings, name) for name in CAPACITY_SETTINGS}
    configured |= {f"max_parallel {model.key}": _max_parallel(model) for model in listed[:MAX_NAMED]}
    keys = list(requests[:MAX_NAMED])
    runtime = {
        "workers": CapacityValue(settings.num_evaluation_workers, CapacitySource.RUNTIME),
        "workers_busy": _seen(workers_busy),
        "queued": _seen(queued),
    }
    for key in keys:
        runtime[f"cap {key_name(key)}"] = CapacityValue(key.cap, CapacitySource.RUNTIME)
        # A limit that has learnt nothing yet equals the cap.
        fallback = None if key.last_outcome else f"cap {key_name(key)}"
        runtime[f"limit {key_name(key)}"] = CapacityValue(key.limit, CapacitySource.RUNTIME, fallback_from=fallback)
        for rate in key.rates:
            told = source_of_rate(rate).removeprefix(", ")
            runtime[f"{rate.unit} {rate.scope}"] = CapacityValue(rate.limit, CapacitySource.RUNTIME, told)
    observed = _observed(peaks, keys)
    return CapacityPlan(configured, runtime, observed, max(0, len(listed) - MAX_NAMED) + len(requests) - len(keys))


def source_of(origin: str) -> tuple[CapacitySource, str]:
    """Return the source that a setting's origin names, and its detail: the variable or the file."""
    kind, _, detail = origin.partition(" ")
    return CapacitySource("environment" if kind == "env" else kind), detail


def _setting(settings: Settings, name: str) -> CapacityValue:
    source, detail = source_of(settings.origin_of(name))
    value = getattr(settings, name)
    if name == "borrow_ceiling" and not value:
        ceiling = int(settings.num_evaluation_workers * (1 - settings.borrow_reserve))
        return CapacityValue(ceiling, source, detail, fallback_from=name)
    if value is None:
        return CapacityValue(None, source, detail, missing_reason="not limited")
    return CapacityValue(value, source, detail)


def _max_parallel(model: Model) -> CapacityValue:
    if model.max_parallel == _DEFAULT_PARALLEL:
        return CapacityValue(model.max_parallel, CapacitySource.MODEL, fallback_from="roster")
    return CapacityValue(model.max_parallel, CapacitySource.ROSTER)


def _seen(value: int | None) -> CapacityValue:
    reason = None if value is not None else "no campaign runs"
    return CapacityValue(value, CapacitySource.RUNTIME, missing_reason=reason)


def _observed(peaks: CapacityPeaks | None, keys: Sequence[RequestStatus]) -> Mapping[str, CapacityValue]:
    seen = {one.name: _seen(None if peaks is None else getattr(peaks, one.name)) for one in fields(CapacityPeaks)}
    for key in keys:
        seen[f"in_flight {key_name(key)}"] = CapacityValue(key.peak_in_flight, CapacitySource.RUNTIME)
        seen[f"waiters {key_name(key)}"] = CapacityValue(key.peak_waiters, CapacitySource.RUNTIME)
    return seen


def key_name(key: RequestStatus) -> str:
    """Return a request key's name in plans and reports."""
    words = (key.provider, key.model) if key.domain == "chat" else (key.provider, key.model, key.domain)
    return " ".join(words)


TOP_GROUPS: Final = 20
TOP_KEYS: Final = 50
"""Groups and request keys that a report names; the others are only counted, to keep a report at a few kilobytes."""


def _largest(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(heapq.nlargest(TOP_GROUPS, counts.items(), key=lambda pair: pair[1]))


def _key_health(key: RequestStatus, now: float) -> RequestKeyHealth:
    return RequestKeyHealth(
        key=key_name(key),
        limit=key.limit,
        in_flight=key.in_flight,
        waiters=key.waiters,
        closed_by=key.pressure,
        closed_until=now + key.cooldown_s if key.cooldown_s else None,
    )


_UNKNOWN: Final = "unknown"
_UNSCORED_MENTIONED: Final = 3
"""Answers mention samples without a score once there are this many in a row."""

_STARTED: Final = frozenset({"running", "parked"})


class Inquiry:
    """Answers questions about one run. Owned by it; asking changes nothing, and rarely reads the journal.

    It also listens to the run's events (as a `Sink`) to record peak use.
    """

    def __init__(
        self,
        parts: Parts,
        stages: Stages,
        loop: DispatchLoop,
        judge: Model | None,
        settling: Settling,
        *,
        run_id: str,
        state: Callable[[], str],
        spooled: Callable[[], int],
        is_accepting: Callable[[str], bool],
        outside: Executor | None = None,
    ) -> None:
        """Prepare to answer; `is_accepting` says whether a task's sample is being made durable."""
        self._parts = parts
        self._stages = stages
        self._loop = loop
        self._judge = judge
        self._settling = settling
        self._run_id = run_id
        self._state = state
        self._spooled = spooled
        self._is_accepting = is_accepting
        self._outside_workers = outside
        self.peaks = CapacityPeaks()
        self.handlers: Mapping[type[events.Event], Handler] = {
            events.TaskStarted: self._task_started,
            events.TasksEnqueued: self._tasks_enqueued,
            events.SampleAccepted: self._sample_accepted,
        }

    # Questions.

    async def explain(self, task_id: str) -> Explanation:
        """Return where a task, or one stage of it, is, which gate holds it, why, and until when.

        Raises:
            NotFoundError: if neither the run nor its journal has it open: it is stored, or never existed.
        """
        key = TaskId(task_id)
        row = self._stages.row_of(key)
        found = self._with_seats(self._with_budget(self._why(key))) if row is None else self._staged(key, row)
        if found.gate == ENGINE:
            return await self._with_engine(found, row)
        if found.state != _UNKNOWN:
            return self._with_requests(found, row, key)
        return self._outside(key) or await self._journaled(key)

    async def about(self, task_id: str) -> dict[str, Any]:
        """Return what `explain` does as JSON values, plus model, environment and sequence if the task is open."""
        task = next((one for _, one in self.open_tasks() if one.task_id == task_id), None)
        named = {name: getattr(task, name) for name in ("model", "environment", "sequence") if task is not None}
        return asdict(await self.explain(task_id)) | named

    def open_tasks(self) -> Iterator[tuple[str, Task]]:
        """Yield each open task of the journal with its state: running, queued, batch, paused or buffered."""
        stages, dispatcher = self._stages, self._parts.dispatcher
        rows = stages.rows()
        staged = {stage_id for row in rows for stage_id in row.stage_ids}
        yield from (("running", row.task) for row in rows if self._has_lease(row))
        running = (granted.task for granted in dispatcher.running.values())  # from its grant on, begun or not
        yield from (("running", task) for task in running if task.task_id not in staged)
        yield from (("queued", row.task) for row in rows if not self._has_lease(row))
        yield from (("queued", task) for task in dispatcher.queue.items() if task.task_id not in staged)
        yield from (("queued", task) for task in self._loop.retries.waiting() if task.task_id not in staged)
        yield from (("batch", task) for task in self._loop.held.values() if task.task_id not in staged)
        yield from (("paused", task) for task in dispatcher.aside.values() if task.task_id not in staged)
        yield from (("buffered", task) for task in self._parts.batches.items())
        yield from (("buffered", task) for task in stages.waiting_tasks())

    def tasks(self, model: str | None, environment: str | None, limit: int) -> list[Mapping[str, Any]]:
        """Return at most `limit` open tasks, running ones first, then by due time."""
        chosen = (
            (state, task)
            for state, task in self.open_tasks()
            if model in (None, task.model) and environment in (None, task.environment)
        )
        first = heapq.nsmallest(limit, chosen, key=lambda pair: (pair[0] != "running", pair[1].due_at))
        return [_listed(state, task) for state, task in first]

    def next_due(self, model: str, environment: str) -> Explanation | None:
        """Return when a pair without open tasks gets its next one, or why it gets none; None if it is not sampled."""
        sampler = self._parts.samplers.get(model)
        if sampler is None or environment not in self._parts.environments:
            return None
        gate, reason, until = self._holds_all() or self._not_due(sampler, environment)
        name = TaskId(f"the next task of {model} in {environment}")
        return Explanation(name, "not due", gate, reason + _failing(sampler), until)

    def _holds_all(self) -> tuple[str, str, None] | None:
        """Return the gate that keeps everything from falling due, and why; None if there is none."""
        if self._parts.stopping.is_set():
            return "draining", "the run finishes what is in progress and starts nothing new", None
        problem = self._parts.journal.problem
        return ("journal", f"the journal cannot be written: {problem}", None) if problem else None

    def _not_due(self, sampler: ModelSampler, environment: str) -> tuple[str, str, float | None]:
        """Return the gate that keeps a pair from falling due, why, and until when."""
        parts, model, pause = self._parts, sampler.model.key, sampler.pause
        if (control := parts.controls.pause_of(model, environment)) is not None:
            return "paused", control_words(control), None
        if why := self._settling.why_left(model, environment):
            return "settled", f"it gets no further sample: {why}", None
        stop = None if parts.requests is None else parts.requests.budgets.stop_of(model)
        if stop is not None:
            return DAILY_BUDGET, stop.reason, stop.until
        if pause.is_paused(parts.now()):
            return "model_pause", f"model {model} is paused for errors (pause {pause.level})", pause.paused_until
        if parts.provider is not parts.local:
            is_dry = parts.provider.next_at(parts.now()) is None
            gives = "has no further task for it" if is_dry else "has not given its next task yet"
            return "source", f"all its due samples are done, and the run's source {gives}", None
        due_at, is_full = sampler.next_due(environment), parts.backpressure.is_paused
        if is_full or due_at is None:
            enough = "no sample falls due while enough wait for the judge, outside workers or the model's engine"
            return "backpressure", self._held_back() if is_full else enough, None
        rate = sampler.rate_per_day(environment)
        return "rate", f"all its due samples are done; it is sampled {rate:,.6g} times a day", due_at

    def _held_back(self) -> str:
        """Say how full the ready queue is, and at what size it resumes."""
        size, resume_at = self._parts.backlog(), self._parts.backpressure.resume_at
        return f"the ready queue is paused: it has {size} tasks and resumes at {resume_at}"

    def due(self) -> tuple[int, str]:
        """Return how many samples of models that are not paused are due, and what most likely holds them up."""
        parts, dispatcher = self._parts, self._parts.dispatcher
        lanes = [lane for lane in dispatcher.lanes.values() if lane.held_until is None]
        due = sum(lane.queued + lane.in_flight for lane in lanes)
        if parts.journal.problem:
            return max(due, 1), f"the journal cannot be written: {parts.journal.problem}"
        if in_flight := sum(lane.in_flight for lane in lanes):
            return due, f"{in_flight} are in progress and do not finish"
        return due, "none of them starts: `headgate why` says what they wait for"

    def health(self) -> HealthReported:
        """Return the run's main counts: O(models), independent of the queue's length; bounded in size."""
        parts, dispatcher, stages, judge = self._parts, self._parts.dispatcher, self._stages, self._judge
        workers, now, requests = stages.figures.status(parts.now()), parts.now(), self.requests()
        queued = {model: lane.queued for model, lane in dispatcher.lanes.items() if lane.queued}
        models = [*parts.samplers, *([judge.key] if judge is not None else ())]
        in_flight = {model: count for model in models if (count := dispatcher.in_flight(model))}
        named = _largest(queued), _largest(in_flight)
        keys = heapq.nlargest(TOP_KEYS, requests, key=lambda r: (r.waiters, r.pressure is not None, r.in_flight))
        in_queue = len(dispatcher.queue) + len(dispatcher.aside) + dispatcher.in_flight()
        return HealthReported(
            campaign=parts.settings.campaign,
            run_id=self._run_id,
            state=self._state(),
            workers=workers.total,
            active=workers.active,
            queued=len(dispatcher.queue),
            buffered=parts.batches.size + stages.pending,
            # With a judge, one task of the journal is several of the dispatcher's.
            open_tasks=in_queue + parts.batches.size if judge is None else sum(1 for _ in self.open_tasks()),
            spooled=self._spooled(),
            leases=len(dispatcher.book.live),
            passed_over=dispatcher.pressure.pass_overs,
            frontier_target=self._loop.frontier.target if judge is not None else None,
            queued_by_group=named[0],
            in_flight_by_group=named[1],
            groups_left_out=len(queued) + len(in_flight) - len(named[0]) - len(named[1]),
            resources={
                name: (dispatcher.book.in_use.get(name, 0), limit) for name, limit in dispatcher.book.limits.items()
            },
            requests=tuple(_key_health(key, now) for key in keys),
            requests_left_out=len(requests) - len(keys),
        )

    def capacity(self) -> CapacityPlan:
        """Return the capacity plan; a judge is one of its models."""
        parts = self._parts
        return capacity_plan(
            parts.settings,
            [*(sampler.model for sampler in parts.samplers.values()), *([self._judge] if self._judge else ())],
            self.requests(),
            workers_busy=self._busy(),
            queued=len(parts.dispatcher.queue),
            peaks=self.peaks,
        )

    def requests(self) -> tuple[RequestStatus, ...]:
        """Return the status of every request key."""
        requests = self._parts.requests
        return () if requests is None else requests.status()

    def _busy(self) -> int:
        """Return how many workers are in use; parked episodes have lent theirs to others."""
        return self._parts.dispatcher.book.in_use.get(WORKERS, 0)

    # Peak use.

    def close(self) -> None:
        """Do nothing; a `Sink` can be closed."""

    def _task_started(self, _: Recorded[events.TaskStarted]) -> None:
        self.peaks.workers = max(self.peaks.workers, self._busy())

    def _tasks_enqueued(self, recorded: Recorded[events.TasksEnqueued]) -> None:
        peaks = self.peaks
        peaks.queued = max(peaks.queued, recorded.event.queued)
        peaks.buffered = max(peaks.buffered, self._parts.batches.size)

    def _sample_accepted(self, _: Recorded[events.SampleAccepted]) -> None:
        self.peaks.spooled = max(self.peaks.spooled, self._spooled())

    # Where a task may be.

    def _staged(self, task_id: TaskId, row: Row) -> Explanation:
        """Return what the loop knows of a stage; if it waits for an earlier stage, what holds that one up."""
        found = self._why(task_id)
        if found.gate != "dependency":
            return found
        for stage_id in row.stage_ids:
            before = self._why(stage_id)
            if before.state not in (_UNKNOWN, "waiting"):
                before = self._with_requests(before, row, stage_id)
                stage = self._stages.stage_of(stage_id)
                failed = (one for each in self._stages.rows() if stage == JUDGE for one in each.problems.values())
                last = next((f"; a judgement has failed: {one}" for one in failed), "")
                reason = f"its {stage} is {before.state}: {before.reason}{last}"
                gate = found.gate if before.gate == "none" else before.gate
                return replace(before, task_id=task_id, state=found.state, gate=gate, reason=reason)
        return found

    def _with_requests(self, found: Explanation, row: Row | None, task_id: TaskId) -> Explanation:
        """Add what the requests of a task in progress wait for."""
        outside = self._outside_workers
        if outside is not None and found.gate == JOBS:
            reason = outside.problem or f"outside workers have as many samples as they can take ({found.reason})"
            return replace(found, gate="jobqueue", reason=reason)
        if found.state not in _STARTED:
            return found
        if outside is not None and (place := outside.place_of(task_id)):
            return replace(found, gate="jobqueue", reason=place)
        if self._judge is not None and self._stages.stage_of(task_id) == JUDGE:
            model = self._judge.key
        else:
            row = row or self._stages.in_progress(task_id)
            if row is None:
                return found
            model = row.model.key
            if (sampler := self._parts.samplers.get(model)) is not None:
                found = replace(found, reason=found.reason + _failing(sampler))
            requests = self._parts.requests
            if requests is not None and requests.batches is not None:
                words = requests.batches.why_now(row.model, row.task)
                found = replace(found, reason=f"{found.reason}; {words}") if words else found
        return with_requests(found, model, self.requests(), self._parts.now())

    def _with_budget(self, found: Explanation) -> Explanation:
        """Say how much of its daily budget a model has used, if that holds a queued task up."""
        task = self._parts.dispatcher.queue.item(found.task_id) if found.state != _UNKNOWN else None
        if self._parts.requests is None or task is None or found.gate != DAILY_BUDGET:
            return found
        stop = self._parts.requests.budgets.stop_of(task.model)
        return found if stop is None else replace(found, reason=stop.reason, until=stop.until)

    def _why(self, task_id: TaskId) -> Explanation:
        """Return what the loop knows of a task, and who paused it, if it is paused."""
        found, task = self._loop.why(task_id), self._parts.dispatcher.aside.get(task_id)
        if found.gate == "batch" and self._parts.requests is not None and self._parts.requests.batches is not None:
            return replace(found, reason=self._parts.requests.batches.why(task_id) or found.reason)
        return found if task is None else replace(found, reason=self._paused_words(task))

    def _paused_words(self, task: Task) -> str:
        """Say who paused a task's model, environment or run, since when, and why."""
        pause = self._parts.controls.pause_of(task.model, task.environment)
        return "it is paused" if pause is None else control_words(pause)

    def _with_seats(self, found: Explanation) -> Explanation:
        """Say what a queued task waits for if it needs an environment host and none has a free seat."""
        hosts, dispatcher = self._parts.hosts, self._parts.dispatcher
        if hosts is None or found.gate != "no_capacity" or dispatcher.book.available(SEATS):
            return found
        task = dispatcher.queue.item(found.task_id)
        is_seated = task is not None and SEATS in task.resources
        return replace(found, gate=SEATS, reason=hosts.held_by()) if is_seated else found

    async def _with_engine(self, found: Explanation, row: Row | None) -> Explanation:
        """Say what the engine of a queued task's model is doing or waiting for."""
        requests, task = self._parts.requests, self._parts.dispatcher.queue.item(found.task_id)
        model = row.task.model if row is not None else task.model if task is not None else ""
        if requests is None or requests.engines is None or not (why := await requests.engines.why(model)):
            return found
        return replace(found, reason=why)

    def _outside(self, task_id: TaskId) -> Explanation | None:
        """Return where a task is that has not reached the ready queue, or whose sample waits for the journal."""
        parts = self._parts
        if self._is_accepting(task_id):
            if why := parts.journal.problem:
                return Explanation(task_id, "accepting", "journal", f"the journal cannot be written: {why}")
            return Explanation(task_id, "accepting", "none", "its sample is being written to the journal")
        held = [*self._stages.waiting_tasks(), *parts.batches.items()] if parts.controls.pauses else ()
        if (
            task := next((one for one in held if one.task_id == task_id and parts.controls.is_aside(one)), None)
        ) is not None:
            return Explanation(task_id, "open", "paused", self._paused_words(task))
        if self._stages.row_of(task_id) or any(task.task_id == task_id for task in self._stages.waiting_tasks()):
            reason = "it is not open yet: samples are opened as the workers and the judge have room"
            return Explanation(task_id, "open", "frontier", reason)
        if not any(task.task_id == task_id for task in parts.batches.items()):
            return None
        if parts.backpressure.is_paused:
            return Explanation(task_id, "buffered", "backpressure", self._held_back())
        reason = f"its sampler's buffer enters the queue at {parts.settings.batch_size} tasks or when its time is up"
        return Explanation(task_id, "buffered", "batch", reason, parts.batches.next_at())

    async def _journaled(self, task_id: TaskId) -> Explanation:
        """Return where a task is that only the journal has."""
        journal, settings = self._parts.journal, self._parts.settings
        state = await journal.call(journal.journal.state_of, task_id)
        if state is TaskState.SPOOLED:
            reason = (
                f"its sample is durable and waits for its batch: stored at {settings.sink_batch_size} samples, "
                f"or {settings.sink_max_wait:g} s after the oldest of them"
            )
            return Explanation(task_id, "spooled", "batch", reason)
        if state is TaskState.UNKNOWN:
            raise NotFoundError(
                f"task {task_id} is not open in campaign {settings.campaign}",
                next_step="Its sample may be stored: `headgate why` looks there, too.",
            )
        reason = "another process of this journal holds it, or will take it over when this one looks again"
        return Explanation(task_id, str(state), "holder", reason)

    def _has_lease(self, row: Row) -> bool:
        return any(self._parts.dispatcher.lease_of(stage_id) is not None for stage_id in row.stage_ids)


def with_requests(found: Explanation, model: str, requests: Sequence[RequestStatus], now: float) -> Explanation:
    """Return the explanation of a running task, extended by what its model's requests wait for, if they do.

    A provider that is merely full does not hold running tasks up: their requests are the ones in flight.
    """
    keys = (key for key in requests if model in key.models)
    pressed = next((key for key in keys if key.waiters or key.cooldown_s), None)
    if pressed is None:
        return found
    told = f"{pressed.in_flight} of {pressed.limit} requests of its model in flight, {pressed.waiters} wait"
    scarce = min((rate for rate in pressed.rates if rate.unit == pressed.pressure), key=lambda r: r.left, default=None)
    whose = f" of its {scarce.scope}{source_of_rate(scarce)}" if scarce is not None else ""
    closed = f" ({pressed.pressure}{whose})" if pressed.pressure else ""
    until = now + pressed.cooldown_s if pressed.cooldown_s else None
    gate = "request_admission" if found.gate == "none" else found.gate
    return replace(found, gate=gate, reason=f"{found.reason}; {told}{closed}", until=found.until or until)


def source_of_rate(rate: RateStatus) -> str:
    """Return how a limit per minute was learnt; empty if it was stated, or told by the provider."""
    return f", learnt from refusals{' of other processes' * rate.is_heard}" if rate.is_learnt else ""


def _failing(sampler: ModelSampler) -> str:
    """Return the last error of a model that is paused for errors or gets no scores, as the end of a sentence."""
    is_unscored = sampler.unscored >= _UNSCORED_MENTIONED
    if sampler.last_error is None or not (is_unscored or sampler.pause.paused_until is not None):
        return ""
    counted = f"none of its model's last {sampler.unscored} samples has a score, " if is_unscored else ""
    return f"; {counted}the last error: {sampler.last_error[1]}"


def _listed(state: str, task: Task) -> Mapping[str, Any]:
    """Return an open task as the monitoring API lists it."""
    return {
        "task_id": task.task_id,
        "state": state,
        "model": task.model,
        "environment": task.environment,
        "sequence": task.sequence,
        "stage": task.stage,
        "due_at": task.due_at,
        "attempt": task.attempt,
    }
