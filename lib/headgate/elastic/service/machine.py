"""The GPUs and cores of one machine, leased to its engines by priority and then in order of arrival."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from headgate.core import Launch, Serving
from headgate.core.errors import some_of
from headgate.elastic.engines import Engine, LocalEngine
from headgate.elastic.errors import EngineError, InvalidElasticError
from headgate.elastic.service.supervisor import OnLost, WorkerLease, WorkerLeases
from headgate.elastic.settings import ElasticConfig

_CGROUP: Final = Path("/sys/fs/cgroup")

LEAVE_S: Final = 30.0
"""How long an engine whose GPU is needed by a higher priority may take to finish its requests."""


@dataclass(frozen=True, slots=True)
class EnginesAtHand:
    """The engines of one pool, none of them started.

    Attributes:
        engines: the engines, for `ElasticService`.
        leases: their leases, likewise.
        ahead: returns which engines are ahead of the pool's in the queue for leases; empty if none are.
        others_wait: returns whether other pools' engines wait for what the pool's engines hold.
        gone: resolves to the reason when no engine can be started here any more, and the pool must be reopened.
    """

    engines: Sequence[Engine]
    leases: WorkerLeases
    ahead: Callable[[], Coroutine[Any, Any, str]]
    others_wait: Callable[[], Coroutine[Any, Any, bool]]
    gone: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(eq=False, slots=True)
class _Stay:
    """One engine's lease, from the queue until it is given back."""

    worker_id: str
    gpus: int
    priority: float
    order: int
    on_lost: OnLost
    granted: asyncio.Future[None]
    devices: tuple[str, ...] = ()
    is_asked: bool = False


class _Sleeper(NamedTuple):
    devices: Sequence[str]
    end: Callable[[], Coroutine[Any, Any, None]]


class Machine:
    """Starts engines on this machine. One per run, for all of its pools; used in one event loop.

    An engine without GPUs takes a core, as more engines than cores would slow each other down. Leases are granted by
    priority and then in order of arrival; the first waiter makes engines of lower priority give theirs back.

    With `keeps_engines`, the engines of a pool that ends stay asleep for the next pool that starts the same program: to
    evaluate one checkpoint after the other, only the weights are loaded. `close` ends them.

    Engines that sleep with their process stay on their GPU while others use it, as long as the machine has memory for
    their weights: models that take turns are woken within a second, while a start takes one or several minutes.

    Invariant: a GPU is held by one engine at most, and only that one is awake there.

    Attributes:
        keeps_engines: whether engines stay asleep for the next pool when their pool ends.
        most_asleep: how many engines may sleep on a GPU where another wakes; lowered when one cannot start beside them.
    """

    def __init__(
        self, gpus: Iterable[str] | None = None, cores: int | None = None, *, keeps_engines: bool = False
    ) -> None:
        """Take the GPUs, by their CUDA names, and how many engines without GPUs may run."""
        self.keeps_engines = keeps_engines
        self.most_asleep = sys.maxsize
        self._kept: list[LocalEngine] = []
        self._gpus = tuple(gpus_here() if gpus is None else gpus)
        self._cores = cores or os.cpu_count() or 1
        self._held: dict[str, _Stay] = {}
        self._line: list[_Stay] = []
        self._sleepers: dict[str, _Sleeper] = {}
        """Worker -> sleeper, in the order in which they went to sleep."""
        self._orders = itertools.count()

    @asynccontextmanager
    async def engines(self, name: str, serving: Serving, config: ElasticConfig) -> AsyncIterator[EnginesAtHand]:
        """Yield the engines of a pool; see `EnginesAtHand`.

        Raises:
            InvalidElasticError: an engine takes more GPUs than there are.
        """
        gpus = serving.launch.gpus
        if gpus > len(self._gpus):
            raise InvalidElasticError(
                f"an engine of {name} takes {gpus} GPUs, and this machine has {len(self._gpus)}",
                next_step="Ask for fewer under `gpus`, or set engine_hosts to ray and add a node that has them.",
            )
        names = [f"{name}-{number}" for number in range(1, serving.most + 1)]
        engines = [self._next_engine(each, serving.launch, config) for each in names]
        try:
            line = _Line(self, gpus, serving.priority)
            yield EnginesAtHand(engines, line, lambda: self._ahead_of(names), lambda: self._others_wait(names, serving))
        finally:
            self._kept += [engine for engine in engines if engine.is_kept]

    async def close(self) -> None:
        """End the engines that were kept."""
        self.keeps_engines = False
        kept, self._kept = self._kept, []
        for engine in kept:
            await engine.close()

    def _next_engine(self, name: str, launch: Launch, config: ElasticConfig) -> LocalEngine:
        for engine in self._kept:
            if engine.can_serve(launch):
                self._kept.remove(engine)
                if (sleeper := self._sleepers.pop(engine.name, None)) is not None:
                    self._sleepers[name] = sleeper
                engine.serve_next(name, launch)
                return engine
        return LocalEngine(name, launch, config, self)

    def of(self, worker_id: str) -> Sequence[str]:
        """Return the GPUs that a worker holds."""
        return self._held[worker_id].devices if worker_id in self._held else ()

    async def beside(self, worker_id: str, most: int) -> int:
        """End other engines asleep on a worker's GPUs until `most` are left, latest first; return how many are left."""
        mine = set(self.of(worker_id))
        others = [name for name, each in self._sleepers.items() if mine.intersection(each.devices)]
        for other in others[most:][::-1]:
            if (sleeper := self._sleepers.pop(other, None)) is not None:
                await sleeper.end()
        return len(others[:most])

    async def make_room(self, weights_bytes: int) -> None:
        """End sleeping engines until the machine has memory for the weights of one that goes to sleep.

        Raises:
            EngineError: there is not enough even though no engine sleeps any more.
        """
        while not _has_room(weights_bytes):
            if not self._sleepers:
                raise EngineError(f"the machine has no memory left for {weights_bytes / 1e9:.1f} GB of weights")
            # Models take turns, so the one that slept last is needed last.
            await self._sleepers.popitem()[1].end()

    def has_ended(self, worker_id: str) -> None:
        """Record that an engine no longer sleeps."""
        self._sleepers.pop(worker_id, None)

    def sleeps(self, worker_id: str, devices: Sequence[str], end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Record that an engine sleeps on GPUs that it does not hold, and how to end it."""
        self._sleepers[worker_id] = _Sleeper(devices, end)

    async def take(self, worker_id: str, gpus: int, priority: float, on_lost: OnLost) -> None:
        """Return once a worker has its GPUs or its core; if cancelled, it leaves the queue."""
        granted = asyncio.get_running_loop().create_future()
        stay = _Stay(worker_id, gpus, priority, next(self._orders), on_lost, granted)
        self._line.append(stay)
        self._line.sort(key=lambda each: (-each.priority, each.order))
        self._serve()
        try:
            await granted
        except asyncio.CancelledError:
            if stay in self._line:
                self._line.remove(stay)
            elif self._held.get(worker_id) is stay:
                del self._held[worker_id]
            self._serve()
            raise

    def give_back(self, worker_id: str) -> None:
        """Take back a worker's lease; legal twice."""
        if self._held.pop(worker_id, None) is not None:
            self._serve()

    def _serve(self) -> None:
        # A cancelled waiter removes itself only a moment later.
        self._line = [each for each in self._line if not each.granted.cancelled()]
        while self._line and (devices := self._free_for(self._line[0])) is not None:
            stay = self._line.pop(0)
            stay.devices = devices
            self._held[stay.worker_id] = stay
            stay.granted.set_result(None)
        if self._line:
            self._make_way(self._line[0])

    def _free_for(self, stay: _Stay) -> tuple[str, ...] | None:
        if not stay.gpus:
            return () if sum(not each.gpus for each in self._held.values()) < self._cores else None
        taken = {device for each in self._held.values() for device in each.devices}
        free = [device for device in self._gpus if device not in taken]
        if (before := self._sleepers.get(stay.worker_id)) is not None and set(before.devices) <= set(free):
            return tuple(before.devices)
        slept_on = {device for each in self._sleepers.values() for device in each.devices}
        free.sort(key=lambda device: device in slept_on)
        return tuple(free[: stay.gpus]) if len(free) >= stay.gpus else None

    def _make_way(self, first: _Stay) -> None:
        """Make as many engines of lower priority leave as the first waiter needs, the lowest and newest first."""
        alike = [each for each in self._held.values() if bool(each.gpus) == bool(first.gpus)]
        all_units = len(self._gpus) if first.gpus else self._cores
        freed = all_units - sum(max(1, each.gpus) for each in alike if not each.is_asked)
        for each in sorted(alike, key=lambda each: (each.priority, -each.order)):
            if freed >= max(1, first.gpus) or each.priority >= first.priority:
                return
            if not each.is_asked:
                each.is_asked = True
                freed += max(1, each.gpus)
                each.on_lost(LEAVE_S)

    async def _ahead_of(self, names: Sequence[str]) -> str:
        mine = next((each for each in self._line if each.worker_id in names), None)
        if mine is None:
            return ""
        alike = (each for each in (*self._held.values(), *self._line) if bool(each.gpus) == bool(mine.gpus))
        place = self._line.index(mine)
        return some_of([each.worker_id for each in alike if each not in self._line[place:]], 3)

    async def _others_wait(self, names: Sequence[str], serving: Serving) -> bool:
        # Waiters of a lower priority do not count: they would lose the lease again with the next sample.
        others = [each for each in self._line if each.worker_id not in names and each.priority >= serving.priority]
        return any(bool(each.gpus) == bool(serving.launch.gpus) for each in others)


@dataclass(frozen=True, slots=True)
class _Line:
    """The leases of one pool. Implements `WorkerLeases`."""

    machine: Machine
    gpus: int
    priority: float

    async def take(self, worker_id: str, on_lost: OnLost) -> WorkerLease:
        """See `WorkerLeases`."""
        await self.machine.take(worker_id, self.gpus, self.priority, on_lost)

        async def give_back() -> None:
            self.machine.give_back(worker_id)

        return give_back


def _has_room(wanted_bytes: int) -> bool:
    """Return whether machine and container have `wanted_bytes` of memory free and would keep a tenth of it all free."""
    rooms = []
    with suppress(OSError, KeyError):  # only Linux has it
        told = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        rooms.append([int(told[name].split()[0]) * 1024 for name in ("MemAvailable", "MemTotal")])
    with suppress(OSError, KeyError, ValueError):  # without a limit it reads `max`
        most, taken = (int((_CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        parts = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        rooms.append([most - taken + int(parts["active_file"]) + int(parts["inactive_file"]), most])
    return all(left - wanted_bytes >= total / 10 for left, total in rooms)


def gpus_here() -> list[str]:
    """Return the GPUs of this machine that this process may use, as named in CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [each.strip() for each in visible.split(",") if each.strip() not in {"", "-1"}]
    return [str(number) for number in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]
