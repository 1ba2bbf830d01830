"""Which job gets which policy server: the jobs ahead on each server, and the lines of waiting jobs.

Workers load a job's simulator before they reserve a server, so jobs should be handed out for the servers that will be
idle soonest. Each job in progress is counted on one server that serves it: the one that it holds, else the one that it
will probably get. A lane's load is the smallest count among the open servers that serve it; among lanes of equal load,
the team that uses the smaller share of its pool is next. With one kind of server this is the legacy protocol's rule,
jobs in progress per server; with constraints it also keeps a server busy that only few tasks may use.

A free server goes to the longest waiter in line that it serves.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import NamedTuple

from headgate.jobqueue.job import Job, Lane
from headgate.jobqueue.outcomes import LeaseRef
from headgate.jobqueue.resource import Resource, ResourceSpec, ResourceState


class Loads:
    """Servers by pool, and the jobs counted on each; owned by the ledger.

    Invariants: the count of a server is the number of jobs assumed to be on it; `_least` caches results of `of`.
    """

    def __init__(self) -> None:
        self._servers: dict[str, Resource] = {}
        self._pools: dict[str, dict[str, Resource]] = {}
        self._ahead: dict[str, int] = {}
        self._assumed: dict[str, str] = {}
        self._running: Counter[tuple[str, str]] = Counter()
        self._open: dict[str, int] = {}
        self._serving: dict[tuple[str, str], tuple[list[str], str]] = {}
        self._kinds: dict[str, tuple[list[ResourceSpec], dict[tuple[bool, ...], tuple[list[str], str]]]] = {}
        self._least: dict[str, dict[str, int | None]] = {}
        self.changed: set[str] = set()
        """Pools with servers that changed what they serve since `LaneGroups` last looked, which empties it."""

    def put(self, resource: Resource) -> None:
        """Record a new or changed server."""
        before = self._servers.get(resource.resource_id)
        self._servers[resource.resource_id] = resource
        for spec in resource.specs:
            self._pools.setdefault(spec.pool, {})[resource.resource_id] = resource
        self._ahead.setdefault(resource.resource_id, 0)
        if before is None or (before.state, before.specs) != (resource.state, resource.specs):
            self._forget_serving(resource)

    def remove(self, resource: Resource) -> None:
        """Forget a server; jobs counted on it are counted nowhere until they reserve another one."""
        for spec in resource.specs:
            del self._pools[spec.pool][resource.resource_id]
        del self._servers[resource.resource_id], self._ahead[resource.resource_id]
        self._assumed = {job: server for job, server in self._assumed.items() if server != resource.resource_id}
        self._forget_serving(resource)

    def pool(self, name: str) -> Iterator[Resource]:
        """Iterate over the servers of a pool."""
        return iter(self._pools.get(name, {}).values())

    def pools(self) -> Sequence[str]:
        """Return the pools that have, or had, servers."""
        return list(self._pools)

    def of(self, lane: Lane) -> int | None:
        """Return how many jobs are ahead of a lane's next one, or None when no open server serves it."""
        if not lane.pool:
            return self._running[lane.team, ""]
        # Cached: each claim asks for every group of lanes, but changes the answer only for those of one pool.
        least = self._least.setdefault(lane.pool, {})
        try:
            return least[lane.task]
        except KeyError:
            ahead = [self._ahead[server] for server in self.serving(lane.pool, lane.task)]
            found = least[lane.task] = min(ahead, default=None)
            return found

    def group_of(self, lane: Lane) -> Lane | None:
        """Return the name of a lane's group (see `LaneGroups`), or None when no open server serves it."""
        if not lane.pool:
            return Lane(lane.team, "", "")
        servers, task = self._served(lane.pool, lane.task)
        return Lane(lane.team, lane.pool, task) if servers else None

    def share(self, team: str, pool: str) -> float:
        """Return how many jobs of a team are in progress for each open server of a pool."""
        count = self._open.get(pool)
        if count is None:
            count = sum(resource.state is ResourceState.OPEN for resource in self.pool(pool))
            self._open[pool] = count
        return self._running[team, pool] / max(count, 1)

    def serving(self, pool: str, task: str) -> list[str]:
        """Return the open servers of a pool that serve a task, by id."""
        return self._served(pool, task)[0]

    def _served(self, pool: str, task: str) -> tuple[list[str], str]:
        """Return the open servers that serve a task, and one task for all that the same servers serve."""
        found = self._serving.get((pool, task))
        if found is None:
            if pool not in self._kinds:
                specs = (one.spec_in(pool) for one in self.pool(pool) if one.state is ResourceState.OPEN)
                rules = {(one.compatible_task, one.not_compatible_task): one for one in specs if one is not None}
                self._kinds[pool] = list(rules.values()), {}  # few rules, however many servers there are
            rules_of_pool, kinds = self._kinds[pool]
            kind = tuple(rule.serves(task) for rule in rules_of_pool)
            if kind not in kinds:
                servers = (one for one in self.pool(pool) if one.state is ResourceState.OPEN and one.serves(pool, task))
                kinds[kind] = [one.resource_id for one in servers], task
            found = self._serving[pool, task] = kinds[kind]
        return found

    def started(self, job: Job) -> None:
        """Count a job that was claimed."""
        spec = job.spec
        self._running[spec.team, spec.pool] += 1
        serving = self.serving(spec.pool, spec.task)
        if serving:
            self._assume(job.job_id, min(serving, key=self._ahead.__getitem__))

    def reserved(self, job_id: str, resource_id: str) -> None:
        """Count a job on the server that it actually got."""
        self._uncount(job_id)
        self._assume(job_id, resource_id)

    def ended(self, job: Job) -> None:
        """Stop counting a job."""
        self._running[job.spec.team, job.spec.pool] -= 1
        self._uncount(job.job_id)

    def _assume(self, job_id: str, resource_id: str) -> None:
        self._assumed[job_id] = resource_id
        self._count(resource_id, 1)

    def _uncount(self, job_id: str) -> None:
        resource_id = self._assumed.pop(job_id, None)
        if resource_id is not None:
            self._count(resource_id, -1)

    def _count(self, resource_id: str, number: int) -> None:
        self._ahead[resource_id] += number
        for spec in self._servers[resource_id].specs:
            self._least.pop(spec.pool, None)

    def _forget_serving(self, resource: Resource) -> None:
        pools = {spec.pool for spec in resource.specs}
        self.changed |= pools
        self._serving = {key: found for key, found in self._serving.items() if key[0] not in pools}
        for pool in pools:
            self._least.pop(pool, None)
            self._open.pop(pool, None)
            self._kinds.pop(pool, None)

    def validate(self) -> None:
        """Assert the invariants."""
        for pool, least in self._least.items():
            for task, kept in least.items():
                assert kept == min((self._ahead[one] for one in self.serving(pool, task)), default=None), (pool, task)
        for resource_id, ahead in self._ahead.items():
            assert ahead == sum(server == resource_id for server in self._assumed.values()), resource_id
        for pool, count in self._open.items():
            assert count == sum(resource.state is ResourceState.OPEN for resource in self.pool(pool)), pool
        assert all(number >= 0 for number in self._running.values())


@dataclass(frozen=True, slots=True)
class Waiter:
    """A job that waits for a server.

    Attributes:
        since: when the job's claim first asked (monotonic seconds); asking again keeps the place.
        task: servers accept or refuse the job by it.
        lease_s: of the reservation that it will get.
    """

    since: float
    ticket: int
    ref: LeaseRef
    pool: str
    task: str
    lease_s: float


class Match(NamedTuple):
    """A waiter and the free server that it gets."""

    waiter: Waiter
    resource: Resource


def _order(waiter: Waiter) -> tuple[float, int]:
    return waiter.since, waiter.ticket


def best(free: Iterable[Resource], pool: str, task: str, wanted: Collection[tuple[str, str]]) -> Resource | None:
    """Return the free server that a job of a pool and `task` should take, or None when none serves it.

    Prefers the one that serves the fewest of `wanted`, other jobs' pools and tasks, so that servers which serve many
    stay free for the others; among equals the one with the lowest index.
    """
    fitting = [resource for resource in free if resource.serves(pool, task)]
    return min(
        fitting,
        key=lambda resource: (sum(resource.serves(*one) for one in wanted), resource.index, resource.resource_id),
        default=None,
    )


class WaitingLines:
    """One line per pool; owned by the ledger.

    Invariants: a job is in at most one line, once; lines are sorted by how long their waiters have waited.
    """

    def __init__(self) -> None:
        self._lines: dict[str, list[Waiter]] = {}
        self._places: dict[int, Waiter] = {}
        self._tickets: dict[str, int] = {}

    def __len__(self) -> int:
        """Return how many jobs wait."""
        return len(self._places)

    def line(self, pool: str) -> Sequence[Waiter]:
        """Return the waiters of a pool, the longest waiting first."""
        return self._lines.get(pool, ())

    def join(self, waiter: Waiter) -> int | None:
        """Put a waiter in line; return the ticket of the same job's earlier waiter, which it replaces, if any."""
        replaced = self.leave_job(waiter.ref.job_id)
        insort(self._lines.setdefault(waiter.pool, []), waiter, key=_order)
        self._places[waiter.ticket] = waiter
        self._tickets[waiter.ref.job_id] = waiter.ticket
        return replaced

    def leave(self, ticket: int) -> bool:
        """Take a waiter out of its line; return whether it was in one."""
        waiter = self._places.pop(ticket, None)
        if waiter is None:
            return False
        line = self._lines[waiter.pool]
        del line[bisect_left(line, _order(waiter), key=_order)]
        del self._tickets[waiter.ref.job_id]
        return True

    def leave_job(self, job_id: str) -> int | None:
        """Take a job out of its line; return its ticket, if it was in one."""
        ticket = self._tickets.get(job_id)
        if ticket is not None:
            self.leave(ticket)
        return ticket

    def matches(self, pools: Iterable[str], free: Iterable[Resource]) -> Iterator[Match]:
        """Yield which waiter gets which free server of the pools, out of line from then on; no fitting pair is left.

        A server that several of the pools name goes to the longest waiter of all of them.
        """
        left = {resource.resource_id: resource for resource in free}
        line = list(merge(*map(self.line, pools), key=_order))
        wanted = {(waiter.pool, waiter.task) for waiter in line} if len(left) > 1 else set()  # one needs no ranking
        unserved: set[tuple[str, str]] = set()
        for waiter in line:
            if not left:
                return
            if (waiter.pool, waiter.task) in unserved:
                continue
            resource = best(left.values(), waiter.pool, waiter.task, wanted)
            if resource is None:
                unserved.add((waiter.pool, waiter.task))
            else:
                del left[resource.resource_id]
                self.leave(waiter.ticket)
                yield Match(waiter, resource)

    def validate(self) -> None:
        """Assert the invariants."""
        for line in self._lines.values():
            assert line == sorted(line, key=_order)
        assert sum(map(len, self._lines.values())) == len(self._places) == len(self._tickets)
