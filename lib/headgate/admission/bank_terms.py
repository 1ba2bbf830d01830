"""The vocabulary of the slot bank: its rules, what it is told, and what it decides."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outage(StrEnum):
    """What happens to held slots while the Prefect API is away."""

    HOLD = "hold"
    """They are used until their leases end."""
    STOP = "stop"
    """They are not used until the API answers again."""


@dataclass(frozen=True, slots=True)
class BankRules:
    """How a process leases slots from one limit.

    Attributes:
        block: slots of one lease at most. Small blocks bound what a crash keeps from others, large ones the calls.
        lease_s: length of a lease, >= 60 by the rules of Prefect; renewed at a third of it.
        idle_s: a block that was not needed for this long is given back.
        retry_s: longest pause before a limit without free slots is looked at again.
        most: slots of this process at most; None for as many as the limit has.
        outage: what happens to held slots while the API is away.
    """

    block: int = 8
    lease_s: float = 60.0
    idle_s: float = 10.0
    retry_s: float = 5.0
    most: int | None = None
    outage: Outage = Outage.HOLD

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name, value, least in (
            ("block", self.block, 1),
            ("lease_s", self.lease_s, 60),
            ("retry_s", self.retry_s, 1),
        ):
            if not value >= least:
                raise ValueError(f"{name} must be >= {least} (got {value})")
        if self.idle_s < 0:
            raise ValueError(f"idle_s must be >= 0 (got {self.idle_s})")
        if self.most is not None and self.most < 1:
            raise ValueError(f"most must be >= 1 (got {self.most})")


@dataclass(frozen=True, slots=True)
class LimitSeen:
    """A limit as the API shows it.

    Attributes:
        limit: slots of all processes together.
        active_slots: those that it counts as taken.
        enabled: whether it is enforced; a user can turn it off.
    """

    limit: int
    active_slots: int
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Peer:
    """Another process at the same limit, by its own words.

    Attributes:
        holder: its name.
        held: slots that it holds.
        wanted: slots that it could use now.
    """

    holder: str
    held: int
    wanted: int

    @property
    def is_short(self) -> bool:
        """Whether it could use more than it holds."""
        return self.held < self.wanted


@dataclass(frozen=True, slots=True)
class LookAtLimit:
    """Read the limit and the other processes; answered by `looked`."""


@dataclass(frozen=True, slots=True)
class LeaseBlock:
    """Lease this many slots; answered by `leased`, `denied` or `looked(None, …)`."""

    slots: int


@dataclass(frozen=True, slots=True)
class RenewBlock:
    """Renew a lease; answered by `renewed` or `lost`."""

    lease_id: str


@dataclass(frozen=True, slots=True)
class ReturnBlock:
    """Give a lease back; answered by `returned`."""

    lease_id: str


BankCall = LookAtLimit | LeaseBlock | RenewBlock | ReturnBlock
"""A call that the adapter makes; each is answered, by `failed` when nothing else can be said."""
