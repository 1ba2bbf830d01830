"""Whatever happens in whatever order: no request is lost, none answered twice, none sent to a sleeping worker."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.core import ReleaseOutcome
from headgate.elastic.outbox import Abort, Cut, Fail, LetGo, Read, Send, Sleep, Wake
from headgate.elastic.pool import ElasticPool
from headgate.elastic.queue import Accepted, ElasticRequest
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import EngineLoad, Pin
from tests.elastic.hands import Wanted
from tests.examples import examples

NAMES = ("w0", "w1", "w2", "w3")
WORKERS = st.sampled_from(NAMES)


class Engines(RuleBasedStateMachine):
    """Four engines that answer late, fail, hang, die, come back, and are asked about in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.policy = Wanted(2)
        config = ElasticConfig(
            requests_per_worker_capacity=2,
            drain_timeout=4,
            stream_drain_timeout=6,
            engine_timeout=2,
            engine_attempts=1,
            failed_retry=3,
            queue_timeout=None,
            min_stable_period=0,
            monitoring_interval=2,
        )
        self.pool = ElasticPool(config, dict.fromkeys(NAMES, 2), self.policy, self.now, awake=NAMES[:2])
        self.asleep = {"w2", "w3"}
        self.running: dict[tuple[str, int], str] = {}  # (request, epoch) -> worker: what engines compute for us
        self.begun: set[str] = set()
        self.open: set[str] = set()
        self.answered: set[str] = set()
        self.failed: set[str] = set()
        self.withdrawn: set[str] = set()
        self.due: list[Send | Read | Sleep | Wake | Abort] = []
        self.count = 0

    # What users and operators do

    @rule(group=st.sampled_from(["x", "y"]), tokens=st.integers(1, 50), prefix=st.integers(0, 3))
    def submit(self, group: str, tokens: int, prefix: int) -> None:
        name = f"r{self.count}"
        self.count += 1
        request = ElasticRequest(name, tokens, (prefix,), group)
        assert isinstance(self.pool.submit(request, self.now), Accepted)
        self.open.add(name)
        self._decide()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        assert self.pool.withdraw(name, self.now)
        self.open.remove(name)
        self.withdrawn.add(name)
        self._decide()

    @rule(workers=st.integers(1, 4))
    def want(self, workers: int) -> None:
        self.policy.workers = workers

    @rule(worker=WORKERS, pin=st.sampled_from([None, Pin.AWAKE, Pin.ASLEEP]))
    def pin(self, worker: str, pin: Pin | None) -> None:
        self.pool.pin(worker, pin, self.now)
        self._decide()

    @rule(worker=WORKERS, within_s=st.sampled_from([0.0, 1.0]))
    def lose_lease(self, worker: str, within_s: float) -> None:
        self.pool.lease_lost(worker, self.now, within_s=within_s)
        self._decide()

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.0, 5.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._decide()

    # What engines do

    @precondition(lambda self: self.running)
    @rule(data=st.data(), how=st.sampled_from(["ends", "begins", "breaks"]))
    def answer(self, data: st.DataObject, how: str) -> None:
        name, epoch = data.draw(st.sampled_from(sorted(self.running)))
        if how == "begins":
            if self.pool.begun(name, epoch) is ReleaseOutcome.RELEASED:
                self.begun.add(name)
        elif how == "ends":
            del self.running[name, epoch]
            self._end(name, epoch)
        else:
            del self.running[name, epoch]
            self.pool.broke(name, epoch, "reset", self.now)
        self._decide()

    @precondition(lambda self: self.due)
    @rule(data=st.data(), works=st.booleans())
    def carry_out(self, data: st.DataObject, works: bool) -> None:
        command = self.due.pop(data.draw(st.integers(0, len(self.due) - 1)))
        match command:
            case Send(name, worker, epoch):
                if works and worker not in self.asleep:
                    self.running[name, epoch] = worker
                else:
                    self.pool.broke(name, epoch, "refused", self.now)
            case Read(worker, epoch):
                self._report_reading(worker, epoch, works=works)
            case Sleep(worker, epoch):
                if works:
                    busy = [key for key, where in self.running.items() if where == worker]
                    assert not busy, f"{worker} was put to sleep with {busy}"
                    self.asleep.add(worker)
                    self.pool.slept(worker, epoch, self.now)
                else:
                    self.pool.stuck(worker, epoch, "500", self.now)
            case Wake(worker, epoch):
                self.pool.leased(worker, epoch, self.now)
                if works:
                    self.asleep.discard(worker)
                    self.pool.woken(worker, epoch, self.now)
                else:
                    self.pool.stuck(worker, epoch, "500", self.now)
            case Abort(name, _, epoch):
                if works:
                    self._end_attempt(name, epoch)
                    self.pool.broke(name, epoch, "aborted", self.now, was_aborted=True)
        self._decide()

    def _report_reading(self, worker: str, epoch: int, *, works: bool) -> None:
        running = sum(where == worker for where in self.running.values())
        if works:
            load = EngineLoad(running=running, is_asleep=worker in self.asleep)
            self.pool.read(worker, epoch, load, self.now)
        else:
            self.pool.unanswered(worker, epoch, "timeout", self.now)

    def _end(self, name: str, epoch: int) -> None:
        if self.pool.ended(name, epoch, self.now) is ReleaseOutcome.RELEASED:
            assert name not in self.answered, f"{name} was answered twice"
            assert name in self.open
            self.open.remove(name)
            self.answered.add(name)

    def _decide(self) -> None:
        take: dict[type, Callable[[object], None]] = {Fail: self._fail, Cut: self._cut, LetGo: self._let_go}
        while commands := self.pool.decide(self.now):
            for command in commands:
                if type(command) in take:
                    take[type(command)](command)
                else:
                    if isinstance(command, Send):
                        assert str(self.pool.workers[command.worker_id].state) == "active"
                        assert command.request_id not in self.begun, "what had begun was sent again"
                    self.due.append(command)  # type: ignore[arg-type]

    def _fail(self, command: object) -> None:
        assert isinstance(command, Fail)
        assert command.request_id in self.open
        self.open.remove(command.request_id)
        self.failed.add(command.request_id)

    def _cut(self, command: object) -> None:
        assert isinstance(command, Cut)
        self._end_attempt(command.request_id, command.epoch)

    def _end_attempt(self, name: str, epoch: int) -> None:
        """Close a connection, or never open it."""
        self.running.pop((name, epoch), None)
        self.due = [
            due
            for due in self.due
            if not (isinstance(due, Send | Abort) and (due.request_id, due.epoch) == (name, epoch))
        ]

    def _let_go(self, command: object) -> None:
        """End what is under way for a worker."""
        assert isinstance(command, LetGo)
        self.due = [
            due for due in self.due if not (isinstance(due, Sleep | Wake) and due.worker_id == command.worker_id)
        ]

    # What always holds

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        self.pool.validate()
        assert set(self.pool.requests) == self.open
        names = [name for name, _ in self.running] + [due.request_id for due in self.due if isinstance(due, Send)]
        assert len(names) == len(set(names)), "a request is with two engines"

    def teardown(self) -> None:
        """Once engines work again, everything that is still open is answered."""
        self.policy.workers = 4
        for worker in NAMES:
            self.pool.pin(worker, None, self.now)
        self._decide()
        for _ in range(400):
            if not self.open:
                break
            for command in list(self.due):
                if command in self.due:
                    self.due.remove(command)
                    self._work(command)
            for name, epoch in list(self.running):
                self.running.pop((name, epoch), None)
                self._end(name, epoch)
                self._decide()
            self.now += 1
            self._decide()
        assert not self.open, f"{self.open} were never answered"

    def _work(self, command: Send | Read | Sleep | Wake | Abort) -> None:
        match command:
            case Send(name, worker, epoch):
                self.running[name, epoch] = worker
            case Read(worker, epoch):
                self._report_reading(worker, epoch, works=True)
            case Sleep(worker, epoch):
                self.asleep.add(worker)
                self.pool.slept(worker, epoch, self.now)
            case Wake(worker, epoch):
                self.asleep.discard(worker)
                self.pool.leased(worker, epoch, self.now)
                self.pool.woken(worker, epoch, self.now)
            case Abort(name, _, epoch):
                self._end_attempt(name, epoch)
                self.pool.broke(name, epoch, "aborted", self.now, was_aborted=True)
        self._decide()


Engines.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=50, deadline=None)
TestAnyHistory = Engines.TestCase
