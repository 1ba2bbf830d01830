"""The ready tasks, on one shelf per set of needs, so tasks that wait for a short resource do not block the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter

from headgate.core import Denied, LeaseBook, Task
from headgate.scheduling.fair_queue import UNLISTED, FairQueue, Lane, Selection
from headgate.scheduling.holdings import Units

OPEN, PRESSURED, CLOSED = 0, 2, -1
"""States of a lane. The first two are ranks for groups within their share; borrowers get the next rank after each."""

RANKS = 4
WITHIN, BORROWING, CAPPED = 0, 1, 2
"""A group's standing: within its share, above it, or at its ceiling."""

_LANE_NAMES = ("{}", "{} (borrows)", "{} (at its ceiling)")


class Shelf(FairQueue[Task]):
    """The tasks with the same needs. A group waits in its model's lane, or in that lane's variant for borrowers.

    While a resource that the shelf needs is short, the shelf's virtual time stands still, so that its groups keep their
    relative shares of that resource, however long other shelves are served.
    """

    def __init__(self, units: Units, governed: frozenset[str] | None, states: Mapping[str, int]) -> None:
        super().__init__(id_of=attrgetter("task_id"), lane_of=attrgetter("model"))
        self.units = units
        self.needs: Mapping[str, int] = dict(units)
        named = [u for u in units if (u[0] != "submission" if governed is None else u[0] in governed)]
        self.governed: Units = tuple(named) if named or governed is not None else units
        self.stock = self._items
        """The tasks by id; read-only."""
        self.offset = 0.0
        self.is_short = False
        self._states = states
        self.standings: dict[str, int] = {}
        """Group -> its standing, for groups that are not within their share; read-only."""
        self._model_lanes: tuple[dict[str, Lane], ...] = ({}, {}, {})

    def set_state(self, model: str, state: int) -> None:
        """Open, close or rank the lanes of a model."""
        for standing in (WITHIN, BORROWING):
            if (lane := self._model_lanes[standing].get(model)) is not None:
                self._put(lane, state, standing)

    def forget(self, model: str) -> None:
        """Drop the lanes of a model that has no waiting tasks."""
        for lanes in self._model_lanes:
            if (lane := lanes.pop(model, None)) is not None:
                lane.entry = UNLISTED
                del self._lanes[lane.name]

    def waiting(self, model: str) -> int:
        """Return how many tasks wait in a model's lanes, in groups whose first task is the model's. O(groups there)."""
        lanes = [lanes[model] for lanes in self._model_lanes if model in lanes]
        return sum(len(entry[2].items) for lane in lanes for entry in lane.heap if entry[2].entry is entry)

    def stand(self, group: str, standing: int) -> None:
        """Set a group's standing and list it in the matching lane."""
        if standing:
            self.standings[group] = standing
        else:
            self.standings.pop(group, None)
        self.relist(group)

    def _lane_for(self, item: Task) -> Lane:
        standing = self.standings.get(item.group, WITHIN) if self.standings else WITHIN
        return self._model_lanes[standing].get(item.model) or self._new_lane(item.model, standing)

    def _new_lane(self, model: str, standing: int) -> Lane:
        """Create and return the lane for a model's groups of this standing."""
        lane = self._model_lanes[standing][model] = self._lane(_LANE_NAMES[standing].format(model))
        self._put(lane, CLOSED if standing == CAPPED else self._states.get(model, OPEN), standing)
        return lane

    def _put(self, lane: Lane, state: int, standing: int) -> None:
        if state == CLOSED:
            self._close(lane)
        else:
            self._open(lane, state + standing)


class ReadyShelves:
    """All ready tasks, fair between groups across shelves. Pure; owned by the dispatcher.

    All shelves share one virtual time: a shelf's own plus its offset, which grows by the time the shelf stood still.
    """

    def __init__(self, governed: frozenset[str] | None = None) -> None:
        self._governed = governed
        self._shelves: dict[Units, Shelf] = {}
        self._by_needs: dict[int, tuple[Mapping[str, int], Shelf]] = {}
        self._states: dict[str, int] = {}
        self._closed: set[str] = set()
        self.full: set[str] = set()
        """Models with open lanes but no free parallel slot. Their lanes are closed only when selected, since a slot is
        often free again by then. The dispatcher adds and removes entries."""
        self.short: Denied | None = None
        """The first shortage that the last call of `stocked` found."""
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
    def by_environment(self) -> Mapping[str, int]:
        """Ready tasks by environment. O(tasks)."""
        return Counter(task.environment for task in self.items())

    def demand(self, resource: str) -> int:
        """Return the units of a resource that ready tasks want."""
        return sum(len(s) * s.needs[resource] for s in self._shelves.values() if resource in s.needs)

    def stuck(self, resource: str, pressed: Iterable[str] = ()) -> int:
        """Return the units of a resource wanted by ready tasks whose model is closed, full or among `pressed`.

        O(groups in those lanes).
        """
        return sum(
            s.needs[resource] * sum(s.waiting(model) for model in self._closed.union(self.full, pressed))
            for s in self._shelves.values()
            if resource in s.needs
        )

    def shelves(self) -> Iterable[Shelf]:
        """Return all shelves."""
        return self._shelves.values()

    def shelf_for(self, task: Task) -> Shelf:
        """Return the shelf for tasks with the needs of `task`."""
        # The cache keeps each mapping alive, so no other mapping can get its id.
        known = self._by_needs.get(id(task.resources))
        if known is not None:
            return known[1]
        units = tuple(sorted(task.resources.items()))
        shelf = self._shelves.get(units)
        if shelf is None:
            shelf = self._shelves[units] = Shelf(units, self._governed, self._states)
            shelf.offset = self.virtual_time
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
        """Open, close or rank a model's lanes on all shelves."""
        self.full.discard(model)
        if self._states.get(model) == state:
            return
        self._states[model] = state
        if state == CLOSED:
            self._closed.add(model)
        else:
            self._closed.discard(model)
        for shelf in self._shelves.values():
            shelf.set_state(model, state)

    def forget(self, model: str) -> None:
        """Drop the state of a model that has no waiting tasks."""
        self._states.pop(model, None)
        self._closed.discard(model)
        self.full.discard(model)
        for shelf in self._shelves.values():
            shelf.forget(model)

    def state(self, model: str) -> int:
        """Return the state of a model's lanes; a full model's may still be open."""
        return self._states.get(model, OPEN)

    def stocked(self, book: LeaseBook) -> list[Shelf]:
        """Return the shelves that have tasks and whose needs can be met now."""
        found: list[Shelf] = []
        self.short = None
        for shelf in self._shelves.values():
            if not shelf.stock:
                continue
            denied = book.shortage(shelf.needs)
            if shelf.is_short is (denied is None):
                self._stand(shelf, is_short=denied is not None)
            if denied is not None:
                self.short = self.short or denied
                continue
            if self.virtual_time - shelf.offset > shelf.virtual_time:
                self._sync(shelf)
            found.append(shelf)
        return found

    def first(self, shelves: list[Shelf], rank: int) -> tuple[Shelf, Selection[Task], float] | None:
        """Return the first task of one rank on `shelves`, with its tag."""
        while True:
            best = None
            for shelf in shelves:
                selection = shelf.first(rank)
                if selection is not None:
                    tag = selection.tag + shelf.offset
                    if best is None or tag < best[2]:
                        best = (shelf, selection, tag)
            if best is None or not self.full or best[1].item.model not in self.full:
                return best
            self.set_state(best[1].item.model, CLOSED)

    def close_full(self) -> None:
        """Close the lanes of all `full` models."""
        for model in list(self.full):
            self.set_state(model, CLOSED)

    def item(self, task_id: str) -> Task | None:
        """Return a queued task."""
        return next((t for s in self._shelves.values() if (t := s.item(task_id)) is not None), None)

    def position(self, task_id: str) -> int:
        """Return how many tasks of the same group and needs are ahead. O(tasks of its group)."""
        return next(s.position(task_id) for s in self._shelves.values() if task_id in s)

    def items(self) -> Iterator[Task]:
        """Iterate over the queued tasks, shelf by shelf, each in the order in which they were enqueued."""
        return (task for shelf in list(self._shelves.values()) for task in shelf.items())

    def discard_where(self, condition: Callable[[Task], bool]) -> list[Task]:
        """Remove and return all tasks that meet the condition. O(tasks)."""
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
        self.close_full()
        firsts = [s.tag for rank in range(RANKS) if (s := shelf.first(rank)) is not None]
        stood_at = min(now, max(shelf.virtual_time, min(firsts, default=now)))
        shelf.offset += now - stood_at

    def validate(self) -> None:
        """Assert the invariants of the shelves."""
        for shelf in self._shelves.values():
            shelf.validate()
        ids = [task.task_id for task in self.items()]
        assert len(ids) == len(set(ids)), "a task is on two shelves"
