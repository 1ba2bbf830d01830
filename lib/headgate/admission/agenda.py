"""What happens by the passing of time alone: requests that give up waiting, limits and cooldowns that change."""

from __future__ import annotations

import heapq
import itertools
import math

from headgate.admission.accounts import Account
from headgate.admission.leases import Ticket


class Agenda:
    """Deadlines of tickets and due times of accounts. Pure; owned by the controller.

    Both heaps keep what is out of date until its time comes, or until it is the greater part of them.

    Attributes:
        changes_at: not after the earliest of what is due; infinite when nothing is.
    """

    __slots__ = ("_accounts", "_deadlines", "_kept", "_order", "changes_at")

    def __init__(self) -> None:
        self.changes_at = math.inf
        self._deadlines: list[tuple[float, int, Ticket]] = []
        self._accounts: list[tuple[float, int, Account]] = []
        self._order = itertools.count()
        self._kept = 0

    def add_deadline(self, ticket: Ticket, deadline: float) -> None:
        """Have a waiting ticket given up at `deadline`."""
        heapq.heappush(self._deadlines, (deadline, ticket.number, ticket))
        self.changes_at = min(self.changes_at, deadline)
        if len(self._deadlines) > 2 * self._kept + 64:
            self._deadlines = [entry for entry in self._deadlines if entry[2].flow is not None]
            heapq.heapify(self._deadlines)
            self._kept = len(self._deadlines)

    def set_due(self, account: Account, due_at: float) -> None:
        """Have an account looked at when `due_at` comes, and not at its former due time."""
        if due_at == account.due_at:
            return
        account.due_at = due_at
        if due_at < math.inf:
            heapq.heappush(self._accounts, (due_at, next(self._order), account))
            self.changes_at = min(self.changes_at, due_at)

    def next_at(self) -> float:
        """Return when something is due; infinite when nothing is."""
        deadlines, accounts = self._deadlines, self._accounts
        while deadlines and deadlines[0][2].flow is None:
            heapq.heappop(deadlines)
        while accounts and accounts[0][0] != accounts[0][2].due_at:
            heapq.heappop(accounts)
        return min(deadlines[0][0] if deadlines else math.inf, accounts[0][0] if accounts else math.inf)

    def refresh(self) -> None:
        """Find out when something is due next, after what was due has been taken out."""
        self.changes_at = self.next_at()

    def pop_expired(self, now: float) -> Ticket | None:
        """Take out and return a waiting ticket whose deadline has come."""
        while self._deadlines and self._deadlines[0][0] <= now:
            ticket = heapq.heappop(self._deadlines)[2]
            if ticket.flow is not None:
                return ticket
        return None

    def pop_due(self, now: float) -> Account | None:
        """Take out and return an account whose due time has come; it has none until it is given another."""
        while self._accounts and self._accounts[0][0] <= now:
            due_at, _, account = heapq.heappop(self._accounts)
            if account.due_at == due_at:
                account.due_at = math.inf
                return account
        return None
