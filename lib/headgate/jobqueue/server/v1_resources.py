"""Policy servers and figures of `/v1`: operators register, drain and remove servers, and see how the queue stands."""

from __future__ import annotations

import logging
from collections import Counter

from headgate.jobqueue.job import JobState, Lane
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.outcomes import Instant
from headgate.jobqueue.resource import Resource, ResourceState
from headgate.jobqueue.server.access import sees
from headgate.jobqueue.server.addresses import check_addresses
from headgate.jobqueue.server.answers import Answer, ok
from headgate.jobqueue.server.documents import RemovedOut
from headgate.jobqueue.server.route import Call
from headgate.jobqueue.wire import (
    LaneOut,
    PoolOut,
    ReasonIn,
    ResourceOut,
    ResourcesIn,
    ResourcesOut,
    StatisticsOut,
)
from headgate.net.authority import Caller

_log = logging.getLogger("headgate.jobqueue")


async def register(call: Call) -> Answer:
    """Register policy servers, all or none; one whose address is there already stays one server."""
    body: ResourcesIn = call.body
    specs = [resource.spec for resource in body.resources]
    check_addresses(specs, allow_link_local=call.service.settings.allow_link_local)
    said: list[Resource] = []

    def operation(ledger: Ledger, at: Instant) -> Answer:
        said.extend({one.resource_id: one for one in ledger.add_resources(specs, at)}.values())
        return _listed(said)

    answer = await call.change(operation)
    if said:
        call.changed("register", ", ".join(one.resource_id for one in said), after=f"{len(said)} policy servers")
        _log.info("%d policy servers registered", len(said))
    return answer


async def list_resources(call: Call) -> Answer:
    """Return policy servers; tokens bound to pools see those of these pools."""
    resources = await call.look(lambda ledger, _: resources_of(ledger, call.caller))
    return ok(ResourcesOut.model_construct(resources=resources))


def resources_of(ledger: Ledger, caller: Caller) -> list[ResourceOut]:
    """Return the policy servers that a caller may see, by pool and index."""
    pools = caller.pools
    shown = [
        one for one in ledger.resources().values() if pools is None or any(spec.pool in pools for spec in one.specs)
    ]
    return [_seen(ledger, caller, one, pools) for one in sorted(shown, key=_place)]


def _seen(ledger: Ledger, caller: Caller, resource: Resource, pools: frozenset[str] | None) -> ResourceOut:
    shown = ResourceOut.of(resource, pools)
    if caller.teams is not None and resource.job_id and not sees(caller, ledger.job(resource.job_id)):
        return shown.model_copy(update={"job_id": None, "worker": None})
    return shown


def _place(resource: Resource) -> tuple[str, int]:
    return resource.spec.pool, resource.index


def _listed(resources: list[Resource]) -> Answer:
    return ok(ResourcesOut.model_construct(resources=[ResourceOut.of(resource) for resource in resources]))


async def drain(call: Call) -> Answer:
    """Hand a server out no more; a job that uses it keeps it."""
    return await _change(call, ResourceState.DRAINING)


async def open_(call: Call) -> Answer:
    """Hand a server out again."""
    return await _change(call, ResourceState.OPEN)


async def _change(call: Call, state: ResourceState) -> Answer:
    body: ReasonIn = call.body
    resource_id = call.path.resource_id
    said: list[Resource] = []

    def operation(ledger: Ledger, at: Instant) -> Answer:
        said.append(ledger.servers.resource(resource_id))
        said.append(ledger.change_resource(resource_id, state, at, body.reason))
        return ok(ResourceOut.of(said[-1]))

    answer = await call.change(operation)
    if said:
        before, after = (f"{one.state.value}: {one.note}" for one in said)
        call.changed("change server", resource_id, before=before, after=after)
        _log.info("Resource %s is %s now%s", resource_id, state.value, f": {body.reason}" if body.reason else "")
    return answer


async def remove(call: Call) -> Answer:
    """Take a server out; by force, also from the job that uses it."""
    resource_id = call.path.resource_id
    force: bool = call.query.force

    def operation(ledger: Ledger, at: Instant) -> Answer:
        ledger.remove_resource(resource_id, at, even_if_held=force)
        return ok(RemovedOut(removed=resource_id))

    answer = await call.change(operation)
    call.changed("remove server", resource_id, after="removed by force" if force else "removed")
    _log.info("Resource %s removed", resource_id)
    return answer


async def statistics(call: Call) -> Answer:
    """Return the queue at a glance; tokens bound to teams see their part of it."""
    return ok(await call.look(lambda ledger, _: statistics_of(ledger, call.caller.teams, call.caller.pools)))


def statistics_of(
    ledger: Ledger, teams: frozenset[str] | None = None, usable: frozenset[str] | None = None
) -> StatisticsOut:
    """Return the queue at a glance, as far as it concerns `teams` and the servers of `usable` pools (None: all)."""
    lanes = {lane: counts for lane, counts in ledger.lane_counts().items() if teams is None or lane.team in teams}
    jobs: Counter[JobState] = Counter()
    for counts in lanes.values():
        jobs.update(counts)
    pools = {lane.pool for lane in lanes if lane.pool}
    if teams is None:
        pools |= {spec.pool for resource in ledger.resources().values() for spec in resource.specs}
    if usable is not None:
        pools &= usable
    return StatisticsOut.model_construct(
        jobs={state: jobs[state] for state in JobState},
        workers=_workers(ledger, teams),
        waiting_claims=ledger.waiting_claims_of(teams),
        pools=_pools(ledger, sorted(pools)),
        lanes=[_lane(ledger, lane, lanes[lane]) for lane in sorted(lanes)],
    )


def _workers(ledger: Ledger, teams: frozenset[str] | None) -> int:
    if teams is None:
        return ledger.claims.workers
    return len({job.worker for job in ledger.running() if job.spec.team in teams})


def _lane(ledger: Ledger, lane: Lane, counts: dict[JobState, int]) -> LaneOut:
    return LaneOut.model_construct(
        team=lane.team,
        pool=lane.pool,
        task=lane.task,
        pending=counts.get(JobState.PENDING, 0),
        in_progress=counts.get(JobState.IN_PROGRESS, 0),
        done=counts.get(JobState.DONE, 0),
        dead=counts.get(JobState.DEAD, 0),
        is_served=ledger.servers.loads.of(lane) is not None,
    )


def _pools(ledger: Ledger, names: list[str]) -> list[PoolOut]:
    servers: dict[str, Counter[str]] = {name: Counter() for name in names}
    for resource in ledger.resources().values():
        state = resource.state.value if resource.state is not ResourceState.OPEN else "free"
        for spec in resource.specs:
            if spec.pool in servers:
                servers[spec.pool].update(("servers", state if resource.is_free else "busy"))
    return [
        PoolOut.model_construct(
            pool=name,
            servers=number["servers"],
            busy=number["busy"],
            free=number["free"],
            draining=number["draining"],
            down=number["down"],
            waiting=len(ledger.servers.lines.line(name)),
        )
        for name, number in servers.items()
    ]
