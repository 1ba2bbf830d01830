"""The scheduler of a fake engine: slots and a FIFO queue, tokens as time, pauses, aborts, and death."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from headgate.core import until_set
from headgate.simulation.engines.plan import WEIGHTS, EnginePlan

FinishReason = Literal["stop", "length", "abort"]

GIBBERISH = "\N{REPLACEMENT CHARACTER}"


@dataclass(slots=True, eq=False)
class EngineRequest:
    """One request. Owned by the core; lives as long as the call that brought it.

    Invariants: `generated <= limit`; once `finish` is set nothing changes any more.

    Attributes:
        request_id: its id in the engine, by which it is aborted and reported.
        prompt: its words; a word counts as a token.
        max_tokens: the limit in the request.
        natural_tokens: length at which the model would stop by itself.
        generated: tokens so far.
        finish: how it ended; None while it has not.
        may_pass: whether it continues although answers are held.
        is_gibberish: whether it was computed after the weights were lost.
        granted: set when it has a slot, or has ended without one.
        interrupted: set when it must stop computing.
    """

    request_id: str
    prompt: Sequence[str]
    max_tokens: int
    natural_tokens: int
    generated: int = 0
    finish: FinishReason | None = None
    may_pass: bool = False
    is_gibberish: bool = False
    granted: asyncio.Event = field(default_factory=asyncio.Event)
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def limit(self) -> int:
        """Number of tokens that it generates unless it is aborted."""
        return min(self.max_tokens, self.natural_tokens)

    @property
    def tokens(self) -> int:
        """Tokens that it occupies in the cache while it runs."""
        return len(self.prompt) + self.generated

    def text(self, start: int = 0) -> str:
        """Return the generated text from token `start` on: the words of the prompt, repeated."""
        words = (GIBBERISH,) if self.is_gibberish else self.prompt
        said = " ".join(words[index % len(words)] for index in range(start, self.generated))
        return f" {said}" if start and said else said


class Bell:
    """Wakes tasks that wait for a condition. Owned by one engine; lives in one event loop."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        """Make all waiters evaluate their conditions again."""
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Return once `is_so()` is true; it is evaluated now and whenever the bell rings."""
        while not is_so():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)


class EngineCore:
    """The engine behind both APIs. Owned by one `FakeEngine`; used from one event loop.

    A request is served by the caller that iterates `serve`; there are no background tasks, so a cancelled call ends its
    request, too.

    Invariants (`validate`): at most `slots` requests run; no request is both running and waiting.

    Attributes:
        running: requests with a slot, in the order in which they got one.
        waiting: queued requests, in order.
        ended: how requests have ended, in order.
        released: memory tags that were released (SGLang's `offload_tags`, vLLM's `sleeping_tags`).
        died_of: the cause of its death, as a sentence; empty while it is alive.
        is_stopped: whether the whole process is stopped.
        held_at: number of tokens at which answers pause, unless they may pass.
        turn: lock that serializes changes of memory, including the checks before them.
    """

    def __init__(self, plan: EnginePlan, on_death: Callable[[], None]) -> None:
        self.plan = plan
        self.bell = Bell()
        self.running: list[EngineRequest] = []
        self.waiting: list[EngineRequest] = []
        self.ended: list[tuple[str, FinishReason]] = []
        self.released: set[str] = set()
        self.died_of = ""
        self.is_paused = False
        self.is_stopped = False
        self.held_at: int | None = None
        self.turn = asyncio.Lock()
        self._is_releasable = plan.has_memory_saver if plan.api == "sglang" else plan.has_sleep_mode
        self._are_weights_lost = False
        self._is_moving_memory = False
        self._on_death = on_death

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""
        return not (self.running or self.waiting)

    @property
    def used_tokens(self) -> int:
        """Tokens in the cache."""
        return sum(request.tokens for request in self.running)

    def knows(self, request_id: str) -> bool:
        """Return whether a request of that id runs or waits."""
        return any(request.request_id == request_id for request in self.requests())

    def requests(self) -> Iterator[EngineRequest]:
        """Yield running requests, then waiting ones."""
        yield from self.running
        yield from self.waiting

    async def serve(self, request: EngineRequest) -> AsyncGenerator[int, None]:
        """Serve a request, and yield its number of tokens after each new one.

        Ends when the request has ended; closing or cancelling it earlier aborts the request.
        """
        self.waiting.append(request)
        self.bell.ring()
        try:
            self._grant()
            await request.granted.wait()
            await self._spend(request, request.tokens * self.plan.prompt_token_s)
            while await self._generate(request):
                yield request.generated
        finally:
            self._end(request, "abort")

    def abort(self, is_meant: Callable[[str], bool]) -> None:
        """End the requests whose ids match, with the tokens that they have."""
        for request in [request for request in self.requests() if is_meant(request.request_id)]:
            self._end(request, "abort")

    def pause(self) -> None:
        """Stop granting slots; running requests continue."""
        self.is_paused = True
        self.bell.ring()

    def go_on(self) -> None:
        """Undo a pause."""
        self.is_paused = False
        self._grant()
        self.bell.ring()

    async def release(self, tags: Iterable[str]) -> None:
        """Release memory; no request is scheduled meanwhile."""
        with self._moving_memory():
            self.released.update(tags)
            if self.plan.api == "sglang" and WEIGHTS in tags and self._is_releasable:
                self._are_weights_lost |= not self.plan.has_weights_backup
            self.bell.ring()
            await asyncio.sleep(self.plan.release_s)

    async def take(self, tags: Iterable[str]) -> None:
        """Take memory again; no request is scheduled meanwhile."""
        with self._moving_memory():
            await asyncio.sleep(self.plan.resume_s if WEIGHTS in tags else 0)
            self.released.difference_update(tags)

    def die(self, reason: str) -> None:
        """Die at once: every connection breaks, and nothing is answered any more."""
        if not self.died_of:
            self.died_of = reason
            self._on_death()
            self.bell.ring()

    def validate(self) -> None:
        """Raise AssertionError if an invariant does not hold."""
        assert len(self.running) <= self.plan.slots, f"{len(self.running)} run in {self.plan.slots} slots"
        assert not set(self.running) & set(self.waiting), "a request runs and waits"

    @contextmanager
    def _moving_memory(self) -> Iterator[None]:
        self._is_moving_memory = True
        try:
            yield
        finally:
            self._is_moving_memory = False
            self._grant()
            self.bell.ring()

    def _grant(self) -> None:
        is_barred = self.is_paused or self._is_moving_memory or bool(self.died_of)
        while self.waiting and not is_barred and len(self.running) < self.plan.slots:
            request = self.waiting[0]
            promised = sum(len(each.prompt) + each.limit for each in [*self.running, request])  # when complete
            if self.running and promised > self.plan.token_room:
                return
            if self.released and self._is_releasable:
                self.die(f"request {request.request_id} was scheduled while {sorted(self.released)} is released")
                return
            self.running.append(self.waiting.pop(0))
            request.granted.set()
            self.bell.ring()

    async def _generate(self, request: EngineRequest) -> bool:
        """Generate one token; return False if the request has ended."""
        if request.finish is None:
            await self._spend(request, self.plan.token_s)
            await self.bell.until(lambda: self._may_generate(request))
        if request.finish is not None:
            return False
        request.is_gibberish |= self._are_weights_lost
        request.generated += 1
        self.bell.ring()
        if request.generated >= request.limit:
            self._end(request, "stop" if request.natural_tokens <= request.max_tokens else "length")
        return True

    async def _spend(self, request: EngineRequest, seconds: float) -> None:
        """Wait for `seconds`, or until the request is interrupted."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        await until_set(request.interrupted, seconds)

    def _may_generate(self, request: EngineRequest) -> bool:
        """Return whether the process is running and the answer is not held."""
        if self.is_stopped:
            return False
        is_held = self.held_at is not None and request.generated >= self.held_at and not request.may_pass
        return request.interrupted.is_set() or not is_held

    def _end(self, request: EngineRequest, finish: FinishReason) -> None:
        if request.finish is not None:
            return
        request.finish = finish
        if not self.died_of:
            self.ended.append((request.request_id, finish))
        request.granted.set()
        request.interrupted.set()
        for place in (self.running, self.waiting):
            if request in place:
                place.remove(request)
        self._grant()
        self.bell.ring()
