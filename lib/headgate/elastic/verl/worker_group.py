"""A worker group of verl: its required and optional methods, and how they are called."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, Final, Protocol

from headgate.elastic.engines.calls import Attempts
from headgate.elastic.engines.engine import EngineFacts
from headgate.elastic.errors import EngineError
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import EngineLoad

LOGGER: Final = "verl.workers.rollout.elastic_scheduler"
"""verl's logger name, so that its users' logging configuration keeps working."""

_log = logging.getLogger(LOGGER)


class WorkerGroup(Protocol):
    """The interface of a worker group.

    It may also have these methods, each plain or `async`:

    - `get_worker_status()` → `{worker_id: {"active_requests": n, …}}`
    - `flush_worker_cache(worker_id)`
    - `release_worker_memory(worker_id)`: frees the memory of an idle worker; verl has no such method
    - `resume_worker_memory(worker_id)`
    """

    @property
    def world_size(self) -> int:
        """Number of workers; their ids count from 0."""


class GroupCalls:
    """Calls one worker group: with deadlines, plain methods in threads, one status for all concurrent callers.

    Owned by one scheduler.
    """

    def __init__(self, group: WorkerGroup, config: ElasticConfig, hear_total: Callable[[int], None]) -> None:
        self._group = group
        self._config = config
        self._hear_total = hear_total
        self._turn = asyncio.Lock()
        self._begun = 0
        self._finished = 0
        self._active: Mapping[int, int] = {}
        self._warned: set[tuple[str, int]] = set()
        self._threads: dict[str, threading.Thread] = {}

    async def active_requests(self) -> Mapping[int, int]:
        """Return worker id -> running requests as the group reports them; workers that it does not report are missing.

        The status is never older than this call: a call made while another one is pending shares the next status.

        Raises:
            EngineError: the group failed, or returned something else.
        """
        asked = self._begun
        async with self._turn:
            if self._finished <= asked:
                await asyncio.sleep(0)  # lets calls made in the same loop iteration share this status
                self._begun += 1
                number = self._begun
                try:
                    told = await self._call("get_worker_status", within_s=self._config.engine_timeout)
                except EngineError as error:
                    _log.error("Failed to update worker status: %s", error.message)
                    raise
                self._active = _read(told)
                self._finished = number
                self._hear_total(sum(self._active.values()))
            return self._active

    async def put_to_sleep(self, worker_id: int) -> None:
        """Flush a worker's cache and release its memory, as far as the group can; raises EngineError."""
        if self._has("flush_worker_cache", worker_id, "Worker group does not support cache flushing for worker %s"):
            await self._call("flush_worker_cache", worker_id, within_s=self._config.engine_timeout)
        if hasattr(self._group, "release_worker_memory"):
            await self._call("release_worker_memory", worker_id, within_s=self._config.start_timeout)

    async def wake(self, worker_id: int) -> None:
        """Resume a worker's memory, as far as the group can; raises EngineError."""
        missing = "Worker group does not support memory resumption for worker %s"
        if self._has("resume_worker_memory", worker_id, missing):
            await self._call("resume_worker_memory", worker_id, within_s=self._config.start_timeout)

    def _has(self, name: str, worker_id: int, missing: str) -> bool:
        if hasattr(self._group, name):
            return True
        if (name, worker_id) not in self._warned:
            self._warned.add((name, worker_id))
            _log.warning(missing, worker_id)
        return False

    async def _call(self, name: str, *arguments: object, within_s: float) -> Any:
        method = getattr(self._group, name, None)
        if method is None:
            return {}
        said = f"{name}({', '.join(str(each) for each in arguments)})"
        if said in self._threads:
            raise EngineError(f"{said} has not returned since it was called last", is_final=True)
        try:
            async with asyncio.timeout(within_s) as deadline:
                if inspect.iscoroutinefunction(method):
                    return await method(*arguments)
                answer = await self._in_thread(said, method, *arguments)
                return await answer if inspect.isawaitable(answer) else answer
        except Exception as error:
            if isinstance(error, TimeoutError) and deadline.expired():
                raise EngineError(f"{said} did not return within {within_s:g} s", is_final=True) from None
            _log.debug("%s failed", said, exc_info=error)
            raise EngineError(f"{said} failed: {type(error).__name__}: {error}") from error

    async def _in_thread(self, said: str, method: Callable[..., Any], *arguments: object) -> Any:
        """Call a plain method in a new thread, so that a hanging one does not block threads that the training needs."""
        answer: Future[Any] = Future()
        answer.set_running_or_notify_cancel()

        def call() -> None:
            try:
                told = method(*arguments)
            except Exception as error:  # noqa: BLE001 - raised where it is awaited
                self._threads.pop(said, None)
                answer.set_exception(error)
            else:
                self._threads.pop(said, None)
                answer.set_result(told)

        thread = threading.Thread(target=copy_context().run, args=(call,), name=said, daemon=True)
        self._threads[said] = thread
        thread.start()
        return await asyncio.wrap_future(answer)


def _read(told: object) -> dict[int, int]:
    if not isinstance(told, Mapping):
        raise EngineError(f"get_worker_status must return a mapping by worker (got {told!r:.80})")
    active = {}
    for worker_id, status in told.items():
        count = status.get("active_requests", 0) if isinstance(status, Mapping) else status
        try:
            active[int(worker_id)] = max(0, int(count))
        except (TypeError, ValueError):
            raise EngineError(
                f"get_worker_status must report active_requests as a number (got {count!r:.80} for {worker_id!r:.80})"
            ) from None
    return active


class GroupEngine:
    """A worker that only its group can reach. The group sends requests itself.

    Whether it sleeps is recorded here, as groups written for verl's scheduler report every worker as `active`.
    """

    kind = "verl"

    def __init__(self, worker_id: int, calls: GroupCalls, attempts: Attempts) -> None:
        self.name = str(worker_id)
        self._worker_id = worker_id
        self._calls = calls
        self._attempts = attempts
        self._is_asleep = False
        self._was_told_of = False

    async def check(self) -> EngineFacts:
        """Return its facts: only whether it is asleep is known."""
        return EngineFacts((), is_asleep=self._is_asleep)

    async def load(self) -> EngineLoad:
        """Return what its group reports; if the group never reported this worker, the pool's own count applies."""
        active = await self._calls.active_requests()
        if self._worker_id in active:
            self._was_told_of = True
        elif self._was_told_of:
            raise EngineError(f"get_worker_status no longer reports worker {self._worker_id}")
        return EngineLoad(running=active.get(self._worker_id, 0), is_asleep=self._is_asleep)

    async def sleep(self) -> None:
        """Flush its cache and release its memory; raises EngineError if it is busy."""
        if self._is_asleep:
            return
        if running := (await self.load()).running:
            raise EngineError(f"worker {self._worker_id} is busy with {running} requests")
        await self._attempts.run(lambda: self._calls.put_to_sleep(self._worker_id))  # idempotent, so it may be retried
        self._is_asleep = True

    async def wake(self) -> None:
        """Resume its memory."""
        if self._is_asleep:
            await self._attempts.run(lambda: self._calls.wake(self._worker_id))
            self._is_asleep = False
