"""The ready tasks, on one shelf per need: what waits for a short resource stands apart from what can run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from headgate.core import Denied, LeaseBook, Task
from headgate.fairness import Selection
from headgate.scheduling.holdings import Units
from headgate.scheduling.ready_queue import FairReadyQueue

OPEN, PRESSURED, CLOSED = 0, 2, -1
"""States of a lane; the first two are ranks for groups within their share, each with the next rank for borrowers."""

RANKS = 4
_REMEMBERED_GROUPS = 16_384
"""Groups whose standing is known to be right; when they are more, some are gone, and all are looked at again."""
CAPPED = 2


class Shelf(FairReadyQueue):
    """The tasks with the same needs. A group waits in its model's lane, or in that of the groups that borrow.

    While a resource that the shelf needs is short, its virtual time stands, so that its groups keep their shares of
    that resource among each other, however long the others go on.
    """

    def __init__(self, units: Units, governed: frozenset[str] | None) -> None:
        super().__init__(lane_of=self._lane_of_task)
        self.units = units
        self.needs: Mapping[str, int] = dict(units)
        named = [u for u in units if (u[0] != "submission" if governed is None else u[0] in governed)]
        self.governed: Units = tuple(named) if named or governed is not None else units
        self.stock = self._items
        """The tasks by id; to be read."""
        self.offset = 0.0
        self.is_short = False
        self.verified: dict[str, int] = {}
        """Group -> the version of the holdings by which its standing was found."""
        self._standing: dict[str, int] = {}
        self._has_borrowers = False
        """Whether any group ever stood above its share: until then nobody waits in the lanes of those who borrow."""
        self._lanes_of: dict[str, tuple[str, str, str]] = {}
        self.states: dict[str, int] = {}

    def set_state(self, model: str, state: int) -> None:
        """Open, close or rank the lanes of a model."""
        self.states[model] = state
        within, over, _ = self._names(model)
        self._set_lane(within, state, state)
        if self._has_borrowers:
            self._set_lane(over, state, state + 1)

    def standing(self, group: str) -> int:
        """Return how a group stands to its share, as it was last told."""
        return self._standing.get(group, 0)

    def stand(self, group: str, standing: int, version: int) -> None:
        """Note how a group stands to its share, by which version of the holdings; `relist` or a commit moves it."""
        if standing:
            self._standing[group] = standing
            if not self._has_borrowers:
                self._has_borrowers = True
                for model, state in self.states.items():
                    self._set_lane(self._names(model)[1], state, state + 1)
        elif self._standing:
            self._standing.pop(group, None)
        if len(self.verified) > _REMEMBERED_GROUPS:
            self.verified.clear()
        self.verified[group] = version

    def standing_above(self, standing: int) -> list[str]:
        """Return the groups that stand worse."""
        return [group for group, level in self._standing.items() if level > standing]

    def _set_lane(self, lane: str, state: int, rank: int) -> None:
        if state == CLOSED:
            self.close_lane(lane)
        else:
            self.set_rank(lane, rank)
            self.open_lane(lane)

    def _names(self, model: str) -> tuple[str, str, str]:
        names = self._lanes_of.get(model)
        if names is None:
            names = self._lanes_of[model] = (model, f"{model} (borrows)", f"{model} (at its ceiling)")
            self.close_lane(names[CAPPED])
            state = self.states.get(model)
            if state is not None:
                self.set_state(model, state)
        return names

    def _lane_of_task(self, task: Task) -> str:
        names = self._lanes_of.get(task.model) or self._names(task.model)
        return names[self._standing.get(task.group, 0)] if self._standing else names[0]


class ReadyShelves:
    """All ready tasks, fair between groups across shelves. Pure; owned by the dispatcher.

    Virtual time is one for all shelves: each one's own plus its offset, which grows while the shelf stands.
    """

    def __init__(self, governed: frozenset[str] | None = None) -> None:
        self._governed = governed
        self._shelves: dict[Units, Shelf] = {}
        self._by_needs: dict[int, tuple[Mapping[str, int], Shelf]] = {}
        self._states: dict[str, int] = {}
        self._closed: set[str] = set()
        self.short: Denied | None = None
        """What the last call of `stocked` found short first."""
        self.virtual_time = 0.0

    def __len__(self) -> int:
        return (
            sum(map(len, self._shelves.values()))
            if len(self._shelves) != 1
            else len(next(iter(self._shelves.values())))
        )

    def __contains__(self, task_id: object) -> bool:
        return any(task_id in shelf.stock for shelf in self._shelves.values())

    @property
    def by_model(self) -> Counter[str]:
        """Ready tasks by model."""
        return self._summed(lambda shelf: shelf.by_model)

    @property
    def by_environment(self) -> Counter[str]:
        """Ready tasks by environment."""
        return self._summed(lambda shelf: shelf.by_environment)

    def _summed(self, counts: Callable[[Shelf], Counter[str]]) -> Counter[str]:
        shelves = list(self._shelves.values())
        if len(shelves) == 1:
            return counts(shelves[0])
        return sum((counts(shelf) for shelf in shelves), Counter())

    def queued(self, model: str) -> int:
        """Return the ready tasks of a model."""
        return sum(shelf.by_model[model] for shelf in self._shelves.values())

    def demand(self, resource: str) -> int:
        """Return the units of a resource that ready tasks want."""
        return sum(len(s) * s.needs[resource] for s in self._shelves.values() if resource in s.needs)

    def stuck(self, resource: str) -> int:
        """Return the units of a resource that ready tasks want whose lane is closed. O(closed lanes)."""
        return sum(
            s.needs[resource] * sum(s.by_model[model] for model in self._closed)
            for s in self._shelves.values()
            if resource in s.needs
        )

    def shelves(self) -> Iterable[Shelf]:
        """Return all shelves."""
        return self._shelves.values()

    def shelf_for(self, task: Task) -> Shelf:
        """Return the shelf for tasks with the needs of `task`."""
        # A mapping that is kept alive here has an id that no other has.
        known = self._by_needs.get(id(task.resources))
        if known is not None:
            return known[1]
        units = tuple(sorted(task.resources.items()))
        shelf = self._shelves.get(units)
        if shelf is None:
            shelf = self._shelves[units] = Shelf(units, self._governed)
            shelf.offset = self.virtual_time
            for model, state in self._states.items():
                shelf.set_state(model, state)
        if len(self._by_needs) >= 1_024:
            self._by_needs.clear()
        self._by_needs[id(task.resources)] = (task.resources, shelf)
        return shelf

    def add(self, shelf: Shelf, task: Task) -> bool:
        """Add a task to its shelf unless it is queued already; return whether it was added."""
        if len(self._shelves) > 1 and any(task.task_id in other for other in self._shelves.values()):
            return False
        if self.virtual_time - shelf.offset > shelf.virtual_time:
            self._sync(shelf)
        return shelf.put(task)

    def set_state(self, model: str, state: int) -> None:
        """Open, close or rank the lane of a model."""
        if self._states.get(model) == state:
            return
        self._states[model] = state
        if state == CLOSED:
            self._closed.add(model)
        else:
            self._closed.discard(model)
        for shelf in self._shelves.values():
            shelf.set_state(model, state)

    def state(self, model: str) -> int | None:
        """Return the state of a model's lane; None for one that was never set."""
        return self._states.get(model)

    def stocked(self, book: LeaseBook) -> list[Shelf]:
        """Return the shelves with tasks whose needs can be met now."""
        found = []
        self.short = None
        for shelf in self._shelves.values():
            if not shelf.stock:
                continue
            denied = book.shortage(shelf.needs)
            is_short = denied is not None
            self.short = self.short or denied
            if is_short != shelf.is_short:
                self._stand(shelf, is_short=is_short)
            if not is_short:
                if self.virtual_time - shelf.offset > shelf.virtual_time:
                    self._sync(shelf)
                found.append(shelf)
        return found

    def first(self, shelves: list[Shelf], rank: int) -> tuple[Shelf, Selection[Task], float] | None:
        """Return the first task of one rank on `shelves`, with its tag."""
        best = None
        if len(shelves) == 1:
            only = shelves[0].first(rank)
            return None if only is None else (shelves[0], only, only.tag + shelves[0].offset)
        for shelf in shelves:
            selection = shelf.first(rank)
            if selection is not None:
                tag = selection.tag + shelf.offset
                if best is None or tag < best[2]:
                    best = (shelf, selection, tag)
        return best

    def item(self, task_id: str) -> Task | None:
        """Return a queued task."""
        return next((t for s in self._shelves.values() if (t := s.item(task_id)) is not None), None)

    def position(self, task_id: str) -> int:
        """Return how many tasks of the same group and needs are ahead. O(tasks of its group)."""
        return next(s.position(task_id) for s in self._shelves.values() if task_id in s)

    def items(self) -> Iterator[Task]:
        """Iterate over the queued tasks, shelf by shelf in the order in which they were enqueued."""
        return (task for shelf in list(self._shelves.values()) for task in shelf.items())

    def discard_where(self, condition: Callable[[Task], bool]) -> list[Task]:
        """Take out and return all tasks that fulfil the condition. O(tasks)."""
        return [task for shelf in self._shelves.values() for task in shelf.discard_where(condition)]

    def _sync(self, shelf: Shelf) -> None:
        if not shelf.is_short or not len(shelf):
            shelf.advance(self.virtual_time - shelf.offset)

    def _stand(self, shelf: Shelf, *, is_short: bool) -> None:
        shelf.is_short = is_short
        if is_short:
            shelf.advance(self.virtual_time - shelf.offset)
            return
        now = self.virtual_time - shelf.offset
        if now <= shelf.virtual_time:
            return  # nothing was served elsewhere meanwhile
        firsts = [s.tag for rank in range(RANKS) if (s := shelf.first(rank)) is not None]
        stood_at = min(now, max(shelf.virtual_time, min(firsts, default=now)))
        shelf.offset += now - stood_at

    def validate(self) -> None:
        """Assert the invariants of the shelves."""
        for shelf in self._shelves.values():
            shelf.validate()
        ids = [task.task_id for task in self.items()]
        assert len(ids) == len(set(ids)), "a task is on two shelves"
