"""Fair batches: full at 50 or after 30 s, in order, each task once."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.core import Task, sample_task
from headgate.sampling import FairBatches
from tests.examples import examples


def _task(number: int) -> Task:
    return sample_task(campaign="main", model="m@main", environment="e", sequence=number, data_length=9, due_at=0.0)


def test_a_full_buffer_is_ready_at_once() -> None:
    batches = FairBatches()
    for number in range(49):
        batches.add("a", _task(number), 100.0)
    assert batches.take_ready(100.0) == []
    batches.add("a", _task(49), 101.0)
    assert batches.next_at() == 101.0
    ((sampler, tasks),) = batches.take_ready(101.0)
    assert sampler == "a"
    assert [t.sequence for t in tasks] == list(range(50))
    assert (batches.size, batches.next_at()) == (0, None)


def test_the_oldest_task_of_a_buffer_waits_30_seconds_at_most() -> None:
    batches = FairBatches()
    batches.add("a", _task(0), 100.0)
    batches.add("a", _task(1), 129.0)
    assert batches.next_at() == 130.0
    assert batches.take_ready(129.9) == []
    assert [(s, len(t)) for s, t in batches.take_ready(130.0)] == [("a", 2)]
    batches.add("a", _task(2), 131.0)
    assert batches.next_at() == 161.0


def test_each_buffer_has_its_own_time_and_the_first_that_is_ready_goes_first() -> None:
    batches = FairBatches()
    for at, sampler in ((3.0, "b"), (1.0, "c"), (2.0, "a")):
        batches.add(sampler, _task(0), at)
    assert [s for s, _ in batches.take_ready(32.0)] == ["c", "a"]
    assert [s for s, _ in batches.take_ready(33.0)] == ["b"]


def test_what_found_no_room_goes_first_and_in_order() -> None:
    batches = FairBatches(batch_size=3)
    for number in range(3):
        batches.add("a", _task(number), 0.0)
    ((_, tasks),) = batches.take_ready(0.0)
    batches.add("a", _task(3), 1.0)
    batches.put_back("a", tasks[1:], 5.0)
    assert batches.next_at() == 5.0
    ((_, again),) = batches.take_ready(5.0)
    assert [t.sequence for t in again] == [1, 2, 3]
    assert batches.size == 0


def test_a_removed_samplers_buffer_goes_with_it() -> None:
    batches = FairBatches()
    batches.add("a", _task(0), 0.0)
    batches.add("b", _task(1), 0.0)
    assert [t.sequence for t in batches.take("a")] == [0]
    assert batches.take("a") == []
    assert [s for s, _ in batches.take_ready(99.0)] == ["b"]


class Buffering(RuleBasedStateMachine):
    """Whatever is put in comes out once and in its order; nothing waits longer than it may."""

    SAMPLERS = ("a", "b", "c")

    def __init__(self) -> None:
        super().__init__()
        self.batches = FairBatches(batch_size=4, flush_after_s=30.0)
        self.now = 0.0
        self.inside: dict[str, list[Task]] = {s: [] for s in self.SAMPLERS}
        self.ready_by: dict[str, float] = {}
        self.count = 0

    @rule(sampler=st.sampled_from(SAMPLERS), tasks=st.integers(1, 6))
    def add(self, sampler: str, tasks: int) -> None:
        for _ in range(tasks):
            task = _task(self.count)
            self.count += 1
            self.batches.add(sampler, task, self.now)
            self.inside[sampler].append(task)
            self.ready_by.setdefault(sampler, self.now + 30.0)
            if len(self.inside[sampler]) >= 4:
                self.ready_by[sampler] = min(self.ready_by[sampler], self.now)

    @rule(seconds=st.floats(0, 40), room=st.integers(0, 8))
    def flush(self, seconds: float, room: int) -> None:
        self.now += seconds
        due = {s for s, at in self.ready_by.items() if at <= self.now}
        taken = dict(self.batches.take_ready(self.now))
        assert set(taken) == due
        for sampler, tasks in taken.items():
            assert tasks == self.inside[sampler]
            kept = tasks[room:]
            self.inside[sampler] = kept
            del self.ready_by[sampler]
            if kept:
                self.batches.put_back(sampler, kept, self.now)
                self.ready_by[sampler] = self.now

    @rule(sampler=st.sampled_from(SAMPLERS))
    def remove(self, sampler: str) -> None:
        assert self.batches.take(sampler) == self.inside[sampler]
        self.inside[sampler] = []
        self.ready_by.pop(sampler, None)

    @invariant()
    def knows_its_size_and_its_next_time(self) -> None:
        assert self.batches.size == sum(map(len, self.inside.values()))
        assert self.batches.next_at() == min(self.ready_by.values(), default=None)


TestBuffering = Buffering.TestCase
TestBuffering.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
