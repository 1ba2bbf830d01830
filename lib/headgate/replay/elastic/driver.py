"""A load through the real pool with simulated engines, event by event in virtual time. Exact, and the same each time.

The pool is the one that serves real requests; what is simulated is what stands around it: when requests arrive, how
long engines take to answer, to start and to sleep. Nothing takes time that would not take it on a real site, but for
the network, which is left out.
"""

from __future__ import annotations

import heapq
import math
import time
from typing import Final

from headgate.core import ReleaseOutcome
from headgate.elastic import (
    Abort,
    Accepted,
    Command,
    Cut,
    Demand,
    Desired,
    ElasticConfig,
    ElasticPool,
    ElasticRequest,
    EngineLoad,
    Fail,
    LetGo,
    Policy,
    Read,
    Send,
    Sleep,
    Wake,
)
from headgate.replay.elastic.load import Load, Site
from headgate.replay.elastic.outcome import Ledger, Outcome
from headgate.replay.errors import ReplayFailedError

_ROUNDS: Final = 1_000
"""So often the pool may want something more at one moment; a pool that never comes to rest is an error."""

_BEGINS, _ENDS, _WAKES, _SLEEPS = range(4)


class SimulatedEngine:
    """One worker's engine. Exact: its clock counts steps, which all answers under way make at the same speed.

    Invariants: at most `slots` calls are with it; it is empty whenever it is put to sleep.
    """

    __slots__ = ("_answering", "_begin", "_calls", "_done", "_last_s", "_slots", "_step_s", "is_asleep", "name", "turn")

    def __init__(self, name: str, slots: int, step_s: tuple[float, ...], *, is_asleep: bool) -> None:
        self.name = name
        self.is_asleep = is_asleep
        self.turn = 0
        """Grows whenever `ends_at` may have changed: what was planned for an earlier turn is void."""
        self._slots = slots
        self._step_s = step_s
        self._calls: set[int] = set()
        self._answering: set[int] = set()
        self._begin: list[tuple[float, int]] = []  # a heap: steps at which an answer is complete, and whose it is
        self._done = 0.0
        self._last_s = 0.0

    def __len__(self) -> int:
        return len(self._calls)

    def take(self, call: int) -> None:
        """Take a call; its answer begins later.

        Raises:
            ReplayFailedError: it sleeps, is full, or has the call already.
        """
        if self.is_asleep or len(self._calls) >= self._slots or call in self._calls:
            state = "asleep" if self.is_asleep else f"{len(self._calls)} of {self._slots} slots taken"
            raise ReplayFailedError(f"request {call} was sent to {self.name}, which cannot take it ({state})")
        self._calls.add(call)

    def answer(self, call: int, steps: float, now: float) -> None:
        """Begin the answer of a call that was taken."""
        self._advance(now)
        self._answering.add(call)
        heapq.heappush(self._begin, (self._done + steps, call))
        self.turn += 1

    def drop(self, call: int, now: float) -> None:
        """Let go of a call, wherever it stands; nothing where it is not there."""
        self._calls.discard(call)
        if call in self._answering:
            self._advance(now)
            self._answering.discard(call)
            self._begin = [one for one in self._begin if one[1] != call]
            heapq.heapify(self._begin)
            self.turn += 1

    def has(self, call: int) -> bool:
        """Tell whether a call is with it."""
        return call in self._calls

    def ends_at(self, now: float) -> float | None:
        """Return when the next answer is complete if nothing changes; None where none is under way."""
        if not self._begin:
            return None
        self._advance(now)
        left = max(0.0, self._begin[0][0] - self._done)
        return now + left * self._step_s[len(self._begin) - 1]

    def end(self, now: float) -> int:
        """End the answer that is complete next, and return whose it was."""
        self._advance(now)
        steps, call = heapq.heappop(self._begin)
        self._done = max(self._done, steps)
        self._answering.discard(call)
        self._calls.discard(call)
        self.turn += 1
        return call

    def _advance(self, now: float) -> None:
        if self._begin:
            self._done += (now - self._last_s) / self._step_s[len(self._begin) - 1]
        self._last_s = now


def played(
    load: Load,
    policy: Policy,
    config: ElasticConfig,
    site: Site,
    *,
    name: str = "",
    says: str = "",
    validates: bool = False,
) -> Outcome:
    """Return what a policy makes of a load.

    Args:
        load: the requests.
        policy: decides how many workers there should be; one that has seen nothing yet.
        config: of the pool.
        site: the workers, and how long they take.
        name: of the policy in tables; its class by default.
        says: what it does, in a sentence.
        validates: assert the pool's invariants after every step, which takes long.

    Raises:
        ReplayFailedError: a request was lost or answered twice, or sent where there was no room.
    """
    driver = _Driver(load, policy, config, site, validates=validates)
    began = time.perf_counter()
    ended_s = driver.run()
    ledger = driver.ledger
    return Outcome(
        policy=name or type(policy).__name__,
        says=says,
        site=site,
        ended_s=ended_s,
        given_s=tuple(ledger.given_s),
        done_s=tuple(ledger.done_s),
        stays=ledger.stays(),
        changes=tuple(ledger.changes),
        wanted=tuple(ledger.wanted),
        hand_overs=ledger.hand_overs,
        dropped=ledger.dropped,
        doubled=ledger.doubled,
        decisions=driver.asked.times,
        took_s=time.perf_counter() - began,
    )


class _Asked:
    """A policy, counting how often it is asked."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.times = 0

    def decide(self, demand: Demand, now: float) -> Desired:
        self.times += 1
        return self._policy.decide(demand, now)

    def validate(self) -> None:
        self._policy.validate()


class _Driver:
    """One replay. Lives as long as it."""

    def __init__(self, load: Load, policy: Policy, config: ElasticConfig, site: Site, *, validates: bool) -> None:
        self.asked = _Asked(policy)
        self.ledger = Ledger([None] * len(load.calls), [None] * len(load.calls))
        self._load = load
        self._site = site
        self._validates = validates
        awake = site.names[: site.awake]
        self._pool = ElasticPool(
            config, dict.fromkeys(site.names, load.slots), self.asked, 0.0, awake=awake, name="replay"
        )
        self._engines = {
            worker: SimulatedEngine(worker, load.slots, load.step_s, is_asleep=worker not in awake)
            for worker in site.names
        }
        for worker in awake:
            self.ledger.awake_at_start(worker)
        self._arrived = 0
        self._left = len(load.calls)
        # Heap of (seconds, number, what, worker, call or turn, epoch); the number keeps what is equal in order.
        self._coming: list[tuple[float, int, int, str, int, int]] = []
        self._number = 0
        self._epochs = [0] * len(load.calls)

    def run(self) -> float:
        """Replay the load; return when it was over."""
        now = 0.0
        self._decide(now)
        while self._left:
            now = self._next_at(now)
            self._happen(now)
            self._decide(now)
        while (at := self._next_at(now)) <= self._load.window_s:
            now = at
            self._happen(now)
            self._decide(now)
        self._pool.validate()
        return max(now, self._load.window_s)

    def _next_at(self, now: float) -> float:
        calls = self._load.calls
        at = calls[self._arrived].arrived_s if self._arrived < len(calls) else math.inf
        if self._coming and self._coming[0][0] < at:
            at = self._coming[0][0]
        pool_at = self._pool.next_at()
        if pool_at is not None and pool_at < at:
            at = pool_at
        if at == math.inf:
            raise ReplayFailedError(f"{self._left} requests were never answered, and nothing happens any more")
        return max(now, at)

    def _happen(self, now: float) -> None:
        coming, calls = self._coming, self._load.calls
        while coming and coming[0][0] <= now:
            _, _, what, worker, value, epoch = heapq.heappop(coming)
            if what == _ENDS:
                self._end(self._engines[worker], value, now)
            elif what == _BEGINS:
                self._begin(self._engines[worker], value, epoch, now)
            elif what == _WAKES:
                self._engines[worker].is_asleep = False
                self._pool.woken(worker, epoch, now)
            else:
                self._engines[worker].is_asleep = True
                self._pool.slept(worker, epoch, now)
        while self._arrived < len(calls) and calls[self._arrived].arrived_s <= now:
            request = ElasticRequest(str(self._arrived), calls[self._arrived].tokens)
            self._arrived += 1
            if not isinstance(self._pool.submit(request, now), Accepted):
                self.ledger.dropped += 1
                self._left -= 1

    def _decide(self, now: float) -> None:
        """Have the pool decide and carry it out, until it wants nothing more at this moment."""
        for _ in range(_ROUNDS):
            commands = self._pool.decide(now)
            for event in self._pool.take_events():
                self.ledger.note(event, now)
            if self._validates:
                self._pool.validate()
            if not commands:
                return
            for command in commands:
                self._do(command, now)
        raise ReplayFailedError(f"the pool did not come to rest {now:g} s after the start")

    def _do(self, command: Command, now: float) -> None:
        match command:
            case Send(request_id, worker_id, epoch):
                self._send(int(request_id), self._engines[worker_id], epoch, now)
            case Read(worker_id, epoch):
                engine = self._engines[worker_id]
                load = EngineLoad(running=len(engine), slots=self._load.slots, is_asleep=engine.is_asleep)
                self._pool.read(worker_id, epoch, load, now)
            case Wake(worker_id, epoch):
                self._pool.leased(worker_id, epoch, now)
                self._plan(now + self._site.start_s, _WAKES, worker_id, 0, epoch)
            case Sleep(worker_id, epoch):
                if len(self._engines[worker_id]):
                    raise ReplayFailedError(
                        f"{worker_id} was put to sleep with {len(self._engines[worker_id])} requests"
                    )
                self._plan(now + self._site.sleep_s, _SLEEPS, worker_id, 0, epoch)
            case Abort(request_id, worker_id, epoch):
                self._drop(int(request_id), self._engines[worker_id], now)
                self._pool.broke(request_id, epoch, "it was aborted", now, was_aborted=True)
            case Cut(request_id, worker_id, _):
                self._drop(int(request_id), self._engines[worker_id], now)
            case Fail():
                self._left -= 1
            case LetGo():
                pass

    # Calls

    def _send(self, call: int, engine: SimulatedEngine, epoch: int, now: float) -> None:
        engine.take(call)
        self.ledger.given_s[call] = now
        self._epochs[call] = epoch
        first_s = self._load.calls[call].first_s
        if first_s:
            self._plan(now + first_s, _BEGINS, engine.name, call, epoch)
        else:
            self._begin(engine, call, epoch, now)

    def _begin(self, engine: SimulatedEngine, call: int, epoch: int, now: float) -> None:
        if self._epochs[call] != epoch or not engine.has(call):
            return  # it was taken from this engine before its answer began
        if self._pool.begun(str(call), epoch) is ReleaseOutcome.RELEASED:
            engine.answer(call, self._load.calls[call].steps, now)
            self._plan_end(engine, now)

    def _end(self, engine: SimulatedEngine, turn: int, now: float) -> None:
        if turn != engine.turn:
            return
        call = engine.end(now)
        if self._pool.ended(str(call), self._epochs[call], now) is not ReleaseOutcome.RELEASED:
            raise ReplayFailedError(f"request {call} was answered by {engine.name}, where the pool had not sent it")
        self.ledger.answered(call, now)
        self._left -= 1
        self._plan_end(engine, now)

    def _drop(self, call: int, engine: SimulatedEngine, now: float) -> None:
        engine.drop(call, now)
        self._plan_end(engine, now)

    def _plan_end(self, engine: SimulatedEngine, now: float) -> None:
        at = engine.ends_at(now)
        if at is not None:
            self._plan(at, _ENDS, engine.name, engine.turn, 0)

    def _plan(self, at: float, what: int, worker: str, value: int, epoch: int) -> None:
        self._number += 1
        heapq.heappush(self._coming, (at, self._number, what, worker, value, epoch))
