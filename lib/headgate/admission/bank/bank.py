"""The slot bank: how many slots of a shared limit this process holds, and which it leases, renews and returns."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Final

from headgate.admission.bank.terms import (
    BankCall,
    BankRules,
    HeldBlock,
    HeldBlocks,
    LeaseBlock,
    LimitSeen,
    LookAtLimit,
    Outage,
    Peer,
    RenewBlock,
    ReturnBlock,
)
from headgate.core.events import (
    Event,
    SlotLimitChanged,
    SlotLimitMissing,
    SlotsDenied,
    SlotServiceAway,
    SlotServiceBack,
    SlotsLeased,
    SlotsLost,
    SlotsReturned,
)

RENEWALS_PER_LEASE: Final = 3
"""A lease is renewed after a third of its length: two renewals may fail before it ends."""

_BUSY_PAUSE_S: Final = 0.2
_FIRST_RETRY_S: Final = 1.0

_DRAIN_LOOK_S: Final = 1.0
"""How often to check a leaving block: a bank is not told when a request ends."""


class SlotBank:
    """Decides for one process and one limit. Pure: receives the time and what happened; owned by the slot broker.

    A call that `decide` returned counts as being made until its answer is passed in. A block is given back in two
    steps: first nothing more is admitted on it; once the requests in flight fit on the other blocks, it is returned.

    Invariants (`validate`): nothing is admitted on a block past its end, on a leaving block, or under a missing limit;
    only one lease is requested at a time.
    """

    def __init__(self, limit: str, holder: str, rules: BankRules, rng: random.Random) -> None:
        self.limit = limit
        self.holder = holder
        self.rules = rules
        self._rng = rng
        self._blocks = HeldBlocks()
        self._events: list[Event] = []
        self._peers: tuple[Peer, ...] = ()
        self.seen: LimitSeen | None = None
        """The limit when it was last read; None before that, and while it is missing."""
        self._is_missing = False
        self._is_closing = False
        self._is_looking = False
        self._asked = 0
        self._look_at = 0.0
        self._ask_at = 0.0
        self._denials = 0
        self._away_since: float | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._in_flight = 0
        self._waiting = 0
        self._peaks = (0, 0)
        self._peak_from = 0.0

    def slots_held(self, now: float) -> int | None:
        """Return how many requests may be in flight; None if the limit is turned off and bounds nothing."""
        if self._is_missing or (self._away_since is not None and self.rules.outage is Outage.STOP):
            return 0
        if self.seen is not None and not self.seen.enabled and not self._is_closing:
            return None
        return self._blocks.usable(now)

    def leases(self, now: float) -> dict[str, int]:
        """Return the slots of each lease that has not ended, including leaving ones."""
        return {b.lease_id: b.slots for b in self._blocks.by_lease.values() if now < b.until}

    @property
    def wanted(self) -> int:
        """Slots that this process could use, by its recent need; it reports this to the others."""
        return min(max(*self._peaks, self._need), self._most())

    @property
    def is_done(self) -> bool:
        """Whether it was closed and has nothing left to give back."""
        return self._is_closing and not self._blocks and not self._asked

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        taken, self._events = self._events, []
        return taken

    def demand(self, in_flight: int, waiting: int, now: float) -> None:
        """Note how many requests are in flight under this limit, and how many wait for a slot."""
        self._in_flight, self._waiting = in_flight, waiting
        self._roll(now)
        self._peaks = (self._peaks[0], max(self._peaks[1], self._need))

    def looked(self, seen: LimitSeen, peers: Iterable[Peer], now: float) -> None:
        """Note the limit and the other processes as they are now."""
        self._is_looking = False
        self._reached(now)
        self._peers = tuple(peer for peer in peers if peer.holder != self.holder)
        self._look_at = now + self.rules.lease_s / RENEWALS_PER_LEASE * self._rng.uniform(0.85, 1.0)
        before, after = _number(self.seen), _number(seen)
        if self.seen is None or after != before:
            self._events.append(SlotLimitChanged(self.limit, before, after))
        self._is_missing, self.seen = False, seen
        if self._missing_slots(now) and self._free() < 1 and now >= self._ask_at:
            self._denied(None, now)

    def missing(self, now: float) -> None:
        """Note that the limit does not exist: admit nothing until it does, and keep checking."""
        self._is_looking, self._asked = False, 0
        self._reached(now)
        self._look_at = now + self.rules.retry_s * self._rng.uniform(0.85, 1.0)
        if not self._is_missing:
            self._events.append(SlotLimitMissing(self.limit))
        for lease_id in list(self._blocks.by_lease):
            self._drop(lease_id, "limit_deleted", now)
        self._is_missing, self.seen, self._peers = True, None, ()

    def leased(self, lease_id: str, slots: int, sent_at: float, now: float) -> None:
        """Add a block that was granted to a call made at `sent_at`."""
        self._asked = self._denials = 0
        self._ask_at = now
        self._reached(now)
        block = HeldBlock(lease_id, slots, sent_at + self.rules.lease_s, self._renewal(sent_at))
        self._blocks.by_lease[lease_id] = block
        self._count(slots)
        self._events.append(SlotsLeased(self.limit, slots, self._blocks.leased(now)))

    def denied(self, retry_after_s: float | None, now: float) -> None:
        """Note that the limit had no slots left; read it again before the next request."""
        self._asked = 0
        self._reached(now)
        self._denied(retry_after_s, now)

    def renewed(self, lease_id: str, sent_at: float, now: float) -> None:
        """Note that a lease was renewed by a call made at `sent_at`."""
        self._reached(now)
        if block := self._blocks.by_lease.get(lease_id):
            block.is_renewing = False
            block.until = max(block.until, sent_at + self.rules.lease_s)
            block.renew_at = self._renewal(sent_at)

    def lost(self, lease_id: str, now: float) -> None:
        """Note that the server no longer knows a lease: admit nothing more on it."""
        self._reached(now)
        self._drop(lease_id, "revoked", now)
        self._look_at = now

    def returned(self, lease_id: str, now: float) -> None:
        """Note that a block was given back."""
        self._reached(now)
        if block := self._blocks.by_lease.pop(lease_id, None):
            self._count(-block.slots)
            self._events.append(SlotsReturned(self.limit, block.slots, self._blocks.leased(now)))

    def failed(self, call: BankCall, now: float, *, reason: str, is_busy: bool = False) -> None:
        """Note that a call failed: the API is away or, if `is_busy`, only asks to retry later."""
        self._unmark(call)
        if is_busy:
            self._retry_at = now + _BUSY_PAUSE_S * self._rng.uniform(0.5, 1.5)
            return
        if isinstance(call, ReturnBlock) and self._is_closing:
            self._drop(call.lease_id, "unreachable", now)
        if now >= self._retry_at:
            self._failures += 1
            longest_s = self.rules.lease_s / (2 * RENEWALS_PER_LEASE)
            pause_s = min(_FIRST_RETRY_S * 2.0 ** min(self._failures - 1, 10), longest_s)
            self._retry_at = now + pause_s * self._rng.uniform(0.75, 1.0)
        if self._away_since is None:
            self._away_since = now
            held = self._blocks.leased(now)
            self._events.append(SlotServiceAway(self.limit, self.rules.outage.value, held, reason))

    def close(self) -> None:
        """Stop wanting slots: everything is given back. Closing twice changes nothing."""
        self._is_closing = True
        self._in_flight = self._waiting = 0
        self._peaks = (0, 0)

    def decide(self, now: float) -> list[BankCall]:
        """Return the calls to make now."""
        self._roll(now)
        for lease_id in self._blocks.expired(now):
            self._drop(lease_id, "expired", now)
        coarser_than = self._fitting() if self._is_contended() else None
        self._blocks.choose_leaving(min(self.wanted, self._share()), coarser_than, now)
        if now < self._retry_at:
            return []
        if self._away_since is not None and not self._is_closing:
            return self._probe()
        calls: list[BankCall] = [*self._blocks.returns(self._in_flight, now), *self._blocks.renewals(now)]
        if self._wants_look(now):
            self._is_looking = True
            calls.append(LookAtLimit())
        elif slots := self._slots_to_lease(now):
            self._asked = slots
            calls.append(LeaseBlock(slots))
        return calls

    def next_at(self, now: float) -> float | None:
        """Return when `decide` will do something on its own; None if only an answer or new demand can change that."""
        blocks = self._blocks.by_lease.values()
        ends = [block.until for block in blocks]
        calls = [block.renew_at for block in blocks if not block.is_in_call]
        if self._wants_looks() and not (self._is_looking or self._asked):
            calls.append(self._look_at)
            if self._missing_slots(now):
                calls.append(self._ask_at)
        if max(self._peaks) > self._need:
            ends.append(self._peak_from + self.rules.idle_s)
        if any(block.is_leaving and not block.is_in_call for block in blocks):
            calls.append(now + _DRAIN_LOOK_S)
        if calls:
            ends.append(max(min(calls), self._retry_at))
        return max(now, min(ends)) if ends else None

    @property
    def _need(self) -> int:
        return self._in_flight + self._waiting

    def _most(self) -> int:
        most = self.seen.limit if self.seen is not None else self.rules.block
        return most if self.rules.most is None else min(most, self.rules.most)

    def _share(self) -> int:
        """Return the slots that this process may hold now: its fair share while another is short, else its maximum."""
        if self._is_closing or self._is_missing or self.seen is None or not self.seen.enabled:
            return 0
        if not self._is_contended():
            return self._most()
        wants = {peer.holder: peer.wanted for peer in self._peers}
        return fair_shares(self.seen.limit, wants | {self.holder: self.wanted})[self.holder]

    def _is_contended(self) -> bool:
        seen = self.seen
        return any(peer.is_short for peer in self._peers) or (seen is not None and seen.active_slots > seen.limit)

    def _fitting(self) -> int:
        """Return the block size that fits the shares: smaller when many processes contend for few slots."""
        if self.seen is None or not self._is_contended():
            return self.rules.block
        contenders = 1 + sum(1 for peer in self._peers if peer.wanted)
        return max(1, min(self.rules.block, self.seen.limit // (2 * contenders)))

    def _wants_looks(self) -> bool:
        return not self._is_closing and bool(self._blocks or self._need)

    def _wants_look(self, now: float) -> bool:
        if self._is_looking or self._asked or not self._wants_looks():
            return False
        is_stuck = self._missing_slots(now) > 0 and self._free() < 1 and now >= self._ask_at
        return now >= self._look_at or is_stuck

    def _missing_slots(self, now: float) -> int:
        """Return how many more slots it may hold, if it needs more than it holds; else 0."""
        held = self._blocks.usable(now)
        return 0 if held >= self._need else max(0, self._share() - held)

    def _free(self) -> int:
        return 0 if self.seen is None else self.seen.limit - self.seen.active_slots

    def _slots_to_lease(self, now: float) -> int:
        if self._asked or self._is_looking or now < self._ask_at:
            return 0
        return max(0, min(self._fitting(), self._missing_slots(now), self._free()))

    def _denied(self, retry_after_s: float | None, now: float) -> None:
        if not self._denials:
            self._events.append(SlotsDenied(self.limit, self._blocks.leased(now), self.wanted))
        self._denials += 1
        pause_s = max(retry_after_s or 0.0, _FIRST_RETRY_S * 2.0 ** min(self._denials - 1, 10))
        self._ask_at = now + min(pause_s, self.rules.retry_s) * self._rng.uniform(0.75, 1.25)
        self._look_at = min(self._look_at, self._ask_at)

    def _count(self, slots: int) -> None:
        """Adjust the last reading of the limit by slots that this process has taken or returned since."""
        if self.seen is not None:
            active = max(0, self.seen.active_slots + slots)
            self.seen = LimitSeen(self.seen.limit, active, self.seen.enabled)

    def _renewal(self, sent_at: float) -> float:
        return sent_at + self.rules.lease_s / RENEWALS_PER_LEASE * self._rng.uniform(0.85, 1.0)

    def _roll(self, now: float) -> None:
        """Forget peaks of need that are older than the time after which a block counts as idle."""
        if now - self._peak_from >= self.rules.idle_s:
            is_recent = now - self._peak_from < 2 * self.rules.idle_s
            self._peaks = (self._peaks[1] if is_recent else 0, self._need)
            self._peak_from = now

    def _probe(self) -> list[BankCall]:
        """Return the single call that shows whether the API is back."""
        if self._is_looking or self._asked or self._blocks.is_in_call:
            return []
        if renewal := self._blocks.probe():
            return [renewal]
        if not self._wants_looks():
            return []
        self._is_looking = True
        return [LookAtLimit()]

    def _reached(self, now: float) -> None:
        self._failures = 0
        self._retry_at = now
        if self._away_since is not None:
            away_s, self._away_since = now - self._away_since, None
            self._events.append(SlotServiceBack(self.limit, self._blocks.leased(now), away_s))
            self._look_at = now

    def _unmark(self, call: BankCall) -> None:
        match call:
            case LookAtLimit():
                self._is_looking = False
            case LeaseBlock():
                self._asked = 0
            case RenewBlock(lease_id) | ReturnBlock(lease_id):
                self._blocks.unmark(lease_id)

    def _drop(self, lease_id: str, reason: str, now: float) -> None:
        if block := self._blocks.by_lease.pop(lease_id, None):
            self._count(-block.slots)
            self._events.append(SlotsLost(self.limit, block.slots, self._blocks.leased(now), reason))

    def validate(self) -> None:
        """Assert the invariants of the class."""
        for lease_id, block in self._blocks.by_lease.items():
            assert lease_id == block.lease_id
            assert block.slots >= 1, f"{lease_id}: {block.slots} slots"
            assert not block.is_returning or block.is_leaving, f"{lease_id} is returned but used"
        assert not (self._is_missing and self._blocks), "blocks of a limit that is missing"
        assert self._asked >= 0


def _number(seen: LimitSeen | None) -> int | None:
    return seen.limit if seen is not None and seen.enabled else None


def fair_shares(total: int, wants: Mapping[str, int]) -> dict[str, int]:
    """Return max-min fair integer shares: no contender gets more than it wants, and the rest goes to the others.

    Shares of contenders that get less than they want differ by at most one, always for the same ones, so that processes
    that compute this independently agree. Shares add up to `total`, or to everything wanted if that is less.
    """
    shares: dict[str, int] = {}
    left = max(0, total)
    # Smallest wants first: each gets an equal part of what is left, or all that it wants.
    order = sorted(wants, key=lambda name: (wants[name], name))
    for position, name in enumerate(order):
        shares[name] = min(max(0, wants[name]), left // (len(order) - position))
        left -= shares[name]
    return shares


def split_slots(held: int, uses: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Return how many requests each of the providers that share `held` slots of one limit may have in flight.

    Args:
        held: slots of this process.
        uses: requests in flight and waiting, by provider.

    Each gets its fair share of what they want together, and spare slots are divided evenly, so that a provider without
    requests can start one without asking. A slot in use moves to another provider only once it is free: requests in
    flight and those that may start never add up to more than `held`.
    """
    targets = fair_shares(held, {name: used + waiting for name, (used, waiting) in uses.items()})
    left = held - sum(targets.values())
    even = fair_shares(left, dict.fromkeys(uses, left))
    targets = {name: targets[name] + even[name] for name in uses}
    free = held - sum(used for used, _ in uses.values())
    more = fair_shares(free, {name: max(0, targets[name] - used) for name, (used, _) in uses.items()})
    return {name: min(targets[name], used + more[name]) for name, (used, _) in uses.items()}
