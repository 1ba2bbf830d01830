"""Policy servers of `/v1`: operators register, drain and remove them, jobs reserve them; and statistics."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from time import perf_counter
from typing import Any

from starlette.requests import Request

from headgate.jobqueue.errors import StaleLeaseError, TokenEndedError
from headgate.jobqueue.job import JobState, Lane
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.outcomes import Instant, NoneFree, Reserved, ReserveOutcome, Stale, Unknown
from headgate.jobqueue.resource import Resource, ResourceState
from headgate.jobqueue.server.access import check_pool, is_hidden, sees
from headgate.jobqueue.server.answers import Answer, ok, problem_of
from headgate.jobqueue.server.documents import ReleaseOut, RemovedOut, RemoveQuery, ResourcePath
from headgate.jobqueue.server.health_checks import check_addresses
from headgate.jobqueue.server.route import Call, audit
from headgate.jobqueue.server.service import Service
from headgate.jobqueue.server.v1_claims import refused
from headgate.jobqueue.wire import ReasonIn, ReleaseIn, ReservationOut, ReserveIn, ReserveOut
from headgate.jobqueue.wire_servers import LaneOut, PoolOut, ResourceOut, ResourcesIn, ResourcesOut, StatisticsOut
from headgate.net.authority import Caller

_log = logging.getLogger("headgate.jobqueue")


async def register(call: Call, body: ResourcesIn) -> Answer[ResourcesOut]:
    """Register policy servers, all or none; one whose address is registered already stays one server."""
    specs = [resource.spec for resource in body.resources]
    check_addresses(specs, allow_link_local=call.service.settings.allow_link_local)
    changed = await call.change(
        lambda ledger, at: {one.resource_id: one for one in ledger.add_resources(specs, at)},
        lambda found: ok(ResourcesOut.model_construct(resources=list(map(ResourceOut.of, found.values())))),
    )
    if servers := changed.outcome:
        await call.changed("register", ", ".join(servers), after=f"policy servers: {len(servers)}")
        _log.info("Policy servers registered: %d", len(servers))
    return changed.answer


async def list_resources(call: Call) -> Answer[ResourcesOut]:
    """Return policy servers; tokens bound to pools see those of these pools."""
    resources = await call.look(lambda ledger, _: resources_of(ledger, call.caller))
    return ok(ResourcesOut.model_construct(resources=resources))


def resources_of(ledger: Ledger, caller: Caller) -> list[ResourceOut]:
    """Return the policy servers that a caller may see, by pool and index."""
    pools, found = caller.pools, []
    for one in sorted(ledger.resources().values(), key=lambda one: (one.spec.pool, one.index)):
        if pools is None or any(spec.pool in pools for spec in one.specs):
            shown = ResourceOut.of(one, pools)
            if caller.teams is not None and one.job_id and not sees(caller, ledger.job(one.job_id)):
                shown = shown.model_copy(update={"job_id": None, "worker": None})
            found.append(shown)
    return found


async def drain(call: Call, path: ResourcePath, body: ReasonIn) -> Answer[ResourceOut]:
    """Stop handing a server out; a job that uses it keeps it."""
    return await _change(call, path.resource_id, ResourceState.DRAINING, body.reason)


async def open_(call: Call, path: ResourcePath, body: ReasonIn) -> Answer[ResourceOut]:
    """Hand a server out again."""
    return await _change(call, path.resource_id, ResourceState.OPEN, body.reason)


async def _change(call: Call, resource_id: str, state: ResourceState, reason: str) -> Answer[ResourceOut]:
    def operation(ledger: Ledger, at: Instant) -> tuple[Resource, Resource]:
        before = ledger.servers.resource(resource_id)
        return before, ledger.change_resource(resource_id, state, at, reason)

    changed = await call.change(operation, lambda servers: ok(ResourceOut.of(servers[1])))
    if changed.outcome is not None:
        before, after = (f"{one.state.value}: {one.note}" for one in changed.outcome)
        await call.changed("change server", resource_id, before=before, after=after)
        _log.info("Resource %s is %s now%s", resource_id, state.value, f": {reason}" if reason else "")
    return changed.answer


async def remove(call: Call, path: ResourcePath, query: RemoveQuery) -> Answer[RemovedOut]:
    """Remove a server; with `force`, even while a job uses it."""
    resource_id = path.resource_id

    changed = await call.change(
        lambda ledger, at: ledger.remove_resource(resource_id, at, even_if_held=query.force),
        lambda _: ok(RemovedOut(removed=resource_id)),
    )
    await call.changed("remove server", resource_id, after="removed by force" if query.force else "removed")
    _log.info("Resource %s removed", resource_id)
    return changed.answer


async def statistics(call: Call) -> Answer[StatisticsOut]:
    """Return an overview of the queue; tokens bound to teams see their part of it."""
    found, lanes = await call.look(lambda ledger, _: _statistics(ledger, call.caller.teams, call.caller.pools))
    # Not on the writer: with ten thousand lanes, this takes longer than all else.
    found.lanes = await asyncio.to_thread(lambda: [_lane(*lane) for lane in sorted(lanes)])
    return ok(found)


def _statistics(
    ledger: Ledger, teams: frozenset[str] | None, usable: frozenset[str] | None
) -> tuple[StatisticsOut, list[tuple[Lane, bool, dict[JobState, int]]]]:
    """Return an overview limited to `teams` and the servers of `usable` pools (None: all), and its lanes."""
    lanes = {lane: counts for lane, counts in ledger.lane_counts().items() if teams is None or lane.team in teams}
    pools = {lane.pool for lane in lanes if lane.pool}
    if teams is None:
        pools |= {spec.pool for resource in ledger.resources().values() for spec in resource.specs}
    if usable is not None:
        pools &= usable
    found = StatisticsOut.model_construct(
        jobs={state: sum(counts[state] for counts in lanes.values()) for state in JobState},
        withdrawn=ledger.withdrawn(teams),
        workers=len({job.worker for job in ledger.running() if teams is None or job.spec.team in teams}),
        waiting_claims=ledger.waiting_claims_of(teams),
        pools=_pools(ledger, sorted(pools)),
        lanes=[],
    )
    return found, [(lane, ledger.servers.loads.of(lane) is not None, counts) for lane, counts in lanes.items()]


def _lane(lane: Lane, is_served: bool, counts: dict[JobState, int]) -> LaneOut:
    jobs: dict[str, Any] = {state.value: number for state, number in counts.items()}
    return LaneOut.model_construct(**lane._asdict(), **jobs, is_served=is_served)


def _pools(ledger: Ledger, names: list[str]) -> list[PoolOut]:
    servers: dict[str, Counter[str]] = {name: Counter() for name in names}
    for resource in ledger.resources().values():
        for spec in resource.specs:
            if spec.pool in servers:
                servers[spec.pool].update(("servers", resource.use))
    uses: dict[str, Any] = dict.fromkeys(("servers", "busy", "free", "draining", "down"), 0)
    return [
        PoolOut.model_construct(pool=name, waiting=len(ledger.servers.lines.line(name)), **(uses | number))
        for name, number in servers.items()
    ]


async def reserve(call: Call, body: ReserveIn) -> Answer[ReserveOut]:
    """Give a claim a policy server that serves its task; with `wait_s`, as soon as one is free."""
    ref = body.ref
    started = perf_counter()

    def ask(ledger: Ledger, at: Instant, *, wait: bool) -> ReserveOutcome:
        if is_hidden(ledger, call.caller, ref.job_id):
            return Unknown(ref.job_id)
        if call.caller.pools is not None and (job := ledger.job(ref.job_id)) is not None:
            check_pool(call.caller, job.spec)
        return ledger.reserve(ref, at, wait=wait)

    writer = call.service.writer
    outcome: object = None
    if body.wait_s:
        standing = writer.wait_for(lambda ledger, at: ask(ledger, at, wait=True), body.wait_s)
        outcome = await call.service.long_polls.stand(standing, call.request)
        if isinstance(outcome, Reserved):
            await kept(call.service, outcome, call.request)
    if outcome is None:
        outcome = await writer.do(lambda ledger, at: ask(ledger, at, wait=False))
    return _reserved(call, outcome, perf_counter() - started)


async def kept(service: Service, reserved: Reserved, request: Request) -> None:
    """Check that a request that has waited may still have its server; otherwise the server goes back.

    Raises:
        TokenEndedError: its token has ended meanwhile.
    """
    try:
        await service.check_still_let_in(request)
    except TokenEndedError:
        await service.writer.do(lambda ledger, at: ledger.servers.take_back(reserved.resource, at))
        raise


def _reserved(call: Call, outcome: object, waited_s: float) -> Answer[ReserveOut]:
    match outcome:
        case Reserved(resource, spec):
            call.service.metrics.reserved(waited_s)
            _log.info(
                "Resource %s[%s] allocated to %s for job %s",
                spec.pool, resource.index, resource.worker, resource.job_id,
            )  # fmt: skip
            audit(call.caller, f"reserved {resource.resource_id} for job {resource.job_id!r}")
            return ok(ReserveOut.model_construct(reservation=ReservationOut.of(resource, spec)))
        case NoneFree(ahead, serving):
            return ok(ReserveOut.model_construct(reservation=None, ahead=ahead, serving=serving))
        case Stale() | Unknown():
            return refused(outcome)
        case _:
            raise TypeError(f"a reservation came out as {outcome!r}")


async def release(call: Call, body: ReleaseIn) -> Answer[ReleaseOut]:
    """Release a policy server; naming a reservation that is not the running one is an error and changes nothing."""

    def operation(ledger: Ledger, at: Instant) -> bool:
        resource = ledger.servers.named(body.ref)
        is_theirs = resource is not None and not is_hidden(ledger, call.caller, resource.job_id)
        return is_theirs and ledger.release(body.ref, at)

    def answered(has_released: bool) -> Answer[ReleaseOut]:
        if has_released:
            return ok(ReleaseOut(resource_id=body.resource_id))
        message = f"reservation {body.epoch} of policy server {body.resource_id!r} is not the running one"
        next_step = "Nothing needs to be released: the server was freed before, or belongs to another job."
        return problem_of(StaleLeaseError(message, next_step=next_step))

    changed = await call.change(operation, answered)
    if changed.outcome:
        audit(call.caller, f"released {body.resource_id}")
        _log.info("Resource %s freed (released by worker)", body.resource_id)
    return changed.answer
