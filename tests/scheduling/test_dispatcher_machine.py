"""The dispatcher with parks, pressure, several resources and a policy: right after every step, and never stuck."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.core import HolderId, ReleaseOutcome, Task, TaskId
from headgate.scheduling import BoundedBorrow, Dispatch, Dispatcher, Held, PressureRules, StrictFair, TaskPolicy
from tests.examples import examples
from tests.scheduling.queued import task

MODELS = ("a", "b", "c")
NEEDS = ({"workers": 1}, {"workers": 1, "judge": 1}, {"gpu": 1}, {"workers": 2})
REASONS = ("waiters", "resource_limit", "cooldown", "breaker_open")
MODEL = st.sampled_from(MODELS)
POLICIES: tuple[TaskPolicy, ...] = (
    StrictFair(),
    StrictFair(group_caps={"workers": 1}),
    BoundedBorrow(reserve_share=0.3, reserve_for_s=5.0),
    BoundedBorrow(borrow_ceiling=1, reserve_share=0.0),
)


class Dispatching(RuleBasedStateMachine):
    """What is started was allowed to; what is held back is held by a gate that `why` names; nothing is lost."""

    @initialize(policy=st.sampled_from(POLICIES))
    def begin(self, policy: TaskPolicy) -> None:
        self.now = 0.0
        self.woken = False
        self.limits = {"workers": 4, "judge": 1, "gpu": 2}
        self.dispatcher = Dispatcher(
            self.limits,
            holder=HolderId("h"),
            policy=policy,
            pressure=PressureRules(max_pass_overs=3, max_age_s=10.0),
            max_parked=2,
            on_change=self._wake,
        )
        for model in MODELS:
            self.dispatcher.set_model(model, 3)
        self.queued: dict[str, Task] = {}
        self.running: dict[str, Dispatch] = {}
        self.parked: dict[str, Dispatch] = {}
        self.pressed: dict[str, tuple[str, float | None]] = {}
        self.next_id = 0

    def _wake(self) -> None:
        self.woken = True

    @rule(model=MODEL, needs=st.sampled_from(NEEDS), size=st.integers(1, 4))
    def enqueue(self, model: str, needs: dict[str, int], size: int) -> None:
        tasks = [task(f"t{self.next_id + i}", model, resources=dict(needs)) for i in range(size)]
        self.next_id += size
        assert self.dispatcher.enqueue(tasks, self.now) == size
        assert self.woken
        self.queued.update({one.task_id: one for one in tasks})

    @precondition(lambda self: self.queued or self.running)
    @rule(data=st.data())
    def enqueue_again(self, data: st.DataObject) -> None:
        known = [*self.queued.values(), *(d.task for d in self.running.values())]
        assert self.dispatcher.enqueue([data.draw(st.sampled_from(known))], self.now) == 0

    @rule()
    def next(self) -> None:
        self.woken = False
        said = {name: self.dispatcher.why(TaskId(name), self.now).gate for name in self.queued}
        granted = self.dispatcher.next(self.now)
        self._end_pressure()
        started = set() if isinstance(granted, Held) else {granted.task.task_id}
        assert {name for name, gate in said.items() if gate == "none"} == started, said
        if isinstance(granted, Held):
            assert "fair_share" not in said.values(), said
            return
        one = self.queued.pop(granted.task.task_id)
        assert granted.task is one
        reason, _ = self.pressed.get(one.model, ("", None))
        assert reason not in {"cooldown", "breaker_open"}
        assert self._in_flight(one.model) < 3
        self.running[one.task_id] = granted
        for resource in one.resources:
            assert self.dispatcher.book.in_use[resource] <= self.limits[resource]

    def _in_flight(self, model: str) -> int:
        return sum(d.task.model == model for d in self.running.values())

    def _end_pressure(self) -> None:
        over = [m for m, (_, until) in self.pressed.items() if until is not None and until <= self.now]
        for model in over:
            del self.pressed[model]

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        ended = self.running.pop(name)
        self.parked.pop(name, None)
        self.woken = False
        assert self.dispatcher.finished(ended.task, ended.lease, self.now) is ReleaseOutcome.RELEASED
        assert self.woken
        assert self.dispatcher.finished(ended.task, ended.lease, self.now) is ReleaseOutcome.DUPLICATE

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def park(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        may = name not in self.parked and len(self.parked) < 2
        assert self.dispatcher.park(self.running[name].lease, self.now) == may
        if may:
            self.parked[name] = self.running[name]

    @precondition(lambda self: self.parked)
    @rule(data=st.data())
    def unpark(self, data: st.DataObject) -> None:
        one = self.parked.pop(data.draw(st.sampled_from(sorted(self.parked))))
        assert self.dispatcher.unpark(one.lease, self.now)
        assert not self.dispatcher.unpark(one.lease, self.now)

    @rule(model=MODEL, reason=st.sampled_from(REASONS), lasts=st.one_of(st.none(), st.floats(0.1, 20)))
    def press(self, model: str, reason: str, lasts: float | None) -> None:
        until = None if lasts is None else self.now + lasts
        self.dispatcher.set_pressure(model, reason, until)
        self.pressed[model] = (reason, until)

    @rule(model=MODEL)
    def relieve(self, model: str) -> None:
        self.woken = False
        self.dispatcher.set_pressure(model, None)
        self.pressed.pop(model, None)
        assert self.woken

    @rule(seconds=st.floats(0.1, 8))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(resource=st.sampled_from(["workers", "judge", "gpu"]), limit=st.integers(2, 5))
    def set_limit(self, resource: str, limit: int) -> None:
        self.dispatcher.set_limit(resource, limit)
        self.limits[resource] = max(limit, self.limits[resource])

    @invariant()
    def agrees_with_what_was_done(self) -> None:
        if not hasattr(self, "dispatcher"):
            return
        self.dispatcher.validate()
        assert {t.task_id for t in self.dispatcher.queue.items()} == set(self.queued)
        assert len(self.dispatcher.queue) == len(self.queued)
        for name in self.queued:
            assert self.dispatcher.why(TaskId(name), self.now).state == "queued"

    def teardown(self) -> None:
        """Everything that is queued runs in the end, once pressure is off and what runs has come back."""
        if not hasattr(self, "dispatcher"):
            return
        for model in MODELS:
            self.dispatcher.set_pressure(model, None)
        for resource in self.limits:
            self.dispatcher.set_limit(resource, 4)
        running = list(self.running.values())
        left = len(self.queued)
        while left or running:
            while isinstance(granted := self.dispatcher.next(self.now), Dispatch):
                left -= 1
                running.append(granted)
            if not running:
                at = self.dispatcher.next_change_at(self.now)
                assert at is not None, "tasks are queued, nothing runs, and no time will change that"
                self.now = at
            for ended in running:
                self.dispatcher.finished(ended.task, ended.lease, self.now)
            running = []
            self.dispatcher.validate()
        assert not any(self.dispatcher.book.in_use.values())


TestDispatchingWithPressure = Dispatching.TestCase
TestDispatchingWithPressure.settings = settings(max_examples=examples(70), stateful_step_count=50, deadline=None)
