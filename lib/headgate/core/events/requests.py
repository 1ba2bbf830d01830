"""Events of a chat request: its waits, its attempts, and the limits that admit it."""

from __future__ import annotations

from logging import DEBUG, WARNING

from headgate.core.events.event import Event


class DailyBudgetSpent(Event):
    """A model has used up a 24 h budget, for 15 minutes or longer; none of its tasks starts until there is room again.

    `limit` names the setting; `used` includes what episodes in progress may still take; `until` is in seconds since the
    epoch, and None while only episodes in progress use up the budget.
    """

    model: str
    limit: str
    used: float
    allowed: float
    until: float | None
    reason: str


class DailyBudgetFreed(Event):
    """A model whose budget was reported as spent has room in it again, and continues."""

    model: str
    limit: str
    held_for_s: float


class UsageMissing(Event, log_level=WARNING):
    """An endpoint does not report the tokens of a model's prompts or answers; budgets estimate them. Reported once."""

    model: str
    estimated_tokens: int


class PriceMissing(Event, log_level=WARNING):
    """The table of prices lacks a model: the cost of its answers is unknown unless the provider reports it."""

    model: str
    table: str


class BatchSubmitted(Event):
    """Requests of a model were submitted to its provider as a batch; `batch` is the provider's name for it."""

    model: str
    batch: str
    requests: int


class BatchEnded(Event):
    """A batch has ended: `answered` of its requests have their reply, and `left` are sent again at once.

    `ignored` results were of other requests, or duplicates. `status` is the provider's, or `lost`, `refused`, `overdue`
    or `given_up`.
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
    """An event of a model at a provider."""

    provider: str
    model: str


class _LimitEvent(_ProviderModel, log_level=DEBUG):
    """An event of the adaptive limit of one model and domain."""

    domain: str


class _AttemptEvent(_LimitEvent, log_level=DEBUG):
    """An event of one attempt of a request on its way to a provider."""

    group: str
    request_id: str
    attempt: int
    task_id: str
    trace_id: str


class _LeasedAttempt(_AttemptEvent):
    """An event of an attempt under its lease."""

    lease_id: str


class RequestWaitStarted(_AttemptEvent):
    """A request was not admitted at once and waits its turn; reported only when requests are traced."""

    reason: str
    waiters: int


class RequestWaitCompleted(_LeasedAttempt):
    """A waiting request got its lease; reported only when requests are traced."""

    waited_s: float


class _WaitEnded(_AttemptEvent):
    """A wait for admission ended without a lease."""

    waited_s: float


class RequestWaitTimedOut(_WaitEnded):
    """A request was not admitted before its deadline."""


class RequestWaitCancelled(_WaitEnded):
    """The caller of a waiting request gave up; reported only when requests are traced."""


class RequestDenied(_AttemptEvent):
    """A request was refused admission."""

    reason: str
    retry_after_s: float | None
    detail: str


class RequestLeaseAcquired(_LeasedAttempt):
    """A request holds a lease and may be sent; reported only when requests are traced."""

    limit: int
    in_flight: int


class RequestStarted(_LeasedAttempt):
    """An attempt was sent to its provider; reported only when requests are traced."""


class RequestLeaseReleased(_LeasedAttempt):
    """A request released its lease; reported only when requests are traced."""

    outcome: str
    held_s: float


class RequestRateLimited(_LeasedAttempt):
    """A provider's rate limit refused an attempt; nothing is sent to the model for `blocked_s`."""

    retry_after_s: float | None
    blocked_s: float


class RequestReleaseRefused(_LeasedAttempt, log_level=WARNING):
    """A lease was released that is not held (twice, unknown, of an earlier generation); nothing changed."""

    reason: str


class RequestResourceRegistered(_ProviderModel, log_level=DEBUG):
    """A model at a provider was registered for requests, with an alias and its cap."""

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
    """The slots that this process may use at a provider changed; empty means that no slot bank limits it."""

    provider: str
    before: int | None
    after: int | None


class RequestQueueFormed(_LimitEvent):
    """The first request started to wait for a model, held by `reason`; reported at most once a second per model."""

    reason: str


class RequestQueueDrained(_LimitEvent):
    """No request waits for a model any more, after waiting ones were reported."""

    queued_for_s: float


class _LimitMoved(_LimitEvent):
    """An adaptive limit changed."""

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
    """An adaptive limit is above the value at which the provider last refused."""

    ceiling: int | None


class RequestFullyRecovered(_LimitMoved):
    """An adaptive limit is back at its static cap."""


class SharedLimitIgnored(_LimitEvent, log_level=WARNING):
    """The journal has a limit per minute (`domain` names it) that cannot be true: `value` is ignored."""

    value: str


class BreakerOpened(_ProviderModel, log_level=WARNING):
    """A model refused every request even one at a time: nothing is sent for `retry_in_s`, then one probe."""

    retry_in_s: float
    refusals: int


class BreakerClosed(_ProviderModel):
    """A probe succeeded: requests of a model are admitted again."""

    open_for_s: float


class _BlockEvent(Event):
    """An event of a block of slots; `held` counts the slots of this process after it."""

    limit: str
    slots: int
    held: int


class SlotsLeased(_BlockEvent, log_level=DEBUG):
    """A block of slots was leased from a limit; `held` counts the slots of this process after it."""


class SlotsReturned(_BlockEvent, log_level=DEBUG):
    """A block of slots was returned to its limit before its lease ended."""


class SlotsDenied(Event):
    """A limit had no slots left for this process; reported once until the next block is leased."""

    limit: str
    held: int
    wanted: int


class SlotsLost(_BlockEvent, log_level=WARNING):
    """A block ended without being returned; `reason` is `expired`, `revoked`, `limit_deleted` or `unreachable`."""

    reason: str


class SlotLimitChanged(Event):
    """A limit is seen for the first time (`before` is None) or was changed; None also stands for one turned off."""

    limit: str
    before: int | None
    after: int | None


class SlotLimitDiffers(Event, log_level=WARNING):
    """A limit's number differs from the one that this process was given, and applies instead. Reported once."""

    limit: str
    given: int
    in_force: int


class SlotLimitMissing(Event, log_level=WARNING):
    """A limit does not exist (any more): nothing is admitted under it until it is created again."""

    limit: str


class SlotServiceAway(Event, log_level=WARNING):
    """The Prefect API does not answer; `policy` says what happens to the slots held."""

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
    """At two readings in a row, a limit's count of taken slots differed from that of the known leases."""

    limit: str
    active_slots: int
    known_slots: int
