"""The fair queue does what the slow and obvious reference does, whatever happens to it."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.core import Task
from headgate.scheduling import Selection, StaleSelection
from tests.examples import examples
from tests.scheduling.queued import ReadyQueue, Reference, task

GROUPS = st.sampled_from(["a", "b", "c", "d"])
LANES = ["x", "y", "z"]
WEIGHTS = {"a": 1.0, "b": 3.0, "c": 0.5, "d": 1.7}


class Queueing(RuleBasedStateMachine):
    """Groups span lanes: a task's lane is its environment, so every service may move its group."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = ReadyQueue(lane_of=lambda t: t.environment)
        self.reference = Reference(lane_of=lambda t: t.environment)
        self.known: list[Task] = []
        self.kept: Selection | None = None
        self.ranks = dict.fromkeys(LANES, 0)

    @rule(lane=st.sampled_from(LANES), rank=st.integers(0, 2))
    def set_rank(self, lane: str, rank: int) -> None:
        self.queue.set_rank(lane, rank)
        self.ranks[lane] = rank

    def first_rank(self, candidates: dict[str, float]) -> dict[str, float]:
        """Of groups that could be served, those in lanes of the lowest rank."""
        rank_of = {name: self.ranks[self.reference.groups[name].lane] for name in candidates}
        lowest = min(rank_of.values(), default=0)
        return {name: tag for name, tag in candidates.items() if rank_of[name] == lowest}

    @rule(group=GROUPS, lane=st.sampled_from(LANES), priority=st.integers(-1, 1), weighs=st.floats(0.25, 4.0))
    def enqueue_one(self, group: str, lane: str, priority: int, weighs: float) -> None:
        self.enqueue(group, lane, priority, weighs)

    def enqueue(self, group: str, lane: str, priority: int, weighs: float) -> None:
        one = task(f"t{len(self.known)}", group, weight=WEIGHTS[group] * weighs, priority=priority, environment=lane)
        self.known.append(one)
        assert self.queue.enqueue([one]) == [one]
        self.reference.enqueue(one)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def enqueue_again(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.known))
        if one.task_id in self.queue:
            assert self.queue.enqueue([one]) == []
        else:
            self.queue.enqueue([one, one])
            self.reference.enqueue(one)

    @rule()
    def serve(self) -> None:
        self._serve(self.queue.select_next(), self.first_rank(self.reference.candidates()))

    def _serve(self, selection: Selection | None, candidates: dict[str, float]) -> None:
        if selection is None:
            assert candidates == {}
            return
        name = selection.item.group
        assert candidates[name] <= min(candidates.values()) + 1e-6
        assert self.queue.commit(selection) is selection.item
        assert self.reference.serve(name) is selection.item
        assert isinstance(self.queue.commit(selection), StaleSelection)

    @rule()
    def keep_a_selection(self) -> None:
        before = [t.task_id for t in self.queue.items()]
        self.kept = self.queue.select_next()
        assert self.queue.select_next() == self.kept
        assert [t.task_id for t in self.queue.items()] == before

    @precondition(lambda self: self.kept is not None)
    @rule()
    def commit_what_was_kept(self) -> None:
        assert self.kept is not None
        one, selection, self.kept = self.kept.item, self.kept, None
        group = self.reference.groups.get(one.group)
        if isinstance(self.queue.commit(selection), StaleSelection):
            return
        assert group is not None
        assert group.tasks[0] is one
        assert group.lane not in self.reference.closed
        self.reference.serve(one.group)

    @rule(lane=st.sampled_from(LANES), size=st.integers(2, 5))
    def enqueue_for_all(self, lane: str, size: int) -> None:
        for group in WEIGHTS:
            for _ in range(size):
                self.enqueue(group, lane, 0, 1.0)

    @precondition(lambda self: len(self.queue))
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(list(self.queue.items())))
        assert self.queue.discard(one.task_id)
        assert not self.queue.discard(one.task_id)
        self.reference.discard(lambda t: t is one)

    @rule(lane=st.sampled_from(LANES), priority=st.integers(-1, 1))
    def discard_where(self, lane: str, priority: int) -> None:
        def is_gone(t: Task) -> bool:
            return t.environment == lane and t.priority == priority

        before = {t.task_id for t in self.queue.items() if is_gone(t)}
        assert {t.task_id for t in self.queue.discard_where(is_gone)} == before
        self.reference.discard(is_gone)

    @rule(lane=st.sampled_from(LANES))
    def close(self, lane: str) -> None:
        self.queue.close_lane(lane)
        self.reference.closed.setdefault(lane, self.reference.now)

    @rule(lane=st.sampled_from(LANES))
    def open(self, lane: str) -> None:
        self.queue.open_lane(lane)
        self.reference.open_lane(lane)

    @invariant()
    def agrees_with_the_reference(self) -> None:
        self.queue.validate()
        in_reference = [t for g in self.reference.groups.values() for t in g.tasks]
        assert len(self.queue) == len(in_reference)
        assert {t.task_id for t in self.queue.items()} == {t.task_id for t in in_reference}
        assert abs(self.queue.virtual_time - self.reference.now) < 1e-6
        for group in self.reference.groups.values():
            for place, one in enumerate(group.tasks):
                assert self.queue.position(one.task_id) == place
        for lane in LANES:
            assert self.queue.is_open(lane) == (lane not in self.reference.closed)


TestQueueing = Queueing.TestCase
TestQueueing.settings = settings(max_examples=examples(80), stateful_step_count=60, deadline=None)
