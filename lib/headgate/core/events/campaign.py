"""Events of a campaign: its roster, its queue, its samples, its store."""

from __future__ import annotations

from logging import DEBUG, ERROR, WARNING

from headgate.core.events.event import Event
from headgate.core.sample import Sample


class _TaskEvent(Event, log_level=DEBUG):
    """An event of one task."""

    task_id: str
    model: str
    environment: str


class AnswerJudged(_TaskEvent):
    """A judge gave a verdict on the answer of a sample."""

    judge: str
    number: int
    value: float
    prompt_tokens: int
    completion_tokens: int
    trace_id: str = ""


class JudgementMissing(_TaskEvent):
    """A judge gave no readable verdict even after retries; the sample uses the other verdicts, if there are any."""

    judge: str
    number: int
    reason: str
    trace_id: str = ""


class CampaignStarted(Event):
    """A campaign started sampling."""

    campaign: str
    models: int
    environments: tuple[str, ...]
    workers: int
    resumed_samples_24h: int
    reopened_tasks: int
    run_id: str = ""
    judge: str = ""
    judgements: int = 0


class CampaignStopping(Event):
    """A campaign accepts no more work and drains what is in flight."""

    campaign: str
    reason: str
    in_flight: int


class CampaignStopped(Event):
    """A campaign has ended; what it leaves behind is in the journal and the store."""

    campaign: str
    samples: int
    stored: int
    spooled: int
    open_tasks: int
    run_id: str = ""
    stopped_by: str = ""


class ClockStepped(Event, log_level=WARNING):
    """The journal had times ahead of this machine's clock; they were set to now, and sampling continues from here."""

    campaign: str
    ahead_s: float
    times: int


class RosterRefreshed(Event):
    """The roster has changed, or can be read again; sampling of new models starts, that of removed models stops."""

    models: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    withdrawn_tasks: int


class RosterRefreshFailed(Event, log_level=WARNING):
    """The roster could not be read; the last good one stays in force."""

    error: str
    kept_models: int


class _ModelEvent(Event):
    """An event of one model."""

    model: str
    uid: int


class ModelPaused(_ModelEvent, log_level=WARNING):
    """Consecutive service errors, or a used-up quota, paused a model."""

    pause_s: float
    consecutive_errors: int
    level: int
    last_error: str


class ModelResumed(_ModelEvent):
    """A model's pause ended, or a success reset it."""

    paused_for_s: float


class ModelGivenUp(_ModelEvent, log_level=WARNING):
    """A model whose service kept failing through all pauses takes no further part in a run of fixed tasks."""

    pauses: int
    last_error: str


class ModelUnscored(_ModelEvent, log_level=WARNING):
    """Many samples of a model in a row have no score, because of errors that do not pause it; reported once per run."""

    samples: int
    last_error: str


class ControlChanged(Event, log_level=WARNING):
    """Somebody paused, resumed or changed something in a campaign, or gave an order; each of its processes reports it.

    Without a model and an environment it is about the whole run. None as a value means the one in settings and roster.
    """

    campaign: str
    verb: str
    model: str | None
    environment: str | None
    what: str
    before: bool | int | float | None
    after: bool | int | float | None
    by: str
    reason: str
    revision: int


class BoostChanged(Event):
    """A model's rate multiplier changed with its 24 h total."""

    model: str
    multiplier: float
    samples_24h: int


class PairSettled(Event):
    """A model's mean in an environment is known to within `target_half_width`; sampling it there stops."""

    model: str
    environment: str
    tasks: int
    mean: float
    low: float
    high: float


class ModelsRanked(Event):
    """The comparison of two models is final: the result of the first against the second on all instances.

    `verdict` and `certainty` are those of `headgate.statistics.PairDecision`. `difference` is of their means over
    environments on the first `tasks` of each, with its 95 % confidence sequence.
    """

    first: str
    second: str
    verdict: str
    certainty: float
    tasks: int
    difference: float
    low: float
    high: float


class DuesForgiven(Event, log_level=DEBUG):
    """Dues older than the catch-up horizon were dropped, so that a long pause ends without a burst."""

    model: str
    environment: str
    dues: int


class TaskOpened(_TaskEvent):
    """A task got its number and is in the journal: it now ends with a sample, whatever happens."""

    sequence: int
    due_at: float
    stage: str
    attempt: int


class TasksEnqueued(Event, log_level=DEBUG):
    """A sampler's buffer was flushed into the ready queue."""

    model: str
    tasks: int
    queued: int


class _QueueEvent(Event):
    """The ready queue and one of its thresholds."""

    size: int
    threshold: int


class QueueWarned(_QueueEvent, log_level=WARNING):
    """The ready queue is longer than its warning threshold."""


class QueuePaused(_QueueEvent, log_level=WARNING):
    """The ready queue reached its pause threshold: samplers hold their tasks back."""


class QueueResumed(_QueueEvent):
    """The ready queue fell to its resume threshold: samplers continue."""

    paused_for_s: float


class TaskStarted(_TaskEvent):
    """A task got its lease and its worker."""

    queue_wait_s: float
    trace_id: str
    lease_id: str = ""
    attempt: int = 1


class SampleAccepted(Event, log_level=DEBUG):
    """A sample is durable in the journal; it counts from here on."""

    sample: Sample


class SampleRefused(_TaskEvent, log_level=WARNING):
    """A sample arrived for a task that this process no longer holds; it is not counted."""

    reason: str


class TaskReturned(_TaskEvent):
    """A task ended without a sample (drain, withdrawal); it stays open in the journal or is withdrawn."""

    reason: str


class TaskDeferred(_TaskEvent):
    """A task's episode ended because its provider admits nothing now; it runs again, and the attempt does not count."""

    reason: str
    deferrals: int


class EnvironmentClusterJoined(Event):
    """The run can ask a Ray cluster for hosts of environments."""

    says: str


class EnvironmentClusterLost(Event, log_level=WARNING):
    """The Ray cluster does not answer: samples that need a host wait, and the connection is tried again."""

    reason: str
    retry_in_s: float


class EnvironmentHostStarted(Event):
    """A host of environments on another machine accepts episodes."""

    host: str
    node: str
    seats: int


class EnvironmentHostEnded(Event):
    """A host has ended; its open episodes are played again elsewhere."""

    host: str
    node: str
    episodes: int
    reason: str


class EnvironmentHostWaits(Event, log_level=WARNING):
    """A host that has work waiting for it is not available; reported once for each reason."""

    host: str
    reason: str


class BatchStored(Event):
    """A batch of samples is visible in the store."""

    batch_id: str
    rows: int
    parts: int
    seconds: float


class StoreFailed(Event, log_level=WARNING):
    """A batch could not be stored; it stays in the spool and is tried again."""

    batch_id: str
    rows: int
    error: str
    retry_in_s: float
    attempt: int


class JobQueueFailed(Event, log_level=WARNING):
    """The job queue with samples of a campaign cannot be reached; they wait, and everything else continues."""

    campaign: str
    error: str
    handed: int


class JobQueueAnswered(Event):
    """The job queue answers again."""

    campaign: str
    handed: int


class RowsQuarantined(Event, log_level=ERROR):
    """Rows broke the schema and went to the quarantine file with their reasons."""

    batch_id: str
    rows: int
    path: str
    reason: str


class StatusReported(Event):
    """The figures of the status line, every 30 s."""

    samplers: int
    paused: int
    task_queue: int
    result_queue: int
    enqueued: int
    dequeued: int


class JournalBlocked(Event, log_level=ERROR):
    """The journal cannot be written (full disk, unreachable database): nothing new is started, samples wait."""

    error: str


class JournalRecovered(Event):
    """The journal can be written again; what waited continues."""

    blocked_for_s: float


class TaskProviderFailed(Event, log_level=WARNING):
    """A task provider returned no tasks, for some models at least, because of an error; it is asked again."""

    error: str
    retry_in_s: float


class MonitorStarted(Event):
    """The monitoring API answers at `address` while the campaign runs."""

    address: str


class CheckpointFound(Event):
    """A checkpoint is complete and will be evaluated."""

    model: str
    step: int
    path: str
    size_bytes: int


class CheckpointsSkipped(Event):
    """Older checkpoints are skipped: only the newest are evaluated."""

    place: str
    skipped: int
    newest: int


class CheckpointsUnread(Event, log_level=WARNING):
    """The checkpoints, the store of scores or the journal cannot be read now; that is tried again later."""

    place: str
    error: str


class CheckpointScored(Event):
    """A checkpoint was evaluated; `difference` is from the best one before it, None where it was not compared."""

    model: str
    step: int
    mean: float
    low: float
    high: float
    scored: int
    samples: int
    against: str
    difference: float | None
    difference_low: float | None
    difference_high: float | None


class CheckpointRegressed(Event, log_level=WARNING):
    """A checkpoint is worse than the best one before it: the interval of the paired difference is below zero."""

    model: str
    step: int
    against: str
    difference: float
    difference_low: float
    difference_high: float


class CheckpointFailed(Event, log_level=WARNING):
    """A checkpoint lacks scores: its engine did not start or stay, or none of its samples could be scored."""

    model: str
    step: int
    path: str
    error: str
