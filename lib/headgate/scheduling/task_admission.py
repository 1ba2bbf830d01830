"""Task admission: which groups may take more of the resources, as the policy and their holdings have it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headgate.core import Denied, LeaseBook, Task
from headgate.fairness import Selection
from headgate.scheduling.holdings import Holdings
from headgate.scheduling.policies import Claim, Refused, TaskPolicy, evaluate
from headgate.scheduling.shelves import CAPPED, OPEN, PRESSURED, ReadyShelves, Shelf

Choice = tuple[Shelf, Selection[Task], float]
"""A task that may be served, with its shelf and its tag."""


class TaskAdmission:
    """Keeps every group's standing to its share, and finds the first task that the policy lets go. Pure.

    A group that would exceed its share with its next task is listed among those that borrow. Where it stands is looked
    at when its task comes up, and when it gives something back; in between it may have changed and changed back.

    Owned by the dispatcher, with its queue and its book. Only asked while `counts`, that is, if the policy has shares.
    """

    def __init__(self, policy: TaskPolicy, book: LeaseBook, queue: ReadyShelves) -> None:
        self.policy = policy
        self.holdings = Holdings()
        self.counts = policy.has_shares
        self.reserve_ends: float | None = None
        self.capped: Callable[[str, int, Shelf], None] = lambda _group, _standing, _shelf: None
        """Told of a group that has its share: group, standing, shelf."""
        self._book = book
        self._queue = queue
        self._left_seen = 0

    # What happens to a group's tasks.

    def will_queue(self, task: Task, shelf: Shelf) -> None:
        """Find where a group stands that comes to a shelf."""
        if not shelf.has_group(task.group):
            self._stand(shelf, task.group)

    def queued(self, task: Task, shelf: Shelf, now: float) -> None:
        """Note a task that waits."""
        self.holdings.queued(task.group, task.weight, shelf.governed, now)

    def withdrawn(self, task: Task) -> None:
        """Note a task that no longer waits and did not start."""
        self.holdings.dequeued(task.group, self._queue.shelf_for(task).governed)

    def started(self, task: Task, shelf: Shelf) -> None:
        """Note a task that was given its units."""
        self.holdings.started(task.group, shelf.governed)
        self._must_verify(task.group)

    def gave_back(self, task: Task) -> None:
        """Note units that came back, or are lent out while their task is parked."""
        self.holdings.gave_back(task.group, self._queue.shelf_for(task).governed)
        for shelf in self._queue.shelves():
            before = shelf.standing(task.group)
            if before and self._stand(shelf, task.group) != before:
                shelf.relist(task.group)

    def took_again(self, task: Task, now: float) -> None:
        """Note that a parked task has its units again."""
        self.holdings.took(task.group, task.weight, self._queue.shelf_for(task).governed, now)
        self._must_verify(task.group)

    def limits_changed(self) -> None:
        """Look at every group that has its share: it may be another one."""
        self.holdings.shares_changed()
        for shelf in self._queue.shelves():
            self._look_again(shelf, above=0)

    # Who goes next.

    def first(self, shelves: list[Shelf], state: int, now: float) -> Choice | None:
        """Return the first task of lanes in a state: of groups within their share, else of those that may borrow."""
        choice = self._verified(shelves, state)
        if choice is not None:
            return choice
        if self.holdings.left != self._left_seen:
            # A peer has left, so shares may have grown.
            self._left_seen = self.holdings.left
            for shelf in shelves:
                self._look_again(shelf, above=CAPPED - 1)
        lending = [shelf for shelf in shelves if self._lends(shelf, now)]
        choice = self._verified(lending, state + 1)
        # A group that was about to borrow may turn out to be within its share by now.
        return choice or self._verified(shelves, state)

    def _verified(self, shelves: list[Shelf], rank: int) -> Choice | None:
        """Return the first task of a rank; groups that turn out to stand otherwise are listed where they belong."""
        while (choice := self._queue.first(shelves, rank)) is not None:
            shelf, group = choice[0], choice[1].item.group
            if shelf.verified.get(group) == self.holdings.version:
                return choice
            before = shelf.standing(group)
            standing = self._stand(shelf, group)
            if standing == before:
                return choice
            shelf.relist(group)
            if standing > before:
                self.capped(group, standing, shelf)
        return None

    def _lends(self, shelf: Shelf, now: float) -> bool:
        """Return whether a group may borrow what the shelf needs: not the reserve, while it is kept."""
        for resource, amount in shelf.governed:
            limit = self._book.limits.get(resource, 0)
            kept = self.holdings.reserve(self.policy, resource, limit, now)
            if limit - self._book.in_use.get(resource, 0) - amount < kept:
                self.reserve_ends = self.holdings.reserve_until(self.policy, resource)
                return False
        return True

    # Standings.

    def _stand(self, shelf: Shelf, group: str) -> int:
        standing = self.holdings.standing(self.policy, group, shelf.governed, self._book.limits)
        shelf.stand(group, standing, self.holdings.version)
        return standing

    def _look_again(self, shelf: Shelf, above: int) -> None:
        for group in shelf.standing_above(above):
            self._stand(shelf, group)
            shelf.relist(group)

    def _must_verify(self, group: str) -> None:
        """Have a group's standing looked at again before it is served: it holds more than it did."""
        for shelf in self._queue.shelves():
            shelf.verified.pop(group, None)

    # What is asked.

    def claims(self, task: Task, now: float) -> tuple[Claim, ...]:
        """Return what a task's group claims of each resource that the policy is about."""
        wanted_by_peers = self._wanted_by_peers(task)
        return tuple(
            self.holdings.claim(
                task.group,
                resource,
                amount,
                free=self._book.available(resource),
                limit=self._book.limits.get(resource, 0),
                is_reserve_kept=now < self.holdings.reserve_until(self.policy, resource),
                does_peer_wait=resource in wanted_by_peers,
            )
            for resource, amount in self._queue.shelf_for(task).governed
        )

    def evaluate(self, task: Task, now: float) -> Denied | Refused | None:
        """Return why a task would get no lease now, or None if it would. Changes nothing that decides."""
        short = self._book.shortage(task.resources)
        if short is not None or not self.counts:
            return short
        verdict = evaluate(self.policy, self.claims(task, now))
        return verdict if isinstance(verdict, Refused) else None

    def _wanted_by_peers(self, task: Task) -> set[str]:
        """Return the resources that go to another group first: it is within its share, and its task could run.

        Whoever is under pressure is passed over, so it is a peer of those alone that are under pressure, too.
        """
        state = PRESSURED if self._queue.state(task.model) == PRESSURED else OPEN
        wanted: set[str] = set()
        for shelf in self._queue.stocked(self._book):
            named = {resource for resource, _ in shelf.governed}
            if not named <= wanted and shelf.select_next(partial(self._is_peer, task, state, shelf)):
                wanted |= named
        return wanted

    def _is_peer(self, task: Task, state: int, shelf: Shelf, head: Task) -> bool:
        is_open = head.group != task.group and self._queue.state(head.model) in {None, state}
        return is_open and not self.holdings.standing(self.policy, head.group, shelf.governed, self._book.limits)

    def debts(self) -> dict[tuple[str, str], int]:
        """Return what each group holds of each resource above its share, where that is something."""
        found = {}
        for group, resource in self.holdings.groups() if self.counts else ():
            limit = self._book.limits.get(resource, 0)
            claim = self.holdings.claim(group, resource, 0, free=0, limit=limit, is_reserve_kept=False)
            share = self.policy.share(resource, limit, claim.weight, claim.total_weight, claim.groups)
            if claim.held > share:
                found[group, resource] = int(claim.held - share)
        return found
