"""The dispatcher: a task gets its lease first, and says which gate holds it until then."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.core import HolderId, ReleaseOutcome, Task, TaskId
from headgate.scheduling import Dispatch, Dispatcher, Explanation, Held
from tests.examples import examples
from tests.scheduling.queued import task


def _dispatcher(workers: int = 4, **models: int) -> Dispatcher:
    made = Dispatcher({"workers": workers}, holder=HolderId("h-1"))
    for model, max_parallel in models.items():
        made.set_model(model, max_parallel)
    return made


def _started(dispatcher: Dispatcher, now: float = 0.0) -> Dispatch:
    granted = dispatcher.next(now)
    assert isinstance(granted, Dispatch), granted
    return granted


def _held(dispatcher: Dispatcher) -> str:
    held = dispatcher.next(0.0)
    assert isinstance(held, Held), held
    return held.reason


def test_an_empty_queue_says_so() -> None:
    assert _dispatcher(a=1).next(0.0) == Held("queue_empty", "no task is ready")


def test_a_task_gets_a_worker_in_its_name() -> None:
    dispatcher = _dispatcher(a=1)
    dispatcher.enqueue([task("t-1", "a")])
    granted = _started(dispatcher, now=7.0)
    assert granted.task.task_id == "t-1"
    assert (granted.lease.subject, granted.lease.holder, granted.lease.acquired_at) == ("t-1", "h-1", 7.0)
    assert dict(granted.lease.units) == {"workers": 1}
    assert (dispatcher.enqueued, dispatcher.dequeued, dispatcher.in_flight()) == (1, 1, 1)


def test_taking_is_like_asking_for_the_next_without_being_told_why_there_is_none() -> None:
    dispatcher = _dispatcher(1, a=9)
    dispatcher.enqueue([task("t-1", "a"), task("t-2", "a")])
    taken = dispatcher.take(3.0)
    assert taken is not None
    assert (taken.task.task_id, taken.lease.acquired_at) == ("t-1", 3.0)
    assert dispatcher.take(3.0) is None
    dispatcher.validate()


def test_no_more_tasks_run_than_there_are_workers() -> None:
    dispatcher = _dispatcher(2, a=9, b=9)
    dispatcher.enqueue([task(f"{g}{i}", g) for i in range(3) for g in "ab"])
    first, _ = _started(dispatcher), _started(dispatcher)
    held = dispatcher.next(0.0)
    assert held == Held("no_capacity", "workers: wants 1, 0 free")
    dispatcher.finished(first.task, first.lease)
    assert _started(dispatcher).task.group == "a"


def _turns(dispatcher: Dispatcher, held_s: dict[str, float], until: float) -> Counter[str]:
    """Give every task a worker in simulated time, each for as long as its group holds one; return tasks by group."""
    running: list[tuple[float, int, Dispatch]] = []
    done: Counter[str] = Counter()
    now = 0.0
    while now < until:
        while (granted := dispatcher.take(now)) is not None:
            heapq.heappush(running, (now + held_s[granted.task.group], granted.lease.epoch, granted))
        now, _, ended = heapq.heappop(running)
        dispatcher.finished(ended.task, ended.lease, now)
        done[ended.task.group] += 1
        dispatcher.validate()
    return done


def test_workers_are_shared_by_time_held_and_not_by_number_of_tasks() -> None:
    dispatcher = _dispatcher(4, slow=9, fast=9)
    dispatcher.enqueue([task(f"{g}{i}", g) for i in range(600) for g in ("slow", "fast")])
    done = _turns(dispatcher, {"slow": 50.0, "fast": 5.0}, 1_000.0)
    assert 8 < done["fast"] / done["slow"] < 12  # each has held half of what was held


def test_shares_of_time_follow_the_weights() -> None:
    dispatcher = _dispatcher(4, slow=9, fast=9)
    dispatcher.enqueue([task(f"{g}{i}", g, weight=w) for i in range(600) for g, w in (("slow", 3.0), ("fast", 1.0))])
    done = _turns(dispatcher, {"slow": 50.0, "fast": 5.0}, 1_500.0)
    assert 2.7 < done["fast"] / done["slow"] < 4.2


def test_while_workers_are_free_tasks_start_in_the_order_in_which_they_came_however_long_they_hold_them() -> None:
    dispatcher = _dispatcher(99, slow=99, fast=99)
    for i in range(20):
        for group, seconds in (("slow", 50.0), ("fast", 0.1)):
            dispatcher.enqueue([task(f"{group}{i}", group)])
            granted = _started(dispatcher, now=100.0 * i)
            assert granted.task.task_id == f"{group}{i}"
            dispatcher.finished(granted.task, granted.lease, 100.0 * i + seconds)


def test_the_time_for_which_a_lease_was_parked_is_charged_to_nobody() -> None:
    dispatcher = _dispatcher(4, a=9, b=9)
    dispatcher.enqueue([task(f"{g}{i}", g) for i in range(2) for g in "ab"])
    charges = []
    for ends_parked in (False, True):
        granted = _started(dispatcher, now=10.0)
        assert dispatcher.park(granted.lease, 13.0)
        assert dispatcher.unpark(granted.lease, 500.0)
        assert not ends_parked or dispatcher.park(granted.lease, 504.0)
        dispatcher.finished(granted.task, granted.lease, 900.0 if ends_parked else 504.0)
        charges.append(granted.group.charge)
    assert charges == [4.0, 4.0]  # of 1 before, and 7 s


def test_a_refused_worker_takes_nothing_from_the_queue() -> None:
    dispatcher = _dispatcher(0, a=1)
    dispatcher.enqueue([task("t-1", "a")])
    assert [_held(dispatcher) for _ in range(3)] == ["no_capacity"] * 3
    assert dispatcher.queued("a") == 1
    dispatcher.book.set_limit("workers", 1)
    assert _started(dispatcher).task.task_id == "t-1"


def test_no_model_runs_more_than_its_parallel_limit_while_others_use_the_workers() -> None:
    dispatcher = _dispatcher(10, a=2, b=9)
    dispatcher.enqueue([task(f"{g}{i}", g) for i in range(5) for g in "ab"])
    started = [_started(dispatcher) for _ in range(7)]
    assert [s.task.group for s in started].count("a") == 2
    assert _held(dispatcher) == "lanes_closed"
    one = next(s for s in started if s.task.group == "a")
    dispatcher.finished(one.task, one.lease)
    assert _started(dispatcher).task.group == "a"


def test_a_lowered_limit_lets_what_runs_run_on() -> None:
    dispatcher = _dispatcher(10, a=3)
    dispatcher.enqueue([task(f"a{i}", "a") for i in range(6)])
    started = [_started(dispatcher) for _ in range(3)]
    dispatcher.set_model("a", 1)
    for one in started[:2]:
        dispatcher.finished(one.task, one.lease)
        assert _held(dispatcher) == "lanes_closed"
    dispatcher.finished(started[2].task, started[2].lease)
    _started(dispatcher)
    dispatcher.set_model("a", 2)
    _started(dispatcher)


def test_a_held_model_starts_nothing_until_it_is_let_go() -> None:
    dispatcher = _dispatcher(4, a=4, b=4)
    dispatcher.enqueue([task("a1", "a"), task("b1", "b")])
    dispatcher.hold("a", until=900.0)
    assert _started(dispatcher).task.task_id == "b1"
    assert _held(dispatcher) == "lanes_closed"
    dispatcher.unhold("a")
    assert _started(dispatcher).task.task_id == "a1"


def test_a_release_does_not_let_a_held_model_run() -> None:
    dispatcher = _dispatcher(4, a=1)
    dispatcher.enqueue([task("a1", "a"), task("a2", "a")])
    first = _started(dispatcher)
    dispatcher.hold("a", until=900.0)
    dispatcher.finished(first.task, first.lease)
    dispatcher.set_model("a", 4)
    assert _held(dispatcher) == "lanes_closed"


def test_a_task_that_is_queued_or_running_is_not_taken_in_again() -> None:
    dispatcher = _dispatcher(4, a=4)
    one = task("t-1", "a")
    assert dispatcher.enqueue([one, one]) == 1
    granted = _started(dispatcher)
    assert dispatcher.enqueue([one]) == 0
    dispatcher.finished(one, granted.lease)
    assert dispatcher.enqueue([one]) == 1
    assert dispatcher.enqueued == 2


def test_counts_by_model_and_environment_follow_what_is_queued() -> None:
    dispatcher = _dispatcher(1, a=9, b=9)
    dispatcher.enqueue([task(f"a{i}", "a", environment="sat") for i in range(3)])
    dispatcher.enqueue([task(f"b{i}", "b", environment="abd", resources={"gpu": 1}) for i in range(2)])
    _started(dispatcher)
    assert (dispatcher.queued("a"), dispatcher.queued("b")) == (2, 2)
    assert dispatcher.queue.by_environment == {"sat": 2, "abd": 2}
    dispatcher.discard_where(lambda one: one.environment == "abd")
    assert (dispatcher.queued("a"), dispatcher.queued("b")) == (2, 0)
    assert dispatcher.queue.by_environment == {"sat": 2}
    assert "b0" not in dispatcher.queue
    assert "a2" in dispatcher.queue


def test_a_lease_counts_once_however_often_it_comes_back() -> None:
    dispatcher = _dispatcher(1, a=1)
    dispatcher.enqueue([task("t-1", "a"), task("t-2", "a")])
    first = _started(dispatcher)
    assert dispatcher.finished(first.task, first.lease) is ReleaseOutcome.RELEASED
    second = _started(dispatcher)
    assert dispatcher.finished(first.task, first.lease) is ReleaseOutcome.DUPLICATE
    forged = replace(second.lease, epoch=second.lease.epoch + 1)
    assert dispatcher.finished(second.task, forged) is ReleaseOutcome.STALE
    assert dispatcher.in_flight("a") == dispatcher.in_flight() == 1
    dispatcher.validate()


def test_a_removed_models_tasks_are_withdrawn_and_what_runs_runs_on() -> None:
    dispatcher = _dispatcher(4, a=2, b=1)
    dispatcher.enqueue([*(task(f"a{i}", "a") for i in range(4)), task("b0", "b")])
    dispatcher.hold("b", until=1.0)
    running = [_started(dispatcher), _started(dispatcher)]
    assert [t.task_id for t in dispatcher.remove_model("a")] == ["a2", "a3"]
    assert dispatcher.queued("a") == 0
    for one in running:
        assert dispatcher.finished(one.task, one.lease) is ReleaseOutcome.RELEASED
    dispatcher.validate()
    dispatcher.set_model("a", 1)
    dispatcher.enqueue([task("a9", "a")])
    assert _started(dispatcher).task.task_id == "a9"


def test_models_that_come_and_go_leave_nothing_behind() -> None:
    dispatcher = _dispatcher(4, stays=1)
    for number in range(20):
        model = f"m{number}"
        dispatcher.set_model(model, 1)
        dispatcher.enqueue([task(f"{model}-{i}", model) for i in range(3)])
        running = _started(dispatcher)
        dispatcher.set_pressure(model, "breaker_open")
        dispatcher.remove_model(model)
        dispatcher.set_pressure(model, None)
        dispatcher.finished(running.task, running.lease)
        dispatcher.validate()
    assert list(dispatcher.lanes) == ["stays"]
    assert not [lane for shelf in dispatcher.queue.shelves() for lane in shelf._lanes]


def test_a_task_that_comes_late_for_a_removed_model_does_not_start() -> None:
    dispatcher = _dispatcher(4, a=2)
    dispatcher.remove_model("a")
    dispatcher.enqueue([task("late", "a"), task("stray", "nobody")])
    assert _held(dispatcher) == "lanes_closed"
    assert _why(dispatcher, "late").reason == "model a is not in the roster"
    assert _why(dispatcher, "stray").gate == "no_model"
    dispatcher.set_model("a", 1)
    assert _started(dispatcher).task.task_id == "late"


def test_a_removed_model_that_was_paused_comes_back_unpaused() -> None:
    dispatcher = _dispatcher(4, a=1)
    dispatcher.hold("a", until=900.0)
    dispatcher.remove_model("a")
    dispatcher.set_model("a", 1)
    dispatcher.enqueue([task("t", "a")])
    _started(dispatcher)


def test_a_pause_that_is_told_while_a_removed_model_still_runs_holds_when_it_comes_back() -> None:
    dispatcher = _dispatcher(4, a=1)
    dispatcher.enqueue([task("t1", "a")])
    running = _started(dispatcher)
    dispatcher.remove_model("a")
    dispatcher.hold("a", until=900.0)
    dispatcher.finished(running.task, running.lease)
    dispatcher.set_model("a", 1)
    dispatcher.enqueue([task("t2", "a")])
    assert _held(dispatcher) == "lanes_closed"
    assert _why(dispatcher, "t2").until == 900.0


def _why(dispatcher: Dispatcher, name: str, now: float = 0.0) -> Explanation:
    return dispatcher.why(TaskId(name), now)


def test_every_gate_names_itself() -> None:
    dispatcher = _dispatcher(1, a=1, b=1, c=1)
    dispatcher.enqueue([task("a1", "a"), task("a2", "a"), task("a3", "a"), task("b1", "b"), task("c1", "c")])
    dispatcher.hold("c", until=900.0)
    assert _why(dispatcher, "b1").gate == "fair_share"
    _started(dispatcher)
    assert _why(dispatcher, "nobody") == Explanation(
        TaskId("nobody"), "unknown", "none", "it is neither queued nor running here"
    )
    assert (_why(dispatcher, "a1").state, _why(dispatcher, "a1").gate) == ("running", "none")
    parallel = _why(dispatcher, "a3")
    assert (parallel.gate, parallel.reason, parallel.ahead) == (
        "model_parallel",
        "model a has 1 of 1 requests in flight",
        1,
    )
    paused = _why(dispatcher, "c1", now=10.0)
    assert (paused.gate, paused.reason, paused.until) == ("model_pause", "model c is paused", 900.0)
    short = _why(dispatcher, "b1")
    assert (short.gate, short.reason) == ("no_capacity", "workers: wants 1, 0 free")


def test_a_lowered_limit_is_explained_with_what_really_runs() -> None:
    dispatcher = _dispatcher(9, a=3)
    dispatcher.enqueue([task(f"a{i}", "a") for i in range(4)])
    for _ in range(3):
        _started(dispatcher)
    dispatcher.set_model("a", 2)
    assert _why(dispatcher, "a3").reason == "model a has 3 of 2 requests in flight"


def test_a_model_is_held_by_its_pause_until_it_is_let_go_and_the_explanation_says_so() -> None:
    dispatcher = _dispatcher(4, a=4)
    dispatcher.enqueue([task("a1", "a")])
    dispatcher.hold("a", until=900.0)
    late = _why(dispatcher, "a1", now=901.0)
    assert _held(dispatcher) == "lanes_closed"
    assert (late.gate, late.until) == ("model_pause", 900.0)


def test_what_no_capacity_can_ever_give_is_explained_by_its_name() -> None:
    dispatcher = _dispatcher(4, a=4)
    dispatcher.enqueue([task("a1", "a", resources={"gpu": 1})])
    assert dispatcher.next(0.0) == Held("unknown_capacity", "gpu: wants 1, 0 free")
    assert _why(dispatcher, "a1").gate == "unknown_capacity"


class Dispatching(RuleBasedStateMachine):
    """Models come, go, pause and change; tasks run and end; nothing is started twice, lost, or over a limit."""

    MODELS = ("a", "b", "c")

    def __init__(self) -> None:
        super().__init__()
        self.workers = 3
        self.dispatcher = _dispatcher(self.workers)
        self.limits: dict[str, int] = {}
        self.held: set[str] = set()
        self.queued: dict[str, Task] = {}
        self.running: dict[str, Dispatch] = {}
        self.ended: list[Dispatch] = []
        self.allowed: dict[str, int] = {}
        self.next_id = 0

    @rule(model=st.sampled_from(MODELS), limit=st.integers(1, 3))
    def set_model(self, model: str, limit: int) -> None:
        self.dispatcher.set_model(model, limit)
        self.limits[model] = limit

    @rule(model=st.sampled_from(MODELS))
    def remove_model(self, model: str) -> None:
        withdrawn = {t.task_id for t in self.dispatcher.remove_model(model)}
        assert withdrawn == {t.task_id for t in self.queued.values() if t.model == model}
        self.queued = {name: t for name, t in self.queued.items() if t.model != model}
        self.limits.pop(model, None)
        self.held.discard(model)

    @rule(model=st.sampled_from(MODELS))
    def hold(self, model: str) -> None:
        self.dispatcher.hold(model, until=100.0)
        self.held.add(model)

    @rule(model=st.sampled_from(MODELS))
    def unhold(self, model: str) -> None:
        self.dispatcher.unhold(model)
        self.held.discard(model)

    @rule(model=st.sampled_from(MODELS), size=st.integers(1, 4))
    def enqueue(self, model: str, size: int) -> None:
        tasks = [task(f"t{self.next_id + i}", model) for i in range(size)]
        self.next_id += size
        assert self.dispatcher.enqueue(tasks) == size
        self.queued.update({t.task_id: t for t in tasks})

    @precondition(lambda self: self.queued or self.running)
    @rule(data=st.data())
    def enqueue_again(self, data: st.DataObject) -> None:
        known = [*self.queued.values(), *(d.task for d in self.running.values())]
        assert self.dispatcher.enqueue([data.draw(st.sampled_from(known))]) == 0

    @rule(workers=st.integers(0, 4))
    def set_workers(self, workers: int) -> None:
        self.dispatcher.book.set_limit("workers", workers)
        self.workers = workers

    def _may_run(self, model: str) -> bool:
        in_flight = sum(d.task.model == model for d in self.running.values())
        return model in self.limits and model not in self.held and in_flight < self.limits[model]

    @rule()
    def next(self) -> None:
        granted = self.dispatcher.next(0.0)
        can_run = any(self._may_run(t.model) for t in self.queued.values())
        if isinstance(granted, Held):
            assert not can_run or len(self.running) >= self.workers
            return
        assert self._may_run(granted.task.model)
        assert len(self.running) < self.workers
        assert self.queued.pop(granted.task.task_id) is granted.task
        self.running[granted.task.task_id] = granted

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        ended = self.running.pop(data.draw(st.sampled_from(sorted(self.running))))
        assert self.dispatcher.finished(ended.task, ended.lease) is ReleaseOutcome.RELEASED
        self.ended.append(ended)

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def finish_again(self, data: st.DataObject) -> None:
        ended = data.draw(st.sampled_from(self.ended))
        assert self.dispatcher.finished(ended.task, ended.lease) is ReleaseOutcome.DUPLICATE

    @invariant()
    def agrees_with_what_was_done(self) -> None:
        self.dispatcher.validate()
        assert {t.task_id for t in self.dispatcher.queue.items()} == set(self.queued)
        assert self.dispatcher.in_flight() == len(self.running)
        for model in self.MODELS:
            assert self.dispatcher.in_flight(model) == sum(d.task.model == model for d in self.running.values())
            assert self.dispatcher.queued(model) == sum(t.model == model for t in self.queued.values())
        for name, one in self.queued.items():
            why = self.dispatcher.why(TaskId(name), 0.0)
            assert why.state == "queued"
            assert (why.gate == "model_pause") == (one.model in self.held)
            assert (why.gate in {"model_pause", "model_parallel", "no_model"}) == (not self._may_run(one.model))


TestDispatching = Dispatching.TestCase
TestDispatching.settings = settings(max_examples=examples(60), stateful_step_count=50, deadline=None)
