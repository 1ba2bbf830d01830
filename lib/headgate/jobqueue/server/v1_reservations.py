"""Reservations of `/v1`: a claimed job gets a policy server, at once or by standing in line."""

from __future__ import annotations

import logging
from time import perf_counter

from headgate.jobqueue.errors import StaleLeaseError
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.outcomes import Instant, NoneFree, Reserved, ReserveOutcome, Stale, Unknown
from headgate.jobqueue.server.access import check_pool, is_hidden, unknown
from headgate.jobqueue.server.answers import Answer, ok, problem_of
from headgate.jobqueue.server.documents import ReleaseOut
from headgate.jobqueue.server.errors import TokenEndedError
from headgate.jobqueue.server.route import Call
from headgate.jobqueue.server.service import Service
from headgate.jobqueue.server.v1_claims import stale
from headgate.jobqueue.wire import ReleaseIn, ReservationOut, ReserveIn, ReserveOut

_log = logging.getLogger("headgate.jobqueue")


async def reserve(call: Call) -> Answer:
    """Give a claim a policy server that serves its task; with `wait_s`, as soon as one is free."""
    body: ReserveIn = call.body
    ref = body.ref
    started = perf_counter()

    def ask(ledger: Ledger, at: Instant, *, wait: bool) -> ReserveOutcome:
        if is_hidden(ledger, call.caller, ref.job_id):
            return Unknown(ref.job_id)
        if call.caller.pools is not None and (job := ledger.job(ref.job_id)) is not None:
            check_pool(call.caller, job.spec)
        return ledger.reserve(ref, at, wait=wait)

    desk = call.service.desk
    outcome: object = None
    if body.wait_s:
        standing = desk.wait_for(lambda ledger, at: ask(ledger, at, wait=True), body.wait_s)
        outcome = await call.service.long_polls.stand(standing, call.receive)
        if isinstance(outcome, Reserved):
            await kept(call.service, outcome, call.token)
    if outcome is None:
        outcome = await desk.do(lambda ledger, at: ask(ledger, at, wait=False))
    return _reserved(call, outcome, perf_counter() - started)


async def kept(service: Service, reserved: Reserved, token: str | None) -> None:
    """Return when whoever stood in line may have the server; it goes back otherwise.

    Raises:
        TokenEndedError: his token has ended meanwhile.
    """
    try:
        await service.check_still_let_in(token)
    except TokenEndedError:
        await service.desk.do(lambda ledger, at: ledger.servers.take_back(reserved.resource, at))
        raise


def _reserved(call: Call, outcome: object, waited_s: float) -> Answer:
    match outcome:
        case Reserved(resource, spec):
            call.service.metrics.reserved(waited_s)
            _log.info(
                "Resource %s[%s] allocated to %s for job %s",
                spec.pool, resource.index, resource.worker, resource.job_id,
            )  # fmt: skip
            call.action = f"reserved {resource.resource_id} for job {resource.job_id!r}"
            return ok(ReserveOut.model_construct(reservation=ReservationOut.of(resource, spec)))
        case NoneFree(ahead, serving):
            return ok(ReserveOut.model_construct(reservation=None, ahead=ahead, serving=serving))
        case Stale(job_id, reason):
            return problem_of(stale(job_id, reason))
        case Unknown(job_id):
            return problem_of(unknown(job_id))
        case _:
            raise TypeError(f"a reservation came out as {outcome!r}")


async def release(call: Call) -> Answer:
    """Give a policy server back; a reservation that is not the running one changes nothing and is told so."""
    body: ReleaseIn = call.body
    said: list[bool] = []

    def operation(ledger: Ledger, at: Instant) -> Answer:
        resource = ledger.servers.named(body.ref)
        is_theirs = resource is not None and not is_hidden(ledger, call.caller, resource.job_id)
        said.append(is_theirs and ledger.release(body.ref, at))
        return ok(ReleaseOut(resource_id=body.resource_id)) if said[-1] else problem_of(_ended(body))

    answer = await call.change(operation)
    if any(said):
        call.action = f"released {body.resource_id}"
        _log.info("Resource %s freed (released by worker)", body.resource_id)
    return answer


def _ended(body: ReleaseIn) -> StaleLeaseError:
    return StaleLeaseError(
        f"reservation {body.epoch} of policy server {body.resource_id!r} is not the running one",
        next_step="Nothing is to be released: the server was freed before, or belongs to another job.",
    )
