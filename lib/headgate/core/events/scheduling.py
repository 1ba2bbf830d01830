"""What happens between a task's demand and its result: queue, leases, workers, stages, frontier."""

from __future__ import annotations

from logging import DEBUG, INFO, WARNING

from headgate.core.events.event import Event

Units = tuple[tuple[str, int], ...]
"""Resource names with units, sorted by name."""


class _RunEvent(Event, log_level=DEBUG):
    """What happens in the scheduling run `run_id`."""

    run_id: str


class SchedulerJobStarted(_RunEvent, log_level=INFO):
    """A scheduling run began; its shape, as far as it is known before it runs."""

    resources: Units
    policy: str
    frontier_floor: int
    frontier_cap: int


class SchedulerJobCompleted(_RunEvent, log_level=INFO):
    """A scheduling run ended: what it did, and why it ended."""

    stopped_by: str
    completed: int
    failed: int
    dropped: int
    retried: int
    row_groups: int
    seconds: float


class SchedulerHealthSnapshot(_RunEvent):
    """How a scheduling run stands: units leased and wanted, rows open, what holds the frontier."""

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


class DependencyReady(_RunEvent):
    """The last task that a stage waited for has ended; the stage may be queued."""

    task_id: str
    stage: str
    group: str
    trace_id: str


class ReadyEnqueued(_RunEvent):
    """A task entered the ready queue with the resources that it wants."""

    task_id: str
    stage: str
    group: str
    model: str
    resources: Units
    queued: int
    trace_id: str


class RowGroupAdmitted(_RunEvent):
    """A row group was opened: its root tasks may be queued."""

    row_group: str
    rows: int
    tasks: int
    active: int
    target: int


class RowGroupAdmissionBlocked(_RunEvent):
    """The frontier does not widen, and why; told when the reason changes."""

    reason: str
    active: int
    target: int
    queued: int


class RowGroupAdmissionTargetChanged(_RunEvent):
    """The frontier's target of open row groups moved: up while capacity idles, down under sustained pressure."""

    before: int
    after: int
    reason: str


class RowGroupCheckpointed(_RunEvent):
    """Every task of a row group has ended; its rows are complete or given up."""

    row_group: str
    completed: int
    failed: int
    dropped: int
    seconds: float


class TaskSelected(_RunEvent):
    """A task was chosen to run next."""

    task_id: str
    group: str
    model: str
    trace_id: str


class QueueEmpty(_RunEvent):
    """The dispatcher looked for a task and none was ready; told once until one is."""

    running: int


class AdmissionBlocked(_RunEvent):
    """Tasks are ready and none of them can run, and why; told when the reason changes."""

    reason: str
    detail: str
    queued: int


class GroupCapped(_RunEvent):
    """A group has its share of a resource: its next task waits while a peer wants it, or borrows."""

    group: str
    standing: str
    resources: Units


class RequestPressureSkipped(_RunEvent):
    """A task was passed over because its model's endpoint is under pressure, for one whose endpoint is not."""

    task_id: str
    model: str
    reason: str
    passed_over: int
    in_favour_of: str


class TaskLeaseAcquired(_RunEvent):
    """A task got its lease on scheduler resources."""

    task_id: str
    lease_id: str
    stage: str
    group: str
    model: str
    resources: Units
    trace_id: str


class AdmissionDenied(_RunEvent):
    """A selected task got no lease, and why."""

    task_id: str
    reason: str
    resource: str
    requested: int
    available: int


class WorkerSpawned(_RunEvent):
    """A worker began to work on a task under its lease."""

    task_id: str
    lease_id: str
    attempt: int
    trace_id: str


class WorkerSpawnFailed(_RunEvent, log_level=WARNING):
    """No worker could be started for a task; its lease was given back and it is queued again."""

    task_id: str
    lease_id: str
    error: str


class SelectionStale(_RunEvent):
    """A selection was out of date when it was to be taken; its lease was given back."""

    task_id: str
    reason: str


class TaskParked(_RunEvent):
    """A running task's worker serves others while its request waits."""

    task_id: str
    lease_id: str
    resources: Units


class TaskUnparked(_RunEvent):
    """A parked task goes on, with its worker."""

    task_id: str
    lease_id: str
    resources: Units


class RetryDeferred(_RunEvent):
    """A task failed in a way that may pass; it is queued again at a later time."""

    task_id: str
    reason: str
    wait_s: float
    attempt: int


class RetryRedispatched(_RunEvent):
    """A deferred task's time has come; it is queued again."""

    task_id: str
    attempt: int


class NonRetryableDropped(_RunEvent):
    """A task was given up: it failed for good, or what it depends on did."""

    task_id: str
    stage: str
    group: str
    reason: str
    because_of: str
    error: str


class TaskCancelled(_RunEvent):
    """A task was cancelled while it ran or waited; it has no result."""

    task_id: str
    reason: str


class QueueDrained(_RunEvent):
    """Nothing is queued or running any more; told once until something is."""

    completed: int


class TaskCompleted(_RunEvent):
    """A task's work ended; `outcome` is `success`, `deferred`, `failed` or `cancelled`."""

    task_id: str
    stage: str
    group: str
    outcome: str
    seconds: float
    trace_id: str


class TaskLeaseReleased(_RunEvent):
    """A task's lease came back, with what it held."""

    task_id: str
    lease_id: str
    group: str
    resources: Units
    held_s: float


class ReleaseDiagnostic(_RunEvent, log_level=WARNING):
    """A lease came back that could not be released: twice, late, forged, or of another run. Nothing was counted."""

    task_id: str
    lease_id: str
    outcome: str
