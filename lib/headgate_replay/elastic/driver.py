"""Replays a load through the real pool with simulated engines, event by event in virtual time; exact and deterministic.

The pool is the one that serves real requests; its surroundings are simulated: when requests arrive, and how long
engines take to answer, start and sleep. The time that the network would take is left out.
"""

from __future__ import annotations

import heapq
import math
import time
from functools import partial
from typing import Final

from headgate.core import ReleaseOutcome
from headgate.core.errors import HeadgateError
from headgate.elastic import (
    Abort,
    Accepted,
    Command,
    Cut,
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
from headgate_replay.agenda import Agenda
from headgate_replay.elastic.load import Load, Site
from headgate_replay.elastic.outcome import Outcome, Stay

_ROUNDS: Final = 1_000
"""Maximum rounds of commands at one moment; a pool that never comes to rest is an error."""


class ReplayFailedError(HeadgateError):
    """Raised if the pool lost a request, ran one twice, or gave an engine more than it can take: a bug of the pool."""

    code = "replay_failed"
    next_step = "This is an error of Headgate: report it with the command that you ran and its seed."


class SimulatedEngine:
    """One worker's engine. It is exact: its clock counts steps, and all answers in progress advance at the same speed.

    Invariants: it has at most `slots` calls; it is empty whenever it is put to sleep.
    """

    __slots__ = ("_answers", "_calls", "_done", "_last_s", "_slots", "_step_s", "is_asleep", "name", "turn")

    def __init__(self, name: str, slots: int, step_s: tuple[float, ...], *, is_asleep: bool) -> None:
        self.name = name
        self.is_asleep = is_asleep
        self.turn = 0
        """Increases whenever `ends_at` may have changed: events planned for an earlier turn are void."""
        self._slots = slots
        self._step_s = step_s
        self._calls: set[int] = set()
        self._answers: list[tuple[float, int]] = []  # a heap: steps at which an answer is complete, and its call
        self._done = 0.0
        self._last_s = 0.0

    def __len__(self) -> int:
        return len(self._calls)

    def take(self, call: int) -> None:
        """Take a call; its answer begins later.

        Raises:
            ReplayFailedError: if it sleeps, is full, or already has the call.
        """
        if self.is_asleep or len(self._calls) >= self._slots or call in self._calls:
            state = "asleep" if self.is_asleep else f"{len(self._calls)} of {self._slots} slots taken"
            raise ReplayFailedError(f"request {call} was sent to {self.name}, which cannot take it ({state})")
        self._calls.add(call)

    def answer(self, call: int, steps: float, now: float) -> None:
        """Begin the answer to a call that was taken."""
        self._advance(now)
        heapq.heappush(self._answers, (self._done + steps, call))
        self.turn += 1

    def drop(self, call: int, now: float) -> None:
        """Drop a call, whether its answer has begun or not; do nothing if the call is not here."""
        self._calls.discard(call)
        others = [answer for answer in self._answers if answer[1] != call]
        if len(others) < len(self._answers):
            self._advance(now)
            self._answers = others
            heapq.heapify(self._answers)
            self.turn += 1

    def __contains__(self, call: int) -> bool:
        return call in self._calls

    def ends_at(self, now: float) -> float | None:
        """Return when the next answer is complete if nothing changes; None if none is in progress."""
        if not self._answers:
            return None
        self._advance(now)
        left = max(0.0, self._answers[0][0] - self._done)
        return now + left * self._step_s[len(self._answers) - 1]

    def end(self, now: float) -> int:
        """End the answer that is complete next, and return its call."""
        self._advance(now)
        steps, call = heapq.heappop(self._answers)
        self._done = max(self._done, steps)
        self._calls.discard(call)
        self.turn += 1
        return call

    def _advance(self, now: float) -> None:
        if self._answers:
            self._done += (now - self._last_s) / self._step_s[len(self._answers) - 1]
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
    """Replay a load under a policy and return the outcome.

    `name` and `says` describe the policy in tables; `validates` asserts the pool's invariants after every step, which
    is slow.

    Raises:
        ReplayFailedError: if a request was lost or answered twice, or sent to an engine without room.
    """
    began = time.perf_counter()
    awake = site.names[: site.awake]
    nothing = [None] * len(load.calls)
    stays = [Stay(worker, 0.0, 0.0) for worker in awake]
    outcome = Outcome(name or type(policy).__name__, says, site, [*nothing], [*nothing], stays)
    pool = ElasticPool(config, dict.fromkeys(site.names, load.slots), policy, 0.0, awake=awake, name="replay")
    _Driver(load, pool, outcome, validates=validates).run()
    outcome.stays.sort(key=lambda stay: (stay.woken_s, stay.worker))
    outcome.took_s = time.perf_counter() - began
    return outcome


class _Driver:
    """Runs one replay and lives as long as it."""

    def __init__(self, load: Load, pool: ElasticPool, outcome: Outcome, *, validates: bool) -> None:
        self._load = load
        self._pool = pool
        self._outcome = outcome
        self._site = outcome.site
        self._validates = validates
        awake = {stay.worker for stay in outcome.stays}
        self._engines = {
            worker: SimulatedEngine(worker, load.slots, load.step_s, is_asleep=worker not in awake)
            for worker in self._site.names
        }
        self._arrived = 0
        self._left = len(load.calls)
        self._agenda = Agenda()
        self._epochs = [0] * len(load.calls)

    def run(self) -> None:
        """Replay the load."""
        now = 0.0
        self._decide(now)
        while self._left or self._next_at(now) <= self._load.window_s:
            now = self._next_at(now)
            if now == math.inf:
                raise ReplayFailedError(f"{self._left} requests were never answered, and nothing happens any more")
            self._agenda.happen(now)
            self._arrive(now)
            self._decide(now)
        self._pool.validate()
        self._outcome.ended_s = max(now, self._load.window_s)

    def _next_at(self, now: float) -> float:
        calls, pool_at = self._load.calls, self._pool.next_at()
        arrives_at = calls[self._arrived].arrived_s if self._arrived < len(calls) else math.inf
        return max(now, min(arrives_at, self._agenda.next_s, math.inf if pool_at is None else pool_at))

    def _arrive(self, now: float) -> None:
        calls = self._load.calls
        while self._arrived < len(calls) and calls[self._arrived].arrived_s <= now:
            request = ElasticRequest(str(self._arrived), calls[self._arrived].tokens)
            self._arrived += 1
            if not isinstance(self._pool.submit(request, now), Accepted):
                self._outcome.dropped += 1
                self._left -= 1

    def _decide(self, now: float) -> None:
        """Let the pool decide and carry out its commands until it has none left at this moment."""
        for _ in range(_ROUNDS):
            commands = self._pool.decide(now)
            for event in self._pool.take_events():
                self._outcome.note(event, now)
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
                self._agenda.plan(now + self._site.start_s, partial(self._woke, worker_id, epoch))
            case Sleep(worker_id, epoch):
                if len(self._engines[worker_id]):
                    raise ReplayFailedError(
                        f"{worker_id} was put to sleep with {len(self._engines[worker_id])} requests"
                    )
                self._agenda.plan(now + self._site.sleep_s, partial(self._slept, worker_id, epoch))
            case Abort(request_id, worker_id, epoch) | Cut(request_id, worker_id, epoch):
                engine = self._engines[worker_id]
                engine.drop(int(request_id), now)
                self._plan_end(engine, now)
                if isinstance(command, Abort):
                    self._pool.broke(request_id, epoch, "it was aborted", now, was_aborted=True)
            case Fail():
                self._left -= 1
            case LetGo():
                pass

    def _woke(self, worker: str, epoch: int, now: float) -> None:
        self._engines[worker].is_asleep = False
        self._pool.woken(worker, epoch, now)

    def _slept(self, worker: str, epoch: int, now: float) -> None:
        self._engines[worker].is_asleep = True
        self._pool.slept(worker, epoch, now)

    def _send(self, call: int, engine: SimulatedEngine, epoch: int, now: float) -> None:
        engine.take(call)
        self._outcome.given_s[call] = now
        self._epochs[call] = epoch
        first_s = self._load.calls[call].first_s
        if first_s:
            self._agenda.plan(now + first_s, partial(self._begin, engine, call, epoch))
        else:
            self._begin(engine, call, epoch, now)

    def _begin(self, engine: SimulatedEngine, call: int, epoch: int, now: float) -> None:
        if self._epochs[call] != epoch or call not in engine:
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
        self._outcome.answered(call, now)
        self._left -= 1
        self._plan_end(engine, now)

    def _plan_end(self, engine: SimulatedEngine, now: float) -> None:
        at = engine.ends_at(now)
        if at is not None:
            self._agenda.plan(at, partial(self._end, engine, engine.turn))
