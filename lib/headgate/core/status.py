"""The state of a running campaign at one moment: counted figures, never estimates.

The campaign produces these; the monitoring API, the live table, the status line and the artifacts read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headgate.core.record import record


@record
class PairStatus:
    """One model in one environment, since the campaign started."""

    model: str
    environment: str
    due: int
    done: int
    scored: int
    errors: int
    score_sum: float
    rate_per_day: float
    lag_s: float
    """How long the oldest due task has been without a sample; 0 when nothing is overdue."""
    score_square_sum: float = 0.0
    """Equal to `score_sum` where all scores are 0 or 1."""

    @property
    def mean_score(self) -> float | None:
        """Mean over the scored samples; None before the first."""
        return self.score_sum / self.scored if self.scored else None


@dataclass(slots=True)
class JudgedPair:
    """The samples of one model in one environment whose answers a judge reads, including those of earlier runs.

    Attributes:
        samples: recorded samples.
        scored: of them, those with a score.
        successes: of them, those that the environment calls a success.
        judgements: verdicts that the scores are computed from.
        errors: samples whose model or environment failed.
    """

    model: str
    environment: str
    samples: int = 0
    scored: int = 0
    successes: int = 0
    score_sum: float = 0.0
    judgements: int = 0
    agreed: int = 0
    agreement_sum: float = 0.0
    judge_errors: int = 0
    errors: int = 0

    @property
    def mean_score(self) -> float | None:
        """None without a scored sample."""
        return self.score_sum / self.scored if self.scored else None

    @property
    def agreement(self) -> float | None:
        """Mean over samples with two or more judgements; None without any."""
        return self.agreement_sum / self.agreed if self.agreed else None


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """One budget of a model over the last 24 h."""

    name: str
    """`daily_tokens`, `daily_requests` or `daily_cost`."""
    used: float
    held: float
    """What episodes in progress may still take."""
    limit: float | None
    """None where the cost is counted but not limited."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The engines of a model that Headgate serves."""

    state: str
    """`asleep`, `in line`, `starting`, `awake`, `leaving` or `failed`."""
    awake: int
    most: int
    """Largest number of engines."""
    reason: str
    """What it waits for, or why it failed; empty otherwise."""
    retry_s: float | None = None
    """Seconds until the next try."""


MANY_UNSCORED: Final = 10
"""Samples in a row without a score that are reported: errors that pause no model may cost it a whole day's tasks."""


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One model: whether it is sampled, how often, and what went wrong last."""

    uid: int
    model: str
    name: str
    revision: str
    is_paused: bool
    pause_reason: str | None
    pause_until: float | None
    rate_multiplier: float
    configured_daily_rate: float
    samples_1h: Mapping[str, int]
    samples_24h: Mapping[str, int]
    consecutive_errors: int
    errors_1h: int
    last_error: str | None
    last_error_at: float | None
    in_flight: int
    queued: int
    budgets: tuple[BudgetStatus, ...] = ()
    engines: EngineStatus | None = None
    """None for a model with an endpoint."""
    paused_since: float | None = None
    """Start of the first of the consecutive pauses for errors."""
    pause_kind: str | None = None
    """`errors` of its service, a `budget` that is used up, or a `control` in force; None while it is sampled."""
    unscored: int = 0
    """Samples in a row without a score, for errors that do not pause the model."""
    unscored_since: float | None = None
    """When the first of them ended; None without any."""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The ready queue."""

    size: int
    buffered: int
    max_size: int
    warning_threshold: int
    pause_threshold: int
    resume_threshold: int
    is_paused: bool
    enqueued: int
    dequeued: int
    enqueued_last_minute: int
    dequeued_last_minute: int
    by_environment: Mapping[str, int]

    @property
    def is_warning(self) -> bool:
        """True above the warning threshold."""
        return self.size > self.warning_threshold


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The workers: a limit on concurrent episodes."""

    total: int
    active: int
    finished: int
    finished_last_minute: int
    busy_s: float
    """Sum of worker seconds spent on episodes since the start."""
    elapsed_s: float
    utilization_last_minute: float
    """Busy share of the workers over the last minute, in [0, 1]."""
    mean_task_s: float | None
    parked: int = 0
    """Episodes that wait for their provider and have lent their worker to another task meanwhile."""


@dataclass(frozen=True, slots=True)
class RateStatus:
    """One limit per minute on a model's requests."""

    scope: str
    """Scope of the limit: `model`, `key`, or `organisation` and its name."""
    unit: str
    """`requests_per_minute`, `input_tokens_per_minute`, `output_tokens_per_minute` or `tokens_per_minute`."""
    limit: float
    """This process's part of the limit."""
    share: float
    """This process's share of the whole limit; 1 where no other process shares it."""
    left: float
    """What is available now."""
    reserved: float
    """What requests in flight have reserved, and may return in part."""
    is_told: bool
    """Whether it comes from the provider's answers rather than the roster."""
    is_learnt: bool = False
    """Whether it is inferred from refusals that stated no limit."""
    learnt: float | None = None
    """This process's limit as inferred from those refusals; None where they show nothing."""
    is_heard: bool = False
    """Whether other processes inferred it from their refusals, and this one uses its share of it."""


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """The requests to one model at one provider, and the limits that admit them."""

    provider: str
    """The provider's address, and a fingerprint of the account where a key is used."""
    model: str
    """The provider's name for the model."""
    domain: str
    """`chat`, `embedding`, `image` or `healthcheck`."""
    models: tuple[str, ...]
    """Keys of the roster's models that it answers."""
    cap: int
    """Most requests in flight, over all domains."""
    limit: int
    """The adaptive limit in force."""
    in_flight: int = 0
    waiters: int = 0
    ceiling: int | None = None
    """The limit at which the provider last refused; None when it never did."""
    cooldown_s: float = 0.0
    """Seconds that no request is sent for, by a cooldown or an open breaker; 0 otherwise."""
    breaker: str = "closed"
    """`closed`, `open` or `half_open`."""
    pressure: str | None = None
    """What a new request would wait for now; None when it would be admitted at once."""
    consecutive_rate_limits: int = 0
    last_outcome: str = ""
    retries_denied: int = 0
    """Retries that the retry budget did not allow."""
    answered: int = 0
    """Attempts that have ended, with any outcome."""
    rate_limited: int = 0
    """Of them, those refused by the provider's rate limit (429)."""
    peak_in_flight: int = 0
    """Highest number in flight at once."""
    peak_waiters: int = 0
    """Highest number waiting at once."""
    rates: tuple[RateStatus, ...] = ()
    """The limits per minute that apply to it."""


@dataclass(frozen=True, slots=True)
class OutsideStatus:
    """Samples that outside workers take, through a job queue."""

    handed: int
    """Samples at the queue: their jobs wait for a worker, or have one."""
    working: int
    """Of them, those that a worker has."""
    limit: int
    """How many may be at the queue now: what its workers can take, and a few more."""
    waiting_claims: int
    """Workers that wait for a job."""
    problem: str = ""
    """Why the queue cannot be reached; empty when it answers."""


@dataclass(frozen=True, slots=True)
class RequestBatchStatus:
    """One batch of requests at its provider."""

    model: str
    batch: str
    """The provider's name for it; our own key before it has one."""
    since: float
    """When it was made, in seconds since the epoch."""
    requests: int
    done: int
    """Of them, those answered or failed, as the provider last reported."""
    provider: str = ""
    """Address where it was submitted."""
    until: float = 0.0
    """Deadline of the provider, in seconds since the epoch; requests without an answer are then sent at once."""
    state: str = ""
    """The provider's state of it; before there is one, `made` or `uploaded`."""


@dataclass(frozen=True, slots=True)
class CampaignStatus:
    """Everything at one moment."""

    campaign: str
    captured_at: float
    started_at: float
    state: str
    """`starting`, `running`, `draining` or `stopped`."""
    models: tuple[ModelStatus, ...]
    pairs: tuple[PairStatus, ...]
    queue: QueueStatus
    workers: WorkerStatus
    spooled: int
    """Samples that are durable in the journal and not yet visible in the store."""
    stored: int
    samples: int
    open_tasks: int
    requests: tuple[RequestStatus, ...] = ()
    """Every request key that was or may be used; empty where requests are not admitted, as in simulations."""
    outside: OutsideStatus | None = None
    """None where no environment is played by outside workers."""
    batches: tuple[RequestBatchStatus, ...] = ()
    """The oldest batches of requests at their providers, at most 50."""
    unjudged: int = 0
    """Answers that wait for the judge, or are being judged."""
    judged: tuple[JudgedPair, ...] = ()
    """Empty where no answer needs a judge."""
    journal_problem: str = ""
    """Why the journal cannot be written, so that nothing new is started; empty while it can be."""
    store_problem: str = ""
    """Why the last batch could not be stored, so that samples wait in the journal; empty after a success."""

    @property
    def share(self) -> float:
        """The share of due samples that are done, from 0 to 1."""
        due = self.samples + self.open_tasks
        return self.samples / due if due else 1.0
