"""The ledger's actor: one per cluster, detached, named, restarted by Ray whenever it dies; and its metrics."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import ray
from ray._private import worker as ray_worker
from ray.util.metrics import Counter, Gauge, Histogram

from headgate.core import Metric, SystemClock, events
from headgate.core.errors import HeadgateError, JournalError
from headgate.core.events import Event
from headgate.durable.locks import LockHeldError
from headgate.placement.cluster.audit import audit, tidy
from headgate.placement.cluster.connection import LEDGER_NAME, NAMESPACE
from headgate.placement.cluster.executor import RayExecutor
from headgate.placement.metrics import PLACEMENT_METRICS, Meter, Reading
from headgate.placement.outcomes import LedgerSettings
from headgate.placement.pool import Group
from headgate.placement.request import Occupancy
from headgate.placement.service.journal import Journal
from headgate.placement.service.service import PlacementService

_Write = Callable[[float, dict[str, str]], None]


class PlacementMetrics:
    """Counts events into Ray's metrics. Owned by the ledger actor, one per process: Ray keeps one series per process.

    An event sink: call it with each event. Each call of `show` updates the gauges of the ledger's groups and requests.
    """

    def __init__(self, groups: Mapping[str, Group], requests: Mapping[str, Occupancy]) -> None:
        self._meter = Meter(groups, requests)
        self._metrics: dict[str, tuple[tuple[str, ...], _Write]] = {
            name: (metric.labels, _ray_metric(metric)) for name, metric in PLACEMENT_METRICS.items()
        }

    def __call__(self, event: events.Event) -> None:
        """Count one event."""
        self._write(self._meter.take(event))

    def show(self) -> None:
        """Set the gauges to the current state."""
        self._write(self._meter.gauges())

    def _write(self, readings: Iterable[Reading]) -> None:
        for reading in readings:
            tags, write = self._metrics[reading.name]
            write(reading.value, dict(zip(tags, reading.tags, strict=True)))


def _ray_metric(metric: Metric) -> _Write:
    if metric.kind == "gauge":
        return Gauge(metric.name, metric.help, tag_keys=metric.labels).set
    if metric.kind == "histogram":
        return Histogram(metric.name, metric.help, boundaries=list(metric.buckets), tag_keys=metric.labels).observe
    counter = Counter(metric.name, metric.help, tag_keys=metric.labels)

    def add(value: float, tags: dict[str, str]) -> None:
        if value > 0:  # Ray refuses to add nothing
            counter.inc(value, tags)

    return add


_JOURNAL_FAILED: Final = 75
_CALLS_AT_ONCE: Final = 10_000
_PAUSE_S: Final = 0.05
_SHOW_EVERY_S: Final = 1.0
"""How often Ray reports metrics where Headgate starts it."""

_TAKE_OVER_S: Final = 3.0
_ASKED: Final = frozenset(
    {
        "open_pool", "change_pool", "close_pool", "remove_group", "pools", "set_rules", "rules",
        "submit", "hand_over", "withdraw", "withdraw_all", "leave", "complete", "release", "saved",
        "beat", "view", "why", "usage", "result", "reach", "requests", "groups", "nodes", "events", "stats",
        "pool_stats",
    }
)  # fmt: skip
"""Methods of the service that drivers may call."""

_log = logging.getLogger("headgate.placement")


class LedgerActor:
    """The placement service of one cluster. Refusals are returned as answers, so that drivers get the error itself.

    On creation it starts to restore from its journal, a file on its machine (by default in the folder of Ray's
    session); calls wait until that is done.
    """

    def __init__(self, journal: str, settings: LedgerSettings) -> None:
        self._path = Path(journal) if journal else _session_folder() / "headgate" / "placement.sqlite"
        self._settings = settings
        self._metrics: PlacementMetrics | None = None
        self._showing: asyncio.Task[None] | None = None
        # Started here and not by the first call: a ledger that Ray has restarted must watch its work at once.
        self._opening = asyncio.get_running_loop().create_task(self._opened())
        self._opening.add_done_callback(_check_opening)

    async def ask(self, name: str, args: tuple[Any, ...]) -> tuple[bool, Any]:
        """Call a method of the service; the answer is True and its value, or False and the error."""
        try:
            service = await asyncio.shield(self._opening)
            if name in _ASKED:
                answer = getattr(service, name)(*args)
                return True, await answer if asyncio.iscoroutine(answer) else answer
            return True, await getattr(self, f"_ask_{name}")(service, *args)
        except HeadgateError as error:
            return False, error

    async def _ask_about(self, service: PlacementService) -> dict[str, Any]:
        return {
            "generation": service.generation,
            "journal": str(self._path),
            "process_id": os.getpid(),
            "node": ray.get_runtime_context().get_node_id(),
        }

    async def _ask_audit(self, service: PlacementService, fix: bool) -> tuple[Any, ...]:
        differences = await audit(service, fix=fix)
        for each in differences:
            self._emit(events.PlacementDiffers(each.says, each.name, each.fixed))
        return differences

    async def _ask_end(self, service: PlacementService) -> None:
        """Withdraw all work, remove all groups, and return once none of ours are left in Ray."""
        for pool in service.pools():
            service.close_pool(pool.name)
        while service.pools():  # noqa: ASYNC110 - a pool is gone when its groups are, and nothing signals that
            await asyncio.sleep(_PAUSE_S)
        await service.close()
        await tidy()

    async def _opened(self) -> PlacementService:
        journal = await self._opened_journal()
        service = PlacementService(
            journal, RayExecutor(), SystemClock(), settings=self._settings, emit=self._emit, on_fatal=_end_process
        )
        self._metrics = PlacementMetrics(service.ledger.groups, service.ledger.requests)
        self._showing = asyncio.get_running_loop().create_task(self._show_on(self._metrics))
        await service.start()
        return service

    async def _show_on(self, metrics: PlacementMetrics) -> None:
        while True:
            try:
                metrics.show()
            except Exception:  # noqa: BLE001 - reported; metrics never stop the ledger
                _log.exception("The gauges could not be shown; the ledger continues")
            await asyncio.sleep(_SHOW_EVERY_S)

    async def _opened_journal(self) -> Journal:
        """Open the journal; a process that was killed a moment ago may still hold it."""
        until = time.monotonic() + _TAKE_OVER_S
        while True:
            try:
                return Journal(self._path).open()
            except JournalError as error:
                if not isinstance(error.__cause__, LockHeldError) or time.monotonic() >= until:
                    raise
            await asyncio.sleep(_PAUSE_S)

    def _emit(self, event: Event) -> None:
        assert self._metrics is not None, "a service that has not begun has no events"
        try:
            self._metrics(event)
        except Exception:  # noqa: BLE001 - reported; metrics never stop the ledger
            _log.exception("An event could not be counted; the ledger continues")


def ledger_actor(journal: str, settings: LedgerSettings) -> Any:
    """Return the cluster's ledger actor, starting one where there is none: on the head node, which has the journal."""
    return (
        ray.remote(LedgerActor)
        .options(
            name=LEDGER_NAME,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            max_task_retries=0,  # drivers retry their calls themselves; all of them are idempotent
            max_concurrency=_CALLS_AT_ONCE,
            num_cpus=0,
            resources={"node:__internal_head__": 0.001},
        )
        .remote(journal, settings)
    )


def _session_folder() -> Path:
    node: Any = ray_worker._global_node  # noqa: SLF001 - there is no public way
    return Path(node.get_session_dir_path())


def _check_opening(opening: asyncio.Task[PlacementService]) -> None:
    """End the process if an error of Ray interrupted the restore: the next process tries again.

    Errors of Headgate itself, such as a journal that cannot be written, are returned to the callers instead.
    """
    error = None if opening.cancelled() else opening.exception()
    if error is not None and not isinstance(error, HeadgateError):
        _end_process(error)


def _end_process(error: BaseException) -> None:
    """End the process; Ray starts the actor again, and it restores from the journal."""
    _log.critical("The process of the placement ledger ends: %s", error)
    os._exit(_JOURNAL_FAILED)
