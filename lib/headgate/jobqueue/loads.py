"""How many jobs each policy server has ahead of it, and so which jobs should be started next.

Workers load a job's simulator before they reserve a server, so jobs should be handed out for the servers that will be
idle soonest. Each job in progress is counted on one server that serves it: the one that it holds, else the one that it
will probably get. A lane's load is the smallest count among the open servers that serve it; among lanes of equal load,
the team that uses the smaller share of its pool is next. With one kind of server this is the legacy protocol's rule,
jobs in progress per server; with constraints it also feeds the server that only few tasks may use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from headgate.jobqueue.job import Job, Lane
from headgate.jobqueue.resource import Resource, ResourceState


class Loads:
    """Servers by pool, and the jobs counted on each; owned by the ledger.

    Invariants: the count of a server is the number of jobs assumed to be on it; `_least` has what `of` would find.
    """

    def __init__(self) -> None:
        self._servers: dict[str, Resource] = {}
        self._pools: dict[str, dict[str, Resource]] = {}
        self._ahead: dict[str, int] = {}
        self._assumed: dict[str, str] = {}
        self._running: Counter[tuple[str, str]] = Counter()
        self._open: dict[str, int] = {}
        self._serving: dict[tuple[str, str], list[str]] = {}
        self._least: dict[str, dict[str, int | None]] = {}

    def put(self, resource: Resource) -> None:
        """Take note of a new or changed server."""
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
        # Kept: each claim asks for every lane, and changes the answer for those of one pool.
        least = self._least.setdefault(lane.pool, {})
        try:
            return least[lane.task]
        except KeyError:
            ahead = [self._ahead[server] for server in self.serving(lane.pool, lane.task)]
            found = least[lane.task] = min(ahead, default=None)
            return found

    def share(self, team: str, pool: str) -> float:
        """Return how many jobs of a team are in progress for each open server of a pool."""
        count = self._open.get(pool)
        if count is None:
            count = sum(resource.state is ResourceState.OPEN for resource in self.pool(pool))
            self._open[pool] = count
        return self._running[team, pool] / max(count, 1)

    def serving(self, pool: str, task: str) -> list[str]:
        """Return the open servers of a pool that serve a task, by id."""
        found = self._serving.get((pool, task))
        if found is None:
            found = [
                resource.resource_id
                for resource in self.pool(pool)
                if resource.state is ResourceState.OPEN and resource.serves(pool, task)
            ]
            self._serving[pool, task] = found
        return found

    def started(self, job: Job) -> None:
        """Count a job that was claimed."""
        lane = job.spec.lane
        self._running[lane.team, lane.pool] += 1
        serving = self.serving(lane.pool, lane.task)
        if serving:
            self._assume(job.job_id, min(serving, key=self._ahead.__getitem__))

    def reserved(self, job_id: str, resource_id: str) -> None:
        """Count a job on the server that it really got."""
        self._let_go(job_id)
        self._assume(job_id, resource_id)

    def ended(self, job: Job) -> None:
        """Count a job no more."""
        self._running[job.spec.team, job.spec.pool] -= 1
        self._let_go(job.job_id)

    def _assume(self, job_id: str, resource_id: str) -> None:
        self._assumed[job_id] = resource_id
        self._count(resource_id, 1)

    def _let_go(self, job_id: str) -> None:
        resource_id = self._assumed.pop(job_id, None)
        if resource_id is not None:
            self._count(resource_id, -1)

    def _count(self, resource_id: str, number: int) -> None:
        self._ahead[resource_id] += number
        for spec in self._servers[resource_id].specs:
            self._least.pop(spec.pool, None)

    def _forget_serving(self, resource: Resource) -> None:
        pools = {spec.pool for spec in resource.specs}
        self._serving = {key: found for key, found in self._serving.items() if key[0] not in pools}
        for pool in pools:
            self._least.pop(pool, None)
            self._open.pop(pool, None)

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
