"""What this process writes into the register of holders, and when."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.admission import BankRules, SlotBank
from headgate.core import errors
from headgate.orchestration.slot_register import BEATS_PER_LEASE, Holding, entry
from headgate.orchestration.slot_service import SlotService

_GAP_S = 2.0
"""Between two writings at least: a process that grows by ten blocks tells of it twice."""

_PAUSE_S = 10.0
"""After a writing that failed."""


class Notices:
    """The register's entry of one process. Owned by the slot broker.

    Written when what is held changes, when slots run short and when they do not any more, and at least twice in the
    length of a lease while anything is held or wanted.
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
        """Return when something is to be written; None when nothing is."""
        if self._is_writing:
            return None
        holdings = self._holdings(banks, now)
        if holdings != self._told:
            return max(now, self._not_before)
        if self._written_at is None or not any(h.held or h.wanted for h in holdings.values()):
            return None
        return max(self._not_before, self._written_at + self._rules.lease_s / BEATS_PER_LEASE)

    async def write(self, service: SlotService, banks: Mapping[str, SlotBank], now: float) -> None:
        """Write the entry; a server that cannot take it is tried again later."""
        holdings = self._holdings(banks, now)
        self._is_writing = True
        try:
            value = entry(self._process, self._rules.lease_s, holdings)
            await service.write_entry(self._holder, value, is_first=self._written_at is None)
        except errors.OrchestratorUnreachableError:
            # The banks tell of a server that is away: they call it at least as often.
            self._not_before = now + _PAUSE_S
        else:
            self._told, self._written_at, self._not_before = holdings, now, now + _GAP_S
        finally:
            self._is_writing = False

    async def withdraw(self, service: SlotService) -> None:
        """Take the entry out of the register; it goes stale by itself when the server is away."""
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
        """Return what is said of a bank: the need is rounded to blocks, as every writing costs a call."""
        leases = bank.leases(now)
        held = sum(leases.values())
        block = self._rules.block
        wanted = -(-bank.wanted // block) * block if bank.wanted > held else held
        most = bank.seen.limit if bank.seen is not None else held
        return Holding(held, min(wanted, max(held, most)), len(leases))
