"""What happens to the slots that a process leases from a Prefect global concurrency limit."""

from __future__ import annotations

from logging import DEBUG, WARNING

from headgate.core.events.event import Event


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
