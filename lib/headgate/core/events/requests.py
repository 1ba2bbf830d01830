"""What happens to one chat request: its waits, its attempts, and the limits that admit it."""

from __future__ import annotations

from logging import DEBUG, WARNING

from headgate.core.events.event import Event


class DailyBudgetSpent(Event):
    """A model has used up a budget of 24 h, for 15 minutes or longer; nothing of it is started until there is room.

    `limit` names the setting; `used` counts what episodes in progress may still take; `until` is in seconds since the
    epoch, and None while only episodes in progress keep it from going on.
    """

    model: str
    limit: str
    used: float
    allowed: float
    until: float | None
    reason: str


class DailyBudgetFreed(Event):
    """There is room again in the budgets of a model of which that was told, and it goes on."""

    model: str
    limit: str
    held_for_s: float


class UsageMissing(Event, log_level=WARNING):
    """An endpoint does not say how many tokens a model's prompts or answers took; budgets estimate them. Told once."""

    model: str
    estimated_tokens: int


class PriceMissing(Event, log_level=WARNING):
    """The table of prices says nothing of a model: what its answers cost is not known unless they are billed."""

    model: str
    table: str


class BatchSubmitted(Event):
    """Requests of a model were given to its provider as a batch; `batch` is the provider's name of it."""

    model: str
    batch: str
    requests: int


class BatchEnded(Event):
    """Nothing more will come of a batch: `answered` of its requests have their reply, and `left` are asked at once.

    `ignored` results were of other requests, or came again. `status` is the provider's, or `lost`, `refused`,
    `overdue` or `given_up`.
    """

    model: str
    batch: str
    status: str
    requests: int
    answered: int
    left: int
    ignored: int
    seconds: float
    reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0


class RequestFinished(Event, log_level=DEBUG):
    """One attempt of a chat request ended; `outcome` is `success` or an error kind."""

    model: str
    outcome: str
    latency_s: float
    status: int | None
    prompt_tokens: int
    completion_tokens: int
    request_id: str = ""
    attempt: int = 0
    lease_id: str = ""
    task_id: str = ""
    trace_id: str = ""


class RequestDelayed(Event, log_level=DEBUG):
    """A chat request waits before its next attempt."""

    model: str
    outcome: str
    wait_s: float
    attempt: int
    request_id: str = ""
    task_id: str = ""
    trace_id: str = ""


class RetryDenied(Event, log_level=DEBUG):
    """A failed request was not sent again: the retry budget of its endpoint is spent."""

    model: str
    outcome: str
    attempt: int
    request_id: str = ""
    task_id: str = ""
    trace_id: str = ""


class _ProviderModel(Event):
    """What happens to a model at a provider."""

    provider: str
    model: str


class _LimitEvent(_ProviderModel, log_level=DEBUG):
    """What befell the adaptive limit of one model and domain."""

    domain: str


class _AttemptEvent(_LimitEvent, log_level=DEBUG):
    """What befell one attempt of a request on its way to a provider."""

    group: str
    request_id: str
    attempt: int
    task_id: str
    trace_id: str


class _LeasedAttempt(_AttemptEvent):
    """What befell an attempt under its lease."""

    lease_id: str


class RequestWaitStarted(_AttemptEvent):
    """A request was not admitted at once and waits its turn; told only when requests are traced."""

    reason: str
    waiters: int


class RequestWaitCompleted(_LeasedAttempt):
    """A waiting request was handed its lease; told only when requests are traced."""

    waited_s: float


class _WaitEnded(_AttemptEvent):
    """A wait for admission ended without a lease."""

    waited_s: float


class RequestWaitTimedOut(_WaitEnded):
    """A request was not admitted before its deadline."""


class RequestWaitCancelled(_WaitEnded):
    """Whoever waited for a lease went away; told only when requests are traced."""


class RequestDenied(_AttemptEvent):
    """A request was refused admission."""

    reason: str
    retry_after_s: float | None
    detail: str


class RequestLeaseAcquired(_LeasedAttempt):
    """A request holds a lease and may be sent; told only when requests are traced."""

    limit: int
    in_flight: int


class RequestStarted(_LeasedAttempt):
    """An attempt was sent to its provider; told only when requests are traced."""


class RequestLeaseReleased(_LeasedAttempt):
    """A request gave its lease back; told only when requests are traced."""

    outcome: str
    held_s: float


class RequestRateLimited(_LeasedAttempt):
    """A provider refused an attempt for its rate; `blocked_s` is how long the model is left alone now."""

    retry_after_s: float | None
    blocked_s: float


class RequestReleaseRefused(_LeasedAttempt, log_level=WARNING):
    """A lease was given back that is not held (twice, unknown, of another life); nothing changed."""

    reason: str


class RequestResourceRegistered(_ProviderModel, log_level=DEBUG):
    """A model at a provider may be asked from now on, under an alias and its cap."""

    alias: str
    cap: int


class RequestCapChanged(_ProviderModel, log_level=DEBUG):
    """The cap on requests in flight of a model at a provider changed; 0 means that it was withdrawn."""

    before: int
    after: int


class RequestCapsDiffer(_ProviderModel, log_level=WARNING):
    """Aliases of one model at one provider ask for different caps; the smallest is used."""

    caps: dict[str, int]
    used: int


class ProviderSlotsChanged(Event, log_level=DEBUG):
    """The slots that this process may use at a provider changed; empty means that no slot bank bounds it."""

    provider: str
    before: int | None
    after: int | None


class RequestQueueFormed(_LimitEvent):
    """The first request began to wait for a model, held by `reason`; told at most once a second per model."""

    reason: str


class RequestQueueDrained(_LimitEvent):
    """No request waits for a model any more, after it was told that some do."""

    queued_for_s: float


class _LimitMoved(_LimitEvent):
    """An adaptive limit has another value."""

    before: int
    after: int


class RequestLimitDecreased(_LimitMoved):
    """An adaptive limit was cut."""

    reason: str
    ceiling: int | None


class RequestLimitIncreased(_LimitMoved):
    """An adaptive limit grew, by successes or by its start-up ramp."""

    reason: str


class RequestCeilingRecovered(_LimitMoved):
    """An adaptive limit is above the limit at which the provider last said no."""

    ceiling: int | None


class RequestFullyRecovered(_LimitMoved):
    """An adaptive limit is back at its static cap."""


class SharedLimitIgnored(_LimitEvent, log_level=WARNING):
    """The journal holds a limit per minute (`domain` names it) that cannot be true: `value` is forgotten."""

    value: str


class BreakerOpened(_ProviderModel, log_level=WARNING):
    """A model refused every request even one at a time: nothing is sent for `retry_in_s`, then one probe."""

    retry_in_s: float
    refusals: int


class BreakerClosed(_ProviderModel):
    """A probe succeeded: requests of a model are admitted again."""

    open_for_s: float


class _BlockEvent(Event):
    """What happens to a block of slots; `held` counts the slots of this process after it."""

    limit: str
    slots: int
    held: int


class SlotsLeased(_BlockEvent, log_level=DEBUG):
    """A block of slots was leased from a limit; `held` counts the slots of this process after it."""


class SlotsReturned(_BlockEvent, log_level=DEBUG):
    """A block of slots was given back to its limit before its lease ended."""


class SlotsDenied(Event):
    """A limit had no slots left for this process; told once until the next block is leased."""

    limit: str
    held: int
    wanted: int


class SlotsLost(_BlockEvent, log_level=WARNING):
    """A block ended without being given back; `reason` is `expired`, `revoked`, `limit_deleted` or `unreachable`."""

    reason: str


class SlotLimitChanged(Event):
    """A limit is seen for the first time (`before` is None) or was changed; None also stands for one turned off."""

    limit: str
    before: int | None
    after: int | None


class SlotLimitDiffers(Event, log_level=WARNING):
    """A limit has another number than this process was given for it; the limit's holds. Told once."""

    limit: str
    given: int
    in_force: int


class SlotLimitMissing(Event, log_level=WARNING):
    """A limit does not exist (any more): nothing is admitted under it until it is made again."""

    limit: str


class SlotServiceAway(Event, log_level=WARNING):
    """The Prefect API does not answer; `policy` says what happens to the slots that are held."""

    limit: str
    policy: str
    held: int
    reason: str


class SlotServiceBack(Event):
    """The Prefect API answers again."""

    limit: str
    held: int
    away_s: float


class SlotsDisagree(Event, log_level=WARNING):
    """A limit counts other slots as taken than the known leases hold, at two readings in a row."""

    limit: str
    active_slots: int
    known_slots: int
