"""Requests hosts from the placement ledger on behalf of a run, reports when they are up, and gives them back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from headgate.core.errors import HeadgateError
from headgate.environments import apart
from headgate.placement import PlacementPool, amounts, connect, node_address
from headgate.run.hosts.hosts import HostCluster

_GIVEN_BACK_S: Final = 25.0
"""Time to give one place back at the end of a run; if it takes longer, pool and ledger stay for the next run."""

_TOLD_EVERY_S: Final = 5.0
"""How often the run is told that a host is still queued, and why."""

_UP_S: Final = 60.0
"""Time for a placed host to start listening."""


class PlacedHost(apart.EnvironmentHost):
    """A host as placement creates it on a node."""

    def __init__(self, limits: dict[str, Any]) -> None:
        address = node_address()
        locks = tuple(limits["sandbox_locks"])
        super().__init__(address, address, apart.ApartLimits(**limits | {"sandbox_locks": locks}))


class Broker:
    """The run's placement driver. Its calls block; each host has a thread while it is wanted.

    Attributes:
        lost: done, with the reason as its result, when the cluster is gone.
    """

    def __init__(self, order: Mapping[str, Any], tell: Callable[..., None]) -> None:
        """Connect to the cluster; `tell` sends keyword arguments to the run, `order` says where and how to place hosts.

        Raises:
            HeadgateError: if there is no cluster, or it cannot be used.
        """
        self._cluster = HostCluster(**order["cluster"])
        self._driver = order["driver"]
        self._limits = order["limits"]
        self._request: dict[str, Any] = {
            "resources": amounts(cpu=order["cpus"]),
            "priority": order["priority"],
            "labels": {"role": order["role"], "run": self._driver},
        }
        self._tell = tell
        self._placement = connect(
            self._cluster.address or None,
            journal=self._cluster.journal or None,
            driver=self._driver,
            log_to_driver=False,
        )
        is_new = all(pool.name != self._cluster.pool for pool in self._placement.pools())
        self.lost = self._placement.lost
        self._owns_pool = order["owns_pool"] or is_new
        self._owns_ledger = order["owns_ledger"] or not self._placement.found_ledger
        pool = self._pool()
        says = f"{self._placement.says}, pool {pool.name} with {pool.pool.quota}"
        tell(says=says, owns_pool=self._owns_pool, owns_ledger=self._owns_ledger)

    def ask(self, name: str) -> None:
        """Request a host."""
        threading.Thread(target=self._tend, args=(name,), name=f"headgate-{name}", daemon=True).start()

    def drop(self, name: str) -> None:
        """Give back a host's place or cancel its request; do nothing if it has neither."""
        with suppress(HeadgateError):
            self._placement.cancel(name, "no longer needed")

    def close(self) -> None:
        """Give all places back, and remove the pool and the ledger if they were made for this run alone."""
        placement, name = self._placement, self._cluster.pool
        with suppress(HeadgateError):
            mine = [view for view in placement.requests(name) if view.holder == self._driver]
            works = [placement.work(view.request_id) for view in mine if not view.stage.has_ended]
            for work in works:  # cancel all before waiting for the first, whose place the next would get
                work.cancel("the run has ended")
            for work in works:
                with suppress(TimeoutError):
                    work.wait(_GIVEN_BACK_S)
            is_idle = all(view.stage.has_ended for view in placement.requests(name))
            if self._owns_pool and is_idle:
                placement.close_pool(name)
            others = [pool for pool in placement.pools() if pool.name != name]
            if self._owns_ledger and is_idle and not others:
                placement.shutdown()
        placement.close()

    def _pool(self) -> PlacementPool:
        """Return the pool, opening it again if another run has closed it since."""
        return self._placement.pool_or_whole(self._cluster.pool, self._cluster.quota or None, reuse=False)

    def _tend(self, name: str) -> None:
        try:
            work = self._pool().submit(PlacedHost, self._limits, request_id=name, **self._request)
            while True:
                try:
                    work.wait_running(_TOLD_EVERY_S)
                    break
                except TimeoutError:
                    self._tell(waits=name, why=work.why().says)
            where: apart.Whereabouts = work.call("where").future().result(_UP_S)
            self._tell(host=name, where=asdict(where))
            view = work.wait()
            self._tell(gone=name, why=f"its place is {view.stage}: {view.note}" if view.note else "it has ended")
        except Exception as error:  # noqa: BLE001 - reported to the run, which asks again; Ray may raise anything
            kind = "" if isinstance(error, HeadgateError) else f"{type(error).__name__}: "
            self._tell(gone=name, why=f"{kind}{' '.join(str(error).split())[:300]}")
            self.drop(name)  # a host that has its place but does not answer would keep it
