"""Hands in virtual time: they carry out what a pool decides, on simulated engines that the test controls."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping

from headgate.elastic.demand import Demand, Desired, Policy
from headgate.elastic.outbox import Abort, Command, Cut, Fail, LetGo, Read, Send, Sleep, Wake
from headgate.elastic.pool import ElasticPool
from headgate.elastic.queue import Accepted, ElasticRequest, Refused
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import EngineLoad


class Wanted:
    """A policy that wants what the test says."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def decide(self, demand: Demand, now: float) -> Desired:
        return Desired(self.workers, "the test wants it")

    def validate(self) -> None:
        assert self.workers >= 0


class SimEngine:
    """An engine: what it has, whether it sleeps, and what goes wrong with it."""

    def __init__(self, *, is_asleep: bool) -> None:
        self.is_asleep = is_asleep
        self.is_half_asleep = False
        self.requests: dict[str, int] = {}
        self.foreign = 0
        self.is_dead = False
        self.fails_to_wake = 0
        self.ignores_aborts = False
        self.sleeps = self.wakes = 0

    @property
    def load(self) -> EngineLoad:
        running = len(self.requests) + self.foreign
        return EngineLoad(running=running, is_asleep=self.is_asleep, is_half_asleep=self.is_half_asleep)


class Hands:
    """Carries commands out at once, but for requests, which run until `finish` or for `service_s`."""

    def __init__(
        self,
        config: ElasticConfig,
        workers: Mapping[str, int],
        policy: Policy,
        *,
        awake: tuple[str, ...] = (),
        service_s: float | None = None,
        start_s: float = 1.0,
    ) -> None:
        self.now = 0.0
        self.pool = ElasticPool(config, workers, policy, self.now, awake=awake)
        self.engines = {name: SimEngine(is_asleep=name not in awake) for name in workers}
        self.answered: list[str] = []
        self.failed: dict[str, str] = {}
        self.sent: list[Send] = []
        self.commands: list[Command] = []
        self.service_s, self.start_s = service_s, start_s
        self.leases_are_free = True
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self.settle()

    def submit(self, name: str, **more: object) -> Accepted | Refused:
        answer = self.pool.submit(ElasticRequest(name, **more), self.now)  # type: ignore[arg-type]
        self.settle()
        return answer

    def finish(self, name: str) -> None:
        for engine in self.engines.values():
            if (epoch := engine.requests.pop(name, None)) is not None:
                self.answered.append(name)
                self.pool.ended(name, epoch, self.now)
        self.settle()

    def break_(self, name: str, why: str = "connection reset") -> None:
        for engine in self.engines.values():
            if (epoch := engine.requests.pop(name, None)) is not None:
                self.pool.broke(name, epoch, why, self.now)
        self.settle()

    def state(self, worker: str) -> str:
        return str(self.pool.workers[worker].state)

    def at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._later, (when, next(self._serial), act))

    def run(self, seconds: float) -> None:
        """Let so much time pass, and everything happen that is due in it."""
        until = self.now + seconds
        self.settle()
        while (at := self._next_at()) <= until:
            self.now = max(self.now, at)
            while self._later and self._later[0][0] <= self.now:
                heapq.heappop(self._later)[2]()
            self.settle()
        self.now = until
        self.settle()

    def _next_at(self) -> float:
        at = self.pool.next_at()
        return min(math.inf if at is None else at, self._later[0][0] if self._later else math.inf)

    def settle(self) -> None:
        """Carry out what is decided until nothing more is."""
        while commands := self.pool.decide(self.now):
            for command in commands:
                self.commands.append(command)
                self._carry_out(command)
            self.pool.validate()

    def _carry_out(self, command: Command) -> None:  # noqa: C901 - one case per command
        match command:
            case Send(name, worker, epoch):
                self.sent.append(command)
                engine = self.engines[worker]
                assert not engine.is_asleep, f"{name} was sent to {worker}, which sleeps"
                if engine.is_dead:
                    self.at(self.now, lambda: self._report_broken(name, epoch))
                    return
                engine.requests[name] = epoch
                if self.service_s is not None:
                    self.at(self.now + self.service_s, lambda: self._finish_if(name, worker, epoch))
            case Abort(name, worker, epoch):
                if not self.engines[worker].ignores_aborts:
                    self.engines[worker].requests.pop(name, None)
                    self.at(self.now, lambda: self._report_aborted(name, epoch))
            case Cut(name, worker, _):
                self.engines[worker].requests.pop(name, None)
            case Fail(name, code, _):
                assert name not in self.failed
                self.failed[name] = code
            case Read(worker, epoch):
                self._read(worker, epoch)
            case Sleep(worker, epoch):
                engine = self.engines[worker]
                assert engine.load.is_idle, f"{worker} was put to sleep with {engine.requests}"
                engine.is_asleep, engine.is_half_asleep, engine.sleeps = True, False, engine.sleeps + 1
                self.pool.slept(worker, epoch, self.now)
            case Wake(worker, epoch):
                if self.leases_are_free:
                    self.pool.leased(worker, epoch, self.now)
                    self.at(self.now + self.start_s, lambda: self._wake(worker, epoch))
            case LetGo():
                pass

    def _finish_if(self, name: str, worker: str, epoch: int) -> None:
        if self.engines[worker].requests.get(name) == epoch:
            del self.engines[worker].requests[name]
            self.answered.append(name)
            self.pool.ended(name, epoch, self.now)

    def _report_broken(self, name: str, epoch: int) -> None:
        self.pool.broke(name, epoch, "connection refused", self.now)

    def _report_aborted(self, name: str, epoch: int) -> None:
        self.pool.broke(name, epoch, "its worker drains", self.now, was_aborted=True)

    def _read(self, worker: str, epoch: int) -> None:
        if self.engines[worker].is_dead:
            self.pool.unanswered(worker, epoch, "connection refused", self.now)
        else:
            self.pool.read(worker, epoch, self.engines[worker].load, self.now)

    def _wake(self, worker: str, epoch: int) -> None:
        engine = self.engines[worker]
        if self.pool.workers[worker].epoch != epoch:
            return
        if engine.fails_to_wake or engine.is_dead:
            engine.fails_to_wake = max(0, engine.fails_to_wake - 1)
            self.pool.stuck(worker, epoch, "resume failed three times, the last: 500", self.now)
            return
        engine.is_asleep, engine.wakes = False, engine.wakes + 1
        self.pool.woken(worker, epoch, self.now)
