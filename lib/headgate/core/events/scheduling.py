"""What happens between a task's demand and its result: queue, leases, workers, stages, frontier."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.events.event import Event

Units = tuple[tuple[str, int], ...]
"""Resource names with units, sorted by name."""


@dataclass(frozen=True, slots=True)
class SchedulerJobStarted(Event):
    """A scheduling run began; its shape, as far as it is known before it runs."""

    run_id: str
    resources: Units
    policy: str
    frontier_floor: int
    frontier_cap: int


@dataclass(frozen=True, slots=True)
class SchedulerJobCompleted(Event):
    """A scheduling run ended: what it did, and why it ended."""

    run_id: str
    stopped_by: str
    completed: int
    failed: int
    dropped: int
    retried: int
    row_groups: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SchedulerHealthSnapshot(Event):
    """How a scheduling run stands: units leased and wanted, rows open, what holds the frontier."""

    run_id: str
    queued: int
    running: int
    parked: int
    deferred: int
    waiting: int
    active_row_groups: int
    active_rows: int
    frontier_target: int
    leased: Units
    limits: Units
    queued_demand: Units
    blocked_by: str
    passed_over: int


@dataclass(frozen=True, slots=True)
class DependencyReady(Event):
    """The last task that a stage waited for has ended; the stage may be queued."""

    run_id: str
    task_id: str
    stage: str
    group: str
    trace_id: str


@dataclass(frozen=True, slots=True)
class ReadyEnqueued(Event):
    """A task entered the ready queue with the resources that it wants."""

    run_id: str
    task_id: str
    stage: str
    group: str
    model: str
    resources: Units
    queued: int
    trace_id: str


@dataclass(frozen=True, slots=True)
class RowGroupAdmitted(Event):
    """A row group was opened: its root tasks may be queued."""

    run_id: str
    row_group: str
    rows: int
    tasks: int
    active: int
    target: int


@dataclass(frozen=True, slots=True)
class RowGroupAdmissionBlocked(Event):
    """The frontier does not widen, and why; told when the reason changes."""

    run_id: str
    reason: str
    active: int
    target: int
    queued: int


@dataclass(frozen=True, slots=True)
class RowGroupAdmissionTargetChanged(Event):
    """The frontier's target of open row groups moved: up while capacity idles, down under sustained pressure."""

    run_id: str
    before: int
    after: int
    reason: str


@dataclass(frozen=True, slots=True)
class RowGroupCheckpointed(Event):
    """Every task of a row group has ended; its rows are complete or given up."""

    run_id: str
    row_group: str
    completed: int
    failed: int
    dropped: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskSelected(Event):
    """A task was chosen to run next."""

    run_id: str
    task_id: str
    group: str
    model: str
    trace_id: str


@dataclass(frozen=True, slots=True)
class QueueEmpty(Event):
    """The dispatcher looked for a task and none was ready; told once until one is."""

    run_id: str
    running: int


@dataclass(frozen=True, slots=True)
class AdmissionBlocked(Event):
    """Tasks are ready and none of them can run, and why; told when the reason changes."""

    run_id: str
    reason: str
    detail: str
    queued: int


@dataclass(frozen=True, slots=True)
class GroupCapped(Event):
    """A group has its share of a resource: its next task waits while a peer wants it, or borrows."""

    run_id: str
    group: str
    standing: str
    resources: Units


@dataclass(frozen=True, slots=True)
class RequestPressureSkipped(Event):
    """A task was passed over because its model's endpoint is under pressure, for one whose endpoint is not."""

    run_id: str
    task_id: str
    model: str
    reason: str
    passed_over: int
    in_favour_of: str


@dataclass(frozen=True, slots=True)
class TaskLeaseAcquired(Event):
    """A task got its lease on scheduler resources."""

    run_id: str
    task_id: str
    lease_id: str
    stage: str
    group: str
    model: str
    resources: Units
    trace_id: str


@dataclass(frozen=True, slots=True)
class AdmissionDenied(Event):
    """A selected task got no lease, and why."""

    run_id: str
    task_id: str
    reason: str
    resource: str
    requested: int
    available: int


@dataclass(frozen=True, slots=True)
class WorkerSpawned(Event):
    """A worker began to work on a task under its lease."""

    run_id: str
    task_id: str
    lease_id: str
    attempt: int
    trace_id: str


@dataclass(frozen=True, slots=True)
class WorkerSpawnFailed(Event):
    """No worker could be started for a task; its lease was given back and it is queued again."""

    run_id: str
    task_id: str
    lease_id: str
    error: str


@dataclass(frozen=True, slots=True)
class SelectionStale(Event):
    """A selection was out of date when it was to be taken; its lease was given back."""

    run_id: str
    task_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class TaskParked(Event):
    """A running task's worker serves others while its request waits."""

    run_id: str
    task_id: str
    lease_id: str
    resources: Units


@dataclass(frozen=True, slots=True)
class TaskUnparked(Event):
    """A parked task goes on, with its worker."""

    run_id: str
    task_id: str
    lease_id: str
    resources: Units


@dataclass(frozen=True, slots=True)
class RetryDeferred(Event):
    """A task failed in a way that may pass; it is queued again at a later time."""

    run_id: str
    task_id: str
    reason: str
    wait_s: float
    attempt: int


@dataclass(frozen=True, slots=True)
class RetryRedispatched(Event):
    """A deferred task's time has come; it is queued again."""

    run_id: str
    task_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class NonRetryableDropped(Event):
    """A task was given up: it failed for good, or what it depends on did."""

    run_id: str
    task_id: str
    stage: str
    group: str
    reason: str
    because_of: str
    error: str


@dataclass(frozen=True, slots=True)
class TaskCancelled(Event):
    """A task was cancelled while it ran or waited; it has no result."""

    run_id: str
    task_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class QueueDrained(Event):
    """Nothing is queued or running any more; told once until something is."""

    run_id: str
    completed: int


@dataclass(frozen=True, slots=True)
class TaskCompleted(Event):
    """A task's work ended; `outcome` is `success`, `deferred`, `failed` or `cancelled`."""

    run_id: str
    task_id: str
    stage: str
    group: str
    outcome: str
    seconds: float
    trace_id: str


@dataclass(frozen=True, slots=True)
class TaskLeaseReleased(Event):
    """A task's lease came back, with what it held."""

    run_id: str
    task_id: str
    lease_id: str
    group: str
    resources: Units
    held_s: float


@dataclass(frozen=True, slots=True)
class ReleaseDiagnostic(Event):
    """A lease came back that could not be released: twice, late, forged, or of another run. Nothing was counted."""

    run_id: str
    task_id: str
    lease_id: str
    outcome: str
