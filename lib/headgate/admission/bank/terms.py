"""The vocabulary of the slot bank: its rules, the blocks that it holds, its inputs, and its decisions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_LAST_RETURN_S: Final = 5.0
"""A lease that ends sooner is left to expire: the server frees it too, and together they would free it twice."""


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
        block: most slots of one lease. Small blocks bound what a crash withholds from others, large ones the calls.
        lease_s: length of a lease, >= 60 by Prefect's rules; renewed after a third of it.
        idle_s: a block that was not needed for this long is given back.
        retry_s: longest pause before a limit without free slots is read again.
        most: most slots of this process; None for as many as the limit has.
        outage: what happens to held slots while the API is away.
    """

    block: int = 8
    lease_s: float = 60.0
    idle_s: float = 10.0
    retry_s: float = 5.0
    most: int | None = None
    outage: Outage = Outage.HOLD

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        for name, least in (("block", 1), ("lease_s", 60), ("retry_s", 1), ("idle_s", 0), ("most", 1)):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"{name} must be >= {least} (got {value})")


@dataclass(frozen=True, slots=True)
class LimitSeen:
    """A limit as the API shows it.

    Attributes:
        limit: slots of all processes together.
        active_slots: slots that it counts as taken.
        enabled: whether it is enforced; a user can turn it off.
    """

    limit: int
    active_slots: int
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Peer:
    """Another process at the same limit, as it reports itself.

    Attributes:
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
    """Read the limit and the other processes; answered by `looked` or `missing`."""


@dataclass(frozen=True, slots=True)
class LeaseBlock:
    """Lease this many slots; answered by `leased`, `denied` or `missing`."""

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
"""A call that the adapter makes; each is answered, with `failed` if nothing else applies."""


@dataclass(slots=True)
class HeldBlock:
    """Slots under one lease. `until` counts from before the call, so it is before the server's own expiry."""

    lease_id: str
    slots: int
    until: float
    renew_at: float
    is_leaving: bool = False
    is_returning: bool = False
    is_renewing: bool = False

    @property
    def is_in_call(self) -> bool:
        """Whether a call about it is in progress."""
        return self.is_renewing or self.is_returning


class HeldBlocks:
    """The blocks of one bank. A leaving block admits nothing; it is given back once nothing in flight needs it."""

    def __init__(self) -> None:
        self.by_lease: dict[str, HeldBlock] = {}

    def __bool__(self) -> bool:
        return bool(self.by_lease)

    def usable(self, now: float) -> int:
        """Return the slots on which requests may be admitted."""
        return sum(b.slots for b in self.by_lease.values() if now < b.until and not b.is_leaving)

    def leased(self, now: float) -> int:
        """Return the slots under leases that have not ended, including leaving ones."""
        return sum(b.slots for b in self.by_lease.values() if now < b.until)

    def expired(self, now: float) -> list[str]:
        """Return the leases that have ended."""
        return [b.lease_id for b in self.by_lease.values() if now >= b.until]

    def choose_leaving(self, target: int, coarser_than: int | None, now: float) -> None:
        """Mark the blocks beyond `target` slots as leaving, the largest ones first.

        What is still held beyond it is less than a block. If shares are finer than that, the largest block goes too,
        provided that it is larger than `coarser_than`, and smaller ones are leased in its place.
        """
        staying = [b for b in self.by_lease.values() if now < b.until and not b.is_returning]
        held = sum(b.slots for b in staying)
        for block in sorted(staying, key=lambda b: (-b.slots, b.until)):
            block.is_leaving = held - block.slots >= target
            held -= block.slots if block.is_leaving else 0
        if coarser_than is not None and held > target:
            largest = max((b for b in staying if not b.is_leaving), key=lambda b: b.slots)
            largest.is_leaving = largest.slots > coarser_than

    def renewals(self, now: float) -> list[RenewBlock]:
        """Return the renewals that are due, and mark them as in progress."""
        due = [b for b in self.by_lease.values() if b.renew_at <= now and not b.is_in_call]
        for block in due:
            block.is_renewing = True
        return [RenewBlock(b.lease_id) for b in due]

    def returns(self, in_flight: int, now: float) -> list[ReturnBlock]:
        """Return the leaving blocks whose slots nothing in flight needs, and mark them as being returned."""
        room = sum(b.slots for b in self.by_lease.values() if now < b.until and not b.is_returning) - in_flight
        calls = []
        for block in self.by_lease.values():
            is_free = block.is_leaving and not block.is_in_call and block.slots <= room
            if is_free and block.until - now > _LAST_RETURN_S:
                block.is_returning = True
                room -= block.slots
                calls.append(ReturnBlock(block.lease_id))
        return calls

    def probe(self) -> RenewBlock | None:
        """Return the renewal of the block that lasts longest, and mark it as in progress."""
        block = max(self.by_lease.values(), key=lambda b: b.until, default=None)
        if block is None:
            return None
        block.is_renewing = True
        return RenewBlock(block.lease_id)

    @property
    def is_in_call(self) -> bool:
        """Whether a call about one of them is in progress."""
        return any(b.is_in_call for b in self.by_lease.values())

    def unmark(self, lease_id: str) -> None:
        """Note that a call about a lease failed."""
        if block := self.by_lease.get(lease_id):
            block.is_renewing = block.is_returning = False
