"""A limit on a server, as the slot bank meets it: grants, renewals, ends of leases, changes and outages, in no time."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

from headgate.admission.bank import (
    BankCall,
    BankRules,
    LeaseBlock,
    LimitSeen,
    LookAtLimit,
    Peer,
    RenewBlock,
    ReturnBlock,
    SlotBank,
)


@dataclass
class Grant:
    """A lease as the server keeps it."""

    holder: str
    slots: int
    end: float


@dataclass
class LimitServer:
    """One limit with its leases. Ended leases stay counted for up to `sweep_s`, as on the real server."""

    limit: int | None
    lease_s: float = 60.0
    sweep_s: float = 15.0
    enabled: bool = True
    leases: dict[str, Grant] = field(default_factory=dict)
    calls: int = 0
    _ids: itertools.count[int] = field(default_factory=itertools.count)

    def sweep(self, now: float) -> None:
        """Free what ended long enough ago."""
        self.leases = {k: g for k, g in self.leases.items() if now < g.end + self.sweep_s}

    def active(self) -> int:
        return sum(grant.slots for grant in self.leases.values())

    def live(self, holder: str, now: float) -> int:
        """Slots under leases of a holder that have not ended."""
        return sum(g.slots for g in self.leases.values() if g.holder == holder and now < g.end)

    def answer(self, call: BankCall, bank: SlotBank, peers: list[Peer], sent_at: float, now: float) -> None:
        """Carry a call out and tell the bank."""
        self.act(call, bank.holder, now)(bank, peers, sent_at)

    def act(self, call: BankCall, holder: str, now: float):
        """Carry a call out and return what tells a bank of it."""
        self.calls += 1
        self.sweep(now)
        match call:
            case LookAtLimit() if self.limit is not None:
                seen = LimitSeen(self.limit, self.active(), self.enabled)
                return lambda bank, peers, sent_at: bank.looked(seen, peers, now)
            case LookAtLimit():
                return lambda bank, peers, sent_at: bank.missing(now)
            case LeaseBlock() if self.limit is None:
                return lambda bank, peers, sent_at: bank.missing(now)
            case LeaseBlock(slots):
                assert self.limit is not None
                if self.active() + slots > self.limit:
                    return lambda bank, peers, sent_at: bank.denied(2.0, now)
                lease_id = f"lease-{next(self._ids)}"
                self.leases[lease_id] = Grant(holder, slots, now + self.lease_s)
                return lambda bank, peers, sent_at: bank.leased(lease_id, slots, sent_at, now)
            case RenewBlock(lease_id) if lease_id in self.leases and now < self.leases[lease_id].end:
                self.leases[lease_id].end = now + self.lease_s
                return lambda bank, peers, sent_at: bank.renewed(lease_id, sent_at, now)
            case RenewBlock(lease_id):
                return lambda bank, peers, sent_at: bank.lost(lease_id, now)
            case ReturnBlock(lease_id):
                self.leases.pop(lease_id, None)
                return lambda bank, peers, sent_at: bank.returned(lease_id, now)


@dataclass
class Process:
    """A process with a bank, requests in flight and requests that wait, in simulated time."""

    bank: SlotBank
    in_flight: int = 0
    waiting: int = 0

    def tell(self, now: float) -> None:
        self.bank.demand(self.in_flight, self.waiting, now)

    def admit(self, now: float) -> None:
        """Admit what waits while slots are held."""
        held = self.bank.slots_held(now)
        room = self.waiting if held is None else min(self.waiting, max(0, held - self.in_flight))
        self.waiting -= room
        self.in_flight += room

    def finish(self, count: int) -> None:
        self.in_flight -= count


class World:
    """Processes at one limit; every call is answered at once while the server is up."""

    def __init__(self, limit: int | None, *needs: int, rules: BankRules | None = None) -> None:
        self.now = 0.0
        self.is_up = True
        self.server = LimitServer(limit)
        self.events: list[object] = []
        self.processes = [
            Process(SlotBank("api", f"p{i}", rules or BankRules(), random.Random(i)), waiting=need)
            for i, need in enumerate(needs)
        ]

    def held(self) -> list[int | None]:
        return [process.bank.slots_held(self.now) for process in self.processes]

    def peers(self) -> list[Peer]:
        return [Peer(p.bank.holder, p.bank.slots_held(self.now) or 0, p.bank.wanted) for p in self.processes]

    def _turn(self, process: Process) -> bool:
        process.tell(self.now)
        calls = process.bank.decide(self.now)
        process.bank.validate()
        process.admit(self.now)
        for call in calls:
            if self.is_up:
                self.server.answer(call, process.bank, self.peers(), self.now, self.now)
            else:
                process.bank.failed(call, self.now, reason="refused")
        self.events += process.bank.take_events()
        return bool(calls)

    def settle(self) -> None:
        """Let everything happen that happens now."""
        for _ in range(1_000):
            turns = [self._turn(process) for process in self.processes]
            if not any(turns):
                return
        raise AssertionError("the banks never come to rest")

    def run(self, seconds: float) -> None:
        """Let time pass, from one thing that can happen to the next."""
        end = self.now + seconds
        self.settle()
        for _ in range(100_000):
            times = [p.bank.next_at(self.now) for p in self.processes]
            following = min((t for t in times if t is not None), default=end)
            if following >= end:
                break
            self.now = max(following, self.now + 1e-3)
            self.settle()
        else:
            raise AssertionError("the banks are never idle")
        self.now = end
        self.settle()

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]
