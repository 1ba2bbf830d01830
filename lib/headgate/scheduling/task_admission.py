"""Task admission: which groups may take more of the resources, according to the policy and their holdings."""

from __future__ import annotations

from collections.abc import Callable

from headgate.core import LeaseBook, Task
from headgate.scheduling.fair_queue import Selection
from headgate.scheduling.holdings import Holdings
from headgate.scheduling.policies import DenyReason, Refused, TaskPolicy
from headgate.scheduling.shelves import CAPPED, OPEN, PRESSURED, WITHIN, ReadyShelves, Shelf

Choice = tuple[Shelf, Selection[Task], float]
"""A task that may be served, with its shelf and its tag."""


class TaskAdmission:
    """Tracks every group's standing, and finds the first task that the policy lets run. Pure.

    A group whose next task would exceed its share is listed among the borrowers. Its standing is updated only when its
    task is selected and when it releases units, so changes in between may go unnoticed.

    Owned by the dispatcher, with its queue and its book. Used only while `counts`, that is, if the policy has shares.
    """

    def __init__(
        self, policy: TaskPolicy, book: LeaseBook, queue: ReadyShelves, capped: Callable[[str, int, Shelf], None]
    ) -> None:
        """Prepare it; `capped` is called with group, standing and shelf of a group that has used up its share."""
        self.policy = policy
        self.holdings = Holdings(policy, book.limits)
        self.counts = policy.has_shares
        self.reserve_ends: float | None = None
        self._capped = capped
        self._book = book
        self._queue = queue
        self._left_seen = 0

    # What happens to a group's tasks.

    def withdrawn(self, task: Task) -> None:
        """Note that a task no longer waits, without having started."""
        self.holdings.dequeued(task.group, self._queue.shelf_for(task).governed)

    def gave_back(self, task: Task) -> None:
        """Note that a task's units were released, or are lent to others while it is parked."""
        group = task.group
        is_within = self.holdings.gave_back(group, self._queue.shelf_for(task).governed)
        for shelf in self._queue.shelves():
            if group in shelf.standings and (is_within or shelf.standings[group] == CAPPED):
                shelf.stand(group, self.holdings.standing(group, shelf.governed))

    def took_again(self, task: Task, now: float) -> None:
        """Note that a parked task has its units again."""
        self.holdings.took(task.group, task.weight, self._queue.shelf_for(task).governed, now)

    def limits_changed(self) -> None:
        """Update every group that is not within its share, since shares may have changed."""
        self.holdings.shares_changed()
        for shelf in self._queue.shelves():
            self._look_again(shelf, above=0)

    # Selection.

    def first(self, shelves: list[Shelf], state: int, now: float) -> Choice | None:
        """Return the first task of lanes in a state: of groups within their share, else of groups that may borrow."""
        if not self.counts:
            return self._queue.first(shelves, state)
        choice = self._verified(shelves, state)
        if choice is not None:
            return choice
        if self.holdings.left != self._left_seen:
            # A peer has left, so shares may have grown.
            self._left_seen = self.holdings.left
            for shelf in shelves:
                self._look_again(shelf, above=CAPPED - 1)
        lending = shelves
        for shelf in shelves:
            if not self._lends(shelf, now):
                lending = [other for other in lending if other is not shelf]
        if not self.holdings.has_ceilings:
            return self._queue.first(lending, state + 1)
        choice = self._verified(lending, state + 1)
        # A group that was about to borrow may turn out to be within its share by now.
        return choice or self._verified(shelves, state)

    def _verified(self, shelves: list[Shelf], rank: int) -> Choice | None:
        """Return the first task of a rank; groups whose standing has changed are moved to the right lane on the way."""
        while (choice := self._queue.first(shelves, rank)) is not None:
            shelf, group = choice[0], choice[1].item.group
            before, standing = shelf.standings.get(group, WITHIN), self.holdings.standing(group, shelf.governed)
            if standing == before:
                return choice
            shelf.stand(group, standing)
            if standing > before:
                self._capped(group, standing, shelf)
        return None

    def _lends(self, shelf: Shelf, now: float) -> bool:
        """Return whether a group may borrow what the shelf needs without touching a reserve that is kept."""
        limits, in_use = self._book.limits, self._book.in_use
        for resource, amount in shelf.governed:
            left = limits.get(resource, 0) - in_use.get(resource, 0) - amount
            if left < self.holdings.reserve(resource, now):
                self.reserve_ends = self.holdings.reserve_until(resource)
                return False
        return True

    # Standings.

    def _look_again(self, shelf: Shelf, above: int) -> None:
        for group in [group for group, standing in shelf.standings.items() if standing > above]:
            shelf.stand(group, self.holdings.standing(group, shelf.governed))

    # Queries.

    def refused(self, task: Task, now: float) -> Refused | None:
        """Return why a task whose resources are free would get no lease now. Affects no decision."""
        if not self.counts:
            return None
        wanted_by_peers = self._wanted_by_peers(task)
        for resource, wanted in self._queue.shelf_for(task).governed:
            held, share, ceiling = self.holdings.bounds(task.group, resource)
            if held + wanted <= share:
                continue
            owes = int(max(0.0, held - share))
            if resource in wanted_by_peers:
                reason = DenyReason.BORROW_DEBT if owes else DenyReason.GROUP_CAP
                return Refused(reason, resource, held, int(share), owes)
            most = min(ceiling, held + self._book.available(resource) - self.holdings.reserve(resource, now))
            if held + wanted > most:
                return Refused(DenyReason.BORROW_DEBT, resource, held, int(most), owes)
        return None

    def _wanted_by_peers(self, task: Task) -> set[str]:
        """Return the resources that another group gets first, because it is within its share and its task could run.

        Models under pressure are passed over, so their groups are peers only of groups whose model is under pressure.
        """
        self._queue.close_full()
        state = PRESSURED if self._queue.state(task.model) == PRESSURED else OPEN
        wanted: set[str] = set()
        for shelf in self._queue.stocked(self._book):
            named = {resource for resource, _ in shelf.governed}
            if not named <= wanted and any(self._is_peer(task, state, shelf, head) for head in shelf.heads()):
                wanted |= named
        return wanted

    def _is_peer(self, task: Task, state: int, shelf: Shelf, head: Task) -> bool:
        is_open = head.group != task.group and self._queue.state(head.model) == state
        return is_open and not self.holdings.standing(head.group, shelf.governed)
