"""The driver's API: connect to a cluster, open pools, and submit work."""

from __future__ import annotations

import atexit
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Self

import ray

from headgate.core import ReleaseOutcome, new_holder_id
from headgate.core.audit import record_change
from headgate.core.errors import HeadgateError, JournalError
from headgate.placement.amounts import Amounts, amounts
from headgate.placement.backfill import PoolUsage
from headgate.placement.checks import pool_spec
from headgate.placement.cluster.audit import Difference
from headgate.placement.cluster.connection import Connection, Found, connect_ray
from headgate.placement.cluster.link import Heartbeat, LedgerLink
from headgate.placement.cluster.pools import PlacementPool
from headgate.placement.cluster.tuning import LocalCluster
from headgate.placement.cluster.work import PlacedWork
from headgate.placement.errors import InvalidPlacementError, UnknownPoolError
from headgate.placement.outcomes import LedgerSettings, PoolOpened
from headgate.placement.pool import GroupShape, NodeView, Pool
from headgate.placement.rules import PreemptionRules
from headgate.placement.scaling import scaled
from headgate.placement.service.protocol import GroupView, Told, WorkView

_BRIEFLY_S = 5.0

_TERMINATED: Final = frozenset({signal.SIGTERM, 128 + signal.SIGTERM})
"""Codes of the `SystemExit` that handlers of SIGTERM raise: Ray's handler, and that of the command line."""


def connect(
    address: str | None = None,
    *,
    local: LocalCluster | None = None,
    journal: Path | str | None = None,
    settings: LedgerSettings | None = None,
    driver: str | None = None,
    keep_work: bool = False,
    log_to_driver: bool = True,
) -> Placement:
    """Connect to a cluster and its placement ledger, starting a ledger where there is none.

    Args:
        address: `host:port` of a Ray cluster; None for RAY_ADDRESS, else one that runs here, else a new local one.
        local: configuration of a new local cluster.
        journal: absolute path of the journal of a new ledger, on the head node; None for a file in the folder of
            Ray's session, which is lost with the cluster.
        settings: settings of a new ledger; a running one keeps its own.
        driver: a name for this driver. Connecting again with the same name, also from another process, resumes its
            requests; None for a new name.
        keep_work: whether open requests are kept, rather than withdrawn, on `close`, an exception, Ctrl-C or SIGTERM.
        log_to_driver: whether the output of work is shown here.

    Raises:
        ClusterUnreachableError: no cluster answers.
        ClusterMismatchError: it runs another version of Ray or Python.
        JournalError: the journal cannot be used.

    Examples:
        ```python
        with connect() as placement:
            pool = placement.pool("rlhf", quota=amounts(cpu=6))
            print(pool.submit(Training, 3, resources=amounts(cpu=2), priority=9).result())
        ```
    """
    connection = connect_ray(address, local=local, log_to_driver=log_to_driver)
    try:
        link = LedgerLink("" if journal is None else str(journal), settings or LedgerSettings())
        link.ask("about")
    except BaseException as error:
        if isinstance(error, JournalError):
            link.kill()  # it could not start, and would answer every caller with this error
        if connection.found is not Found.ATTACHED:
            ray.shutdown()
        raise
    return Placement(connection, link, driver or new_holder_id(), keep_work=keep_work)


class Placement:
    """A driver's connection to the placement ledger. A context manager; usable from any thread.

    While it is open, a thread sends heartbeats to the ledger. When they stop without `close`, the ledger stops the
    driver's work after 15 s, or keeps it where its settings say so.

    Attributes:
        connection: the cluster.
        driver: this driver's name.
        says: a sentence that says which cluster is used.
        found_ledger: whether a ledger was already running, which other drivers may be using.
    """

    def __init__(self, connection: Connection, link: LedgerLink, driver: str, *, keep_work: bool) -> None:
        self.connection = connection
        self.driver = driver
        self.says, self.found_ledger = connection.says, link.was_there
        self._link = link
        self._keep_work = keep_work
        self._is_closed = False
        self._heartbeat = Heartbeat(link, driver)
        # Runs before Ray's own handler, which was registered earlier: `close` needs the connection. Also on SIGTERM.
        atexit.register(self.close)

    @property
    def is_connected(self) -> bool:
        """Whether this process is still in the Ray session in which it connected, and that cluster still exists.

        `ray.shutdown` ends a session; restarting the head ends a cluster.
        """
        return self._link.is_connected

    @property
    def lost(self) -> Future[str]:
        """Resolves to the reason when the connection has ended without `close`."""
        return self._heartbeat.lost

    def pool(
        self,
        name: str,
        *,
        quota: Amounts | Mapping[str, Any] | None = None,
        reserved: Sequence[Amounts | GroupShape | Mapping[str, Any]] = (),
        scale: bool = False,
        change: bool = False,
        **more: Any,
    ) -> PlacementPool:
        """Open a pool, or get an open one by its name alone.

        Args:
            name: unique in the cluster.
            quota: what its running work may hold in total; None to get a pool that is already open.
            reserved: groups that are kept ready for high priorities.
            scale: shrink the pool, down to a quarter, if the nodes have less.
            change: change a pool that is open with other fields; without it that is an error.
            more: other fields of `Pool`.

        Raises:
            InvalidPlacementError: a field breaks a rule, or the pool is open with other fields.
            CannotFitError: with `scale`, it does not fit even at a quarter.
            UnknownPoolError: no quota is given and the pool is not open.
        """
        if quota is None:
            open_pools: tuple[Pool, ...] = self._link.ask("pools")
            known = next((each for each in open_pools if each.name == name), None)
            if known is None:
                names = ", ".join(sorted(each.name for each in open_pools)) or "none"
                raise UnknownPoolError(f"There is no open pool {name!r} (open: {names})")
            return PlacementPool(self._link, self._heartbeat, known)
        spec = pool_spec({"name": name, "quota": quota, "reserved": tuple(reserved), **more})
        wanted, factor = scaled(spec, self._link.ask("nodes")) if scale else (spec.as_pool(), 1.0)
        told: PoolOpened = self._link.ask("open_pool", wanted)
        if told.differences:
            if not change:
                raise InvalidPlacementError(
                    f"Pool {name!r} is open with another {' and '.join(told.differences)}",
                    next_step="Use placement.pool(name) to get it as it is, or change=True (`--change`) to change it.",
                )
            self._link.ask("change_pool", wanted)
            record_change("placement change pool", name, before=told.before, after=wanted)
        elif told.before is None:
            record_change("placement open pool", name, after=wanted)
        return PlacementPool(self._link, self._heartbeat, wanted, factor)

    def pool_or_whole(self, name: str, quota: Mapping[str, Any] | None = None, *, reuse: bool = True) -> PlacementPool:
        """Return a pool; one that is not open is opened with `quota`, or with all CPUs, GPUs and memory of the cluster.

        Called for a pool opened with all, it enlarges that pool if the cluster has grown, as nodes rejoin a restarted
        head one by one. Without `reuse` no group of a pool opened here outlives its work, so nothing keeps a GPU when
        the process that opened the pool is killed.
        """
        known = next((each for each in self.pools() if each.name == name), None)
        if known is not None and not known.is_whole:
            return self.pool(name)
        if known is None and quota is not None:
            return self.pool(name, quota=quota, reuse=reuse)
        has: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        whole = amounts(has.get("CPU", 0), has.get("GPU", 0), int(has.get("memory", 0)))
        if known is not None and whole.fits(known.quota):
            return self.pool(name)
        reuse = reuse if known is None else known.reuse
        return self.pool(name, quota=whole, reuse=reuse, is_whole=True, change=True)

    def close_pool(self, name: str) -> None:
        """Withdraw the work of a pool and remove its groups."""
        self._link.ask("close_pool", name)
        record_change("placement close pool", name, before="open", after="closed")

    def remove_group(self, group_id: str) -> bool:
        """Remove a dynamic group as soon as nothing holds it; return whether there is one. Reserved groups stay."""
        return bool(self._link.ask("remove_group", group_id))

    def pools(self) -> tuple[Pool, ...]:
        """Return the open pools."""
        return tuple(self._link.ask("pools"))

    def work(self, request_id: str, *, take_over: bool = False) -> PlacedWork:
        """Return submitted work of any driver by its id.

        With `take_over` it passes to this driver, whose heartbeats keep it alive from now on.

        Raises:
            NotFoundError: it is not known.
        """
        view: WorkView = self._link.ask("view", request_id)
        if take_over:
            self._link.ask("hand_over", (request_id,), self.driver)
        if view.stage.has_ended:
            self._heartbeat.take(view)
        elif view.holder != self.driver and not take_over:
            self._heartbeat.watch(request_id)
        return PlacedWork(self._link, self._heartbeat, request_id)

    def complete(self, request_id: str) -> ReleaseOutcome:
        """Take back what a request holds; see `PlacedWork.complete`."""
        outcome: ReleaseOutcome = self._link.ask("complete", request_id)
        return outcome

    def cancel(self, request_id: str, why: str = "cancelled") -> bool:
        """End a request of any driver; see `PlacedWork.cancel`."""
        return bool(self._link.ask("withdraw", request_id, why))

    def why(self, request_id: str) -> Any:
        """Return what a request is waiting for, as `Why`."""
        return self._link.ask("why", request_id)

    def usage(self) -> tuple[PoolUsage, ...]:
        """Return how much of each pool's quota is in use, by what, and which requests wait although a group is free."""
        return tuple(self._link.ask("usage"))

    def set_rules(self, rules: PreemptionRules) -> None:
        """Apply other preemption rules to all pools."""
        before = self.rules()
        self._link.ask("set_rules", rules)
        if before != rules:
            record_change("placement set rules", self.connection.address, before=before, after=rules)

    def rules(self) -> PreemptionRules:
        """Return the rules in force."""
        rules: PreemptionRules = self._link.ask("rules")
        return rules

    def nodes(self) -> tuple[NodeView, ...]:
        """Return the living nodes: what each has, and how much of it is taken by anything but the ledger's groups."""
        return tuple(self._link.ask("nodes"))

    def requests(self, pool: str | None = None) -> tuple[WorkView, ...]:
        """Return the requests of a pool or of all, including those that ended within the last hour."""
        return tuple(self._link.ask("requests", pool))

    def groups(self, pool: str | None = None) -> tuple[GroupView, ...]:
        """Return the placement groups of a pool or of all."""
        return tuple(self._link.ask("groups", pool))

    def events(self, since: int = 0) -> tuple[Told, ...]:
        """Return what happened after event number `since`; the last ten thousand are kept."""
        return tuple(self._link.ask("events", since))

    def stats(self) -> dict[str, Any]:
        """Return preemption counters, under ScheduleMesh's keys."""
        stats: dict[str, Any] = self._link.ask("stats")
        return stats

    def pool_stats(self, pool: str | None = None) -> dict[str, Any]:
        """Return group counters, under ScheduleMesh's keys; those of all pools under `pools`."""
        stats: dict[str, Any] = self._link.ask("pool_stats", pool)
        return stats

    def about(self) -> dict[str, Any]:
        """Return the ledger's generation, journal, process and node."""
        about: dict[str, Any] = self._link.ask("about")
        return about

    def audit(self, *, fix: bool = False) -> tuple[Difference, ...]:
        """Return how ledger, journal and Ray differ; `fix` removes our groups and actors that the ledger lacks."""
        return tuple(self._link.ask("audit", fix))

    def close(self, *, keep_work: bool | None = None, why: str = "its driver ended") -> None:
        """Leave the cluster; legal twice. Open requests are withdrawn, with `why` as the reason, or kept for others.

        Kept work needs a driver within 15 s (`connect` with the same `driver`), or a ledger whose settings keep it.
        """
        if self._is_closed:
            return
        self._is_closed = True
        atexit.unregister(self.close)
        try:
            if not (self._keep_work if keep_work is None else keep_work):
                self._link.ask("withdraw_all", self.driver, why, patience_s=_BRIEFLY_S)
        except HeadgateError:
            # The ledger does not answer: once it is back, it will notice that this driver's heartbeats have stopped.
            pass
        finally:
            self._heartbeat.close()
            self._leave()

    def shutdown(self) -> None:
        """Remove everything of ours, of all drivers, from the cluster: work, groups, hosts, and the ledger itself."""
        self._is_closed = True
        atexit.unregister(self.close)
        try:
            self._heartbeat.close()  # first: its next call would go to a ledger that has ended
            self._link.ask("end")
            self._link.kill()
            record_change("placement down", self.connection.address, after="all work and groups are removed")
        finally:
            self._leave()

    def _leave(self) -> None:
        if self.connection.found is not Found.ATTACHED and self._link.has_session:
            ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        is_terminated = isinstance(error, SystemExit) and isinstance(error.code, int) and error.code in _TERMINATED
        by = "SIGTERM" if is_terminated else "Ctrl-C" if isinstance(error, KeyboardInterrupt) else ""
        self.close(why=f"{by} ended its driver" if by else "its driver ended")
