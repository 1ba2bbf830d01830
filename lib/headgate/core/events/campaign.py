"""What happens in a campaign: its roster, its queue, its samples, its store."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.events.event import Event
from headgate.core.sample import Sample


@dataclass(frozen=True, slots=True)
class AnswerJudged(Event):
    """A judge gave a verdict on the answer of a sample."""

    task_id: str
    model: str
    environment: str
    judge: str
    number: int
    value: float
    prompt_tokens: int
    completion_tokens: int
    trace_id: str = ""


@dataclass(frozen=True, slots=True)
class JudgementMissing(Event):
    """A judge gave no verdict that could be read, for good; the sample is made of the others, if there are any."""

    task_id: str
    model: str
    environment: str
    judge: str
    number: int
    reason: str
    trace_id: str = ""


@dataclass(frozen=True, slots=True)
class CampaignStarted(Event):
    """A campaign began to sample."""

    campaign: str
    models: int
    environments: tuple[str, ...]
    workers: int
    resumed_samples_24h: int
    reopened_tasks: int
    run_id: str = ""
    judge: str = ""
    judgements: int = 0


@dataclass(frozen=True, slots=True)
class CampaignStopping(Event):
    """A campaign takes on no more work and drains what is in flight."""

    campaign: str
    reason: str
    in_flight: int


@dataclass(frozen=True, slots=True)
class CampaignStopped(Event):
    """A campaign has ended; what it left is in the journal and the store."""

    campaign: str
    samples: int
    stored: int
    spooled: int
    open_tasks: int
    run_id: str = ""
    stopped_by: str = ""


@dataclass(frozen=True, slots=True)
class ClockStepped(Event):
    """The journal held times that lie ahead of this machine's clock; they are now, and sampling goes on from here."""

    campaign: str
    ahead_s: float
    times: int


@dataclass(frozen=True, slots=True)
class RosterRefreshed(Event):
    """The roster was read; models that are new started, models that are gone stopped."""

    models: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    withdrawn_tasks: int


@dataclass(frozen=True, slots=True)
class RosterRefreshFailed(Event):
    """The roster could not be read; the last good one stays in force."""

    error: str
    kept_models: int


@dataclass(frozen=True, slots=True)
class ModelPaused(Event):
    """Consecutive service errors paused a model."""

    model: str
    uid: int
    pause_s: float
    consecutive_errors: int
    level: int
    last_error: str


@dataclass(frozen=True, slots=True)
class ModelResumed(Event):
    """A model's pause ended, or a success reset it."""

    model: str
    uid: int
    paused_for_s: float


@dataclass(frozen=True, slots=True)
class ModelGivenUp(Event):
    """A model whose service kept failing through all pauses takes no further part in a run of fixed tasks."""

    model: str
    uid: int
    pauses: int
    last_error: str


@dataclass(frozen=True, slots=True)
class BoostChanged(Event):
    """A model's rate multiplier changed with its 24 h total."""

    model: str
    multiplier: float
    samples_24h: int


@dataclass(frozen=True, slots=True)
class PairSettled(Event):
    """A model's mean in an environment is known to within `target_half_width`; it is sampled there no further."""

    model: str
    environment: str
    tasks: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class DuesForgiven(Event):
    """Dues older than the catch-up horizon were dropped, so that a long pause ends without a burst."""

    model: str
    environment: str
    dues: int


@dataclass(frozen=True, slots=True)
class TaskOpened(Event):
    """A task got its number and is in the journal: from here on it ends with a sample, whatever happens."""

    task_id: str
    model: str
    environment: str
    sequence: int
    due_at: float
    stage: str
    attempt: int


@dataclass(frozen=True, slots=True)
class TasksEnqueued(Event):
    """A sampler's buffer was flushed into the ready queue."""

    model: str
    tasks: int
    queued: int


@dataclass(frozen=True, slots=True)
class QueueWarned(Event):
    """The ready queue is longer than its warning threshold."""

    size: int
    threshold: int


@dataclass(frozen=True, slots=True)
class QueuePaused(Event):
    """The ready queue reached its pause threshold: samplers hold their tasks back."""

    size: int
    threshold: int


@dataclass(frozen=True, slots=True)
class QueueResumed(Event):
    """The ready queue fell to its resume threshold: samplers go on."""

    size: int
    threshold: int
    paused_for_s: float


@dataclass(frozen=True, slots=True)
class TaskStarted(Event):
    """A task got its lease and its worker."""

    task_id: str
    model: str
    environment: str
    queue_wait_s: float
    trace_id: str
    lease_id: str = ""
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class SampleAccepted(Event):
    """A sample is durable in the journal; it counts from here on."""

    sample: Sample


@dataclass(frozen=True, slots=True)
class SampleRefused(Event):
    """A sample came for a task that this process no longer holds; it is not counted."""

    task_id: str
    model: str
    environment: str
    reason: str


@dataclass(frozen=True, slots=True)
class TaskReturned(Event):
    """A task ended without a sample (drain, withdrawal); it stays open in the journal or is withdrawn."""

    task_id: str
    model: str
    environment: str
    reason: str


@dataclass(frozen=True, slots=True)
class TaskDeferred(Event):
    """A task's episode ended because its provider admits nothing now; it runs again, its attempt is not charged."""

    task_id: str
    model: str
    environment: str
    reason: str
    deferrals: int


@dataclass(frozen=True, slots=True)
class BatchStored(Event):
    """A batch of samples is visible in the store."""

    batch_id: str
    rows: int
    parts: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StoreFailed(Event):
    """A batch could not be stored; it stays in the spool and is tried again."""

    batch_id: str
    rows: int
    error: str
    retry_in_s: float
    attempt: int


@dataclass(frozen=True, slots=True)
class RowsQuarantined(Event):
    """Rows broke the schema and went to the quarantine file with their reasons."""

    batch_id: str
    rows: int
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class StatusReported(Event):
    """The figures of the status line, every 30 s."""

    samplers: int
    paused: int
    task_queue: int
    result_queue: int
    enqueued: int
    dequeued: int


@dataclass(frozen=True, slots=True)
class JournalBlocked(Event):
    """The journal cannot be written (a full disk): nothing new is started, finished samples wait in memory."""

    error: str


@dataclass(frozen=True, slots=True)
class JournalRecovered(Event):
    """The journal can be written again; what waited goes on."""

    blocked_for_s: float


@dataclass(frozen=True, slots=True)
class TaskProviderFailed(Event):
    """A task provider did not give tasks; it is asked again."""

    error: str
    retry_in_s: float


@dataclass(frozen=True, slots=True)
class MonitorStarted(Event):
    """The monitoring API answers at `address` while the campaign runs."""

    address: str
