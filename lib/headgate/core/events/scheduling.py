"""Events between a task's creation and its result: queue, leases, workers, stages, frontier."""

from __future__ import annotations

from logging import DEBUG, INFO, WARNING

from headgate.core.events.event import Event

Units = tuple[tuple[str, int], ...]
"""Resource names with units, sorted by name."""


class _RunEvent(Event, log_level=DEBUG):
    """An event of the scheduling run `run_id`."""

    run_id: str


class _TaskEvent(_RunEvent):
    """An event of one task."""

    task_id: str


class _StagedTask(_TaskEvent):
    """An event of a task of a stage."""

    stage: str
    group: str


class _LeasedTask(_TaskEvent):
    """An event of a task under its lease."""

    lease_id: str


class SchedulerJobStarted(_RunEvent, log_level=INFO):
    """A scheduling run started; its shape, as far as it is known in advance."""

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
    """The state of a scheduling run: units leased and wanted, open rows, what blocks the frontier."""

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


class DependencyReady(_StagedTask):
    """The last task that a stage waited for has ended; the stage may be queued."""

    trace_id: str


class ReadyEnqueued(_StagedTask):
    """A task entered the ready queue with the resources that it wants."""

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
    """The frontier does not widen, and why; reported when the reason changes."""

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


class TaskSelected(_TaskEvent):
    """A task was chosen to run next."""

    group: str
    model: str
    trace_id: str


class QueueEmpty(_RunEvent):
    """The dispatcher looked for a task and none was ready; reported once until one is."""

    running: int


class AdmissionBlocked(_RunEvent):
    """Tasks are ready but none of them can run, and why; reported when the reason changes."""

    reason: str
    detail: str
    queued: int


class GroupCapped(_RunEvent):
    """A group has reached its share of a resource: its next task waits while a peer wants it, or borrows."""

    group: str
    standing: str
    resources: Units


class RequestPressureSkipped(_TaskEvent):
    """A task was passed over because its model's endpoint is under pressure, for one whose endpoint is not."""

    model: str
    reason: str
    passed_over: int
    in_favour_of: str


class TaskLeaseAcquired(_LeasedTask):
    """A task got its lease on scheduler resources."""

    stage: str
    group: str
    model: str
    resources: Units
    trace_id: str


class AdmissionDenied(_TaskEvent):
    """A selected task got no lease, and why."""

    reason: str
    resource: str
    requested: int
    available: int


class WorkerSpawned(_LeasedTask):
    """A worker started to work on a task under its lease."""

    attempt: int
    trace_id: str


class WorkerSpawnFailed(_LeasedTask, log_level=WARNING):
    """No worker could be started for a task; its lease was released and it is queued again."""

    error: str


class SelectionStale(_TaskEvent):
    """A selection was stale when it was about to be used; its lease was released."""

    reason: str


class TaskParked(_LeasedTask):
    """A running task's worker serves others while its request waits."""

    resources: Units


class TaskUnparked(_LeasedTask):
    """A parked task continues, with its worker."""

    resources: Units


class RetryDeferred(_TaskEvent):
    """A task failed with an error that may be temporary; it is queued again later."""

    reason: str
    wait_s: float
    attempt: int


class RetryRedispatched(_TaskEvent):
    """A deferred task's time has come; it is queued again."""

    attempt: int


class NonRetryableDropped(_StagedTask):
    """A task was given up: it, or a task that it depends on, failed permanently."""

    reason: str
    because_of: str
    error: str


class TaskCancelled(_TaskEvent):
    """A task was cancelled while it ran or waited; it has no result."""

    reason: str


class QueueDrained(_RunEvent):
    """Nothing is queued or running any more; reported once until something is."""

    completed: int


class TaskCompleted(_StagedTask):
    """A task's work ended; `outcome` is `success`, `deferred`, `failed` or `cancelled`."""

    outcome: str
    seconds: float
    trace_id: str


class TaskLeaseReleased(_LeasedTask):
    """A task's lease was released, with what it held."""

    group: str
    resources: Units
    held_s: float


class ReleaseDiagnostic(_LeasedTask, log_level=WARNING):
    """A lease could not be released: released before, late, forged, or of another run. Nothing was counted."""

    outcome: str
