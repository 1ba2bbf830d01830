"""The slot broker, one per process: carries out the slot banks' decisions, sets caps, and publishes its holdings."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Final

from headgate.admission import Backlog, LimitRule, ProviderModel, RequestAdmission, rule_for
from headgate.admission.bank import (
    BankCall,
    BankRules,
    LeaseBlock,
    LookAtLimit,
    RenewBlock,
    ReturnBlock,
    SlotBank,
    split_slots,
)
from headgate.core import Clock, SystemClock, errors
from headgate.core.events import Emit, SlotLimitDiffers, SlotsDisagree
from headgate.orchestration.slots.audit import Disagreements, apply_limits
from headgate.orchestration.slots.service import (
    BEATS_PER_LEASE,
    Holding,
    NoSlots,
    SlotService,
    SlotServiceBusyError,
    entry,
    known_slots,
    open_slot_service,
    peers_at,
)

_GAP_S = 2.0
"""The shortest interval between two writes: a process that grows by ten blocks writes twice."""

_PAUSE_S = 10.0
"""The pause after a failed write."""

_PRESS_S: Final = 0.02
"""The delay between a change of pressure and the next look, so that a storm of requests costs one look."""

_SHIFT_S: Final = 0.2
"""How often the split is checked while slots move between providers of one limit as requests end."""

_CLOSE_S: Final = 10.0
"""How long giving slots back may take; whatever is left then expires with its lease."""


class SlotBroker:
    """Leases slots from global concurrency limits for the providers of one campaign. Implements `SlotSource`.

    Lives as long as its campaign; everything happens on the loop of `serving`. No request calls the API: a block of
    slots is leased when requests wait for more than is held, and is renewed from then on.
    """

    def __init__(
        self,
        rules: Sequence[LimitRule],
        bank: BankRules | None = None,
        *,
        create_missing: bool = False,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Prepare a broker.

        Args:
            rules: the limits; the first that covers a provider applies to it.
            bank: how slots are leased from each.
            create_missing: create missing limits when serving begins; existing ones keep their number.
            clock: the real one by default.
            rng: source of the jitter.
        """
        self._rules = tuple(rules)
        self._given = {rule.name: rule.slots for rule in reversed(self._rules)}
        self._create_missing = create_missing
        self._bank_rules = bank or BankRules()
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self.holder = uuid.uuid4().hex[:12]
        self._banks: dict[str, SlotBank] = {}
        self._caps: dict[str, dict[str, int | None]] = {}
        self._notices = Notices(self.holder, f"{socket.gethostname()} {os.getpid()}", self._bank_rules)
        self._disagreements = Disagreements(self._bank_rules.lease_s / 3)
        self._woken = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._admission: RequestAdmission | None = None
        self._backlog: Backlog = lambda _provider: 0
        self._is_pressed = False
        self._is_closing = False

    def follow(self, name: ProviderModel, cap: int) -> int:
        """Return the cap of a model here, and bound its provider from now on if a limit covers it."""
        rule = rule_for(name.provider, self._rules)
        if rule is None:
            return cap
        if rule.name not in self._banks:
            bank = replace(self._bank_rules, most=rule.most)
            self._banks[rule.name] = SlotBank(rule.name, self.holder, bank, self._rng)
            self._caps[rule.name] = {}
        if name.provider not in self._caps[rule.name]:
            self._caps[rule.name][name.provider] = 0
            if self._admission is not None:
                self._admission.set_provider_cap(name.provider, 0)
                self._woken.set()
        return min(cap, rule.model_caps.get(name.model, cap))

    @asynccontextmanager
    async def serving(
        self, admission: RequestAdmission, emit: Emit, backlog: Backlog | None = None
    ) -> AsyncIterator[None]:
        """Make the caps of providers follow the slots while the context lasts; then give everything back."""
        self._backlog = backlog or self._backlog
        self._loop, self._admission = asyncio.get_running_loop(), admission
        for caps in self._caps.values():
            for provider in caps:
                admission.set_provider_cap(provider, 0)
        stop_listening = admission.on_change(lambda _key, _pressure: self._press())
        async with asyncio.TaskGroup() as group:
            # A separate task, so that its client's settings apply to it only.
            server = group.create_task(self._serve(admission, emit))
            try:
                yield
            finally:
                self._is_closing = True
                stop_listening()
                self._woken.set()
                await asyncio.wait([server], timeout=2 * _CLOSE_S)
                server.cancel()
                self._loop = self._admission = None

    def _press(self) -> None:
        """Note that the pressure on a key has changed; called from any thread, up to thousands of times per second."""
        if not self._is_pressed and self._loop is not None:
            self._is_pressed = True
            self._loop.call_soon_threadsafe(self._loop.call_later, _PRESS_S, self._woken.set)

    async def _serve(self, admission: RequestAdmission, emit: Emit) -> None:
        async with open_slot_service() as service:
            if self._create_missing:
                # The banks report a server that is away: they find no limit, or get no answer.
                with suppress(errors.OrchestratorUnreachableError):
                    await apply_limits(service, self._rules, only_missing=True)
            async with asyncio.TaskGroup() as calls:
                while not self._is_closing:
                    await self._rest(self._turn(service, admission, emit, calls))
                for bank in self._banks.values():
                    bank.close()
                deadline = self._clock.monotonic() + _CLOSE_S
                while self._clock.monotonic() <= deadline and not all(bank.is_done for bank in self._banks.values()):
                    delay_s = self._turn(service, admission, emit, calls)
                    await self._rest(min(1.0 if delay_s is None else delay_s, 1.0))
            await self._notices.withdraw(service)

    async def _rest(self, delay_s: float | None) -> None:
        """Return when something happens, or after `delay_s`."""
        timer = None if delay_s is None else asyncio.create_task(self._ring(delay_s))
        try:
            await self._woken.wait()
        finally:
            self._woken.clear()
            if timer is not None:
                timer.cancel()

    async def _ring(self, delay_s: float) -> None:
        await self._clock.sleep(delay_s)
        self._woken.set()

    def _turn(
        self, service: SlotService, admission: RequestAdmission, emit: Emit, calls: asyncio.TaskGroup
    ) -> float | None:
        """Do everything that is due; return the seconds until something is due again, or None."""
        self._is_pressed = False
        now = self._clock.monotonic()
        looking = []
        is_shifting = False
        for name, bank in self._banks.items():
            self._balance(name, bank, admission, now)
            for call in bank.decide(now):
                if isinstance(call, LookAtLimit):
                    looking.append(bank)
                else:
                    calls.create_task(self._make(service, bank, call))
            # Before the calls are made: a block must not be given back while requests can still be admitted on it.
            is_shifting |= self._balance(name, bank, admission, now)
        if looking:
            calls.create_task(self._look(service, looking, emit))
        notice_at = self._notices.next_at(self._banks, now)
        if notice_at is not None and notice_at <= now and not self._is_closing:
            calls.create_task(self._notify(service, now))
        for bank in self._banks.values():
            for event in bank.take_events():
                emit(event)
        times = [bank.next_at(now) for bank in self._banks.values()]
        times += [
            notice_at if notice_at is not None and notice_at > now else None,
            now + _SHIFT_S if is_shifting else None,
        ]
        return min((max(0.0, at - now) for at in times if at is not None), default=None)

    def _balance(self, name: str, bank: SlotBank, admission: RequestAdmission, now: float) -> bool:
        """Tell the bank the providers' demand, and split the slots held among them; return whether some have to move.

        A provider always wants at least one slot: without any, its tasks would not start, and none would be requested.
        """
        caps = self._caps[name]
        uses = {provider: self._use(provider, caps[provider], admission) for provider in caps}
        if not self._is_closing:
            bank.demand(sum(used for used, _ in uses.values()), sum(waiting for _, waiting in uses.values()), now)
        held = bank.slots_held(now)
        split: dict[str, int | None] = dict.fromkeys(caps) if held is None else {**split_slots(held, uses)}
        # Lower caps first, so that their sum never exceeds the held slots.
        for provider in sorted(caps, key=lambda p: _above(split[p]) - _above(caps[p])):
            if split[provider] != caps[provider]:
                caps[provider] = split[provider]
                admission.set_provider_cap(provider, split[provider])
        return len(caps) > 1 and any(used > _above(split[provider]) for provider, (used, _) in uses.items())

    def _use(self, provider: str, cap: int | None, admission: RequestAdmission) -> tuple[int, int]:
        """Return a provider's requests in flight, and the waiting ones that more slots would admit."""
        in_flight, waiting = admission.in_flight(provider), admission.pressing(provider)
        if cap is not None and in_flight >= cap:
            waiting += self._backlog(provider)
        return in_flight, max(waiting, 0 if in_flight else 1)

    async def _look(self, service: SlotService, banks: Sequence[SlotBank], emit: Emit) -> None:
        """Read limits and the register for banks that ask for it, and report slots with no known holder."""
        try:
            holders = [holder for holder in await service.holders() if holder.name != self.holder]
        except errors.OrchestratorUnreachableError as error:
            self._fail(banks, LookAtLimit(), error)
            return
        for bank in banks:
            try:
                seen = await service.limit(bank.limit)
            except errors.OrchestratorUnreachableError as error:
                self._fail([bank], LookAtLimit(), error)
                continue
            now = self._clock.monotonic()
            if seen is None:
                bank.missing(now)
                continue
            given = self._given.pop(bank.limit, seen.limit)
            if given != seen.limit:
                emit(SlotLimitDiffers(bank.limit, given, seen.limit))
            known = known_slots(bank.limit, holders) + sum(bank.leases(now).values())
            if self._disagreements.note(bank.limit, seen.active_slots, known, now):
                emit(SlotsDisagree(bank.limit, seen.active_slots, known))
            bank.looked(seen, peers_at(bank.limit, holders), now)
        self._woken.set()

    async def _make(self, service: SlotService, bank: SlotBank, call: BankCall) -> None:
        """Carry out a call and pass the outcome to the bank."""
        try:
            match call:
                case LeaseBlock(slots):
                    await self._lease(service, bank, slots)
                case RenewBlock(lease_id):
                    sent_at = self._clock.monotonic()
                    if await service.renew(lease_id, bank.rules.lease_s):
                        bank.renewed(lease_id, sent_at, self._clock.monotonic())
                    else:
                        bank.lost(lease_id, self._clock.monotonic())
                case ReturnBlock(lease_id):
                    await service.give_back(lease_id)
                    bank.returned(lease_id, self._clock.monotonic())
        except errors.OrchestratorUnreachableError as error:
            self._fail([bank], call, error)
        self._woken.set()

    async def _lease(self, service: SlotService, bank: SlotBank, slots: int) -> None:
        sent_at = self._clock.monotonic()
        answer = await service.lease(bank.limit, slots, bank.rules.lease_s)
        now = self._clock.monotonic()
        match answer:
            case None:
                bank.missing(now)
            case NoSlots(retry_after_s):
                bank.denied(retry_after_s, now)
            case str(lease_id):
                bank.leased(lease_id, slots, sent_at, now)

    def _fail(self, banks: Sequence[SlotBank], call: BankCall, error: errors.OrchestratorUnreachableError) -> None:
        now = self._clock.monotonic()
        for bank in banks:
            bank.failed(call, now, reason=error.message, is_busy=isinstance(error, SlotServiceBusyError))
        self._woken.set()

    async def _notify(self, service: SlotService, now: float) -> None:
        await self._notices.write(service, self._banks, now)
        self._woken.set()


def _above(slots: int | None) -> float:
    return float("inf") if slots is None else slots


class Notices:
    """One process's entry in the register. Owned by the slot broker.

    Written when the holdings change, when slots become short and when they no longer are, and at least twice per
    lease length while anything is held or wanted.
    """

    def __init__(self, holder: str, process: str, rules: BankRules) -> None:
        self._holder = holder
        self._process = process
        self._rules = rules
        self._told: Mapping[str, Holding] = {}
        self._written_at: float | None = None
        self._not_before = 0.0
        self._is_writing = False

    def next_at(self, banks: Mapping[str, SlotBank], now: float) -> float | None:
        """Return when to write next; None if nothing is to be written."""
        if self._is_writing:
            return None
        holdings = self._holdings(banks, now)
        if holdings != self._told:
            return max(now, self._not_before)
        if self._written_at is None or not any(h.held or h.wanted for h in holdings.values()):
            return None
        return max(self._not_before, self._written_at + self._rules.lease_s / BEATS_PER_LEASE)

    async def write(self, service: SlotService, banks: Mapping[str, SlotBank], now: float) -> None:
        """Write the entry; retry later if the server cannot take it."""
        holdings = self._holdings(banks, now)
        self._is_writing = True
        try:
            value = entry(self._process, self._rules.lease_s, holdings)
            await service.write_entry(self._holder, value, is_first=self._written_at is None)
        except errors.OrchestratorUnreachableError as error:
            # The banks report a server that is away: they call it at least as often.
            self._not_before = now + (_GAP_S if isinstance(error, SlotServiceBusyError) else _PAUSE_S)
        else:
            self._told, self._written_at, self._not_before = holdings, now, now + _GAP_S
        finally:
            self._is_writing = False

    async def withdraw(self, service: SlotService) -> None:
        """Delete the entry from the register; it goes stale by itself if the server is away."""
        if self._written_at is None:
            return
        try:
            await service.drop_entry(self._holder)
        except errors.OrchestratorUnreachableError:
            return
        self._written_at, self._told = None, {}

    def _holdings(self, banks: Mapping[str, SlotBank], now: float) -> dict[str, Holding]:
        return {name: self._holding(bank, now) for name, bank in banks.items() if bank.seen is not None}

    def _holding(self, bank: SlotBank, now: float) -> Holding:
        """Return the published holding of a bank; its need is rounded up to blocks, as every write costs a call."""
        leases = bank.leases(now)
        held = sum(leases.values())
        block = self._rules.block
        wanted = -(-bank.wanted // block) * block if bank.wanted > held else held
        most = bank.seen.limit if bank.seen is not None else held
        return Holding(held, min(wanted, max(held, most)), len(leases))
