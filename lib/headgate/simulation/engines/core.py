"""The scheduler of a fake engine: slots and a FIFO queue, tokens as time, pauses, aborts, and death."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from headgate.simulation.engines.plan import CUDA_GRAPH, KV_CACHE, WEIGHTS, EnginePlan

FinishReason = Literal["stop", "length", "abort"]

GIBBERISH = "\N{REPLACEMENT CHARACTER}"


@dataclass(slots=True, eq=False)
class EngineRequest:
    """One request. Owned by the core; lives as long as the call that brought it.

    Invariants: `generated <= limit`; once `finish` is set nothing changes any more.

    Attributes:
        request_id: by which it is aborted and told about.
        number: its place in the order of arrival, from 1.
        prompt: words; a word is a token here.
        max_tokens: that it asked for.
        natural_tokens: length at which the model would stop by itself.
        generated: tokens so far.
        finish: how it ended; None while it has not.
        is_probe: a health check of the engine itself, which nobody counts.
        is_retracted: it has to give its slot back and compute its prompt again.
        may_pass: it goes on although answers are held.
        is_gibberish: it was computed with weights that were thrown away.
        granted: set when it has a slot, or has ended without one.
        interrupted: set when it has to look up from computing.
    """

    request_id: str
    prompt: Sequence[str]
    max_tokens: int
    natural_tokens: int
    number: int = 0
    generated: int = 0
    finish: FinishReason | None = None
    is_probe: bool = False
    is_retracted: bool = False
    may_pass: bool = False
    is_gibberish: bool = False
    granted: asyncio.Event = field(default_factory=asyncio.Event)
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.prompt)

    @property
    def limit(self) -> int:
        """Tokens that it generates unless it is aborted."""
        return min(self.max_tokens, self.natural_tokens)

    @property
    def tokens(self) -> int:
        """Tokens that it holds in the cache while it runs."""
        return self.prompt_tokens + self.generated

    def text(self, start: int = 0) -> str:
        """Return the generated text from token `start` on: the words of the prompt, over and over."""
        words = (self._word(index) for index in range(start, self.generated))
        return (" " if start and start < self.generated else "") + " ".join(words)

    def _word(self, index: int) -> str:
        return GIBBERISH if self.is_gibberish else self.prompt[index % len(self.prompt)]


class Bell:
    """Wakes everybody who waits for a state. Owned by one engine; lives in one event loop."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        """Have everybody who waits look at the state."""
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Return once `is_so()`; it is asked now and whenever the bell has rung."""
        while not is_so():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)


class Memory:
    """Memory by tag. Owned by one engine.

    `released` is the engine's own record (SGLang's `offload_tags`, vLLM's `sleeping_tags`). `free` is what a second
    process on the same device could take; it lags behind by `release_lag_s`, and stays empty without the flag that
    makes memory releasable. Invariant: `free` is a part of `released`.
    """

    def __init__(self, plan: EnginePlan, bell: Bell) -> None:
        self._plan = plan
        self._bell = bell
        self._lags: dict[str, asyncio.TimerHandle] = {}
        self.tags = frozenset((WEIGHTS, KV_CACHE, CUDA_GRAPH) if plan.api == "sglang" else (WEIGHTS, KV_CACHE))
        self.released: set[str] = set()
        self.free: set[str] = set()
        self.are_weights_lost = False
        """Whether the weights were thrown away (vLLM's level 2, SGLang without a backup) and not loaded since."""

    @property
    def is_releasable(self) -> bool:
        """Whether the engine was started with the flag without which nothing is freed."""
        return self._plan.has_memory_saver if self._plan.api == "sglang" else self._plan.has_sleep_mode

    @property
    def is_missing(self) -> bool:
        """Whether something that computing needs is not there."""
        return self.is_releasable and bool(self.released)

    async def release(self, tags: Iterable[str]) -> None:
        """Release the memory of `tags`; returns before it is free where the plan says so."""
        tags = tuple(tags)
        self.released.update(tags)
        if self._plan.api == "sglang" and WEIGHTS in tags and self.is_releasable:
            self.are_weights_lost |= not self._plan.has_weights_backup
        self._bell.ring()
        if self._plan.release_s:
            await asyncio.sleep(self._plan.release_s)
        for tag in tags:
            self._free_later(tag)

    async def take(self, tags: Iterable[str]) -> None:
        """Take the memory of `tags` again."""
        tags = tuple(tags)
        if WEIGHTS in tags and self._plan.resume_s:
            await asyncio.sleep(self._plan.resume_s)
        for tag in tags:
            if (lag := self._lags.pop(tag, None)) is not None:
                lag.cancel()
            self.free.discard(tag)
            self.released.discard(tag)
        self._bell.ring()

    def close(self) -> None:
        """Forget what would become free later."""
        for lag in self._lags.values():
            lag.cancel()
        self._lags.clear()

    def _free_later(self, tag: str) -> None:
        if not self.is_releasable or tag not in self.tags:
            return
        if not self._plan.release_lag_s:
            self._free(tag)
        elif tag not in self._lags:
            loop = asyncio.get_running_loop()
            self._lags[tag] = loop.call_later(self._plan.release_lag_s, self._free, tag)

    def _free(self, tag: str) -> None:
        self._lags.pop(tag, None)
        if tag in self.released:
            self.free.add(tag)
        self._bell.ring()


class EngineCore:
    """What both APIs share. Owned by one `FakeEngine`; used from one event loop.

    A request is served by whoever iterates `serve`: there are no tasks, so that a call which is cancelled takes its
    request with it. The line is kept in the order of arrival: what is retracted is at its head again.

    Invariants (`validate`): never more than `slots` run; a request is in one of the two places only; memory that is
    free was released.
    """

    def __init__(self, plan: EnginePlan, on_death: Callable[[str], None]) -> None:
        self.plan = plan
        self.bell = Bell()
        self.memory = Memory(plan, self.bell)
        self.running: dict[int, EngineRequest] = {}
        self.waiting: dict[int, EngineRequest] = {}
        self.ended: list[tuple[str, FinishReason]] = []
        self.counts: Counter[str] = Counter()
        self.died_of = ""
        self.is_paused = False
        self.is_frozen = False
        """Whether what runs stands still, too."""
        self.is_stopped = False
        """Whether the whole process stands still."""
        self.held_at: int | None = None
        """Answers stop at so many tokens, unless they may pass."""
        self.turn = asyncio.Lock()
        """Changes of memory are made one after the other: who makes one looks at the state under this lock."""
        self._is_moving_memory = False
        self._numbers = itertools.count(1)
        self._scripted: EngineRequest | None = None
        """The request at which the script has the engine die."""
        self._on_death = on_death

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits; what waits does not count while paused (as in SGLang 0.5.23)."""
        return not (self.running or self.plan.faults.is_never_idle or (self.waiting and not self.is_paused))

    @property
    def running_count(self) -> int:
        """Running requests as they are reported."""
        return len(self.running) or int(self.plan.faults.is_never_idle)

    @property
    def used_tokens(self) -> int:
        """Tokens in the cache."""
        return sum(request.tokens for request in self.running.values())

    def knows(self, request_id: str) -> bool:
        """Return whether a request of that id runs or waits."""
        return any(request.request_id == request_id for request in self.requests())

    def requests(self) -> Iterator[EngineRequest]:
        """Yield what runs, then what waits."""
        yield from self.running.values()
        yield from self.waiting.values()

    async def serve(self, request: EngineRequest) -> AsyncGenerator[int, None]:
        """Serve a request, and yield the number of its tokens whenever there is one more.

        Ends when the request has ended; closing or cancelling it earlier aborts the request.
        """
        self.counts["probes" if request.is_probe else "requests"] += 1
        request.number = next(self._numbers)
        self.waiting[request.number] = request
        self._follow_script(request)
        self.bell.ring()
        try:
            while request.finish is None:
                self._grant()
                await request.granted.wait()
                await self._spend(request, request.tokens * self.plan.prompt_token_s)
                while await self._generate(request):
                    yield request.generated
                    self._follow_script(request)
        finally:
            self.counts["prompt_tokens"] += request.prompt_tokens
            self._end(request, "abort")

    def abort(self, is_meant: Callable[[str], bool]) -> list[str]:
        """End the requests whose ids are meant, with what they have; return their ids."""
        meant = [request for request in self.requests() if is_meant(request.request_id)]
        for request in meant:
            self._end(request, "abort")
        return [request.request_id for request in meant]

    def pause(self, *, freezes: bool = False) -> None:
        """Grant no slot any more; what runs goes on unless it `freezes`."""
        self.is_paused, self.is_frozen = True, freezes
        self.bell.ring()

    def retract(self) -> None:
        """Put what runs back into line, at its head, with the tokens it has."""
        for request in self.running.values():
            request.is_retracted = True
            request.interrupted.set()
        self.counts["retracted"] += len(self.running)

    def go_on(self) -> None:
        """Undo a pause."""
        self.is_paused = self.is_frozen = False
        self._grant()
        self.bell.ring()

    async def release(self, tags: Iterable[str]) -> None:
        """Release memory; nothing is scheduled meanwhile."""
        with self._moving_memory():
            await self.memory.release(tags)

    async def take(self, tags: Iterable[str]) -> None:
        """Take memory again; nothing is scheduled meanwhile."""
        with self._moving_memory():
            await self.memory.take(tags)

    @contextmanager
    def _moving_memory(self) -> Iterator[None]:
        self._is_moving_memory = True
        try:
            yield
        finally:
            self._is_moving_memory = False
            self._grant()

    def die(self, reason: str) -> None:
        """Die at once: every connection breaks, nothing is answered any more."""
        if not self.died_of:
            self.died_of = reason
            self._on_death(reason)
            self.bell.ring()

    def validate(self) -> None:
        """Raise AssertionError where an invariant does not hold."""
        assert len(self.running) <= self.plan.slots, f"{len(self.running)} run in {self.plan.slots} slots"
        assert not self.running.keys() & self.waiting.keys(), "a request runs and waits"
        assert self.memory.free <= self.memory.released, "memory is free that was not released"

    def _grant(self) -> None:
        """Give free slots to the heads of the line."""
        while self.waiting and self._may_grant and len(self.running) < self.plan.slots:
            request = next(iter(self.waiting.values()))
            if self.running and self._promised_tokens + request.prompt_tokens + request.limit > self.plan.token_room:
                return
            if self.memory.is_missing:
                self.die(f"request {request.request_id} was scheduled while {sorted(self.memory.released)} is released")
                return
            del self.waiting[request.number]
            self.running[request.number] = request
            request.granted.set()
            self.bell.ring()

    @property
    def _may_grant(self) -> bool:
        return not (self.is_paused or self._is_moving_memory or self.died_of)

    @property
    def _promised_tokens(self) -> int:
        """Tokens that what runs holds when it has come to its end."""
        return sum(request.prompt_tokens + request.limit for request in self.running.values())

    async def _generate(self, request: EngineRequest) -> bool:
        """Generate one token; False where it has ended, or has gone back into line."""
        if request.finish is None:
            await self._spend(request, self.plan.token_s)
            await self._gate(request)
        if request.finish is not None:
            return False
        if request.is_retracted:
            self._return_to_line(request)
            return False
        request.is_gibberish |= self.memory.are_weights_lost
        request.generated += 1
        self.counts["tokens"] += 1
        self.bell.ring()
        if request.generated >= request.limit:
            self._end(request, "stop" if request.natural_tokens <= request.max_tokens else "length")
        return True

    async def _spend(self, request: EngineRequest, seconds: float) -> None:
        """Let `seconds` pass, fewer where the request is interrupted."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await request.interrupted.wait()
        except TimeoutError:
            return

    async def _gate(self, request: EngineRequest) -> None:
        """Wait while the process is stopped, what runs is frozen, or the answer is held."""

        def may_go() -> bool:
            if self.is_stopped:
                return False
            is_held = self.held_at is not None and request.generated >= self.held_at and not request.may_pass
            return request.interrupted.is_set() or not (is_held or self.is_frozen)

        if not may_go():
            await self.bell.until(may_go)

    def _return_to_line(self, request: EngineRequest) -> None:
        del self.running[request.number]
        request.is_retracted = False
        request.granted.clear()
        request.interrupted.clear()
        self.waiting = dict(sorted((self.waiting | {request.number: request}).items()))
        self.bell.ring()

    def _end(self, request: EngineRequest, finish: FinishReason) -> None:
        if request.finish is not None:
            return
        request.finish = finish
        if not (self.died_of or request.is_probe):
            self.ended.append((request.request_id, finish))
            self.counts.update(("ended", finish))
        request.granted.set()
        request.interrupted.set()
        self.running.pop(request.number, None)
        self.waiting.pop(request.number, None)
        self._grant()
        self.bell.ring()

    def _follow_script(self, request: EngineRequest) -> None:
        """Die or stop where the script says so; its requests are told apart by the order of their arrival."""
        faults, count = self.plan.faults, self.counts["requests"]
        if not (request.generated or request.is_probe):
            self._scripted = request if count == faults.die_at_request else self._scripted
            self.is_stopped |= count == faults.hang_at_request
        if request is self._scripted and request.generated >= faults.die_after_tokens:
            self.die(f"the script says so, at request {faults.die_at_request}")
